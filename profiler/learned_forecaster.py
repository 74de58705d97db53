"""A forecaster that learns: gradient-boosted quantile regression on the shape of recent arrivals.

One model serves all tasks: its features are relative to the present rate, so that what was learned
from a busy task holds for a quiet one. Two features are the time within the hour, because much
traffic follows timetables: jobs that start on the hour come at a minute that can be known, in
numbers that the minutes before do not show.

Fitting takes seconds and happens elsewhere: ``training_data()`` copies what there is to learn from,
``learn(data)`` fits in any thread, and ``adopt(model)`` takes the result. Until then, and for keys
with little history, ``planner.forecasting.forecast.adaptive`` answers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from planner.forecasting.buckets import Buckets
from planner.forecasting.forecast import HORIZON_S, STEP_S, Forecaster, adaptive
from planner.forecasting.memory import Memory, array, listed, part
from planner.forecasting.point_forecasts import Adaptive, Rows
from profiler.arrival_features import (
    CLOCK_FEATURES,
    LOOK_BACK,
    Array,
    Floats,
    base_of,
    features_of,
)
from profiler.one_thread import one_thread

K = TypeVar("K")
Number = TypeVar("Number", bound=np.generic)

LEVELS = (0.5, 0.9, 0.95, 0.99)
"""Quantiles there is a model for."""
MEMORY_S = 172_800.0
"""Length of the history that is learned from: two days."""
FIRST_TRAINING_S = 7_200.0
"""History before the first training, and of a key before its forecasts are the model's."""
TRAINING_EVERY_S = 3_600.0
MOST_ROWS = 20_000
"""Most examples in one training. More from the same hours say little more, and take longer."""
IDLE_S = 86_400.0
"""A key of which nothing came for this long is forgotten."""

JUDGED_S = 21_600.0
"""Time over which the model's own errors correct it."""
TREES, LEAVES, LEAF_ROWS = 40, 15, 20
"""Few and coarse trees: a day has about ten jumps, and more trees would overfit each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """What there is to learn from. A bucket is a step of time; the last one is the newest."""

    rates: Floats
    """``(keys, buckets)`` arrivals per second; NaN where nothing was observed."""
    points: Floats
    """``(keys, buckets)``: the point forecast made at the end of each bucket, per second."""
    ends_s: Array
    """``(buckets,)``: when each bucket ended, in seconds."""
    ahead: int
    """Buckets in the horizon."""
    horizon_s: float
    levels: tuple[float, ...]
    clock: bool


@dataclass(frozen=True, slots=True)
class Model:
    """A fitted regressor for each quantile: features to a multiple of the base rate."""

    regressors: Mapping[float, Any]
    rows: int
    """Number of examples that it was fitted on."""


class LearnedForecaster(Generic[K]):
    """``planner.forecasting.forecast.Forecaster`` for the quantiles in ``levels``.

    With ``clock=False`` it does not see the time within the hour.
    """

    def __init__(
        self,
        *,
        levels: Sequence[float] = LEVELS,
        clock: bool = True,
        training_every_s: float = TRAINING_EVERY_S,
    ) -> None:
        self._training_every_s = training_every_s
        self._clock = clock
        self._fallback: Forecaster[K] = adaptive(step_s=STEP_S, horizon_s=HORIZON_S)
        self._levels = tuple(levels)
        self._buckets: Buckets[K] = Buckets(STEP_S)
        # A model learns what follows on averages that know nothing of their age. With plain means,
        # four timetables that jump by the clock were foreseen at 0.89 of what they were.
        self._point = Adaptive(STEP_S, plain=False)
        self._ahead = max(1, round(HORIZON_S / STEP_S))
        self._horizon_s = self._ahead * STEP_S
        self._width = int(MEMORY_S / STEP_S)
        self._rates = np.zeros((0, self._width), np.float32)
        self._points = np.zeros((0, self._width), np.float32)
        self._since = np.zeros(0, np.int64)
        self._forecasts = np.full((0, len(self._levels)), np.nan)
        self._pending = np.full((0, self._ahead, len(self._levels)), np.nan)
        self._errors = np.full((0, int(JUDGED_S / STEP_S), len(self._levels)), np.nan, np.float32)
        self._made = np.zeros(0, np.int64)
        self._shifts = np.zeros((0, len(self._levels)))
        self._ends_s = np.full(self._width, np.nan)
        self._filled = 0
        """The slot behind the last one that was written."""
        self._trained_s = float("-inf")
        self._model: Model | None = None

    def observe(self, now_s: float, elapsed_s: float, counts: Mapping[K, float]) -> None:
        """See ``planner.forecasting.forecast.Forecaster``."""
        self._fallback.observe(now_s, elapsed_s, counts)
        self._widen(self._buckets.widen(counts))
        for slot, rates in self._buckets.add(now_s, elapsed_s, counts, self._ahead):
            self._blank(slot)
            self._filled = slot + 1
            column = slot % self._width
            self._rates[:, column] = rates
            self._points[:, column] = self._point.advance(slot, rates)
            self._ends_s[column] = self._buckets.end_s(slot)
            self._judge(slot)
        self._blank(self._buckets.slot)
        self._forget()

    def _blank(self, end: int) -> None:
        """Nothing is known of the buckets before slot ``end`` that were left out."""
        last = min(end - self._filled, self._width)
        if last > 0:
            columns = self._columns(last, end)
            self._rates[:, columns] = self._points[:, columns] = np.nan
            self._ends_s[columns] = [self._buckets.end_s(slot) for slot in range(end - last, end)]
            self._filled = end

    def predict(self, quantiles: Sequence[float]) -> Mapping[K, tuple[float, ...]]:
        """See ``planner.forecasting.forecast.Forecaster``.

        Raises:
            ValueError: there is no model for one of the quantiles.
        """
        answer = dict(self._fallback.predict(quantiles))
        unknown = [level for level in quantiles if level not in self._levels]
        if unknown:
            raise ValueError(f"no model for the quantile {unknown[0]}; there are {self._levels}")
        columns = [self._levels.index(level) for level in quantiles]
        unit = 1.0 / self._horizon_s
        found = (self._forecasts[:, columns] + unit) * np.exp(self._shifts[:, columns]) - unit
        found = np.maximum.accumulate(np.maximum(found, 0.0), axis=1)
        for key, values in zip(self._buckets.rows, found.tolist(), strict=True):
            if key in answer and values[0] == values[0]:  # not NaN
                answer[key] = tuple(values)
        return answer

    def _judge(self, slot: int) -> None:
        """Note the error of the forecast whose horizon has just ended, and make a new one.

        Trees that overfit the past give intervals that are too narrow. So each quantile is moved by
        the same quantile of its own errors in the last ``JUDGED_S``, for each key (conformal
        prediction, as Romano et al., NeurIPS'19, section 4, over a trailing window).
        """
        if self._model is None:
            return
        pending = slot % self._ahead
        last = self._rates[:, self._columns(self._ahead, slot + 1)]
        unit = 1.0 / self._horizon_s
        actual = last.mean(axis=1, dtype=np.float64)[:, None]
        error = np.log((actual + unit) / (self._pending[:, pending] + unit))
        [rows] = np.nonzero(~np.isnan(error[:, 0]))
        self._errors[rows, self._made[rows] % self._errors.shape[1]] = error[rows]
        self._made[rows] += 1
        self._forecasts = self._pending[:, pending] = self._raw(slot)
        if pending == 0:
            self._shifts = self._corrections()

    def _raw(self, slot: int) -> Array:
        """``(rows, levels)`` forecasts of the model at the end of a bucket; NaN for keys with less
        history than ``FIRST_TRAINING_S``."""
        found = np.full((len(self._since), len(self._levels)), np.nan)
        columns = self._columns(LOOK_BACK * self._ahead, slot + 1)
        points = self._points[:, columns[-1]].astype(np.float64)
        old = slot + 1 - self._since >= int(FIRST_TRAINING_S / self._buckets.step_s)
        [rows] = np.nonzero(old & ~np.isnan(points))
        if self._model is None or not len(rows):
            return found
        base = base_of(points[rows], self._horizon_s)
        ends_s = np.full(len(rows), self._ends_s[columns[-1]])
        features = features_of(
            self._rates[np.ix_(rows, columns)], base, ends_s, self._ahead, self._horizon_s
        )
        features = features if self._clock else features[:, :-CLOCK_FEATURES]
        with one_thread():
            for index, level in enumerate(self._levels):
                multiple = self._model.regressors[level].predict(features)
                found[rows, index] = base * np.maximum(multiple, 0.0)
        return found

    def _corrections(self) -> Array:
        """``(rows, levels)`` to add to the logarithm of each forecast; 0 until errors are known."""
        shifts = np.zeros((len(self._made), len(self._levels)))
        width = self._errors.shape[1]
        for row in np.flatnonzero(self._made >= width // 6):
            errors = self._errors[row, : min(self._made[row], width)]
            for index, level in enumerate(self._levels):
                shifts[row, index] = np.quantile(errors[:, index], level)
        return shifts

    def training_data(self) -> TrainingData | None:
        """A copy of what there is to learn from; None until it is time to train again."""
        now_s = self._buckets.end_s(self._buckets.slot - 1)
        held = min(self._buckets.slot, self._width)
        if (
            held * self._buckets.step_s < FIRST_TRAINING_S
            or now_s - self._trained_s < self._training_every_s
            or not self._buckets.rows
        ):
            return None
        self._trained_s = now_s
        columns = self._columns(held, self._buckets.slot)
        return TrainingData(
            rates=self._rates[:, columns],
            points=self._points[:, columns],
            ends_s=self._ends_s[columns],
            ahead=self._ahead,
            horizon_s=self._horizon_s,
            levels=self._levels,
            clock=self._clock,
        )

    def adopt(self, model: Model) -> None:
        """Predict by this model from now on."""
        self._model = model

    def memory(self) -> Memory:
        """See ``planner.forecasting.memory.Remembers``: all but the model.

        The model is fitted anew from the history, at the first chance: what a library keeps of it
        could only be read by running code that comes with it.
        """
        held = min(self._buckets.slot, self._width)
        columns = self._columns(held, self._buckets.slot)
        made = int(self._made.max()) if len(self._made) else 0
        return {
            "levels": list(self._levels),
            "buckets": self._buckets.memory(),
            "point": self._point.memory(),
            "fallback": self._fallback.memory(),
            "rates": self._rates[:, columns],
            "points": self._points[:, columns],
            "ends_s": self._ends_s[columns],
            "since": self._since.copy(),
            "errors": self._errors[:, : min(made, self._errors.shape[1])].copy(),
            "made": self._made.copy(),
            "shifts": self._shifts.copy(),
        }

    def recall(self, memory: Memory, shift_s: float) -> None:
        """See ``planner.forecasting.memory.Remembers``."""
        if listed(memory, "levels") != list(self._levels):
            raise ValueError("the quantiles are others")
        self._buckets.recall(part(memory, "buckets"), shift_s)
        self._point.recall(part(memory, "point"), shift_s)
        self._fallback.recall(part(memory, "fallback"), shift_s)
        rows, levels = len(self._buckets.rows), len(self._levels)
        held = min(self._buckets.slot, self._width)
        columns = self._columns(held, self._buckets.slot)
        self._rates = np.zeros((rows, self._width), np.float32)
        self._points = np.zeros((rows, self._width), np.float32)
        self._rates[:, columns] = array(memory, "rates", (rows, held), np.float32)
        self._points[:, columns] = array(memory, "points", (rows, held), np.float32)
        self._ends_s[columns] = array(memory, "ends_s", (held,)) + shift_s
        self._filled = self._buckets.slot
        self._since = array(memory, "since", (rows,), np.int64)
        self._made = array(memory, "made", (rows,), np.int64)
        self._shifts = array(memory, "shifts", (rows, levels))
        self._forecasts = np.full((rows, levels), np.nan)
        self._pending = np.full((rows, self._ahead, levels), np.nan)
        errors = array(memory, "errors", (rows, None, levels), np.float32)
        width = self._errors.shape[1]
        if errors.shape[1] < min(int(self._made.max(initial=0)), width) or errors.shape[1] > width:
            raise ValueError(f"there are {errors.shape[1]} errors of each key, and not {width}")
        self._errors = np.full((rows, width, levels), np.nan, np.float32)
        self._errors[:, : errors.shape[1]] = errors

    def _columns(self, last: int, end: int) -> Rows:
        """``(last,)`` column numbers of the last buckets before slot ``end``, the oldest first."""
        return np.arange(end - last, end) % self._width

    def _widen(self, rows: int) -> None:
        if not rows:
            return
        self._rates = _more(self._rates, rows)
        self._points = _more(self._points, rows)
        self._since = np.append(self._since, np.full(rows, self._buckets.slot))
        self._point.widen(rows)
        self._forecasts = _more(self._forecasts, rows)
        self._pending = _more(self._pending, rows)
        self._errors = _more(self._errors, rows)
        self._made = np.append(self._made, np.zeros(rows, np.int64))
        self._shifts = np.concatenate([self._shifts, np.zeros((rows, len(self._levels)))])

    def forget(self, gone: Callable[[K], bool]) -> None:
        """See ``planner.forecasting.forecast.Forecaster``."""
        self._fallback.forget(gone)
        self._keep(self._buckets.without(gone))

    def _forget(self) -> None:
        [rows] = np.nonzero(self._buckets.silent_s <= IDLE_S)
        self._keep(rows)

    def _keep(self, rows: npt.NDArray[np.int64]) -> None:
        if len(rows) < len(self._buckets.rows):
            self._buckets.keep(rows)
            self._rates, self._points = self._rates[rows], self._points[rows]
            self._since = self._since[rows]
            self._forecasts, self._pending = self._forecasts[rows], self._pending[rows]
            self._errors, self._made = self._errors[rows], self._made[rows]
            self._shifts = self._shifts[rows]
            self._point.keep(rows)


def learn(data: TrainingData) -> Model | None:
    """Fit a model; None where too little was observed. Deterministic; takes seconds."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    features, ratios, weights = _examples(data)
    if len(ratios) < FIRST_TRAINING_S / data.horizon_s:
        return None
    with one_thread():
        regressors = {
            level: HistGradientBoostingRegressor(
                loss="quantile",
                quantile=level,
                max_iter=TREES,
                max_leaf_nodes=LEAVES,
                min_samples_leaf=LEAF_ROWS,
                early_stopping=False,
                random_state=0,
            ).fit(features, ratios, sample_weight=weights)
            for level in data.levels
        }
    return Model(regressors, len(ratios))


def _examples(data: TrainingData) -> tuple[Floats, Array, Array]:
    """Features ``(examples, features)``, the rate that followed as a multiple of the base rate
    ``(examples,)``, and weights ``(examples,)``.

    With the base as its weight, a multiple's pinball loss is that of the rate itself; divided by
    the key's mean rate, so that each key counts as much as any other.
    """
    tasks, slots = data.rates.shape
    coming = np.full((tasks, slots), np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(data.rates, data.ahead, axis=1)
    coming[:, : slots - data.ahead] = windows[:, 1:].mean(axis=2, dtype=np.float64)
    usable = ~np.isnan(coming) & ~np.isnan(data.points)
    task, slot = np.nonzero(usable)
    if len(task) > MOST_ROWS:
        picked = np.linspace(0, len(task) - 1, MOST_ROWS).astype(np.int64)
        task, slot = task[picked], slot[picked]
    look_back = LOOK_BACK * data.ahead
    blank = np.full((tasks, look_back - 1), np.nan, np.float32)
    padded = np.concatenate([blank, data.rates], axis=1)
    histories = np.lib.stride_tricks.sliding_window_view(padded, look_back, axis=1)
    base = base_of(data.points[task, slot].astype(np.float64), data.horizon_s)
    features = [
        features_of(
            histories[task[part], slot[part]],
            base[part],
            data.ends_s[slot[part]],
            data.ahead,
            data.horizon_s,
        )
        for part in np.array_split(np.arange(len(task)), max(1, len(task) // 2_000))
    ]
    seen = np.concatenate(features)
    means = np.array([_mean(row[~np.isnan(row)]) for row in data.rates])
    return (
        seen if data.clock else seen[:, :-CLOCK_FEATURES],
        coming[task, slot] / base,
        base / (means[task] + 1.0 / data.horizon_s),
    )


def _more(array: npt.NDArray[Number], rows: int) -> npt.NDArray[Number]:
    """The array with so many rows of NaN appended: ``(n, ...)`` to ``(n + rows, ...)``."""
    blank = np.full((rows, *array.shape[1:]), np.nan, array.dtype)
    return np.concatenate([array, blank])


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0
