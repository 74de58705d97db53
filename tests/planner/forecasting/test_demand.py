"""SLO classes and rates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.forecasting.demand import Counters, demands, slo_class, smoothed
from tests.planner.builders import DIGITS, demand

ACCURACIES = (0.90, 0.95, 0.99)


@pytest.mark.parametrize(
    ("latency_ms", "step"),
    [(1.0, 1.0), (1.99, 1.0), (2.0, 2.0), (49.9, 20.0), (50.0, 50.0), (999.0, 500.0), (1e-6, 1e-3)],
)
def test_latency_is_rounded_down_to_the_series(latency_ms: float, step: float) -> None:
    assert slo_class(latency_ms, None, ACCURACIES) == (step, None)


@pytest.mark.parametrize(
    ("floor", "step"),
    [(None, None), (0.5, None), (0.90, None), (0.91, 0.95), (0.95, 0.95), (0.96, 0.99), (1.0, 1.0)],
)
def test_the_floor_is_rounded_up_to_a_variant(floor: float | None, step: float | None) -> None:
    assert slo_class(10.0, floor, ACCURACIES) == (10.0, step)


@given(
    st.floats(1e-3, 1e9),
    st.none() | st.floats(0.0, 1.0),
    st.lists(st.floats(0.0, 1.0), unique=True).map(sorted),
)
def test_a_class_is_met_by_the_same_variants_or_fewer(
    latency_ms: float, floor: float | None, accuracies: list[float]
) -> None:
    step_ms, step = slo_class(latency_ms, floor, accuracies)
    assert step_ms <= latency_ms
    asked = [a for a in accuracies if floor is None or a >= floor]
    planned = [a for a in accuracies if step is None or a >= step]
    assert asked == planned
    assert slo_class(step_ms, step, accuracies) == (step_ms, step)


def test_counters_of_all_gateways_become_rates() -> None:
    one: Counters = {(DIGITS, (50.0, 0.95)): 30.0, (DIGITS, (10.0, None)): 10.0}
    other: Counters = {(DIGITS, (50.0, 0.95)): 20.0}
    assert demands([one, other], 10.0) == (demand(1.0, 10.0), demand(5.0, 50.0, 0.95))


def test_a_rate_needs_time() -> None:
    with pytest.raises(ValueError, match="elapsed"):
        demands([], 0.0)


def test_a_class_that_is_gone_fades_out() -> None:
    before = [demand(8.0, 10.0), demand(4.0, 50.0)]
    assert smoothed(before, [demand(4.0, 50.0)], 0.5) == (demand(4.0, 10.0), demand(4.0, 50.0))
    assert smoothed([demand(0.001, 10.0)], [], 0.5) == ()
