"""What a plan gives to each replica."""

from dataclasses import replace

import pytest

from planner.reconcile.replica_targets import (
    PlannedRate,
    planned_rates,
    replica_targets,
    rows_per_query,
)
from planner.reconcile.tick import tick
from planner.types import ReplicaTarget
from tests.planner.builders import (
    DIGITS,
    catalog,
    demand,
    observation,
    placement,
    profile,
    replica,
    report,
    snapshot,
    variant,
    worker,
)
from variants.types import DeviceKindName, Plan, Route, VariantName, WorkerId

W1 = WorkerId("w1")
A, B = (W1, DIGITS, VariantName("a")), (W1, DIGITS, VariantName("b"))
SNAPSHOT = snapshot(
    catalog([variant("a"), variant("b")], [profile("a", 10.0), profile("b", 30.0)]),
    (worker("w1"), ()),
)


def route(latency_ms: float, name: str = "a") -> Route:
    return Route(
        task=DIGITS, latency_ms=latency_ms, accuracy=None, variant=VariantName(name),
        worker=W1, batch_size=1, qps=10.0,
    )  # fmt: skip


def plan(*routes: Route) -> Plan:
    return Plan(
        version=1,
        epoch=1,
        placements=(placement("a", share=0.25), placement("b", share=0.5)),
        workers={DeviceKindName("cpu-1"): 1},
        routes=routes,
    )


def test_a_replica_has_the_share_of_its_task_and_half_of_the_slo_for_a_batch() -> None:
    rates = {W1: {A[1:]: PlannedRate(10.0)}}
    found = replica_targets(plan(route(100.0)), SNAPSHOT, rates)
    told = ReplicaTarget(share=0.75, longest_batch_ms=50.0)
    assert found == {A: told._replace(qps=10.0), B: told}


def test_the_slo_is_the_tightest_of_its_class() -> None:
    """Of a class of 100 ms all ask for 180 or more."""
    loose = replace(route(100.0), slo_ms=180.0)
    assert replica_targets(plan(loose), SNAPSHOT, {})[A].longest_batch_ms == 90.0
    both = plan(loose, route(150.0, "b"))
    assert replica_targets(both, SNAPSHOT, {})[A].longest_batch_ms == 75.0


def test_a_batch_may_take_as_long_as_was_planned() -> None:
    """A batch of b takes 36 ms with its margin, more than half of 40 ms."""
    found = replica_targets(plan(route(40.0), route(40.0, "b")), SNAPSHOT, {})
    assert found[A].longest_batch_ms == found[B].longest_batch_ms == pytest.approx(36.0)


def test_a_batch_that_was_planned_takes_longer_where_variants_share_a_worker() -> None:
    """36 ms by the profile, 54 beside another variant; two classes of one variant are not that."""
    part = {DeviceKindName("cpu-1"): 0.5}
    both = plan(route(40.0), route(40.0, "b"))
    assert replica_targets(both, SNAPSHOT, {}, part)[A].longest_batch_ms == pytest.approx(54.0)
    own = plan(route(40.0, "b"), route(50.0, "b"))
    assert replica_targets(own, SNAPSHOT, {}, part)[B].longest_batch_ms == pytest.approx(36.0)


def test_without_routes_the_queue_decides_by_itself() -> None:
    assert replica_targets(plan(), SNAPSHOT, {})[A].longest_batch_ms == 0.0


def test_routes_to_a_worker_that_is_gone_give_nothing() -> None:
    elsewhere = snapshot(catalog([variant("a")], [profile("a", 10.0)]), (worker("w2"), ()))
    assert replica_targets(plan(route(100.3)), elsewhere, {})[A].longest_batch_ms == 0.0


def test_shares_that_add_up_to_more_than_the_whole_time_are_the_whole_time() -> None:
    crowded = Plan(
        version=1, epoch=1, workers={}, routes=(),
        placements=(placement("a", share=0.75), placement("b", share=0.5)),
    )  # fmt: skip
    assert replica_targets(crowded, SNAPSHOT, {})[A].share == 1.0


def test_a_tick_decides_the_targets_of_all_that_it_places() -> None:
    decision = tick(observation(catalog([variant("a")], [profile("a")]), report()))
    placed = {(p.worker, p.task, p.variant) for p in decision.plan.placements}
    assert decision.targets.keys() == placed == {A}


# -- told in queries ----------------------------------------------------------------------------


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
