"""A tick that is told of the one before decides the same as one that is not."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from planner.reconcile.tick import tick
from planner.reconcile.unchanged import unchanged
from planner.solver.greedy import greedy
from planner.solver.problem import Problem, Solution
from planner.types import Decision, KeptRoom, Objective, Observation, ReplicaReport
from tests.planner.builders import catalog, demand, observation, profile, replica, report, variant
from variants.types import DeviceKindName, ReplicaState

CPU = DeviceKindName("cpu-1")

CATALOG = catalog(
    [variant("small", 0.8), variant("large", 0.95), variant("other", 0.9, task="letters")],
    [
        profile("small", 5.0),
        profile("large", 20.0, memory_mib=600.0),
        profile("other", 10.0, task="letters", memory_mib=500.0),
    ],
)


def seen(*, idle_s: float = 1_000.0, asked: bool = True, rate_qps: float = 0.0) -> Observation:
    held = replica("small", idle_s=idle_s, asked=asked, rate_qps=rate_qps)
    return observation(CATALOG, report("w1", held), report("w2"), demand=[demand(10.0)])


def test_the_same_decision_is_given_again_when_only_time_went_on() -> None:
    first = seen(idle_s=400.0)
    decision = tick(first)

    assert tick(replace(seen(idle_s=401.0), now_s=2_000.0, catalog=CATALOG), greedy, decision) is (
        decision
    )


@pytest.mark.parametrize(
    "later",
    [
        seen(idle_s=299.0),
        seen(rate_qps=1.0),
        seen(asked=False),
        replace(seen(), demand=(demand(11.0),)),
        replace(seen(), inventory={}),
        replace(seen(), watched=0.5),
        replace(seen(), steady=0.5),
        replace(seen(), room=KeptRoom(0.5)),
        replace(seen(), declared=("A peak is coming.",)),
        replace(seen(), corrected=True),
        replace(seen(), workers=seen().workers[:1]),
        replace(seen(), catalog=replace(CATALOG, revision=2)),
    ],
)
def test_what_a_decision_asks_for_counts(later: Observation) -> None:
    assert not unchanged(seen(), later)


def test_a_draining_worker_is_a_change() -> None:
    workers = seen().workers

    assert not unchanged(
        seen(), replace(seen(), workers=(replace(workers[0], draining=True), *workers[1:]))
    )


def test_how_long_it_has_been_there_does_not_count_for_what_nobody_asked_for() -> None:
    assert unchanged(seen(asked=False, idle_s=1.0), seen(asked=False, idle_s=900.0))


def noisy(draw: Random, before: Observation, decision: Decision | None) -> Observation:
    """A step of a small fleet on which some of everything happens."""

    def again(old: ReplicaReport) -> ReplicaReport:
        if draw.random() < 0.5:
            return old
        return old._replace(
            idle_s=draw.choice([1.0, 299.0, 300.0, 1_000.0]),
            loaded_for_s=draw.choice([5.0, 59.0, 60.0, 1_000.0]),
            in_flight=draw.choice([0, 0, 1]),
            asked=draw.random() < 0.5,
            rate_qps=draw.choice([0.0, 5.0]),
            rows_per_query=draw.choice([1.0, 1.0, 2.0]),
            state=draw.choice([old.state] * 20 + [ReplicaState.QUARANTINED, ReplicaState.READY]),
        )

    names = (("small", "digits", 100.0), ("large", "digits", 600.0), ("other", "letters", 500.0))
    workers = []
    for worker in before.workers:
        held = [again(old) for old in worker.replicas]
        if draw.random() < 0.1:
            name, task, mib = draw.choice(names)
            held = [replica(name, task=task, memory_mib=mib)]
        workers.append(
            worker if draw.random() < 0.3 else report(
                worker.id, *held, draining=draw.random() < 0.05)
        )  # fmt: skip
    wanted = before.demand
    if draw.random() < 0.3:
        wanted = (demand(draw.uniform(0.0, 150.0)), demand(draw.uniform(0, 60), task="letters"))
    return replace(
        before,
        workers=tuple(workers),
        demand=wanted,
        now_s=before.now_s + 1.0,
        plan=before.plan if decision is None or draw.random() < 0.5 else decision.plan,
    )


def resized(draw: Random, before: Observation) -> Observation:
    """The same later, on a fleet that is sized by the plan: mostly with the envelope that was."""
    changes: dict[str, Any] = {}
    if draw.random() < 0.3:
        changes["envelope"] = (demand(draw.choice([20.0, 150.0, 400.0])),)
    if draw.random() < 0.1:
        changes["interference"] = {CPU: draw.choice([0.0, 0.2])}
    if draw.random() < 0.1:
        changes["least"] = {CPU: draw.choice([0, 2])}
    if draw.random() < 0.2:
        changes["running"] = {CPU: draw.randint(1, 3)}
    if draw.random() < 0.2:
        changes["watched"] = draw.choice([0.3, 1.0])
        changes["steady"] = draw.choice([0.0, 0.5])
    if draw.random() < 0.05:
        changes["transport_ms"] = draw.choice([0.3, 2.0])
    if draw.random() < 0.05:
        changes["catalog"] = replace(before.catalog, revision=before.catalog.revision + 1)
    return replace(before, elastic=True, **changes)


@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_a_decision_does_not_depend_on_the_one_before(seed: int, elastic: bool) -> None:
    draw = Random(seed)
    now = observation(CATALOG, report("w1"), report("w2"), report("w3"), inventory={CPU: 3})
    decision = None
    for _ in range(40):
        now = noisy(draw, now, decision)
        if elastic:
            now = resized(draw, now)
        alone = tick(now, greedy)
        decision = tick(now, greedy, decision)
        assert decision == alone


def test_a_fleet_is_sized_anew_only_for_another_envelope() -> None:
    asked: list[Problem] = []

    def counting(problem: Problem, objective: Objective) -> Solution:
        asked.append(problem)
        return greedy(problem, objective)

    def solved(now: Observation, before: Decision) -> int:
        asked.clear()
        assert tick(now, counting, before) == tick(now, greedy)
        return len(asked)

    kept = (demand(150.0),)
    first = observation(
        CATALOG, report("w1", replica("small")), demand=[demand(10.0)], inventory={CPU: 3},
        running={CPU: 3},
    )  # fmt: skip
    first = replace(first, elastic=True, envelope=kept)
    decision = tick(first, counting)
    first = replace(first, plan=decision.plan)
    second = replace(first, demand=(demand(10.1),), now_s=first.now_s + 1.0)
    divided = tick(second, counting, decision)
    again = replace(second, demand=(demand(10.2),), plan=divided.plan, now_s=second.now_s + 1.0)

    assert solved(again, divided) == 0
    assert solved(replace(again, envelope=(demand(160.0),)), divided) > 0
    assert solved(replace(again, interference={CPU: 0.3}), divided) > 0


def test_where_only_the_traffic_moved_what_replicas_are_told_is_not_made_anew() -> None:
    wanted = (demand(20.0), demand(10.0, task="letters"))

    def seen_with(qps: float, decision: Decision | None) -> Observation:
        held = [
            replica("small", rate_qps=qps, asked=True, memory_mib=100.0),
            replica("other", task="letters", rate_qps=10.0, asked=True, memory_mib=500.0),
        ]
        here = observation(CATALOG, report("w1", *held), demand=wanted, inventory={"cpu-1": 1})
        return here if decision is None else replace(here, plan=decision.plan)

    first = tick(seen_with(5.0, None), greedy)
    second = tick(seen_with(5.0, first), greedy, first)
    third = tick(seen_with(7.0, second), greedy, second)

    assert third is not second
    assert third.targets is second.targets
    assert third == tick(seen_with(7.0, second), greedy)
