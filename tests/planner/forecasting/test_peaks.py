"""Declared peaks: when they count, and what they make of the demand that is expected."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from planner.forecasting.peaks import DeclaredDemand, due, is_over, most, occurrence
from planner.types import Demand
from variants.types import Peak, TaskName

A, B = TaskName("a"), TaskName("b")
SALE = Peak(id=1, start_s=100.0, end_s=200.0, factor=3.0)
NOBODY: dict[TaskName, Demand] = {}


def demand(task: TaskName = A, qps: float = 10.0, latency_ms: float = 50.0) -> Demand:
    return Demand(task=task, latency_ms=latency_ms, accuracy=None, qps=qps)


def expected(
    it: DeclaredDemand, at_s: float, peak: Peak, *now: Demand, lead_s: float = 20.0
) -> dict[tuple[TaskName, float], float]:
    """Rates by task and latency."""
    usual = {A: demand(A, 0.0, 500.0)}
    found = it.raised(now, [peak], at_s, lead_s, usual)
    return {(d.task, d.latency_ms): d.qps for d in found}


def test_a_peak_counts_from_its_lead_to_its_end() -> None:
    seen = {at_s: bool(due([SALE], at_s, 20.0)) for at_s in (79.0, 80.0, 100.0, 199.0, 200.0)}
    assert seen == {79.0: False, 80.0: True, 100.0: True, 199.0: True, 200.0: False}
    assert [d.begun for at_s in (99.0, 100.0) for d in due([SALE], at_s, 20.0)] == [False, True]


def test_a_daily_peak_comes_each_day() -> None:
    daily = replace(SALE, every_s=1_000.0)
    assert occurrence(daily, 0.0) == (100.0, 200.0)
    assert occurrence(daily, 199.0) == (100.0, 200.0)
    assert occurrence(daily, 200.0) == (1_100.0, 1_200.0)
    assert occurrence(daily, 5_150.0) == (5_100.0, 5_200.0)
    assert (is_over(daily, 1e6), is_over(SALE, 199.0), is_over(SALE, 200.0)) == (False, False, True)


def test_a_factor_is_of_what_was_expected_when_the_peak_began() -> None:
    it = DeclaredDemand()
    assert expected(it, 50.0, SALE, demand(qps=10.0)) == {(A, 50.0): 10.0}
    assert expected(it, 90.0, SALE, demand(qps=10.0)) == {(A, 50.0): 30.0}
    assert expected(it, 99.0, SALE, demand(qps=12.0)) == {(A, 50.0): 36.0}
    # It has begun, and the forecast sees it; a class that is new by then is as it is forecast.
    now = demand(qps=34.0), demand(B, qps=5.0)
    assert expected(it, 150.0, SALE, *now) == {(A, 50.0): 36.0, (B, 50.0): 5.0}
    assert expected(it, 160.0, SALE, demand(qps=50.0)) == {(A, 50.0): 50.0}
    assert expected(it, 200.0, SALE, demand(qps=34.0)) == {(A, 50.0): 34.0}
    assert it.remembered == {}


def test_a_peak_that_is_declared_late_is_of_what_there_is() -> None:
    it = DeclaredDemand()
    assert expected(it, 150.0, SALE, demand(qps=10.0)) == {(A, 50.0): 30.0}
    assert expected(it, 160.0, SALE, demand(qps=20.0)) == {(A, 50.0): 30.0}


def test_a_peak_stays_due_when_the_lead_turns_out_to_be_shorter() -> None:
    it = DeclaredDemand()
    assert expected(it, 90.0, SALE, demand(), lead_s=20.0) == {(A, 50.0): 30.0}
    assert expected(it, 91.0, SALE, demand(), lead_s=1.0) == {(A, 50.0): 30.0}
    assert expected(DeclaredDemand(), 91.0, SALE, demand(), lead_s=1.0) == {(A, 50.0): 10.0}


def test_another_goes_on_from_what_was_remembered() -> None:
    it, successor = DeclaredDemand(), DeclaredDemand()
    expected(it, 90.0, SALE, demand(qps=10.0))
    successor.remember(it.remembered)
    assert expected(successor, 150.0, SALE, demand(qps=29.0)) == {(A, 50.0): 30.0}


def test_a_rate_is_divided_as_the_task_is_asked() -> None:
    peak = replace(SALE, factor=None, qps=100.0, task=A)
    now = demand(qps=10.0), demand(qps=30.0, latency_ms=20.0), demand(B, qps=7.0)
    rates = expected(DeclaredDemand(), 90.0, peak, *now)
    assert rates == {(A, 50.0): 25.0, (A, 20.0): 75.0, (B, 50.0): 7.0}


def test_a_rate_of_a_task_that_nobody_asks_is_of_its_usual_class() -> None:
    peak = replace(SALE, factor=None, qps=100.0, task=A)
    assert expected(DeclaredDemand(), 90.0, peak) == {(A, 500.0): 100.0}
    assert expected(DeclaredDemand(), 90.0, replace(peak, task=B)) == {}


def test_where_peaks_meet_the_larger_counts() -> None:
    it = DeclaredDemand()
    both = [SALE, Peak(id=2, start_s=90.0, end_s=110.0, task=A, factor=5.0)]
    found = it.raised([demand(A), demand(B)], both, 100.0, 0.0, NOBODY)
    assert [(d.task, d.qps) for d in found] == [(A, 50.0), (B, 30.0)]
    assert [each.peak.id for each in it.due] == [2, 1]


def test_the_larger_of_two_demands() -> None:
    found = most([demand(A, 1.0), demand(B, 5.0)], [demand(A, 2.0), demand(B, 3.0)])
    assert [d.qps for d in found] == [2.0, 5.0]


@given(
    st.lists(st.floats(0.0, 1e6), min_size=1, max_size=5),
    st.floats(1.0, 1_000.0),
    st.floats(0.0, 300.0),
)
def test_a_peak_never_lowers_what_is_expected(
    rates: list[float], factor: float, at_s: float
) -> None:
    it = DeclaredDemand()
    for qps in rates:
        [(_, found)] = expected(it, at_s, replace(SALE, factor=factor), demand(qps=qps)).items()
        assert found >= qps


@given(st.floats(0.0, 1e9), st.floats(60.0, 1e6), st.floats(0.0, 1.0, exclude_min=True))
def test_an_occurrence_that_is_named_is_not_over(at_s: float, every_s: float, part: float) -> None:
    peak = Peak(start_s=1_000.0, end_s=1_000.0 + part * every_s, factor=2.0, every_s=every_s)
    begin_s, end_s = occurrence(peak, at_s)
    assert end_s - begin_s <= every_s * (1 + 1e-6)
    # To the precision of a time.
    assert at_s < end_s + 1e-6 * max(1.0, at_s)
    assert begin_s - at_s <= max(every_s, 1_000.0) + 1e-6 * max(1.0, at_s)
