"""Point forecasts: the mean rate of the next minute as one number for each key.

A point forecast keeps arrays with a row per key and takes in the rates of one bucket at a time. NaN
stands for a bucket that was not observed, and is the answer as long as nothing is known.
"""

from math import exp
from typing import Protocol

import numpy as np
import numpy.typing as npt

from planner.forecasting.buckets import Array
from planner.forecasting.memory import Memory, array

Rows = npt.NDArray[np.int64]

MEMORIES_S = (0.0, 30.0, 120.0, 600.0)
"""Time constants to choose from. 0 is the last bucket by itself."""
FULL = 1e6
"""Buckets from which on every average is full."""
JUDGED_S = 1_800.0
"""Time constant of the errors by which one is chosen."""
JUMP_DEVIATIONS = 4.0
"""A bucket this far from what was expected, in standard deviations, is a change of rate."""


class PointForecast(Protocol):
    """One number per row for the mean rate over the next buckets. NaN: not known yet."""

    def advance(self, slot: int, rates: Array) -> Array:
        """Take in the rates of one bucket and forecast from its end on.

        Args:
            slot: number of the bucket; each call's is larger than the one before.
            rates: per second, shape ``(rows,)``; NaN where nothing was observed.

        Returns:
            Forecasts of the mean rate per second, shape ``(rows,)``; NaN while nothing is known.
        """
        ...

    def widen(self, rows: int) -> None:
        """Begin so many more rows, behind those that are there."""
        ...

    def keep(self, rows: Rows) -> None:
        """Keep the rows with these numbers, in this order, and forget all others."""
        ...


class Adaptive:
    """Of averages with several time constants, the one nearest to the buckets that followed.

    A busy task is followed bucket by bucket, because its counts say what its rate is. A quiet one
    is averaged for long, because its counts are mostly chance. When a bucket lies further off than
    chance and habit explain, all averages begin anew from it, so that a flash crowd is followed in
    the bucket after its first. As long as there are fewer buckets than an average remembers, it is
    their plain mean: the first of them would else outweigh all others for minutes.

    Args:
        step_s: length of a bucket.
        plain: without it, averages count as full from their first bucket on.
    """

    def __init__(self, step_s: float, *, plain: bool = True) -> None:
        self._plain = plain
        self._gains = np.array([gain(step_s, memory_s) for memory_s in MEMORIES_S])
        self._forgetting = gain(step_s, JUDGED_S)
        self._variance = 1.0 / (4.0 * step_s)
        self._levels = np.zeros((0, len(MEMORIES_S)))
        """The averages, shape ``(rows, len(MEMORIES_S))``."""
        self._errors = np.zeros((0, len(MEMORIES_S)))
        """Their mean squared errors on the root of the rate, in the same shape."""
        self._begun = np.zeros(0)
        """Buckets in the averages since they began, shape ``(rows,)``."""

    def advance(self, slot: int, rates: Array) -> Array:
        """See ``PointForecast``."""
        seen = ~np.isnan(rates)
        fresh = seen & np.isnan(self._levels[:, 0])
        self._levels[fresh] = rates[fresh, None]
        rate = rates[seen, None]
        levels, errors = self._levels[seen], self._errors[seen]
        squares = np.square(np.sqrt(rate) - np.sqrt(levels))
        best = np.arange(len(errors)), errors.argmin(axis=1)
        jumped = squares[best] > JUMP_DEVIATIONS**2 * errors[best]
        begun = np.where(jumped, 1.0, self._begun[seen] + 1.0)
        gains = self._gains
        if self._plain:
            gains = np.maximum(gains, 1.0 / begun[:, None])
        levels = np.where(jumped[:, None], rate, levels + gains * (rate - levels))
        self._begun[seen] = begun
        self._errors[seen] = errors + self._forgetting * (squares - errors)
        self._levels[seen] = levels
        answer: Array = self._levels[np.arange(len(self._levels)), self._errors.argmin(axis=1)]
        return answer

    def widen(self, rows: int) -> None:
        blank = np.full((rows, len(self._gains)), np.nan)
        self._levels = np.concatenate([self._levels, blank])
        # An average over n buckets adds 1/n of their variance to that of the next one.
        start = self._variance * (1.0 + self._gains / (2.0 - self._gains))
        self._errors = np.concatenate([self._errors, np.tile(start, (rows, 1))])
        self._begun = np.append(self._begun, np.zeros(rows))

    def keep(self, rows: Rows) -> None:
        self._levels, self._errors = self._levels[rows], self._errors[rows]
        self._begun = self._begun[rows]

    def memory(self) -> Memory:
        """See ``planner.forecasting.memory.Remembers``."""
        return {
            "levels": self._levels.copy(),
            "errors": self._errors.copy(),
            "begun": self._begun.copy(),
        }

    def recall(self, memory: Memory, shift_s: float) -> None:
        """See ``planner.forecasting.memory.Remembers``."""
        self._levels = array(memory, "levels", (None, len(self._gains)))
        self._errors = array(memory, "errors", self._levels.shape)
        rows = len(self._levels)
        # Before this was counted, averages counted as full from their first bucket on.
        self._begun = array(memory, "begun", (rows,)) if "begun" in memory else np.full(rows, FULL)


def gain(step_s: float, memory_s: float) -> float:
    """Weight of the newest bucket in an average with this time constant; 1 where it is 0 s."""
    return 1.0 - exp(-step_s / memory_s) if memory_s > 0.0 else 1.0
