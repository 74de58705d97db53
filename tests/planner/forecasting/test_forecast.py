"""Forecasts: what they say of round numbers, and what holds whatever arrives."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.forecasting.forecast import ClassForecast, Forecaster, adaptive
from tests.planner.builders import DIGITS, demand

LEVELS = (0.05, 0.5, 0.9, 0.95, 0.99)

counts = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.floats(0.0, 1e6)), min_size=1, max_size=30
)


def fed(history: Sequence[Mapping[str, float]], tick_s: float = 10.0) -> Forecaster[str]:
    """A forecaster that has seen the counts of each tick, from second 0 on."""
    forecaster: Forecaster[str] = adaptive()
    for index, counted in enumerate(history, start=1):
        forecaster.observe(index * tick_s, tick_s, counted)
    return forecaster


def steady(qps: float, ticks: int) -> list[Mapping[str, float]]:
    return [{"a": 10.0 * qps}] * ticks


def test_nothing_is_known_before_the_first_count() -> None:
    assert fed([]).predict(LEVELS) == {}


def test_the_median_of_a_steady_rate_is_the_rate() -> None:
    [middle] = fed(steady(100.0, 90)).predict((0.5,))["a"]

    assert middle == pytest.approx(100.0)


def test_a_new_task_is_doubted() -> None:
    """From one bucket of 1,000 arrivals, which alone says 100 ± 3."""
    low, high = fed(steady(100.0, 1)).predict((0.05, 0.95))["a"]

    assert low < 95.0
    assert high > 105.0


def test_doubt_fades_as_forecasts_come_true() -> None:
    widths = []
    for ticks in (1, 20, 60, 120):
        low, high = fed(steady(100.0, ticks)).predict((0.05, 0.95))["a"]
        widths.append(high - low)

    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < widths[0] / 2


def test_chance_keeps_its_share_however_steady_it_was() -> None:
    """A mean over 60 s of 100 arrivals a second has a deviation of sqrt(100 / 60) = 1.29."""
    answer = fed(steady(100.0, 2_000)).predict((0.05, 0.5, 0.95))["a"]

    assert answer == pytest.approx((97.88, 100.0, 102.12), abs=0.01)


@pytest.mark.parametrize("qps", [0.1, 1.0, 100.0, 10_000.0])
def test_of_steady_arrivals_each_quantile_covers_its_share(qps: float) -> None:
    """Poisson arrivals: of 1,500 overlapping minutes, about 5, 50 and 95 % stay below."""
    counts = np.random.default_rng(0).poisson(10.0 * qps, 2_000)
    forecaster = fed([{"a": count} for count in counts[:494]])
    below = np.zeros(3)
    for index in range(494, 1_994):
        forecaster.observe(10.0 * (index + 1), 10.0, {"a": counts[index]})
        actual = counts[index + 1 : index + 7].mean() / 10.0
        below += actual <= np.array(forecaster.predict((0.05, 0.5, 0.95))["a"])

    assert below / 1_500 == pytest.approx([0.05, 0.5, 0.95], abs=0.05)


@pytest.mark.parametrize("qps", [0.1, 1.0, 100.0, 10_000.0])
def test_a_flash_crowd_is_followed_in_the_tick_that_shows_it(qps: float) -> None:
    history = [*steady(qps, 100), *steady(20.0 * qps, 1)]
    [middle] = fed(history).predict((0.5,))["a"]

    assert middle == pytest.approx(20.0 * qps, rel=0.05)


def test_a_surge_is_not_expected_to_surge_again() -> None:
    """Ten minutes of history, a tenth of them wrong by a factor of 10."""
    history = [*steady(100.0, 60), *steady(1_000.0, 6)]
    [high] = fed(history).predict((0.95,))["a"]

    assert 1_000.0 < high < 1_600.0


def test_a_flash_crowd_is_followed_within_an_open_bucket() -> None:
    forecaster = fed(steady(100.0, 100))
    forecaster.observe(1_001.0, 1.0, {"a": 1_000.0})
    [middle] = forecaster.predict((0.5,))["a"]

    assert middle == pytest.approx(1_000.0, rel=0.05)


def test_a_step_late_in_a_bucket_is_followed_within_two_counts() -> None:
    """The mean of the open bucket would say 28 after a second and 51 after two."""
    forecaster = fed(steady(20.0, 100))
    said = []
    for second, count in enumerate((20.0, 20.0, 20.0, 20.0, 20.0, 60.0, 60.0)):
        forecaster.observe(1_001.0 + second, 1.0, {"a": count})
        [middle] = forecaster.predict((0.5,))["a"]
        said.append(middle)

    assert said[4] == pytest.approx(20.0, rel=0.01)
    assert said[6] == pytest.approx(60.0, rel=0.01)


def test_a_task_that_begins_late_in_a_bucket_is_known_with_its_second_count() -> None:
    """Its first count began before it did."""
    forecaster = fed(steady(100.0, 100))
    for second, count in enumerate((0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 30.0, 50.0, 50.0, 50.0)):
        forecaster.observe(1_001.0 + second, 1.0, {"a": 100.0} | ({"b": count} if count else {}))
        [middle] = forecaster.predict((0.5,)).get("b", (0.0,))
        if second >= 8:
            assert middle == pytest.approx(50.0, rel=0.01)


def test_a_quiet_task_is_averaged_for_long() -> None:
    """One query each 50 s: the last bucket by itself would say 0 or 0.1 per second."""
    history = [{"a": 1.0 if index % 5 == 0 else 0.0} for index in range(500)]
    [middle] = fed(history).predict((0.5,))["a"]

    assert 0.01 < middle < 0.03


def test_time_that_was_not_watched_is_not_silence() -> None:
    forecaster = fed(steady(100.0, 30))
    forecaster.observe(5_000.0, 10.0, {"a": 1_000.0})
    [middle] = forecaster.predict((0.5,))["a"]

    assert middle == pytest.approx(100.0, rel=0.01)


def test_a_task_of_which_nothing_came_for_an_hour_is_forgotten() -> None:
    forecaster = fed([{"a": 10.0, "b": 10.0}, *[{"b": 10.0}] * 400])

    assert set(forecaster.predict((0.5,))) == {"b"}


def test_ticks_may_be_shorter_than_buckets() -> None:
    often = fed([{"a": 100.0}] * 300, tick_s=1.0)

    assert often.predict(LEVELS)["a"] == pytest.approx(fed(steady(100.0, 30)).predict(LEVELS)["a"])


@pytest.mark.parametrize(("now_s", "elapsed_s"), [(20.0, 0.0), (20.0, float("inf")), (10.0, 5.0)])
def test_time_goes_forward(now_s: float, elapsed_s: float) -> None:
    forecaster = fed(steady(1.0, 1))
    with pytest.raises(ValueError, match="counts"):
        forecaster.observe(now_s, elapsed_s, {})


@settings(max_examples=40)
@given(history=counts)
def test_quantiles_ascend_and_are_never_negative(history: list[dict[str, float]]) -> None:
    for answer in fed(history).predict(LEVELS).values():
        assert answer[0] >= 0.0
        assert list(answer) == sorted(answer)
        assert answer[-1] < float("inf")


@settings(max_examples=40)
@given(history=counts)
def test_the_same_counts_give_the_same_quantiles(history: list[dict[str, float]]) -> None:
    assert fed(history).predict(LEVELS) == fed(history).predict(LEVELS)


@settings(max_examples=40)
@given(history=counts)
def test_tasks_do_not_touch_each_other(history: list[dict[str, float]]) -> None:
    alone = [{"a": counted.get("a", 0.0)} for counted in history]
    together = [{"a": 0.0, **counted} for counted in history]

    assert fed(together).predict(LEVELS)["a"] == pytest.approx(fed(alone).predict(LEVELS)["a"])


# -- per SLO class -------------------------------------------------------------------------------


def test_the_total_is_split_by_the_classes_rates() -> None:
    forecast = ClassForecast()
    for index in range(1, 31):
        counted = {(DIGITS, (50.0, 0.95)): 250.0, (DIGITS, (10.0, None)): 750.0}
        forecast.observe(10.0 * index, counted, 10.0)
    tight, loose = forecast.demand(0.5)

    assert (tight.latency_ms, tight.accuracy) == (10.0, None)
    assert (tight.qps, loose.qps) == pytest.approx((75.0, 25.0))


def test_a_higher_quantile_asks_for_more_in_the_same_shares() -> None:
    forecast = ClassForecast()
    for index in range(1, 31):
        counted = {(DIGITS, (50.0, 0.95)): 250.0, (DIGITS, (10.0, None)): 750.0}
        forecast.observe(10.0 * index, counted, 10.0)
    tight, loose = forecast.demand(0.95)

    assert tight.qps + loose.qps > 100.0
    assert tight.qps / loose.qps == pytest.approx(3.0)


def test_a_class_that_surges_takes_the_share_it_has_now() -> None:
    forecast = ClassForecast()
    quiet = {(DIGITS, (50.0, 0.95)): 100.0, (DIGITS, (10.0, None)): 100.0}
    for index in range(1, 31):
        forecast.observe(10.0 * index, quiet, 10.0)
    forecast.observe(310.0, {**quiet, (DIGITS, (10.0, None)): 9_900.0}, 10.0)

    assert forecast.demand(0.5) == (
        demand(pytest.approx(990.0, rel=0.05), 10.0),  # type: ignore[arg-type]
        demand(pytest.approx(10.0, rel=0.05), 50.0, 0.95),  # type: ignore[arg-type]
    )


def test_no_counts_no_demand() -> None:
    assert ClassForecast().demand(0.95) == ()


def test_what_is_no_longer_asked_for_is_known_within_two_counts() -> None:
    """The bucket says so only when it ends, and until then what comes instead would not fit."""
    forecaster = fed(steady(100.0, 100))
    said = []
    for second in range(4):
        forecaster.observe(1_001.0 + second, 1.0, {"a": 20.0})
        [middle] = forecaster.predict((0.5,))["a"]
        said.append(middle)

    assert said[0] == pytest.approx(100.0, rel=0.01)
    assert 20.0 < said[1] < 30.0
    assert 20.0 < said[3] < 30.0


def test_what_comes_back_is_known_as_quickly() -> None:
    forecaster = fed(steady(100.0, 100))
    for second, count in enumerate((20.0, 20.0, 20.0, 100.0, 100.0)):
        forecaster.observe(1_001.0 + second, 1.0, {"a": count})
    [middle] = forecaster.predict((0.5,))["a"]

    assert middle == pytest.approx(100.0, rel=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_chance_is_no_slump(seed: int) -> None:
    """Ten minutes of a steady rate, looked at each second."""
    random = np.random.default_rng(seed)
    forecaster: Forecaster[str] = adaptive()
    said = []
    for second in range(600):
        forecaster.observe(second + 1.0, 1.0, {"a": float(random.poisson(50.0))})
        [middle] = forecaster.predict((0.5,))["a"]
        said.append(middle)

    assert min(said[30:]) > 40.0


def test_queries_of_many_rows_are_no_slump_each_time_that_none_comes() -> None:
    """One query of 64 rows a second: of two seconds one in seven has none."""
    random = np.random.default_rng(0)
    forecaster: Forecaster[str] = adaptive()
    said = []
    for second in range(600):
        forecaster.observe(second + 1.0, 1.0, {"a": 64.0 * float(random.poisson(1.0))})
        [middle] = forecaster.predict((0.5,))["a"]
        said.append(middle)

    assert min(said[60:]) > 20.0
