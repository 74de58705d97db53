"""The tick: whole decisions compared."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from planner.reconcile.division import VAIN_S
from planner.reconcile.kept.routes import DRIFT, FULL, FULL_DRIFT, drift_of
from planner.reconcile.tick import tick
from planner.solver.greedy import greedy
from planner.solver.problem import Problem, Solution
from planner.types import (
    Decision,
    Demand,
    KeptRoom,
    Load,
    Objective,
    Observation,
    ReplicaTarget,
    Scale,
    Unload,
    WorkerReport,
)
from tests.planner.builders import (
    DIGITS,
    catalog,
    demand,
    key,
    kind,
    observation,
    placement,
    profile,
    replica,
    report,
    variant,
)
from tests.planner.reconcile.test_placement import catalogs, fleets, wanted_classes
from variants.types import (
    CatalogSnapshot,
    DeviceKindName,
    Plan,
    ReplicaState,
    Stage,
    WorkerId,
)

CPU = DeviceKindName("cpu-1")
W1 = WorkerId("w1")
WHOLE = ReplicaTarget(share=1.0, longest_batch_ms=0.0)


def two() -> CatalogSnapshot:
    return catalog([variant("a"), variant("b")], [profile("a"), profile("b")])


def test_the_first_tick_loads_everything() -> None:
    assert tick(observation(two(), report())) == Decision(
        plan=Plan(
            version=0,
            epoch=0,
            placements=(placement("a"), placement("b")),
            workers={CPU: 1},
            explanation=("w1 (cpu-1) holds 2 of 2 variants of digits in 200 of 1,000 MiB.",),
        ),
        changed=True,
        actions=(
            Load(worker=W1, task=key("a")[0], variant=key("a")[1], why="in the plan"),
            Load(worker=W1, task=key("b")[0], variant=key("b")[1], why="in the plan"),
        ),
        targets={(W1, *key("a")): WHOLE, (W1, *key("b")): WHOLE},
    )


def test_when_all_is_there_nothing_changes() -> None:
    first = tick(observation(two(), report()))
    plan = first.plan
    loaded = report("w1", replica("a"), replica("b"))
    decision = tick(observation(two(), loaded, plan=replace(plan, version=7, epoch=3)))
    assert decision == Decision(plan=plan, changed=False, actions=(), targets=first.targets)


def test_a_lost_worker_leaves_the_plan() -> None:
    both = tick(observation(two(), report("w1"), report("w2"))).plan
    decision = tick(observation(two(), report("w2", replica("a"), replica("b")), plan=both))
    assert decision.changed
    assert {p.worker for p in decision.plan.placements} == {"w2"}


def test_in_which_order_variants_were_used_last_is_no_change_of_the_plan() -> None:
    registered = catalog(
        [variant("a"), variant("b"), variant("c")],
        [profile(name, memory_mib=400) for name in ("a", "b", "c")],
    )

    def used(a_s: float, b_s: float) -> WorkerReport:
        held = {"a": a_s, "b": b_s}
        return report(
            "w1", *(replica(n, memory_mib=400, idle_s=s, asked=True) for n, s in held.items())
        )

    first = tick(observation(registered, used(1.0, 2.0)))
    second = tick(observation(registered, used(2.0, 1.0), plan=first.plan))

    assert len(first.plan.placements) == 2
    assert not second.changed
    assert second.plan.placements == first.plan.placements


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
        Unload(
            worker=W1, task=key("b")[0], variant=key("b")[1], why="not in the plan", seen=(0, False)
        ),
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


def test_the_explanation_names_interference_only_of_kinds_that_are_there() -> None:
    parts = {CPU: 0.25, DeviceKindName("gone"): 0.5}
    decision = tick(replace(observation(two(), report()), interference=parts))
    assert decision.plan.explanation[0] == (
        "On workers of cpu-1 that serve with several variants, batches are planned to take "
        "25.0 % longer, as they do."
    )
    assert not any("gone" in sentence for sentence in decision.plan.explanation)


def test_what_workers_hold_need_not_be_explained() -> None:
    seen = observation(two(), report(), demand=[demand(10)])
    told, plain = tick(seen), tick(seen, explained=False)
    assert plain.plan.explanation == told.plan.explanation[:-1]
    assert (plain.plan.placements, plain.actions) == (told.plan.placements, told.actions)


def test_the_explanation_says_what_is_left_out_and_why() -> None:
    ill = report("w1", replica("a", state=ReplicaState.QUARANTINED, memory_mib=0), memory_mib=100)
    three = catalog([variant(n) for n in "abc"], [profile(n) for n in "abc"])
    decision = tick(observation(three, ill, report("w2", draining=True), demand=[demand(1)]))
    assert decision.plan.explanation == (
        "The demand of 1 row per second was divided anew: 100.0 % of it can be served, at a mean "
        "accuracy of 90.00 %.",
        "w1 (cpu-1) holds 1 of 3 variants of digits in 100 of 100 MiB; quarantined: a; "
        "no room for 1: what demand and recent use ask for came first.",
        "w2 drains, or says nothing, and gets nothing.",
    )


def test_an_empty_catalog_plans_nothing() -> None:
    decision = tick(observation(CatalogSnapshot(revision=0), report()))
    assert decision.plan.placements == ()
    assert decision.plan.explanation == (
        "w1 (cpu-1) holds nothing, as there is no variant for it.",
    )


@given(catalogs(), fleets(), wanted_classes)
@settings(max_examples=50)
def test_the_same_observation_gives_the_same_decision(
    registered: CatalogSnapshot, workers: tuple[WorkerReport, ...], wanted: tuple[Demand, ...]
) -> None:
    seen = observation(registered, *workers, demand=wanted)
    again = observation(registered, *reversed(workers), demand=wanted[::-1])
    assert tick(seen) == tick(seen)
    assert tick(again) == tick(seen)


# -- dividing the demand -------------------------------------------------------------------------


def planned(qps: float, **changes: Any) -> Observation:
    """One worker that holds two variants, with a plan made for 100 rows per second."""
    holds = report("w1", replica("a"), replica("b"))
    seen = observation(two(), holds, demand=[demand(100.0)])
    plan = replace(tick(seen).plan, version=1, epoch=1)
    return replace(observation(two(), holds, demand=[demand(qps)], plan=plan), **changes)


def test_a_plan_stays_while_the_demand_hardly_moves() -> None:
    """The worker is full, so that less counts than where it has time."""
    decisions = [tick(planned(qps)) for qps in (96.0, 100.0, 104.0)]
    assert [decision.changed for decision in decisions] == [False, False, False]


@pytest.mark.parametrize("full", [0.79, 0.81])
def test_under_cost_full_workers_are_divided_anew_sooner(full: float) -> None:
    shares = {
        WorkerId("w1"): {key("a"): 0.1},
        WorkerId("w2"): {key("a"): full - 0.2, key("b"): 0.2},
    }
    assert drift_of(Objective.COST, shares) == (FULL_DRIFT if full > FULL else DRIFT)
    assert drift_of(Objective.ACCURACY, shares) == DRIFT
    assert drift_of(Objective.COST, None) == DRIFT


def test_a_plan_is_made_anew_when_the_demand_moves() -> None:
    decision = tick(planned(120.0))
    assert decision.changed
    assert sum(route.qps for route in decision.plan.routes) == pytest.approx(120.0)


def test_a_plan_is_made_anew_when_live_latency_contradicts_profiles() -> None:
    """108 rows per second instead of 100 alone would not do that."""
    decision = tick(planned(108.0, corrected=True))
    assert sum(route.qps for route in decision.plan.routes) == pytest.approx(108.0)


@pytest.mark.parametrize(
    "unanswerable",
    [demand(1_000.0, latency_ms=1.0), demand(1_000.0, accuracy=0.99), demand(9.0, task="unknown")],
    ids=["too fast", "too accurate", "no such task"],
)
def test_demand_that_no_variant_can_meet_changes_no_plan(unanswerable: Demand) -> None:
    seen = planned(100.0)
    crowded = replace(seen, demand=(*seen.demand, unanswerable))
    assert not tick(crowded).changed


def test_a_plan_that_cannot_serve_all_stays_until_another_serves_clearly_more() -> None:
    """Two tasks of which only one fits: which one is left out is not worth a move by itself."""
    tasks = catalog(
        [variant("a", task="x"), variant("a", task="y")],
        [profile("a", task="x", memory_mib=600), profile("a", task="y", memory_mib=600)],
    )

    def seen(x_qps: float, y_qps: float, plan: Plan | None) -> Observation:
        wanted = [demand(x_qps, task="x"), demand(y_qps, task="y")]
        return observation(tasks, report(), demand=wanted, plan=plan)

    first = tick(seen(50.0, 40.0, None)).plan
    assert {route.task for route in first.routes} == {"x"}
    assert not tick(seen(50.0, 52.0, first)).changed
    moved = tick(seen(40.0, 50.0, first)).plan
    assert {route.task for route in moved.routes} == {"y"}


def test_what_was_looked_for_in_vain_is_not_looked_for_again_at_once() -> None:
    """Three tasks of which one fits: each try takes several solves and changes nothing."""
    names = "xyz"
    tasks = catalog(
        [variant("a", task=name) for name in names],
        [profile("a", task=name, memory_mib=600) for name in names],
    )
    solved = 0

    def counting(problem: Problem, objective: Objective) -> Solution:
        nonlocal solved
        solved += 1
        return greedy(problem, objective)

    def seen(now_s: float, *qps: float, **changes: Any) -> Observation:
        wanted = [demand(rate, task=name) for name, rate in zip(names, qps, strict=True)]
        there = observation(tasks, report(), demand=wanted, plan=first.plan)
        return replace(there, now_s=now_s, **changes)

    wanted = [demand(50.0, task="x"), demand(40.0, task="y"), demand(40.0, task="z")]
    first = tick(observation(tasks, report(), demand=wanted), counting)
    vain = tick(seen(100.0, 50.0, 52.0, 40.0), counting, first)
    assert not vain.changed
    assert solved > 2

    solved = 0
    soon = tick(seen(101.0, 50.0, 53.0, 41.0), counting, vain)
    assert (soon.changed, solved) == (False, 0)
    tick(seen(100.0 + VAIN_S, 50.0, 52.0, 41.0), counting, soon)
    assert solved > 0

    solved = 0
    moved = seen(101.0, 50.0, 53.0, 41.0, workers=(report(), report("w2")))
    assert tick(moved, counting, vain).changed
    assert solved > 0


@pytest.mark.parametrize(
    ("corrected", "qps"),
    [(False, (40.0, 40.0, 60.0)), (True, (50.0, 52.0, 40.0))],
    ids=["the demand moved", "latencies were corrected"],
)
def test_what_was_put_off_is_looked_for_once_it_is_due(
    corrected: bool, qps: tuple[float, float, float]
) -> None:
    """Even if by then nothing changes any more, and the loop has forgotten the correction."""
    names = "xyz"
    tasks = catalog(
        [variant("a", task=name) for name in names],
        [profile("a", task=name, memory_mib=600) for name in names],
    )
    solved = 0

    def counting(problem: Problem, objective: Objective) -> Solution:
        nonlocal solved
        solved += 1
        return greedy(problem, objective)

    def seen(now_s: float, *qps: float, corrected: bool = False) -> Observation:
        wanted = [demand(rate, task=name) for name, rate in zip(names, qps, strict=True)]
        there = observation(tasks, report(), demand=wanted, plan=plan)
        return replace(there, now_s=now_s, corrected=corrected)

    plan: Plan | None = None
    first = tick(seen(0.0, 50.0, 40.0, 40.0), counting)
    plan = first.plan
    vain = tick(seen(100.0, 50.0, 52.0, 40.0), counting, first)
    solved = 0
    soon = tick(seen(101.0, *qps, corrected=corrected), counting, vain)
    waits = tick(seen(102.0, *qps), counting, soon)
    assert (solved, waits.changed) == (0, False)

    tick(seen(100.0 + VAIN_S, *qps), counting, waits)
    assert solved > 0


def test_what_has_room_and_is_not_loaded_ahead_is_told_apart_from_what_has_none() -> None:
    """Queries have had "a" loaded a moment ago, so memory is left to what they ask for next."""
    sizes = {"a": 400.0, "b": 500.0, "c": 700.0}
    known = catalog(
        [variant(name, task=name) for name in sizes],
        [profile(name, task=name, memory_mib=mib) for name, mib in sizes.items()],
    )
    fresh = replica("a", task="a", memory_mib=400.0, asked=True, idle_s=5.0, loaded_for_s=5.0)
    churning = replace(report("w1", fresh), churn_per_s=1.0)

    plan = tick(observation(known, churning, demand=[demand(1.0, task="a")])).plan

    assert [each.variant for each in plan.placements] == ["a"]
    assert plan.explanation[-1].endswith(
        "in 400 of 1,000 MiB; no room for 1: what demand and recent use ask for came first; "
        "1 with room not loaded ahead: queries have had others loaded lately."
    )


def divided_by(workers: Sequence[WorkerReport], qps: float) -> tuple[dict[str, float], str]:
    """Rows per second of "a" by worker, and what the plan says of them."""
    known = catalog([variant("a"), variant("b", 0.8)], [profile("a"), profile("b", 40.0)])
    plan = tick(observation(known, *workers, demand=[demand(qps, accuracy=0.9)])).plan
    return {route.worker: round(route.qps, 3) for route in plan.routes}, plan.explanation[0]


def test_a_worker_from_which_a_variant_is_kept_out_has_no_part_in_its_demand() -> None:
    """Nor is it said that what it could not serve can be."""
    ill = report("w1", replica("a", state=ReplicaState.QUARANTINED, memory_mib=0))
    alone, said_alone = divided_by([report("w2")], 200.0)
    beside, said = divided_by([ill, report("w2")], 200.0)

    assert beside == alone == {"w2": 200.0}
    assert said == said_alone
    assert "100.0 %" not in said
    assert divided_by([ill, report("w2")], 20.0)[0] == {"w2": 20.0}
    both = divided_by([ill, report("w2"), report("w3")], 20.0)[0]
    assert both == {"w2": 10.0, "w3": 10.0}


@pytest.mark.parametrize("ill", [1, 2, 5])
@pytest.mark.parametrize("objective", list(Objective))
def test_a_worker_from_which_a_variant_is_kept_out_does_what_it_can_do(
    ill: int, objective: Objective
) -> None:
    """Of 60 rows per second for each worker that has "a" kept out and one more that has not, no
    worker is planned to answer any by what it must not be given, and all are served."""
    known = catalog([variant("a"), variant("b", 0.8)], [profile("a"), profile("b", 15.0)])
    kept = replica("a", state=ReplicaState.QUARANTINED, memory_mib=0)
    workers = [report(f"w{number}", kept) for number in range(ill)]
    asked = [demand(40.0 * (ill + 1))]
    seen = replace(observation(known, *workers, report("well"), demand=asked), objective=objective)
    found = tick(seen)
    served: dict[str, float] = {}
    for route in found.plan.routes:
        assert route.variant == "b" or route.worker == "well"
        served[route.worker] = served.get(route.worker, 0.0) + route.qps
    assert sum(served.values()) == pytest.approx(asked[0].qps)
    assert len(served) == ill + 1
    again = replace(seen, plan=replace(found.plan, version=1, epoch=1))
    assert not tick(again).changed


def test_where_something_else_is_kept_out_of_every_worker_all_is_served() -> None:
    """More workers than are told apart: one of six variants is kept out of each."""
    names = "abcdef"
    known = catalog([variant(name) for name in names], [profile(name) for name in names])
    workers = [
        report(f"w{name}", replica(name, state=ReplicaState.QUARANTINED, memory_mib=0))
        for name in names
    ]
    asked = [demand(300.0)]
    found = tick(observation(known, *workers, demand=asked)).plan
    assert sum(route.qps for route in found.routes) == pytest.approx(300.0)
    assert all(route.worker != f"w{route.variant}" for route in found.routes)


def test_where_memory_is_what_limits_one_look_is_enough() -> None:
    """The worker has time for all three tasks, and memory for one."""
    names = "xyz"
    tasks = catalog(
        [variant("a", task=name) for name in names],
        [profile("a", task=name, memory_mib=600) for name in names],
    )
    problems: list[Problem] = []

    def counting(problem: Problem, objective: Objective) -> Solution:
        problems.append(problem)
        return greedy(problem, objective)

    def routed(qps: float) -> set[str]:
        problems.clear()
        wanted = [demand(qps + number, task=name) for number, name in enumerate(names)]
        found = tick(observation(tasks, report(), demand=wanted), counting)
        return {str(route.task) for route in found.plan.routes}

    assert routed(5.0) == {"z"}
    assert len(problems) == 1
    assert routed(60.0) == {"z"}  # more than its time: less of every class is tried
    assert len(problems) > 2


# -- sizing --------------------------------------------------------------------------------------


def elastic(qps: float, running: int, **changes: Any) -> Observation:
    """One variant that takes 10 ms, on up to four workers, with a plan made before."""
    one = catalog([variant("a")], [profile("a")])
    holds = [report(f"w{n}", replica("a")) for n in range(running)]
    wanted = [demand(qps)] if qps else []
    seen = observation(
        one, *holds, demand=wanted, inventory={CPU: 4}, running={CPU: running},
        plan=Plan(version=1, epoch=1, placements=(), workers={CPU: running}),
    )  # fmt: skip
    return replace(seen, elastic=True, **changes)


def scaled(seen: Observation) -> list[int]:
    return [action.count for action in tick(seen).actions if isinstance(action, Scale)]


def test_workers_come_at_once_and_go_when_even_the_most_needs_fewer() -> None:
    assert scaled(elastic(150.0, running=1)) == [3]
    assert scaled(elastic(20.0, running=3)) == [1]
    assert scaled(elastic(20.0, running=3, envelope=(demand(150.0),))) == []


@pytest.mark.parametrize("usd", [0.0, 0.36])
def test_no_more_workers_run_than_there_may_be(usd: float) -> None:
    """Of a hundred, one more than there may be costs hardly more, and a free one nothing at all."""
    one = catalog([variant("a")], [profile("a")], kinds=[kind(usd_per_hour=usd)])
    seen = observation(
        one, *[report(f"w{n}", replica("a")) for n in range(101)], demand=[demand(12_000.0)],
        inventory={CPU: 100}, running={CPU: 101},
        plan=Plan(version=1, epoch=1, placements=(), workers={CPU: 101}),
    )  # fmt: skip
    assert scaled(replace(seen, elastic=True)) == [100]


def test_workers_come_where_more_have_to_be_there_than_the_demand_needs() -> None:
    """One that suffices was left alone, so that no second one came before it was replaced."""
    assert scaled(elastic(20.0, running=1, least={CPU: 2})) == [2]
    assert scaled(elastic(20.0, running=2, least={CPU: 2})) == []
    assert scaled(elastic(150.0, running=1, least={CPU: 2})) == [3]


def test_no_worker_goes_before_the_demand_is_known_for_long_enough() -> None:
    assert scaled(elastic(20.0, running=3, watched=0.0)) == []
    assert scaled(elastic(150.0, running=1, watched=0.0)) == [3]


def test_workers_go_as_far_as_the_demand_was_watched() -> None:
    assert scaled(elastic(20.0, running=4, watched=0.25)) == [3]
    assert scaled(elastic(20.0, running=3, watched=0.25)) == []
    assert scaled(elastic(20.0, running=4, watched=0.6)) == [2]
    assert scaled(elastic(20.0, running=4, watched=1.0)) == [1]


def test_workers_are_there_for_the_envelope_though_less_is_expected() -> None:
    assert scaled(elastic(20.0, running=1, envelope=(demand(150.0),))) == [3]


def test_with_less_room_for_chance_fewer_workers_suffice_but_never_for_more_than_all_of_time() -> (
    None
):
    """150 queries a second take one and a half of two workers, and chance asks for a third."""
    assert scaled(elastic(150.0, running=3, room=KeptRoom(0.0))) == [2]
    assert scaled(elastic(150.0, running=2, room=KeptRoom(1.0))) == [3]
    assert scaled(elastic(201.0, running=2, room=KeptRoom(0.0))) == [3]


def test_bursts_have_more_room_and_what_varies_hardly_more_than_chance_does_not() -> None:
    """50 queries a second take half of a worker."""
    assert scaled(elastic(50.0, running=4)) == [1]
    assert scaled(elastic(50.0, running=4, dispersion={DIGITS: 1.4})) == [1]
    assert scaled(elastic(50.0, running=4, dispersion={DIGITS: 5.0})) == [2]
    without = KeptRoom(0.0)
    assert scaled(elastic(50.0, running=4, dispersion={DIGITS: 5.0}, room=without)) == [1]


def test_fleets_are_looked_for_anew_where_bursts_are_others() -> None:
    before = tick(elastic(50.0, running=4))
    bursty = elastic(50.0, running=4, dispersion={DIGITS: 5.0})
    assert dict(tick(bursty, before=before).plan.workers) == {CPU: 2}


def test_a_plan_says_why_there_are_so_many_workers() -> None:
    seen = elastic(
        150.0, running=3, envelope=(demand(160.0),), room=KeptRoom(0.4, asked=12_000, lost=3)
    )
    assert tick(seen).plan.explanation[0] == (
        "Workers are there for 160 rows per second, where 150 are expected: as many as needed. "
        "40 % of the room for chance is kept, as 0.025 % of some 12,000 queries were late, or "
        "refused for want of time or room, lately."
    )
    unknown = elastic(150.0, running=3, envelope=(demand(160.0),))
    assert tick(unknown).plan.explanation[0] == (
        "Workers are there for 160 rows per second, where 150 are expected: as many as needed."
    )
    assert not any(
        "Workers are there" in one for one in tick(replace(seen, elastic=False)).plan.explanation
    )


def test_without_any_demand_one_worker_stays() -> None:
    assert scaled(elastic(0.0, running=3)) == [1]
    assert scaled(elastic(0.0, running=1)) == []
    assert scaled(elastic(0.0, running=3, watched=0.0)) == []


def test_a_controller_without_a_plan_begins_wide() -> None:
    first = replace(elastic(0.0, running=1), plan=None, watched=0.0)
    assert scaled(first) == [4]


def test_the_snapshot_of_a_tick_is_kept_whatever_was_loaded_meanwhile() -> None:
    known = catalog(
        [variant("a"), variant("b", task="words")], [profile("a"), profile("b", task="words")]
    )
    first = tick(observation(known, report("w1")))
    second = tick(observation(known, report("w1", replica("a"))), before=first)

    before, now = first.basis.snapshot.tasks, second.basis.snapshot.tasks  # type: ignore[attr-defined]
    assert second is not first
    assert [now[task] is before[task] for task in now] == [True, True]
