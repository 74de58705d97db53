"""What a plan brings to each replica, told in queries."""

import pytest

from planner.reconcile.replica_targets import PlannedRate, planned_rates, rows_per_query
from planner.reconcile.tick import tick
from tests.planner.builders import (
    DIGITS,
    catalog,
    demand,
    observation,
    profile,
    replica,
    report,
    variant,
)
from tests.planner.reconcile.test_replica_targets import SNAPSHOT, W1, A, B, route


def test_rows_are_told_in_queries() -> None:
    routes = (route(100.0), route(50.0), route(100.0, "b"))
    assert planned_rates(routes, SNAPSHOT, {}) == {
        W1: {A[1:]: PlannedRate(20.0, 1.0), B[1:]: PlannedRate(10.0, 1.0)}
    }
    assert planned_rates(routes, SNAPSHOT, {DIGITS: 4.0}) == {
        W1: {A[1:]: PlannedRate(5.0, 1.0), B[1:]: PlannedRate(2.5, 1.0)}
    }


def test_queries_that_cannot_wait_for_a_load_are_urgent() -> None:
    """Loading a takes 1 s in these profiles."""
    found = planned_rates((route(100.0), route(5_000.0)), SNAPSHOT, {})
    assert found == {W1: {A[1:]: PlannedRate(20.0, 0.5)}}


def test_each_replica_weighs_by_its_rate() -> None:
    often = replica("a", rate_qps=30.0)._replace(rows_per_query=8.0)
    seldom = replica("b", rate_qps=10.0)._replace(rows_per_query=4.0)
    idle = replica("c")._replace(rows_per_query=100.0)
    workers = (report("w1", often, idle), report("w2", seldom))
    assert rows_per_query(workers) == {DIGITS: 7.0}
    single = often._replace(rows_per_query=1.0)
    assert rows_per_query((report("w1", single),)) == {}


def test_a_replica_that_has_answered_nothing_yet_says_nothing_of_rows() -> None:
    """It was just loaded, and queries are expected of it."""
    new = replica("b", rate_qps=30.0)
    known = replica("a", rate_qps=1.0)._replace(rows_per_query=32.0)
    assert rows_per_query((report("w1", known), report("w2", new))) == {DIGITS: 32.0}
    assert rows_per_query((report("w2", new),)) == {}


def test_the_mean_of_equal_queries_does_not_move_with_their_rates() -> None:
    for number in range(1, 100):
        one = replica("a", rate_qps=number / 7)._replace(rows_per_query=10.0)
        other = replica("a", rate_qps=1 / number)._replace(rows_per_query=10.0)
        assert rows_per_query((report("w1", one), report("w2", other))) == {DIGITS: 10.0}


def test_a_tick_tells_replicas_what_comes_in_queries() -> None:
    """Ten rows per second, five in each query."""
    held = replica("a", asked=True, rate_qps=2.0)._replace(rows_per_query=5.0)
    known = catalog([variant("a")], [profile("a")])
    decision = tick(observation(known, report("w1", held), demand=[demand(10.0)]))
    assert sum(route.qps for route in decision.plan.routes) == pytest.approx(10.0)
    assert decision.targets[A].qps == pytest.approx(2.0)
