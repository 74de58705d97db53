"""Forecasters that the product's are compared with: last value, moving average, seasonal."""

import numpy as np

from planner.forecasting.buckets import Array
from planner.forecasting.empirical_quantiles import EmpiricalQuantiles
from planner.forecasting.forecast import HORIZON_S, STEP_S, Forecaster
from planner.forecasting.point_forecasts import Rows, gain

EWMA_S = 10.0
DAY_S = 86_400.0


def last_value(step_s: float = STEP_S, horizon_s: float = HORIZON_S) -> Forecaster[str]:
    """The rate stays as it was in the last bucket."""
    return EmpiricalQuantiles(LastValue(), step_s=step_s, horizon_s=horizon_s)


def ewma(
    memory_s: float = EWMA_S, step_s: float = STEP_S, horizon_s: float = HORIZON_S
) -> Forecaster[str]:
    """The rate stays as it was lately, the last buckets counting most."""
    return EmpiricalQuantiles(Ewma(step_s, memory_s), step_s=step_s, horizon_s=horizon_s)


def seasonal(
    period_s: float = DAY_S, step_s: float = STEP_S, horizon_s: float = HORIZON_S
) -> Forecaster[str]:
    """The rate changes as it did one period ago."""
    point = Seasonal(step_s, horizon_s, period_s)
    return EmpiricalQuantiles(point, step_s=step_s, horizon_s=horizon_s)


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
        self._gain = gain(step_s, memory_s)
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
