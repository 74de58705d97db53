"""What a plan gives to each replica."""

from dataclasses import replace

import pytest

from planner.reconcile.replica_targets import PlannedRate, replica_targets
from planner.reconcile.tick import tick
from planner.types import ReplicaTarget
from tests.planner.builders import (
    DIGITS,
    catalog,
    observation,
    placement,
    profile,
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
