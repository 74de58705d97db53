"""Counts at odd moments, as rates over equal stretches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.forecasting.buckets import Buckets

BLANK = 6


def ended(buckets: Buckets[str], now_s: float, elapsed_s: float, count: float) -> list[object]:
    buckets.widen({"a": count})
    found = buckets.add(now_s, elapsed_s, {"a": count}, BLANK)
    return [(slot, None if np.isnan(rates[0]) else float(rates[0])) for slot, rates in found]


def test_a_bucket_ends_when_its_time_is_over() -> None:
    buckets: Buckets[str] = Buckets(10.0)

    assert ended(buckets, 6.0, 6.0, 60.0) == []
    assert ended(buckets, 10.0, 4.0, 140.0) == [(0, 20.0)]
    assert buckets.open_s == 0.0


def test_a_count_that_spans_several_is_spread_evenly() -> None:
    assert ended(Buckets(10.0), 30.0, 30.0, 300.0) == [(0, 10.0), (1, 10.0), (2, 10.0)]


def test_buckets_begin_with_the_first_count() -> None:
    buckets: Buckets[str] = Buckets(10.0)

    assert ended(buckets, 1_003.0, 10.0, 50.0) == [(0, 5.0)]
    assert buckets.end_s(0) == 1_003.0


def test_what_was_observed_by_less_than_half_has_no_rate() -> None:
    buckets: Buckets[str] = Buckets(10.0)
    ended(buckets, 10.0, 10.0, 50.0)

    assert ended(buckets, 20.0, 4.0, 40.0) == [(1, None)]
    assert ended(buckets, 30.0, 6.0, 60.0) == [(2, 10.0)]


def test_what_was_before_a_key_is_not_observed_of_it() -> None:
    buckets: Buckets[str] = Buckets(10.0)
    ended(buckets, 4.0, 4.0, 40.0)
    buckets.widen({"b": 1.0})
    [(_, rates)] = buckets.add(10.0, 6.0, {"a": 60.0, "b": 30.0}, BLANK)

    assert rates.tolist() == [10.0, 5.0]

    buckets.widen({"c": 1.0})
    buckets.add(16.0, 6.0, {"a": 60.0}, BLANK)
    buckets.widen({"d": 1.0})
    [(_, rates)] = buckets.add(20.0, 4.0, {"a": 40.0, "d": 30.0}, BLANK)

    assert rates[:3].tolist() == [10.0, 0.0, 0.0]
    assert np.isnan(rates[3])


def test_long_absence_is_cut_short() -> None:
    buckets: Buckets[str] = Buckets(10.0)
    ended(buckets, 10.0, 10.0, 50.0)
    found = ended(buckets, 100_010.0, 10.0, 70.0)

    assert found[:BLANK] == [(slot, None) for slot in range(1, 1 + BLANK)]
    assert found[-1] == (10_000, 7.0)
    assert len(found) <= BLANK + 2


def test_a_count_over_days_is_its_mean_rate() -> None:
    buckets: Buckets[str] = Buckets(10.0)
    found = ended(buckets, 100_000.0, 100_000.0, 500_000.0)

    assert found[-1] == (359, 5.0)


def test_counts_that_overlap_keep_all_that_came() -> None:
    buckets: Buckets[str] = Buckets(10.0)
    ended(buckets, 5.0, 5.0, 10.0)

    assert ended(buckets, 10.0, 8.0, 40.0) == [(0, 5.0)]


@given(st.lists(st.tuples(st.floats(0.1, 30.0), st.integers(0, 1_000)), min_size=1, max_size=40))
def test_nothing_is_lost_between_ticks(ticks: list[tuple[float, int]]) -> None:
    buckets: Buckets[str] = Buckets(10.0)
    buckets.widen({"a": 0.0})
    now_s, total = 0.0, 0.0
    for elapsed_s, count in ticks:
        now_s += elapsed_s
        for _, rates in buckets.add(now_s, elapsed_s, {"a": count}, BLANK):
            total += float(rates[0]) * 10.0
    total += float(buckets.open_rates[0]) * buckets.open_s

    assert total == pytest.approx(sum(count for _, count in ticks))
