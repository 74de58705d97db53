"""A point forecast, and around it the empirical quantiles of its own errors.

Errors are taken on the square root of the rate, where a Poisson count has the same variance at
any rate (Anscombe, Biometrika 35, 1948): the mean over a horizon h of arrivals at rate m has
standard deviation sqrt(m / h), its root 1 / (2 sqrt(h)). Real arrivals vary by a share of their
rate on top. So an error counts in units of

    scale(m) = sqrt(1 / h + SHARE^2 m) / 2

and what was learned of errors at one rate holds at another: at a low one they grow with its root,
at a high one with the rate itself.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import exp, sqrt
from statistics import NormalDist
from typing import Generic

import numpy as np
import numpy.typing as npt

from planner.forecasting.buckets import Array, Buckets, KeyT
from planner.forecasting.calibration import Calibration
from planner.forecasting.latest_counts import LatestCounts
from planner.forecasting.memory import Memory, Remembers, array, part
from planner.forecasting.point_forecasts import PointForecast

SHARE = 0.02
"""Of the rate: how much arrivals vary beyond what chance makes of a steady rate."""
WINDOW_S = 21_600.0
"""Errors are remembered for this long."""
IDLE_S = 3_600.0
"""A key of which nothing came for this long is forgotten."""
PRIOR_ERRORS = 30
"""Errors that a new key is taken to have made, before its own replace them one by one."""
PRIOR_SCALES = 3.0
"""Their standard deviation, in scales."""
SURGE_DEVIATIONS = 4.0
"""Counts this far above the forecast are not by chance: the open bucket is believed at once."""
SLUMP_DEVIATIONS = 4.0
"""Counts this far below the forecast are not by chance either, by what is usual for the key."""
LEAP = 1.5
"""Beyond what was seen of late, a forecast leaps no further than this times the present rate."""
_RANK_EVERY = 6


class EmpiricalQuantiles(Generic[KeyT]):
    """A point forecast and the quantiles of the errors it made in the last ``WINDOW_S``.

    An error is known when its horizon is over, and counts from then on.

    Args:
        point: what is forecast as one number; it has no rows yet.
        step_s: length of a bucket.
        horizon_s: how far ahead the mean rate is forecast; rounded to whole buckets.
        guarded: if so, quantiles are moved until as many forecasts hold as they say, none is
            nearer to the point forecast than chance alone would have it, none rises far above what
            was seen of late, and a surge counts at once, before its bucket has ended.
    """

    def __init__(
        self,
        point: PointForecast,
        *,
        step_s: float,
        horizon_s: float,
        guarded: bool = False,
    ) -> None:
        self._point = point
        self._guarded = guarded
        self._buckets: Buckets[KeyT] = Buckets(step_s)
        self._latest = LatestCounts()
        self._ahead = max(1, round(horizon_s / step_s))
        self._horizon_s = self._ahead * step_s
        # Arrays have a row per key, in the order of ``Buckets.rows``. Columns of the next two are
        # the buckets of one horizon, used in turns.
        self._rates = np.full((0, self._ahead), np.nan)
        self._forecasts = np.full((0, self._ahead), np.nan)
        self._newest = np.zeros(0)
        """The point forecast from the end of the last bucket on, shape ``(rows,)``."""
        self._peak = np.zeros(0)
        """The highest rate of a bucket seen, fading, shape ``(rows,)``."""
        self._fading = exp(-step_s / WINDOW_S)
        self._errors = np.full((0, max(PRIOR_ERRORS, int(WINDOW_S / step_s))), np.nan)
        """In units of the scale, shape ``(rows, errors)``; NaN where none was made yet."""
        self._made = np.zeros(0, np.int64)
        """Errors made so far, shape ``(rows,)``."""
        self._calibration = Calibration(self._ahead)
        self._ranked: tuple[tuple[float, ...], int, Array] = ((), 0, np.zeros((0, 0)))

    def observe(self, now_s: float, elapsed_s: float, counts: Mapping[KeyT, float]) -> None:
        """See ``planner.forecasting.forecast.Forecaster``."""
        self._widen(self._buckets.widen(counts))
        for slot, rates in self._buckets.add(now_s, elapsed_s, counts, self._ahead):
            self._advance(slot, rates)
        self._latest.add(elapsed_s, np.array([counts.get(key, 0.0) for key in self._buckets.rows]))
        self._forget()

    def predict(self, quantiles: Sequence[float]) -> Mapping[KeyT, tuple[float, ...]]:
        """See ``planner.forecasting.forecast.Forecaster``."""
        levels = tuple(quantiles)
        if not self._buckets.rows:
            return {}
        if self._guarded:
            self._calibration.track(levels)
        answer = self._answer(self._now(), levels)
        return dict(zip(self._buckets.rows, map(tuple, answer.tolist()), strict=True))

    def _answer(self, point: Array, levels: tuple[float, ...]) -> Array:
        """Quantiles around a point forecast of shape ``(rows,)``, of shape ``(rows, levels)``."""
        scale = self._scale(point)
        errors = self._empirical_quantiles(levels)
        if self._guarded:
            errors = errors + self._calibration.moves()
        root = np.sqrt(point)[:, None] + errors * scale[:, None]
        answer = np.square(np.maximum(root, 0.0))
        if self._guarded:
            answer = np.minimum(answer, self._highest(point)[:, None])
            answer = self._at_least_chance(answer, point, levels)
        ascending: Array = np.maximum.accumulate(answer, axis=1)
        return ascending

    def _highest(self, point: Array) -> Array:
        """The highest rate that a quantile may reach, shape ``(rows,)``.

        While history is short, a surge is a large share of it. Without this limit, a second surge
        on top of the first would be forecast.
        """
        step_s = self._buckets.step_s
        leap = LEAP * point + 3.0 * (np.sqrt(point / step_s) + 1.0 / step_s)
        return np.maximum(self._peak, leap)

    def _at_least_chance(self, answer: Array, point: Array, levels: tuple[float, ...]) -> Array:
        """Quantiles above the middle raised, those below it lowered, to what chance makes.

        Takes ``answer`` of shape ``(rows, levels)`` and ``point`` of shape ``(rows,)``; returns the
        shape of ``answer``.
        """
        normal = _deviations(levels)
        bound = point[:, None] + normal * np.sqrt(point / self._horizon_s)[:, None]
        answer = np.where(normal > 0.0, np.maximum(answer, bound), answer)
        return np.where(normal < 0.0, np.minimum(answer, np.maximum(bound, 0.0)), answer)

    def _now(self) -> Array:
        """The newest point forecast, or what was counted since instead, shape ``(rows,)``.

        That is so where no bucket of a key has ended yet, and in a surge: in the open bucket as a
        whole, or in the latest counts.
        """
        known = ~np.isnan(self._newest)
        usual = np.where(known, self._newest, self._latest.since_begun)
        if not self._guarded:
            return usual
        point = np.where(known & self._slumped(usual), self._most_recent(), usual)
        raised = np.sqrt(usual) * (1 + 2 * SHARE)
        recent_s = np.full(len(point), self._latest.recent_s)
        counted = (
            (self._latest.recent, recent_s),
            (self._buckets.open_rates, self._buckets.seen_s),
        )
        for rates, seen_s in counted:
            chance = SURGE_DEVIATIONS / 2 / np.sqrt(np.maximum(seen_s, 1e-9))
            surge = known & (np.sqrt(rates) > raised + chance)
            point = np.where(surge, np.maximum(rates, np.maximum(point, usual)), point)
        return point

    def _slumped(self, usual: Array) -> npt.NDArray[np.bool_]:
        """Where the latest counts are too far below what is usual to be so by chance, shape
        ``(rows,)``, as ``usual`` is.

        What is asked for no longer goes at once: others come instead, and both would not fit.
        """
        lowered = np.sqrt(usual) * (1 - 2 * SHARE)
        slumped: npt.NDArray[np.bool_] = (
            np.sqrt(self._latest.recent) < lowered - SLUMP_DEVIATIONS * self._recent_chance()
        )
        return slumped

    def _most_recent(self) -> Array:
        """The latest rates and a standard deviation more, shape ``(rows,)``."""
        root: Array = np.sqrt(self._latest.recent) + self._recent_chance()
        return np.square(root)

    def _recent_chance(self) -> Array:
        """Standard deviations of the roots of the latest rates, shape ``(rows,)``."""
        return self._latest.rough / 2 / sqrt(max(self._latest.recent_s, 1e-9))

    def _scale(self, point: Array) -> Array:
        """The unit of an error for each point forecast, as above; same shape as ``point``."""
        scale: Array = np.sqrt(1.0 / self._horizon_s + SHARE**2 * point) / 2
        return scale

    def _advance(self, slot: int, rates: Array) -> None:
        """Take in a bucket that ended: note the errors that are known now, and forecast anew.

        ``rates`` has shape ``(rows,)``.
        """
        column = slot % self._ahead
        due = self._forecasts[:, column].copy()
        self._rates[:, column] = rates
        actual = self._rates.mean(axis=1)
        [rows] = np.nonzero(~np.isnan(due) & ~np.isnan(actual))
        if len(rows):
            error = (np.sqrt(actual[rows]) - np.sqrt(due[rows])) / self._scale(due[rows])
            self._errors[rows, self._made[rows] % self._errors.shape[1]] = error
            self._made[rows] += 1
            if self._guarded:
                self._calibration.came(column, rows, actual[rows], error)
        self._peak = np.fmax(self._peak * self._fading, rates)
        self._newest = self._point.advance(slot, rates)
        self._forecasts[:, column] = self._newest
        levels = self._calibration.levels
        if levels and len(rates):
            self._calibration.issued(column, self._answer(self._newest, levels))

    def _empirical_quantiles(self, levels: tuple[float, ...]) -> Array:
        """Quantiles of each row's remembered errors, shape ``(rows, levels)``.

        They are interpolated between neighbours. Once there are many errors, a few more change
        little, so they are ranked about once a minute.
        """
        rows = len(self._made)
        known, ranked_at, before = self._ranked
        slot = self._buckets.slot
        recent = slot == ranked_at or (
            slot - ranked_at < _RANK_EVERY and self._made.min() > 10 * PRIOR_ERRORS
        )
        if known == levels and recent and len(before) == rows:
            return before
        width = self._errors.shape[1]
        held = np.clip(self._made, PRIOR_ERRORS, width)[:, None]
        ranked = np.sort(self._errors[:, : int(held.max())], axis=1)  # NaN come last
        place = np.array(levels) * (held - 1)
        low = place.astype(np.int64)
        below = np.take_along_axis(ranked, low, axis=1)
        above = np.take_along_axis(ranked, np.minimum(low + 1, held - 1), axis=1)
        answer: Array = below + (place - low) * (above - below)
        self._ranked = (levels, slot, answer)
        return answer

    def _widen(self, rows: int) -> None:
        if not rows:
            return
        errors = np.full((rows, self._errors.shape[1]), np.nan)
        errors[:, :PRIOR_ERRORS] = _prior()
        self._errors = np.concatenate([self._errors, errors])
        self._made = np.append(self._made, np.zeros(rows, np.int64))
        blank = np.full((rows, self._ahead), np.nan)
        self._rates = np.concatenate([self._rates, blank])
        self._forecasts = np.concatenate([self._forecasts, blank])
        self._newest = np.append(self._newest, np.full(rows, np.nan))
        self._peak = np.append(self._peak, np.zeros(rows))
        self._point.widen(rows)
        self._latest.widen(rows)
        self._calibration.widen(rows)

    def forget(self, gone: Callable[[KeyT], bool]) -> None:
        """See ``planner.forecasting.forecast.Forecaster``."""
        self._keep(self._buckets.without(gone))

    def _forget(self) -> None:
        [rows] = np.nonzero(self._buckets.silent_s <= IDLE_S)
        self._keep(rows)

    def _keep(self, rows: npt.NDArray[np.int64]) -> None:
        if len(rows) == len(self._buckets.rows):
            return
        self._buckets.keep(rows)
        self._errors, self._made = self._errors[rows], self._made[rows]
        self._rates, self._forecasts = self._rates[rows], self._forecasts[rows]
        self._newest, self._peak = self._newest[rows], self._peak[rows]
        self._ranked = ((), 0, np.zeros((0, 0)))
        self._point.keep(rows)
        self._latest.keep(rows)
        self._calibration.keep(rows)

    def memory(self) -> Memory:
        """See ``planner.forecasting.memory.Remembers``."""
        if not isinstance(self._point, Remembers):
            raise TypeError(f"a {type(self._point).__name__} forecast cannot be kept")
        return {
            "buckets": self._buckets.memory(),
            "point": self._point.memory(),
            "latest": self._latest.memory(),
            "calibration": self._calibration.memory(),
            "rates": self._rates.copy(),
            "forecasts": self._forecasts.copy(),
            "newest": self._newest.copy(),
            "peak": self._peak.copy(),
            "errors": self._errors[:, : self._longest()].copy(),
            "made": self._made.copy(),
        }

    def recall(self, memory: Memory, shift_s: float) -> None:
        """See ``planner.forecasting.memory.Remembers``."""
        if not isinstance(self._point, Remembers):
            raise TypeError(f"a {type(self._point).__name__} forecast cannot be recalled")
        self._buckets.recall(part(memory, "buckets"), shift_s)
        self._point.recall(part(memory, "point"), shift_s)
        self._calibration.recall(part(memory, "calibration"), shift_s)
        rows, width = len(self._buckets.rows), self._errors.shape[1]
        self._rates = array(memory, "rates", (rows, self._ahead))
        self._latest.recall(part(memory, "latest"), rows)
        self._forecasts = array(memory, "forecasts", (rows, self._ahead))
        self._newest = array(memory, "newest", (rows,))
        self._peak = array(memory, "peak", (rows,))
        self._made = array(memory, "made", (rows,), np.int64)
        held = array(memory, "errors", (rows, None))
        if held.shape[1] > width or held.shape[1] < self._longest():
            raise ValueError(f"there are {held.shape[1]} errors of each key, and not {width}")
        self._errors = np.full((rows, width), np.nan)
        self._errors[:, : held.shape[1]] = held

    def _longest(self) -> int:
        """Columns of errors that any row fills."""
        longest = int(self._made.max()) if len(self._made) else 0
        return min(max(longest, PRIOR_ERRORS), self._errors.shape[1])


@lru_cache(maxsize=64)
def _deviations(levels: tuple[float, ...]) -> Array:
    """How many standard deviations above the mean these quantiles of a normal distribution lie."""
    return np.array([NormalDist().inv_cdf(level) for level in levels])


def _prior() -> Array:
    """Errors that a new key is taken to have made, in scales, shape ``(PRIOR_ERRORS,)``.

    They are normal quantiles. The smallest come first and are replaced first, so that quantiles
    stay wide for long.
    """
    normal = NormalDist(0.0, PRIOR_SCALES)
    spread = [normal.inv_cdf((index + 0.5) / PRIOR_ERRORS) for index in range(PRIOR_ERRORS)]
    return np.array(sorted(spread, key=abs))
