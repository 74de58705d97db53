"""Profiles by what batches of each size take: what was seen, and what follows from it."""

from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.reconcile.live_profiles import (
    MOST_PAID_MS,
    MOST_TAIL,
    BusyRatio,
    ProfiledTimes,
    SizeRatio,
    live_profile,
    size_of,
    with_busy,
)
from planner.selection.snapshot import MEASURED_MARGIN, latency_points, margin, typical_points
from variants.types import (
    DeviceKindName,
    LatencyPoint,
    Profile,
    ProfileSource,
    TaskName,
    VariantName,
)


def profile(
    *points: tuple[int, float, float], source: ProfileSource = ProfileSource.MEASURED
) -> Profile:
    """Of (rows, median, 95th percentile)."""
    return Profile(
        task=TaskName("t"),
        variant=VariantName("v"),
        device_kind=DeviceKindName("cpu-1"),
        points=tuple(
            LatencyPoint(batch_size=rows, p50_ms=p50, p95_ms=p95, p99_ms=p95)
            for rows, p50, p95 in points
        ),
        memory_mib=1.0,
        load_s=1.0,
        source=source,
    )


def by_size(**ratios: float) -> dict[int, SizeRatio]:
    return {int(key[1:]): SizeRatio(log(r), log(r)) for key, r in ratios.items()}


SMALL = profile((1, 0.01, 0.012), (8, 0.02, 0.024), (64, 0.1, 0.11))


def test_what_each_batch_pays_once_does_not_multiply_full_batches() -> None:
    """A row takes 0.3 ms after a pause; 64 rows of the same variant take 0.29 ms longer at most."""
    found = live_profile(SMALL, by_size(_0=30.0))
    assert [p.p50_ms for p in found.points] == pytest.approx([0.3, 0.31, 0.39])


def test_what_is_slower_by_a_factor_is_so_once_it_was_seen() -> None:
    found = live_profile(SMALL, by_size(_0=3.0, _3=3.0, _6=3.0))
    assert [p.p50_ms for p in found.points] == pytest.approx([0.03, 0.06, 0.3])


def test_what_is_quicker_is_quicker_in_all_sizes() -> None:
    found = live_profile(SMALL, by_size(_3=0.5))
    assert [p.p50_ms for p in found.points] == pytest.approx([0.005, 0.01, 0.05])


def test_what_was_seen_needs_no_margin_and_the_others_keep_theirs() -> None:
    found = live_profile(SMALL, by_size(_0=1.5))
    rows = dict(latency_points(found))
    assert rows[1] == pytest.approx(1.5 * 0.012)
    assert rows[64] == pytest.approx(MEASURED_MARGIN * found.points[2].p95_ms)
    assert rows[64] > MEASURED_MARGIN * 0.11


def test_an_exact_profile_has_no_margin_before_or_after() -> None:
    exact = profile((1, 1.0, 1.0), (8, 4.0, 4.0), source=ProfileSource.EXACT)
    assert dict(latency_points(live_profile(exact, by_size(_0=2.0)))) == {1: 2.0, 8: 5.0}


def test_what_is_slow_on_a_busy_worker_is_so_in_all_sizes_but_for_waking_and_handing_over() -> None:
    """A row of 0.01 ms pays up to 0.3 ms with every batch; one of 10 ms is three times as slow."""
    slow = {0: BusyRatio(log(3.0), 0.1)}
    paid = {0: BusyRatio(log(26.0), 0.1)}
    large = profile((1, 10.0, 10.0), (8, 80.0, 80.0), source=ProfileSource.EXACT)
    small = profile((1, 0.01, 0.01), (64, 0.1, 0.1), source=ProfileSource.EXACT)

    (one, row_ms), (eight, batch_ms) = with_busy(large, large, slow).busy
    assert (one, eight) == (1, 8)
    assert (row_ms, batch_ms) == pytest.approx((30.0, 8 * 30.0), rel=0.02)
    assert batch_ms < 8 * 30.0 - MOST_PAID_MS
    assert [ms for _, ms in with_busy(small, small, paid).busy] == pytest.approx([0.26, 0.35])


def test_a_stall_is_no_property_of_the_variant() -> None:
    found = live_profile(SMALL, {0: SizeRatio(0.0, log(500.0))})
    assert found.points[0].p95_ms == pytest.approx(MOST_TAIL * 0.01)


def test_nothing_seen_changes_nothing() -> None:
    assert live_profile(SMALL, {}) is SMALL


def test_live_latency_is_compared_with_what_the_profile_says_of_so_many_rows() -> None:
    """Between profiled sizes, and for the largest, which is no power of two."""
    times = ProfiledTimes(profile((1, 1.0, 2.0), (3, 3.0, 4.0), (6, 6.0, 7.0)))
    found = times.ratios([(2, 4.0), (6, 3.0), (8, 9.0)], 1.5)
    assert found.keys() == {1, 3}
    assert found[1] == pytest.approx((log(2.0), log(2.0)))
    assert found[3] == pytest.approx((log(0.5), log(4.5 / 7.0)))
    assert times.ratios([(2, 4.0)], 0.0) == {}


@given(
    st.dictionaries(
        st.integers(0, 8), st.tuples(st.floats(-3, 3), st.floats(-3, 3)), min_size=1, max_size=5
    ),
    st.sampled_from([SMALL, profile((1, 5.0, 6.0)), profile((4, 2.0, 9.0), (5, 3.0, 9.5))]),
)
def test_what_was_seen_is_what_is_decided_by(
    logs: dict[int, tuple[float, float]], known: Profile
) -> None:
    ratios = {size: SizeRatio(*pair) for size, pair in logs.items()}
    found = live_profile(known, ratios)
    for before, now in zip(known.points, found.points, strict=True):
        assert 0.0 < now.p50_ms <= now.p95_ms <= now.p99_ms
        assert now.p95_ms <= MOST_TAIL * now.p50_ms * (1 + 1e-9)
        if size_of(before.batch_size) in ratios:
            seen = ratios[size_of(before.batch_size)]
            assert now.p50_ms == pytest.approx(before.p50_ms * exp(seen.typical))
            assert margin(found, now) == 1.0
        else:
            assert margin(found, now) == pytest.approx(margin(known, before))
    assert [rows for rows, _ in typical_points(found)] == [p.batch_size for p in known.points]
