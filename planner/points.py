"""Points: what the mean rate of the next minute would be if it had to be one number.

Each keeps arrays with a row per key and takes in one bucket's rates at a time. NaN is a bucket
that nobody observed, and the answer as long as nothing is known.
"""

from math import exp

import numpy as np
import numpy.typing as npt

from planner.buckets import Array

Rows = npt.NDArray[np.int64]

MEMORIES_S = (0.0, 30.0, 120.0, 600.0)
"""Time constants to choose from. 0 is the last bucket by itself."""
JUDGED_S = 1_800.0
"""Time constant of the errors by which one is chosen."""
JUMP_DEVIATIONS = 4.0
"""A bucket this far from what was expected is a change of rate, not chance."""


class LastValue:
    """The last bucket's rate."""

    def __init__(self) -> None:
        self._last = np.zeros(0)

    def advance(self, slot: int, rates: Array) -> Array:
        self._last = np.where(np.isnan(rates), self._last, rates)
        return self._last

    def widen(self, rows: int) -> None:
        self._last = np.append(self._last, np.full(rows, np.nan))

    def keep(self, rows: Rows) -> None:
        self._last = self._last[rows]


class Ewma:
    """An exponentially weighted average with a time constant. It begins at the first bucket."""

    def __init__(self, step_s: float, memory_s: float) -> None:
        self._gain = _gain(step_s, memory_s)
        self._level = np.zeros(0)

    def advance(self, slot: int, rates: Array) -> Array:
        moved = self._level + self._gain * (rates - self._level)
        moved = np.where(np.isnan(self._level), rates, moved)
        self._level = np.where(np.isnan(rates), self._level, moved)
        return self._level

    def widen(self, rows: int) -> None:
        self._level = np.append(self._level, np.full(rows, np.nan))

    def keep(self, rows: Rows) -> None:
        self._level = self._level[rows]


class Seasonal:
    """The last bucket's rate, times how the rate went on from here one period ago.

    Without a period of history it is the last bucket's rate. Were it the rate of a period ago by
    itself, every change since then would be its error.
    """

    def __init__(self, step_s: float, horizon_s: float, period_s: float) -> None:
        self._period = round(period_s / step_s)
        self._ahead = max(1, round(horizon_s / step_s))
        if self._period <= self._ahead:
            raise ValueError(f"a period of {period_s} s is within the horizon")
        self._ring = np.zeros((0, self._period), np.float32)
        self._last = np.zeros(0)

    def advance(self, slot: int, rates: Array) -> Array:
        now = slot % self._period
        then = self._ring[:, now].astype(np.float64)
        coming = [(slot + step) % self._period for step in range(1, self._ahead + 1)]
        next_then = self._ring[:, coming].astype(np.float64).mean(axis=1)
        self._ring[:, now] = rates
        self._last = np.where(np.isnan(rates), self._last, rates)
        with np.errstate(divide="ignore", invalid="ignore"):
            growth = next_then / then
        answer: Array = self._last * np.where(np.isfinite(growth), growth, 1.0)
        return answer

    def widen(self, rows: int) -> None:
        fresh = np.full((rows, self._period), np.nan, np.float32)
        self._ring = np.concatenate([self._ring, fresh])
        self._last = np.append(self._last, np.full(rows, np.nan))

    def keep(self, rows: Rows) -> None:
        self._ring, self._last = self._ring[rows], self._last[rows]


class Adaptive:
    """The average, of several time constants, that was nearest to the buckets that followed.

    A busy task is followed bucket by bucket, because its counts say what its rate is; a quiet one
    is averaged for long, because its counts are mostly chance. When a bucket lies further off
    than chance and habit explain, all averages begin anew from it: a flash crowd is followed in
    the bucket after its first.
    """

    def __init__(self, step_s: float) -> None:
        self._gains = np.array([_gain(step_s, memory_s) for memory_s in MEMORIES_S])
        self._forgetting = _gain(step_s, JUDGED_S)
        self._variance = 1.0 / (4.0 * step_s)
        self._levels = np.zeros((0, len(MEMORIES_S)))
        self._errors = np.zeros((0, len(MEMORIES_S)))

    def advance(self, slot: int, rates: Array) -> Array:
        seen = ~np.isnan(rates)
        fresh = seen & np.isnan(self._levels[:, 0])
        self._levels[fresh] = rates[fresh, None]
        rate = rates[seen, None]
        levels, errors = self._levels[seen], self._errors[seen]
        squares = np.square(np.sqrt(rate) - np.sqrt(levels))
        best = errors.argmin(axis=1)[:, None]
        usual = np.take_along_axis(errors, best, axis=1)
        jumped = np.take_along_axis(squares, best, axis=1) > JUMP_DEVIATIONS**2 * usual
        levels = np.where(jumped, rate, levels + self._gains * (rate - levels))
        self._errors[seen] = errors + self._forgetting * (squares - errors)
        self._levels[seen] = levels
        chosen = self._errors.argmin(axis=1)[:, None]
        answer: Array = np.take_along_axis(self._levels, chosen, axis=1)[:, 0]
        return answer

    def widen(self, rows: int) -> None:
        blank = np.full((rows, len(self._gains)), np.nan)
        self._levels = np.concatenate([self._levels, blank])
        # An average over n buckets adds 1/n of their variance to that of the next one.
        start = self._variance * (1.0 + self._gains / (2.0 - self._gains))
        self._errors = np.concatenate([self._errors, np.tile(start, (rows, 1))])

    def keep(self, rows: Rows) -> None:
        self._levels, self._errors = self._levels[rows], self._errors[rows]


def _gain(step_s: float, memory_s: float) -> float:
    """Weight of the newest bucket."""
    return 1.0 - exp(-step_s / memory_s) if memory_s > 0.0 else 1.0
