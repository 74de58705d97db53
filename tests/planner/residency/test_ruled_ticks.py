"""Whole ticks under rules of operators."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.eviction.displacement import ladder
from planner.eviction.registry import RULES
from planner.eviction.rules import Resident
from planner.eviction.victims import room_for, victims
from planner.reconcile.tick import tick
from planner.residency.frozen_plan import frozen_by
from planner.residency.pins import arrange
from planner.selection.select import select
from planner.types import (
    Action,
    Choice,
    Decision,
    Demand,
    Objective,
    Observation,
    Scale,
    Unload,
    WorkerReport,
)
from tests.planner.builders import (
    catalog,
    demand,
    kind,
    observation,
    profile,
    query,
    replica,
    report,
    snapshot,
    variant,
    worker,
)
from tests.planner.reconcile.test_placement import NAMES, TASKS, catalogs, fleets, wanted_classes
from tests.planner.residency.builders import forbid, freeze, pin, ruled, sized
from variants.types import CatalogSnapshot, DeviceKindName, Rule

CPU = DeviceKindName("cpu-1")


def placed(decision: Decision) -> set[tuple[str, str]]:
    return {(str(one.worker), str(one.variant)) for one in decision.plan.placements}


def done(actions: tuple[Action, ...]) -> list[str]:
    return [
        f"{type(one).__name__.lower()} "
        + (
            f"{one.device_kind} {one.count}"
            if isinstance(one, Scale)
            else f"{one.variant} {one.worker}"
        )
        for one in actions
    ]


# -- pins ----------------------------------------------------------------------------------------


def test_a_pin_takes_the_place_of_what_queries_ask_for() -> None:
    full = report("w1", replica("hot", memory_mib=900, asked=True, idle_s=1.0, rate_qps=50.0))
    seen = observation(ruled(sized(hot=900, cold=500), pin("cold")), full, demand=[demand(50.0)])
    decision = tick(seen)
    assert placed(decision) == {("w1", "cold")}
    assert done(decision.actions) == ["unload hot w1", "load cold w1"]
    [target] = decision.targets.values()
    assert target.pinned


def test_for_a_pin_what_is_in_use_leaves_as_soon_as_it_is_answered() -> None:
    busy = report("w1", replica("hot", memory_mib=900, in_flight=3), replica("b", memory_mib=50))
    registered = sized(hot=900, b=50, cold=500)
    actions = tick(observation(ruled(registered, pin("cold")), busy)).actions
    assert done(actions) == ["unload hot w1", "load cold w1"]
    assert done(tick(observation(registered, busy)).actions) == []


def test_what_is_pinned_is_told_and_what_is_not_is_not() -> None:
    there = report("w1", replica("a"), replica("b"))
    decision = tick(observation(ruled(sized(a=100, b=100), pin("b")), there))
    assert {str(key[2]): target.pinned for key, target in decision.targets.items()} == {
        "a": False,
        "b": True,
    }


def test_the_demand_is_divided_over_what_pins_leave() -> None:
    """Together with the pin, only the smaller of two variants that answer has room."""
    registered = catalog(
        [variant("big", 0.95), variant("little"), variant("kept", 0.8)],
        [
            profile("big", 1.0, memory_mib=800),
            profile("little", 2.0, memory_mib=300),
            profile("kept", 90.0, memory_mib=600),
        ],
    )
    wanted = [demand(50.0, 20.0)]
    alone = tick(observation(registered, report(), demand=wanted))
    assert {route.variant for route in alone.plan.routes} == {"big"}
    plan = replace(alone.plan, version=1, epoch=1)
    beside = tick(observation(ruled(registered, pin("kept")), report(), demand=wanted, plan=plan))
    assert {route.variant for route in beside.plan.routes} == {"little"}
    assert placed(beside) == {("w1", "kept"), ("w1", "little")}


def test_a_pinned_variant_itself_may_be_given_the_demand() -> None:
    registered = ruled(sized(kept=900), pin("kept"))
    decision = tick(observation(registered, report(), demand=[demand(5.0)]))
    assert {route.variant for route in decision.plan.routes} == {"kept"}


def test_what_cannot_be_held_stands_in_the_explanation() -> None:
    decision = tick(observation(ruled(sized(a=100), pin("a", 2)), report()))
    assert decision.plan.explanation[0] == (
        "Of pin 1, digits/a, 1 of 2 replicas can be held: only 1 worker that could hold it is "
        "running."
    )


def test_an_elastic_fleet_keeps_the_workers_that_pins_need() -> None:
    workers = [report(f"w{n}", replica("a", memory_mib=100)) for n in range(3)]
    seen = observation(ruled(sized(a=100), pin("a", 2)), *workers, inventory={"cpu-1": 3})
    plan = replace(tick(seen).plan, version=1, epoch=1)
    seen = replace(seen, elastic=True, plan=plan, expected=(), envelope=())
    assert tick(seen).plan.workers == {CPU: 2}
    assert tick(replace(seen, catalog=sized(a=100))).plan.workers == {CPU: 1}


# -- forbidden variants --------------------------------------------------------------------------


def test_a_forbidden_variant_leaves_and_the_reason_is_said() -> None:
    there = report("w1", replica("a"), replica("b"))
    registered = ruled(sized(a=100, b=100), forbid("a", id=7, why="wrong labels"))
    decision = tick(observation(registered, there))
    assert (placed(decision), done(decision.actions)) == ({("w1", "b")}, ["unload a w1"])
    assert "Operators have forbidden digits/a." in decision.plan.explanation
    view = snapshot(registered, (worker(), {("digits", "a")}))  # type: ignore[arg-type]
    assert view.tasks["digits"].excluded == {  # type: ignore[index]
        "a": "an operator has forbidden it (rule 7: wrong labels)"
    }


def test_a_variant_may_be_forbidden_on_one_kind() -> None:
    profiles = [profile("a"), profile("a", kind="gpu-a")]
    registered = catalog([variant("a")], profiles, kinds=[kind(), kind("gpu-a", 3.6)])
    registered = ruled(registered, forbid("a", kind="cpu-1"))
    both = [report("w1"), report("w2", kind="gpu-a")]
    assert placed(tick(observation(registered, *both))) == {("w2", "a")}


# -- a frozen plan -------------------------------------------------------------------------------


def frozen(seen: Observation, rule: Rule | None = None) -> Observation:
    return replace(seen, frozen=rule or freeze())


def planned(*workers: WorkerReport, **mib: float) -> Observation:
    """With a plan that was made for these workers."""
    seen = observation(sized(**mib), *workers, inventory={"cpu-1": len(workers)})
    return replace(seen, plan=replace(tick(seen).plan, version=1, epoch=1))


def test_a_frozen_plan_stays_whatever_is_asked_for() -> None:
    seen = planned(report("w1", replica("a")), a=100)
    more = catalog([variant("a"), variant("b")], [profile("a"), profile("b", 1.0)])
    asked = frozen(replace(seen, catalog=more, demand=(demand(50.0),)))
    decision = tick(asked)
    assert (decision.changed, decision.actions) == (False, ())
    assert done(tick(replace(asked, frozen=None)).actions) == ["load b w1"]


def test_the_part_of_a_lost_worker_goes_to_the_one_that_came_for_it() -> None:
    seen = planned(report("cpu-1-old", replica("a")), report("cpu-1-x", replica("a")), a=100)
    then = frozen(replace(seen, workers=(report("cpu-1-new"), report("cpu-1-x", replica("a")))))
    decision = tick(then)
    assert placed(decision) == {("cpu-1-new", "a"), ("cpu-1-x", "a")}
    assert (decision.changed, done(decision.actions)) == (True, ["load a cpu-1-new"])
    again = replace(then, plan=replace(decision.plan, version=2, epoch=1))
    assert not tick(again).changed


def test_a_worker_that_comes_beside_the_others_may_replace_one_of_them() -> None:
    """As an upgrade has it: one more comes, holds the same, and then the old one leaves."""
    seen = planned(report("cpu-1-old", replica("a")), a=100)
    route = tick(replace(seen, demand=(demand(5.0),))).plan.routes
    assert seen.plan is not None
    assert {one.worker for one in route} == {"cpu-1-old"}
    seen = frozen(replace(seen, plan=replace(seen.plan, routes=route)))
    both = replace(seen, workers=(report("cpu-1-new"), report("cpu-1-old", replica("a"))))
    decision = tick(both)
    assert done(decision.actions) == ["load a cpu-1-new"]
    plan = replace(decision.plan, version=2, epoch=1)
    alone = tick(replace(seen, plan=plan, workers=(report("cpu-1-new", replica("a")),)))
    assert placed(alone) == {("cpu-1-new", "a")}
    assert {one.worker for one in alone.plan.routes} == {"cpu-1-new"}
    assert alone.actions == ()


def test_a_worker_that_takes_over_holds_what_it_has_memory_for() -> None:
    seen = frozen(planned(report("cpu-1-old", replica("a"), replica("b")), a=700, b=300))
    heir = replace(report("cpu-1-new"), memory_mib=500.0)
    decision = tick(replace(seen, workers=(heir,)))
    assert placed(decision) == {("cpu-1-new", "b")}
    assert done(decision.actions) == ["load b cpu-1-new"]
    assert {one.variant for one in decision.plan.routes} <= {"b"}


def test_pins_and_a_frozen_plan_together_do_not_take_more_than_there_is() -> None:
    """The plan places the pinned variant on both workers, and the pin is of one."""
    workers = (
        report("w1", replica("a", memory_mib=700)),
        report("w2", replica("a", memory_mib=700)),
    )
    seen = planned(*workers, a=700)
    more = ruled(sized(a=700, b=600), pin("a", id=1), pin("b", id=2))
    then = frozen(replace(seen, catalog=more))
    assert placed(tick(then)) == {("w1", "a"), ("w2", "a")}


def test_what_queries_loaded_beside_a_frozen_plan_leaves_only_for_it() -> None:
    seen = planned(report("w1", replica("a", memory_mib=600)), a=600)
    more = sized(a=600, b=300, c=700)
    guest = report("w1", replica("a", memory_mib=600), replica("b", memory_mib=300))
    assert tick(frozen(replace(seen, catalog=more, workers=(guest,)))).actions == ()
    guest = report("w1", replica("c", memory_mib=700))
    actions = tick(frozen(replace(seen, catalog=more, workers=(guest,)))).actions
    assert done(actions) == ["unload c w1", "load a w1"]


def test_what_is_forbidden_leaves_a_frozen_plan() -> None:
    there = report("w1", replica("a"), replica("b"))
    seen = planned(there, a=100, b=100)
    then = frozen(replace(seen, catalog=ruled(seen.catalog, forbid("a"))))
    decision = tick(then)
    assert (placed(decision), done(decision.actions)) == ({("w1", "b")}, ["unload a w1"])


def test_a_pin_enters_a_frozen_plan_where_that_leaves_memory() -> None:
    seen = planned(report("w1", replica("a", memory_mib=600)), a=600)
    for mib, expected in ((300, {("w1", "a"), ("w1", "b")}), (700, {("w1", "a")})):
        more = ruled(sized(a=600, b=mib), pin("b"))
        assert placed(tick(frozen(replace(seen, catalog=more)))) == expected


def test_workers_that_an_operator_asks_for_come_under_a_freeze() -> None:
    seen = frozen(planned(report("w1", replica("a")), a=100))
    more = replace(seen, inventory={CPU: 2}, running={CPU: 1})
    assert done(tick(more).actions) == ["scale cpu-1 2"]
    assert done(tick(replace(more, elastic=True)).actions) == []


def test_nothing_is_frozen_before_there_is_a_plan() -> None:
    assert placed(tick(frozen(observation(sized(a=100), report())))) == {("w1", "a")}


def test_a_freeze_ends_when_its_time_is_over() -> None:
    assert frozen_by([freeze(until_s=10.0)], 9.9) == freeze(until_s=10.0)
    assert frozen_by([freeze(until_s=10.0)], 10.0) is None
    assert frozen_by([pin("a")], 0.0) is None


# -- properties ----------------------------------------------------------------------------------


@st.composite
def rules(draw: st.DrawFn) -> tuple[Rule, ...]:
    made = []
    for number in range(draw(st.integers(0, 4))):
        of = {"task": draw(st.sampled_from(TASKS)), "kind": draw(st.sampled_from(("", "cpu-1")))}
        name = draw(st.sampled_from(NAMES))
        if draw(st.booleans()):
            made.append(pin(name, draw(st.integers(1, 3)), id=number + 1, **of))
        else:
            made.append(forbid(name, id=number + 1, **of))
    return tuple({one.subject: one for one in made}.values())


@given(
    catalogs(), fleets(), wanted_classes, rules(), st.sampled_from(Objective), st.booleans(),
    st.booleans(),
)  # fmt: skip
@settings(max_examples=75, deadline=None)
def test_every_plan_goes_by_the_rules(
    registered: CatalogSnapshot,
    workers: tuple[WorkerReport, ...],
    wanted: tuple[Demand, ...],
    given_rules: tuple[Rule, ...],
    objective: Objective,
    planned_before: bool,
    is_frozen: bool,
) -> None:
    seen = observation(registered, *workers, demand=wanted, inventory={"cpu-1": 3, "gpu-a": 3})
    seen = replace(seen, objective=objective)
    if planned_before:
        seen = replace(seen, plan=replace(tick(seen).plan, version=1, epoch=1))
    known = ruled(registered, *given_rules)
    seen = replace(seen, catalog=known, frozen=freeze() if is_frozen else None)
    decision = tick(seen)
    assert tick(seen) == decision
    sizes = {(p.device_kind, p.task, p.variant): p.memory_mib for p in registered.profiles}
    kinds = {one.id: one.device_kind for one in workers}
    cells = {(p.worker, p.task, p.variant) for p in decision.plan.placements}
    assert len(cells) == len(decision.plan.placements)
    for one in workers:
        own = [sizes[one.device_kind, task, name] for id_, task, name in cells if id_ == one.id]
        assert sum(own) <= one.memory_mib
    banned = {(r.key, r.device_kind) for r in given_rules if r.kind == "forbid"}
    running = [*cells, *((r.worker, r.task, r.variant) for r in decision.plan.routes)]
    for id_, *key in running:
        assert ((*key,), "") not in banned
        assert ((*key,), kinds.get(id_)) not in banned
    if not (is_frozen and planned_before):
        before = seen.plan.placements if seen.plan else ()
        held = arrange(known, workers, before).held
        assert {(id_, *key) for id_, keys in held.items() for key in keys} <= cells
        for action in decision.actions:
            if isinstance(action, Unload):
                assert (action.task, action.variant) not in held.get(action.worker, ())


@given(catalogs(), rules(), st.data())
@settings(max_examples=50, deadline=None)
def test_nothing_forbidden_is_ever_selected(
    registered: CatalogSnapshot, given_rules: tuple[Rule, ...], data: st.DataObject
) -> None:
    all_keys = [one.key for one in registered.variants]
    view = snapshot(
        ruled(registered, *given_rules),
        (worker("w1"), all_keys),
        (worker("w2", kind="gpu-a", free_mib=1e6), []),
    )
    asked = query(
        data.draw(st.sampled_from((5.0, 1e4))),
        task=data.draw(st.sampled_from(TASKS)),
        variant=data.draw(st.sampled_from((None, *NAMES))),
        best_effort=data.draw(st.booleans()),
    )
    found = select(view, asked, 1_000.0)
    banned = {(r.key, r.device_kind) for r in given_rules if r.kind == "forbid"}
    if isinstance(found, Choice):
        key = (found.candidate.task, found.candidate.variant)
        assert (key, "") not in banned
        assert (key, found.worker.device_kind) not in banned


@pytest.mark.parametrize("rule", sorted(RULES))
@given(
    st.lists(
        st.builds(
            Resident,
            key=st.integers(0, 10**6),
            memory_mib=st.sampled_from((100.0, 300.0)),
            load_s=st.sampled_from((0.1, 5.0)),
            popularity=st.sampled_from((0.0, 1.0, 100.0)),
            last_used_s=st.sampled_from((0.0, 50.0)),
            in_use=st.booleans(),
            loaded_s=st.just(0.0),
            pinned=st.booleans(),
        ),
        max_size=6,
        unique_by=lambda one: one.key,
    ),
    st.sampled_from((50.0, 100.0, 400.0)),
    st.booleans(),
)
@settings(max_examples=30)
def test_no_eviction_drops_what_is_pinned(
    rule: str, residents: list[Resident[Any]], need_mib: float, waiting: bool
) -> None:
    pinned = {one.key for one in residents if one.pinned}
    assert not pinned & set(victims(residents, need_mib, 100.0, rule) or ())
    newcomer: Resident[Any] = Resident(
        key=-1, memory_mib=need_mib, load_s=9.0, popularity=1e6, last_used_s=100.0, in_use=False,
        loaded_s=100.0,
    )  # fmt: skip
    found = room_for(newcomer, residents, need_mib, 100.0, waiting=waiting, patience_s=60.0)
    assert not pinned & set(found or ())
    rungs = ladder(residents, 100.0, rule)
    loose = sum(one.memory_mib for one in residents if not (one.pinned or one.in_use))
    assert sum(mib for mib, _ in rungs) == loose


def test_a_load_for_a_pin_comes_first() -> None:
    """Its placement stands before others of its worker, and loads keep that order."""
    registered = ruled(sized(a=100, b=100, z=100), pin("z"))
    actions = tick(observation(registered, report())).actions
    assert done(actions) == ["load z w1", "load a w1", "load b w1"]
