"""Which batches a device can run: their limit, and those worth running."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.latency_curve import Curve, SizedBatch
from planner.solver.capacity import frontier, limit_ms

LINE = Curve([(1, 2.0), (8, 9.0)])
"""1 ms and 1 ms per row."""


def test_alone_a_batch_takes_half_of_what_the_slo_leaves() -> None:
    assert limit_ms(14.0) == pytest.approx(6.0)


def test_no_batch_is_in_time_when_one_row_is_late() -> None:
    assert LINE.cheapest(limit_ms(5.9)) is None


def test_the_limit_is_kept_to_the_last_bit() -> None:
    assert limit_ms(50.0) >= 24.0
    assert LINE.cheapest(limit_ms(8.0)) == SizedBatch(2, 3.0, 1.5)


def test_the_frontier_leaves_out_batches_that_cost_more_per_row() -> None:
    curve = Curve([(1, 2.0), (2, 3.0), (4, 8.0), (8, 8.0)])

    assert [batch.size for batch in frontier(curve, inf)] == [1, 2, 8]


CURVES = st.dictionaries(st.integers(1, 12), st.floats(0.1, 50.0), min_size=1, max_size=5).map(
    lambda points: Curve(points.items())
)


@given(CURVES, st.floats(1.0, 120.0))
def test_the_frontier_holds_the_cheapest_batch_of_every_limit(curve: Curve, limit: float) -> None:
    best = curve.cheapest(limit)
    within = [batch for batch in frontier(curve, 120.0) if batch.latency_ms <= limit]

    assert (best is None) == (not within)
    if best is not None:
        assert abs(min(batch.unit_ms for batch in within) - best.unit_ms) <= 1e-9 * best.unit_ms


@given(CURVES, st.floats(0.05, 120.0), st.one_of(st.none(), st.integers(1, 14)))
def test_the_cheapest_batch_is_that_of_a_look_at_every_size(
    curve: Curve, limit: float, most: int | None
) -> None:
    sizes = range(1, min(curve.max_batch, most or curve.max_batch) + 1)
    units_ms = [curve.latency_ms(n) / n for n in sizes if curve.latency_ms(n) <= limit]
    best = curve.cheapest(limit, most)

    if best is None:
        assert not units_ms
    else:
        assert best == (best.size, curve.latency_ms(best.size), best.latency_ms / best.size)
        assert best.unit_ms == pytest.approx(min(units_ms))


def test_what_is_kept_of_earlier_limits_changes_no_answer() -> None:
    asked = [(limit / 10, most) for limit in range(10, 110) for most in (None, 0, 3, 7)]
    used = Curve(LINE.points)
    first = [used.cheapest(*each) for each in asked]

    assert first == [Curve(LINE.points).cheapest(*each) for each in asked]
    assert [used.cheapest(*each) for each in asked] == first
