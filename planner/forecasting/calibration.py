"""Calibration: quantiles moved until as many forecasts hold as they say.

The quantiles of past errors hold for what follows only where the errors do not change, and say
little as long as there are few of them. So each quantile is moved up when what came was above it,
and down when it was not, by steps that keep the balance at its level (quantile tracking, as in
Angelopoulos, Candes and Tibshirani, NeurIPS'23, section 2.1). Steps shrink as errors
accumulate, whose own quantiles then say more, and what they added fades.
"""

import numpy as np
import numpy.typing as npt

from planner.forecasting.memory import Memory, array, listed

Array = npt.NDArray[np.float64]

FIRST_STEP, SHRINKING = 5.0, 0.75
"""The n-th step is ``FIRST_STEP / n**SHRINKING`` mean errors long."""
FADING = 0.02
"""Part of all earlier steps that is taken back at each.

Of (3, 1/2, 0), (5, 3/4, 0), (10, 1, 0), (3, 1/2, 0.01), (5, 3/4, 0.01), (10, 1, 0.01) and
(5, 3/4, 0.02), each first step, shrinking and fading, this one has the 0.9 quantile hold for 0.90
of the first five minutes of a swing and 0.90 of the hour (0.65 and 0.88 without steps), at the same
loss as without steps on the first day of the tweet stream (others: up to 5 % more)."""
MOST = 3.0
"""No quantile is moved further, in mean errors."""
ERRORS = 30
"""That the mean error is taken over."""
MIDDLE = 0.5
"""The level that stays where it is. Plans for accuracy are made for it, and the first steps are
long: moved, it made plans for loads that did not come (draw 0 of seed 0 of
``tests.bench.simulation.policies --catalog draws``: accuracy 0.911 instead of 0.954, both without a
violation)."""


class Calibration:
    """Moves the quantiles of many rows; all arrays have a row for each."""

    def __init__(self, ahead: int) -> None:
        """Args:
        ahead: forecasts of a row that are open at a time, in columns that are used in turns.
        """
        self._ahead = ahead
        self._levels: tuple[float, ...] = ()
        self._issued = np.zeros((0, ahead, 0))
        """What was said at each level, per second; NaN where nothing was."""
        self._moved = np.zeros((0, 0))
        """In mean errors, shape ``(rows, levels)``."""
        self._made = np.zeros(0)
        self._error = np.zeros(0)
        """Mean absolute error, in the unit of the errors that are told."""

    def track(self, levels: tuple[float, ...]) -> None:
        """Look after these levels from now on; those of before are forgotten."""
        if levels != self._levels:
            self._levels = levels
            self._issued = np.full((len(self._made), self._ahead, len(levels)), np.nan)
            self._moved = np.zeros((len(self._made), len(levels)))

    @property
    def levels(self) -> tuple[float, ...]:
        """Those that are looked after."""
        return self._levels

    def moves(self) -> Array:
        """To add to the errors' quantiles, in their unit, shape ``(rows, levels)``; none in the
        middle."""
        moved = np.where(np.array(self._levels) == MIDDLE, 0.0, self._moved)
        return moved * self._error[:, None]

    def issued(self, column: int, answer: Array) -> None:
        """What was said: rates of shape ``(rows, levels)``, NaN where nothing is known."""
        self._issued[:, column] = answer

    def came(self, column: int, rows: npt.NDArray[np.int64], actual: Array, error: Array) -> None:
        """What came of the forecasts of a column.

        Args:
            rows: of which it is known, shape ``(known,)``.
            actual: their rates, shape ``(known,)``.
            error: of their point forecasts, shape ``(known,)``.
        """
        made = self._made[rows] = self._made[rows] + 1.0
        weight = np.maximum(1.0 / made, 1.0 / ERRORS)
        self._error[rows] += weight * (np.abs(error) - self._error[rows])
        said = self._issued[rows, column]
        missed = (actual[:, None] > said) - (1.0 - np.array(self._levels))
        steps = FIRST_STEP / made[:, None] ** SHRINKING * missed
        moved = (1.0 - FADING) * self._moved[rows] + np.where(np.isnan(said), 0.0, steps)
        self._moved[rows] = np.clip(moved, -MOST, MOST)

    def widen(self, rows: int) -> None:
        """Add rows of which nothing is known yet."""
        levels = len(self._levels)
        self._issued = np.concatenate([self._issued, np.full((rows, self._ahead, levels), np.nan)])
        self._moved = np.concatenate([self._moved, np.zeros((rows, levels))])
        self._made = np.append(self._made, np.zeros(rows))
        self._error = np.append(self._error, np.zeros(rows))

    def keep(self, rows: npt.NDArray[np.int64]) -> None:
        """Forget all but these rows, which take this order."""
        self._issued, self._moved = self._issued[rows], self._moved[rows]
        self._made, self._error = self._made[rows], self._error[rows]

    def memory(self) -> Memory:
        """See ``planner.forecasting.memory.Remembers``."""
        return {
            "levels": list(self._levels),
            "issued": self._issued.copy(),
            "moved": self._moved.copy(),
            "made": self._made.copy(),
            "error": self._error.copy(),
        }

    def recall(self, memory: Memory, shift_s: float) -> None:
        """See ``planner.forecasting.memory.Remembers``."""
        levels = tuple(float(level) for level in listed(memory, "levels"))
        self._made = array(memory, "made", (None,))
        rows = len(self._made)
        self._levels = levels
        self._issued = array(memory, "issued", (rows, self._ahead, len(levels)))
        self._moved = array(memory, "moved", (rows, len(levels)))
        self._error = array(memory, "error", (rows,))
