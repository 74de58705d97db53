"""Churn: how fast a memory turns over, and what a short stay costs."""

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.eviction.churn import MEMORY_S, Churn, pays_ahead, short_stay_s
from planner.eviction.rules import LEAST_LOAD_S, VIOLATION_S, absence_s

POSITIVE = st.floats(1e-3, 1e3)


def test_what_never_evicts_does_not_turn_over() -> None:
    assert Churn(100.0).per_s(5.0) == 0.0


def test_steady_evictions_show_as_their_share_of_the_memory() -> None:
    """A tenth of the memory every ten seconds, from the first minute on."""
    churn = Churn(1_000.0)
    churn.per_s(0.0)
    for ten in range(1, 200):
        churn.evicted(100.0, 10.0 * ten)
        if ten > 6:
            assert churn.per_s(10.0 * ten) == pytest.approx(0.01, rel=0.1)


def test_what_is_over_is_forgotten() -> None:
    churn = Churn(1_000.0)
    churn.per_s(0.0)
    churn.evicted(500.0, 100_000.0)
    before = churn.per_s(100_000.0)
    assert churn.per_s(100_000.0 + MEMORY_S) == pytest.approx(before * exp(-1.0))


def test_asking_changes_nothing() -> None:
    asked, quiet = Churn(100.0), Churn(100.0)
    for churn in (asked, quiet):
        churn.evicted(50.0, 0.0)
    for second in range(50):
        asked.per_s(float(second))
    assert asked.per_s(60.0) == quiet.per_s(60.0)


@given(POSITIVE, POSITIVE, POSITIVE)
def test_a_stay_costs_less_than_an_absence_and_more_where_more_leaves(
    qps: float, load_s: float, churn_per_s: float
) -> None:
    cost_s = short_stay_s(qps, load_s, churn_per_s)
    assert 0.0 < cost_s < absence_s(qps, load_s)
    assert cost_s < short_stay_s(qps, load_s, 2.0 * churn_per_s)
    assert cost_s < short_stay_s(2.0 * qps, load_s, churn_per_s)


def test_half_of_the_absence_where_it_leaves_as_often_as_it_is_asked_for() -> None:
    assert short_stay_s(0.1, 10.0, 0.1) == pytest.approx(0.5)
    assert short_stay_s(0.1, 10.0, 0.0) == 0.0
    assert short_stay_s(0.0, 10.0, 0.1) == 0.0


def test_what_stays_may_be_loaded_ahead() -> None:
    assert pays_ahead(0.0, 10.0, 0.0, churn_per_s=0.0)
    assert not pays_ahead(0.0, 10.0, 1.0, churn_per_s=1e-6)


def test_a_load_ahead_pays_where_it_is_used_often_enough() -> None:
    """It costs 0.1 s for sure, and saves 0.1 s and a refusal if its query comes in time."""
    used = 0.1 / (0.1 + VIOLATION_S)
    assert pays_ahead(used + 1e-6, 0.1, 1.0, churn_per_s=1.0 - used)
    assert not pays_ahead(used - 1e-6, 0.1, 1.0, churn_per_s=1.0 - used)


def test_what_loads_quickly_is_loaded_ahead_so_that_no_query_waits() -> None:
    assert pays_ahead(1.0, LEAST_LOAD_S / 2, 0.0, churn_per_s=1.0)
    assert not pays_ahead(1.0, LEAST_LOAD_S * 2, 0.0, churn_per_s=1.0)


def test_what_its_next_query_would_load_is_loaded_ahead_only_for_many_queries() -> None:
    """Those that come during the load: four in 0.5 s, and all of them cannot wait."""
    for qps, loads_itself, ahead in (
        (8.0, True, True), (7.0, True, False), (7.0, False, True),
    ):  # fmt: skip
        assert pays_ahead(qps, 0.5, 1.0, churn_per_s=0.1, loads_itself=loads_itself) is ahead
    assert pays_ahead(0.1, 0.5, 1.0, churn_per_s=0.0, loads_itself=True)
