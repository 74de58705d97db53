"""Ticks of a machine with layouts: what starts, what waits for what, and what goes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.reconcile.tick import tick
from planner.types import Decision, Demand, Observation, ReplicaReport, Scale
from tests.planner.builders import (
    catalog,
    demand,
    kind,
    observation,
    profile,
    replica,
    report,
    variant,
)
from variants.types import DeviceKindName, Plan, ReplicaState

ONE, TWO = DeviceKindName("cpu-1"), DeviceKindName("cpu-2")
LAYOUTS = ({TWO: 1}, {ONE: 2})
KNOWN = catalog(
    [variant("small"), variant("large", task="cats")],
    [
        profile("small", 10.0, kind="cpu-1"),
        profile("small", 10.0, kind="cpu-2"),
        profile("large", 80.0, kind="cpu-1", task="cats"),
        profile("large", 40.0, kind="cpu-2", task="cats"),
    ],
    kinds=[kind("cpu-1", 0.18), kind("cpu-2", 0.36)],
)
BOTH = (replica("small"), replica("large", task="cats"))
MANY = demand(150.0, 500.0)
"""More than one worker can serve, and less than two can."""
TIGHT = demand(5.0, 70.0, task="cats")
"""Only a worker of two cores can serve it in time."""


def seen(
    running: Mapping[DeviceKindName, int],
    wanted: Sequence[Demand],
    plan: Plan | None = None,
    *,
    there: Mapping[DeviceKindName, int] | None = None,
    held: Mapping[DeviceKindName, tuple[ReplicaReport, ...]] | None = None,
    layouts: Sequence[Mapping[DeviceKindName, int]] = LAYOUTS,
    inventory: Mapping[DeviceKindName, int] | None = None,
) -> Observation:
    """Workers of each kind that run, or that are ``there``; they hold both variants."""
    workers = [
        report(f"{name}-{number}", *(held or {}).get(name, BOTH), kind=name)
        for name, count in (running if there is None else there).items()
        for number in range(count)
    ]
    found = observation(
        KNOWN, *workers, demand=wanted, plan=plan, inventory={"cpu-1": 2, "cpu-2": 1},
        running={str(name): count for name, count in running.items()},
    )  # fmt: skip
    least = {ONE: 0, TWO: 0}
    found = replace(found, elastic=True, least=least, layouts=tuple(layouts))
    return found if inventory is None else replace(found, inventory=inventory)


def scales(decision: Decision) -> dict[DeviceKindName, int]:
    return {one.device_kind: one.count for one in decision.actions if isinstance(one, Scale)}


def test_it_begins_with_the_first_layout() -> None:
    first = tick(seen({TWO: 1, ONE: 0}, []))
    assert first.plan.workers == {TWO: 1}
    assert scales(first) == {}
    assert first.plan.explanation[0] == (
        "The machine is split into 1xcpu-2: no demand asks for another layout."
    )


def test_a_change_starts_what_comes_and_ends_nothing() -> None:
    decision = tick(seen({TWO: 1, ONE: 0}, [MANY]))
    assert decision.plan.workers == {ONE: 2}
    assert scales(decision) == {ONE: 2}
    assert decision.plan.explanation[0].startswith("The machine is split into 2xcpu-1: this serves")


def test_the_old_stay_until_all_that_come_are_there_and_have_loaded() -> None:
    begun = tick(seen({TWO: 1, ONE: 0}, [MANY])).plan
    half = seen({TWO: 1, ONE: 2}, [MANY], begun, there={TWO: 1, ONE: 1})
    assert scales(tick(half)) == {}
    loading = {ONE: (replica("small", state=ReplicaState.LOADING),)}
    there = seen({TWO: 1, ONE: 2}, [MANY], begun, held=loading)
    assert scales(tick(there)) == {}
    ready = tick(seen({TWO: 1, ONE: 2}, [MANY], begun))
    assert scales(ready) == {TWO: 0}
    assert {route.worker for route in ready.plan.routes} == {"cpu-1-0", "cpu-1-1"}


def test_it_goes_back_while_it_changes_where_the_demand_does() -> None:
    begun = tick(seen({TWO: 1, ONE: 0}, [MANY])).plan
    back = tick(seen({TWO: 1, ONE: 2}, [TIGHT], begun, there={TWO: 1, ONE: 0}))
    assert back.plan.workers == {TWO: 1}
    assert scales(back) == {ONE: 0}


def test_a_large_model_with_a_tight_slo_has_the_wide_layout() -> None:
    decision = tick(seen({TWO: 0, ONE: 2}, [TIGHT]))
    assert decision.plan.workers == {TWO: 1}
    assert scales(decision) == {TWO: 1}


def test_what_layouts_have_in_common_stays() -> None:
    """Four cores: what shrinks goes last, too."""
    layouts = ({ONE: 4}, {TWO: 1, ONE: 2})
    most = {ONE: 4, TWO: 1}
    begun = tick(seen({ONE: 4, TWO: 0}, [TIGHT], layouts=layouts, inventory=most))
    assert begun.plan.workers == {ONE: 2, TWO: 1}
    assert scales(begun) == {TWO: 1}
    ready = tick(seen({ONE: 4, TWO: 1}, [TIGHT], begun.plan, layouts=layouts, inventory=most))
    assert scales(ready) == {ONE: 2}


def test_no_layout_has_more_than_an_operator_asks_for() -> None:
    asked = {ONE: 1, TWO: 1}
    decision = tick(seen({TWO: 1, ONE: 0}, [MANY], inventory=asked))
    assert decision.plan.workers == {TWO: 1}
    none = tick(seen({TWO: 1, ONE: 0}, [MANY], inventory={ONE: 0, TWO: 0}))
    assert none.plan.workers == {}
    assert scales(none) == {TWO: 0}


def test_a_layout_that_an_operator_leaves_nothing_of_is_none() -> None:
    """Without any demand, too: the other one takes its place, and then it goes."""
    asked = {ONE: 2, TWO: 0}
    decision = tick(seen({TWO: 1, ONE: 0}, [], inventory=asked))
    assert decision.plan.workers == {ONE: 2}
    assert scales(decision) == {ONE: 2}
    there = tick(seen({TWO: 1, ONE: 2}, [], decision.plan, inventory=asked))
    assert scales(there) == {TWO: 0}
