"""The tick: whole decisions compared."""

from dataclasses import replace

from hypothesis import given, settings

from planner.tick import tick
from planner.types import Decision, Demand, Load, Scale, Unload, WorkerReport
from tests.planner.builders import (
    catalog,
    demand,
    key,
    observation,
    placement,
    profile,
    replica,
    report,
    variant,
)
from tests.planner.test_placement import catalogs, fleets, wanted_classes
from variants.types import CatalogSnapshot, DeviceKindName, Plan, ReplicaState, Stage, WorkerId

CPU = DeviceKindName("cpu-1")
W1 = WorkerId("w1")


def two() -> CatalogSnapshot:
    return catalog([variant("a"), variant("b")], [profile("a"), profile("b")])


def test_the_first_tick_loads_everything() -> None:
    assert tick(observation(two(), report())) == Decision(
        plan=Plan(
            version=0,
            epoch=0,
            placements=(placement("a"), placement("b")),
            workers={CPU: 1},
            explanation=("w1 (cpu-1) holds 2 of 2 variants of digits in 200 of 1000 MiB.",),
        ),
        changed=True,
        actions=(
            Load(worker=W1, task=key("a")[0], variant=key("a")[1], why="in the plan"),
            Load(worker=W1, task=key("b")[0], variant=key("b")[1], why="in the plan"),
        ),
    )


def test_when_all_is_there_nothing_changes() -> None:
    plan = tick(observation(two(), report())).plan
    loaded = report("w1", replica("a"), replica("b"))
    decision = tick(observation(two(), loaded, plan=replace(plan, version=7, epoch=3)))
    assert decision == Decision(plan=plan, changed=False, actions=())


def test_a_lost_worker_leaves_the_plan() -> None:
    both = tick(observation(two(), report("w1"), report("w2"))).plan
    decision = tick(observation(two(), report("w2", replica("a"), replica("b")), plan=both))
    assert decision.changed
    assert {p.worker for p in decision.plan.placements} == {"w2"}


def test_the_inventory_is_what_runs() -> None:
    decision = tick(observation(two(), inventory={"cpu-1": 2}, running={"cpu-1": 1, "gpu-a": 1}))
    assert decision.actions == (
        Scale(device_kind=CPU, count=2, why="2 instead of 1: the inventory"),
        Scale(device_kind=DeviceKindName("gpu-a"), count=0, why="0 instead of 1: the inventory"),
    )
    assert decision.plan.workers == {CPU: 2}


def test_a_retired_version_is_unloaded() -> None:
    retired = catalog(
        [variant("a"), variant("b")],
        [profile("a"), profile("b")],
        stages={"b": Stage.RETIRED},
    )
    decision = tick(observation(retired, report("w1", replica("a"), replica("b"))))
    assert decision.actions == (
        Unload(worker=W1, task=key("b")[0], variant=key("b")[1], why="not in the plan"),
    )


def test_what_was_loaded_on_demand_enters_the_plan() -> None:
    registered = catalog(
        [variant("a"), variant("b")], [profile("a", memory_mib=600), profile("b", memory_mib=300)]
    )
    plan = Plan(version=1, epoch=1, placements=(placement("a", share=1.0),), workers={CPU: 1})
    used = report(
        "w1", replica("a", memory_mib=600), replica("b", memory_mib=300, idle_s=1), memory_mib=900
    )
    decision = tick(observation(registered, used, plan=plan))
    assert [p.variant for p in decision.plan.placements] == ["a", "b"]
    assert decision.actions == ()


def test_the_explanation_says_what_is_left_out_and_why() -> None:
    ill = report("w1", replica("a", state=ReplicaState.QUARANTINED, memory_mib=0), memory_mib=100)
    three = catalog([variant(n) for n in "abc"], [profile(n) for n in "abc"])
    decision = tick(observation(three, ill, report("w2", draining=True), demand=[demand(1)]))
    assert decision.plan.explanation == (
        "The demand of 1 rows per second was divided anew: 100.0 % of it can be served, at a mean "
        "accuracy of 0.9000.",
        "w1 (cpu-1) holds 1 of 3 variants of digits in 100 of 100 MiB; quarantined: a; "
        "no room for 1: what demand and recent use ask for came first.",
        "w2 drains and gets nothing.",
    )


def test_an_empty_catalog_plans_nothing() -> None:
    decision = tick(observation(CatalogSnapshot(revision=0), report()))
    assert decision.plan.placements == ()
    assert decision.plan.explanation == (
        "w1 (cpu-1) holds 0 of 0 variants of no task in 0 of 1000 MiB.",
    )


@given(catalogs(), fleets(), wanted_classes)
@settings(max_examples=100)
def test_the_same_observation_gives_the_same_decision(
    registered: CatalogSnapshot, workers: tuple[WorkerReport, ...], wanted: tuple[Demand, ...]
) -> None:
    seen = observation(registered, *workers, demand=wanted)
    again = observation(registered, *reversed(workers), demand=wanted[::-1])
    assert tick(seen) == tick(seen)
    assert tick(again) == tick(seen)
