"""The forecasters that the product's are compared with say what they are meant to say."""

from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.forecasting.forecast import Forecaster
from tests.bench.planning.forecasts.baselines import ewma, last_value, seasonal

Make = Callable[[], Forecaster[str]]
LEVELS = (0.05, 0.5, 0.9, 0.95, 0.99)


def fed(make: Make, history: Sequence[Mapping[str, float]]) -> Forecaster[str]:
    """A forecaster that has seen the counts of each 10 s, from second 0 on."""
    forecaster = make()
    for index, counted in enumerate(history, start=1):
        forecaster.observe(index * 10.0, 10.0, counted)
    return forecaster


def test_the_season_repeats() -> None:
    """100 and 300 per second by turns of 5 minutes: a minute after a turn it is 300 again."""
    turns = [{"a": 1_000.0 if index % 60 < 30 else 3_000.0} for index in range(60 * 20 + 30)]
    [middle] = fed(lambda: seasonal(period_s=600.0), turns).predict((0.5,))["a"]

    assert middle == pytest.approx(300.0, rel=0.01)


@pytest.mark.parametrize("make", [last_value, ewma, seasonal])
def test_the_median_of_a_steady_rate_is_the_rate(make: Make) -> None:
    [middle] = fed(make, [{"a": 1_000.0}] * 90).predict((0.5,))["a"]

    assert middle == pytest.approx(100.0)


@settings(max_examples=40)
@given(
    rates=st.lists(st.integers(1_000, 2_000), min_size=1, max_size=30),
    factor=st.sampled_from((10, 1_000)),
)
@pytest.mark.parametrize("make", [last_value, ewma], ids=["last value", "ewma"])
def test_high_rates_scale(make: Make, rates: list[int], factor: int) -> None:
    """Where chance is small beside the rate, ten times the counts are ten times the quantiles."""
    once = fed(make, [{"a": 1e6 * rate} for rate in rates]).predict(LEVELS)["a"]
    scaled = fed(make, [{"a": factor * 1e6 * rate} for rate in rates]).predict(LEVELS)["a"]

    assert scaled == pytest.approx([factor * value for value in once], rel=1e-3)
