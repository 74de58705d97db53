"""What a device sustains: the batch, its rate, and sharing in time."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from planner.capacity import Duty, Sustained, Tenant, duty, frontier, limit_ms, sustained
from planner.curve import Batch, Curve

LINE = Curve([(1, 2.0), (8, 9.0)])
"""1 ms and 1 ms per row."""
FLAT = Curve([(1, 10.0), (8, 10.0)])
"""Eight rows take as long as one."""


def test_alone_a_batch_takes_half_of_what_the_slo_leaves() -> None:
    found = sustained(LINE, slo_ms=14.0, load=0.6)

    assert found == Sustained(batch_size=5, latency_ms=6.0, qps=500.0)


def test_beside_a_longer_batch_it_takes_what_the_wait_leaves() -> None:
    found = sustained(LINE, slo_ms=14.0, longest_ms=8.0)

    assert found == Sustained(batch_size=3, latency_ms=4.0, qps=0.8 * 1000 * 3 / 4)


def test_beside_shorter_batches_it_does_not_become_the_longest() -> None:
    found = sustained(LINE, slo_ms=100.0, longest_ms=3.0)

    assert found is not None
    assert found.batch_size == 2


def test_interference_prolongs_batches_on_a_shared_device() -> None:
    found = sustained(LINE, slo_ms=14.0, longest_ms=6.0, interference=0.5)

    assert found == Sustained(batch_size=3, latency_ms=6.0, qps=0.8 * 1000 / 2)


def test_interference_needs_a_neighbour() -> None:
    assert sustained(LINE, slo_ms=14.0, interference=0.5) == sustained(LINE, slo_ms=14.0)


def test_nothing_is_sustained_when_one_row_is_late() -> None:
    assert sustained(LINE, slo_ms=5.9) is None
    assert sustained(LINE, slo_ms=100.0, longest_ms=97.0) is None


def test_the_limit_is_kept_to_the_last_bit() -> None:
    assert limit_ms(50.0) >= 24.0
    assert LINE.cheapest(limit_ms(8.0)) == Batch(2, 3.0, 1.5)


def test_tenants_shrink_their_batches_together() -> None:
    """Alone the loose one would run batches of six."""
    tight = Tenant(curve=LINE, slo_ms=10.0, qps=150.0)
    loose = Tenant(curve=LINE, slo_ms=16.0, qps=150.0)

    assert duty([loose, tight]) == Duty(
        longest_ms=4.0,
        batches=(Batch(3, 4.0, 4 / 3), Batch(3, 4.0, 4 / 3)),
        share=0.4,
    )


def test_who_cannot_bear_the_others_batch_cannot_share() -> None:
    tight = Tenant(curve=LINE, slo_ms=10.0, qps=100.0)

    assert duty([Tenant(curve=FLAT, slo_ms=100.0, qps=100.0), tight]) is None


def test_nobody_shares_nothing() -> None:
    assert duty([]) is None


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


TENANTS = st.lists(
    st.builds(Tenant, curve=CURVES, slo_ms=st.floats(5.0, 200.0), qps=st.floats(0.1, 50.0)),
    min_size=1,
    max_size=3,
)


@given(TENANTS, st.sampled_from([0.0, 0.25]))
def test_a_duty_keeps_every_slo(tenants: list[Tenant], interference: float) -> None:
    found = duty(tenants, interference=interference)

    if found is not None:
        for tenant, batch in zip(tenants, found.batches, strict=True):
            assert found.longest_ms + batch.latency_ms + 2.0 <= tenant.slo_ms * (1 + 1e-8)


@given(TENANTS)
def test_interference_never_helps(tenants: list[Tenant]) -> None:
    plain, disturbed = duty(tenants), duty(tenants, interference=0.3)

    if disturbed is not None and len(tenants) > 1:
        assert plain is not None
        assert plain.share <= disturbed.share * (1 + 1e-9)
