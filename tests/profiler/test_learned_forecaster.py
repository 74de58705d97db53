"""The forecaster that learns, on arrivals that have something to learn from."""

import json
from collections.abc import Iterator
from copy import deepcopy
from functools import cache

import numpy as np
import pytest

from planner.forecasting.forecast import Forecaster, adaptive
from profiler.learned_forecaster import LEVELS, LearnedForecaster, Model, TrainingData, learn

pytestmark = pytest.mark.slow

HOUR_S = 3_600
HOURS = 5
CALM_QPS, BUSY_QPS = 50.0, 200.0


def timetable(hours: int, seed: int = 0) -> Iterator[tuple[float, dict[str, float]]]:
    """Counts of each 10 s: from the 30th to the 40th minute of each hour it is busy."""
    rng = np.random.default_rng(seed)
    for now_s in range(10, hours * HOUR_S + 1, 10):
        busy = 1_800 < now_s % HOUR_S <= 2_400
        qps = BUSY_QPS if busy else CALM_QPS
        yield float(now_s), {"a": float(rng.poisson(10.0 * qps)), "b": float(rng.poisson(qps))}


def fed(hours: int, forecaster: LearnedForecaster[str]) -> LearnedForecaster[str]:
    for now_s, counts in timetable(hours):
        forecaster.observe(now_s, 10.0, counts)
    return forecaster


def data_of(forecaster: LearnedForecaster[str]) -> TrainingData:
    data = forecaster.training_data()
    assert data is not None
    return data


@pytest.fixture(scope="module")
def data() -> TrainingData:
    return data_of(fed(HOURS, LearnedForecaster(levels=(0.5, 0.95))))


@pytest.fixture(scope="module")
def model(data: TrainingData) -> Model:
    return fitted(data)


def fitted(data: TrainingData) -> Model:
    model = learn(data)
    assert model is not None
    return model


@cache
def untaught() -> LearnedForecaster[str]:
    """All but the last 10 s of ``HOURS`` old: to copy, which is quicker than to observe."""
    forecaster: LearnedForecaster[str] = LearnedForecaster(levels=(0.5, 0.95))
    for now_s, counts in timetable(HOURS):
        if now_s < HOURS * HOUR_S:
            forecaster.observe(now_s, 10.0, counts)
    return forecaster


def taught(model: Model, seconds: int) -> LearnedForecaster[str]:
    """``HOURS`` and so many seconds old, with the model of the first ``HOURS``."""
    forecaster = deepcopy(untaught())
    forecaster.adopt(model)
    for now_s, counts in timetable(HOURS + 1):
        if HOURS * HOUR_S <= now_s <= HOURS * HOUR_S + seconds:
            forecaster.observe(now_s, 10.0, counts)
    return forecaster


def test_a_jump_by_the_clock_is_known_before_it_comes(model: Model) -> None:
    """At half past, all that came is calm; the plain forecaster has no reason to say more."""
    forecaster = taught(model, 1_800)
    [[a], [b]] = [forecaster.predict((0.95,))[task] for task in "ab"]

    assert 0.8 * BUSY_QPS < a < 1.3 * BUSY_QPS
    assert 0.08 * BUSY_QPS < b < 0.13 * BUSY_QPS


def test_calm_minutes_stay_calm(model: Model) -> None:
    [middle, high] = taught(model, 600).predict((0.5, 0.95))["a"]

    assert 0.9 * CALM_QPS < middle < high < 1.2 * CALM_QPS


@pytest.mark.campaign
def test_without_the_clock_the_same_jump_is_a_surprise() -> None:
    forecaster: LearnedForecaster[str] = LearnedForecaster(levels=(0.5,), clock=False)
    forecaster.adopt(fitted(data_of(fed(HOURS, forecaster))))
    rng = np.random.default_rng(1)
    for now_s in range(HOURS * HOUR_S + 10, HOURS * HOUR_S + 1_201, 10):
        forecaster.observe(now_s, 10.0, {"a": rng.poisson(500.0), "b": rng.poisson(50.0)})
    before = forecaster.predict((0.5,))["a"]

    assert before == pytest.approx((CALM_QPS,), rel=0.1)


def test_it_answers_as_the_plain_one_until_it_has_learned() -> None:
    learned: LearnedForecaster[str] = LearnedForecaster()
    plain: Forecaster[str] = adaptive()
    for now_s, counts in timetable(1):
        learned.observe(now_s, 10.0, counts)
        plain.observe(now_s, 10.0, counts)

    assert learned.training_data() is None
    assert learned.predict(LEVELS) == plain.predict(LEVELS)


def test_a_new_task_is_forecast_by_the_plain_one(model: Model) -> None:
    forecaster = taught(model, 1_790)
    plain: Forecaster[str] = adaptive()
    forecaster.observe(HOURS * HOUR_S + 1_800.0, 10.0, {"a": 500.0, "new": 100.0})
    plain.observe(HOURS * HOUR_S + 1_800.0, 10.0, {"new": 100.0})

    assert forecaster.predict((0.95,))["new"] == plain.predict((0.95,))["new"]


def test_a_task_that_is_gone_is_forgotten_and_the_others_are_forecast_as_before(
    model: Model,
) -> None:
    forecaster, alone = taught(model, 1_790), taught(model, 1_790)
    at_s = HOURS * HOUR_S + 1_800.0
    forecaster.observe(at_s, 10.0, {"a": 500.0, "new": 100.0})
    alone.observe(at_s, 10.0, {"a": 500.0})

    forecaster.forget(lambda task: task == "new")

    assert forecaster.predict((0.5, 0.95)) == alone.predict((0.5, 0.95))
    assert '"new"' not in json.dumps(forecaster.memory(), default=str)


def test_the_same_data_give_the_same_model(data: TrainingData, model: Model) -> None:
    forecaster = taught(model, 1_800)
    predicted = forecaster.predict((0.5, 0.95))

    forecaster.adopt(fitted(data))

    assert forecaster.predict((0.5, 0.95)) == predicted


def test_quantiles_ascend(model: Model) -> None:
    forecaster = taught(model, 0)
    for now_s in range(HOURS * HOUR_S + 10, HOURS * HOUR_S + 600, 10):
        forecaster.observe(now_s, 10.0, {"a": 500.0})
        for middle, high in forecaster.predict((0.5, 0.95)).values():
            assert 0.0 <= middle <= high


def test_training_is_due_once_an_hour() -> None:
    forecaster = fed(3, LearnedForecaster())
    assert forecaster.training_data() is not None
    assert forecaster.training_data() is None
    forecaster.observe(4 * HOUR_S, HOUR_S, {"a": 3_600.0 * CALM_QPS})
    assert forecaster.training_data() is not None


def test_training_data_are_a_copy() -> None:
    forecaster = fed(3, LearnedForecaster())
    data = data_of(forecaster)
    before = data.rates.copy()
    forecaster.observe(3 * HOUR_S + 10.0, 10.0, {"a": 9_999.0})

    assert np.array_equal(data.rates, before)


def test_a_quantile_that_was_not_learned_is_refused() -> None:
    forecaster = fed(1, LearnedForecaster(levels=(0.5, 0.95)))
    with pytest.raises(ValueError, match=r"0\.99"):
        forecaster.predict((0.99,))


def test_a_successor_has_the_history_and_learns_from_it_at_once(model: Model) -> None:
    first = taught(model, 1_200)
    second: LearnedForecaster[str] = LearnedForecaster(levels=(0.5, 0.95))
    second.recall(first.memory(), 5_000.0)
    ours, theirs = second.training_data(), first.training_data()
    assert ours is not None
    assert theirs is not None
    assert np.array_equal(ours.rates, theirs.rates, equal_nan=True)
    assert np.allclose(ours.ends_s, theirs.ends_s + 5_000.0)
    # With the same model both say the same from the next bucket on.
    second.adopt(model)
    now_s = HOURS * HOUR_S + 1_210.0
    first.observe(now_s, 10.0, {"a": 500.0, "b": 50.0})
    second.observe(now_s + 5_000.0, 10.0, {"a": 500.0, "b": 50.0})
    expected, found = first.predict((0.5, 0.95)), second.predict((0.5, 0.95))
    # The time within the hour has moved with the clock.
    assert found.keys() == expected.keys()
    assert found["a"][0] == pytest.approx(expected["a"][0], rel=0.5)


def test_time_that_nobody_watched_is_unknown_and_not_silent() -> None:
    it = fed(3, LearnedForecaster(levels=(0.5,)))
    ended_s = 3.0 * HOUR_S
    it.observe(ended_s + 7_210.0, 10.0, {"a": 500.0})
    data = data_of(it)
    gap = data.rates[0, -721:-1]
    assert np.isnan(gap).all()
    assert np.isfinite(data.rates[0, -1])
    assert np.all(np.diff(data.ends_s) > 0)


def test_a_memory_of_other_quantiles_is_refused() -> None:
    it = fed(1, LearnedForecaster(levels=(0.5,)))
    with pytest.raises(ValueError, match="quantiles are others"):
        LearnedForecaster[str](levels=(0.9,)).recall(it.memory(), 0.0)
