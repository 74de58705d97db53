"""Which variant is deployed, and on which devices its replicas are."""

from dataclasses import replace

import pytest

from planner.policies.autoscalers.best_variants import best_variants
from planner.policies.autoscalers.deployments import order_of
from planner.policies.offers import answering
from planner.policies.registry import make
from planner.simulate import offers_of, simulate
from planner.simulation.fleet import Fleet
from planner.simulation.policy import Brief
from planner.types import Demand, Objective
from tests.planner.simulation.builders import Asked, Model, engine_of, setting, trace
from variants.types import DeviceKindName, TaskName

A = TaskName("a")
LADDER = (
    Model(name="quick", latency_ms=10.0, accuracy=0.7),
    Model(name="middle", latency_ms=20.0, accuracy=0.8),
    Model(name="good", latency_ms=40.0, accuracy=0.9),
)


@pytest.mark.parametrize(
    ("objective", "qps", "expected"),
    [
        (Objective.ACCURACY, 10.0, "good"),  # 0.8 of two devices at the peak
        (Objective.ACCURACY, 25.0, "good"),  # 2.0 devices
        (Objective.ACCURACY, 26.0, "middle"),
        (Objective.ACCURACY, 100.0, "quick"),
        (Objective.COST, 10.0, "quick"),
    ],
)
def test_the_best_static_variant(objective: Objective, qps: float, expected: str) -> None:
    known = setting(*LADDER, devices=2)
    fleet = Fleet(offers_of(known.catalog), known.kinds)
    wanted = Demand(task=A, latency_ms=200.0, accuracy=None, qps=qps)
    found = best_variants(answering(fleet, known.kinds), {A: [wanted]}, known.kinds, objective)
    assert found[A].variant == expected


def test_kinds_are_taken_by_cost_where_it_counts() -> None:
    known = setting(*LADDER[:1])
    fleet = Fleet(offers_of(known.catalog), known.kinds)
    wanted = Demand(task=A, latency_ms=200.0, accuracy=None, qps=1.0)
    made = best_variants(answering(fleet, known.kinds), {A: [wanted]}, known.kinds, Objective.COST)
    (offer,) = made[A].offers.values()
    fast, slow = DeviceKindName("fast"), DeviceKindName("slow")
    two = replace(made[A], offers={fast: offer, slow: offer})
    assert order_of(two, [two], {fast: 2.0, slow: 1.0}) == [slow, fast]
    assert order_of(two, [two], {fast: 1.0, slow: 2.0}) == [fast, slow]


@pytest.mark.parametrize("name", ["ray-autoscaling", "hpa", "dynamo"])
def test_devices_come_with_the_load_and_go_after_it(name: str) -> None:
    """80 queries per second of 40 ms take 3.2 devices, for ten minutes; then one a second, for
    half an hour."""
    known = setting(
        Model(latency_ms=40.0, max_batch=1), devices=8, objective=Objective.COST, provision_s=10.0
    )
    rows = [Asked(i / 80, 400.0) for i in range(48_000)]
    rows += [Asked(600.0 + i, 400.0) for i in range(1_800)]
    report = simulate(known, trace(*rows), name, clock=lambda: 0.0)
    late = [each for each in report.timeline if 420 <= each.start_s < 590]
    assert all(each.devices >= 4 for each in late)
    assert sum(each.in_time for each in late) > 0.99 * sum(each.arrived for each in late)
    assert report.timeline[-1].devices == 1


def test_a_task_without_a_device_of_its_own_shares_one() -> None:
    """Three tasks on two devices."""
    known = setting(*[Model(task) for task in "abc"], devices=2)
    rows = trace(*(Asked(i / 5, task="abc"[i % 3]) for i in range(150)))
    wanted = tuple(
        Demand(task=TaskName(task), latency_ms=100.0, accuracy=None, qps=2.0) for task in "abc"
    )
    brief = Brief(setting=known, average=lambda: wanted, clock_s=lambda: 0.0)
    engine, report = engine_of(known, rows, lambda fleet: make("hpa")(brief, fleet))
    assert sorted(len(w.replicas) for w in engine.fleet.workers.values()) == [1, 2]
    after = [each for each in report.timeline if each.start_s >= 5]
    assert sum(each.in_time for each in after) == sum(each.arrived for each in after)
