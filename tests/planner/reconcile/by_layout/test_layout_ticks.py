"""Ticks of a machine with layouts: what starts, what waits for what, and what goes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

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
    """Without any demand, too: the other one takes its place, and it goes as it was asked to."""
    decision = tick(seen({TWO: 1, ONE: 0}, [], inventory={ONE: 2, TWO: 0}))
    assert decision.plan.workers == {ONE: 2}
    assert scales(decision) == {ONE: 2, TWO: 0}


@pytest.mark.parametrize("state", [ReplicaState.FAILED, ReplicaState.QUARANTINED])
def test_no_worker_goes_that_alone_has_what_failed_on_those_that_come(state: ReplicaState) -> None:
    """And as they cannot answer the task, the machine is not split so."""
    begun = tick(seen({TWO: 1, ONE: 0}, [MANY])).plan
    failed = {ONE: (replica("small", state=state), replica("large", task="cats"))}
    decision = tick(seen({TWO: 1, ONE: 2}, [MANY], begun, held=failed))
    assert decision.plan.workers == {TWO: 1}
    assert scales(decision) == {ONE: 0}
    assert {route.worker for route in decision.plan.routes} == {"cpu-2-0"}


@pytest.mark.parametrize("state", [ReplicaState.FAILED, ReplicaState.QUARANTINED])
def test_what_failed_on_one_of_them_is_enough_on_the_other(state: ReplicaState) -> None:
    begun = tick(seen({TWO: 1, ONE: 0}, [MANY])).plan
    one = seen({TWO: 1, ONE: 2}, [MANY], begun)
    failed = replace(one.workers[1], replicas=(replica("small", state=state), BOTH[1]))
    assert failed.device_kind == ONE
    there = replace(one, workers=(one.workers[0], failed, one.workers[2]))
    assert scales(tick(there)) == {TWO: 0}


def test_what_nobody_asks_for_is_not_waited_for_unless_it_leaves() -> None:
    begun = tick(seen({TWO: 1, ONE: 0}, [MANY])).plan
    small = {ONE: (replica("small"),)}
    there = seen({TWO: 1, ONE: 2}, [MANY], begun, held=small)
    assert scales(tick(there)) == {}  # those that go have the only "large"
    one = replace(there.workers[1], replicas=BOTH)
    with_one = replace(there, workers=(there.workers[0], one, there.workers[2]))
    assert scales(tick(with_one)) == {TWO: 0}


def test_an_operator_ends_workers_that_would_wait() -> None:
    begun = tick(seen({TWO: 1, ONE: 0}, [MANY])).plan
    waits = seen({TWO: 1, ONE: 2}, [MANY], begun, there={TWO: 1, ONE: 1})
    assert scales(tick(waits)) == {}
    assert scales(tick(replace(waits, inventory={ONE: 2, TWO: 0}))) == {TWO: 0}


def test_a_task_that_only_one_layout_can_answer_comes_before_rows() -> None:
    decision = tick(seen({TWO: 0, ONE: 2}, [MANY, TIGHT]))
    assert decision.plan.workers == {TWO: 1}
    assert "can answer queries of 2 tasks" in decision.plan.explanation[0]
    assert tick(seen({TWO: 1, ONE: 0}, [MANY, TIGHT])).plan.workers == {TWO: 1}


def test_a_class_that_no_layout_can_answer_does_not_count() -> None:
    """Two layouts serve all the same, and one is cheaper."""
    layouts = ({TWO: 1}, {ONE: 1})
    wanted = [demand(5.0, 500.0), demand(0.01, 1.0)]
    for asked in (wanted[:1], wanted):
        assert tick(seen({TWO: 1, ONE: 0}, asked, layouts=layouts)).plan.workers == {ONE: 1}


def test_layouts_are_compared_by_profiles_as_measured() -> None:
    """What runs was seen to be slower than its profile; of what does not run nothing was seen."""
    both = [variant("small")]
    kinds = [kind("cpu-1", 0.18), kind("cpu-2", 0.36)]
    measured, corrected = (
        catalog(both, [profile("small", ms, kind="cpu-1"), profile("small", 5.0, kind="cpu-2")],
                kinds=kinds)
        for ms in (10.0, 13.0)
    )  # fmt: skip
    small = {ONE: (replica("small"),), TWO: (replica("small"),)}
    wanted = [demand(400.0, 500.0)]
    there = replace(seen({ONE: 2, TWO: 0}, wanted, held=small), catalog=corrected)
    assert tick(there).plan.workers == {TWO: 1}
    assert tick(replace(there, measured=measured)).plan.workers == {ONE: 2}


def test_a_layout_that_was_tried_in_vain_is_left_for_the_old_one() -> None:
    begun = tick(seen({TWO: 1, ONE: 0}, [MANY])).plan
    stuck = seen({TWO: 1, ONE: 2}, [MANY], begun, there={TWO: 1})
    assert tick(stuck).plan.workers == {ONE: 2}
    back = tick(replace(stuck, refused=({ONE: 2},)))
    assert back.plan.workers == {TWO: 1}
    assert scales(back) == {ONE: 0}


def test_what_was_split_a_moment_ago_is_not_split_again() -> None:
    narrow = tick(seen({TWO: 0, ONE: 2}, [MANY])).plan
    now = seen({TWO: 0, ONE: 2}, [TIGHT], narrow)
    assert tick(replace(now, rests=True)).plan.workers == {ONE: 2}
    assert tick(now).plan.workers == {TWO: 1}
    half = replace(seen({TWO: 1, ONE: 2}, [TIGHT], narrow), rests=True)
    assert tick(half).plan.workers == {TWO: 1}  # what runs may be gone back to


def test_what_rests_says_what_it_serves_and_not_that_nothing_is_asked() -> None:
    narrow = tick(seen({TWO: 0, ONE: 2}, [MANY])).plan
    rests = replace(seen({TWO: 0, ONE: 2}, [MANY], narrow), rests=True)
    assert tick(rests).plan.explanation[0] == (
        "The machine is split into 2xcpu-1: this serves all of 150 rows per second that workers are"
        " to be there for. It was split anew within the last 1,200 s."
    )


def test_what_rests_says_that_it_cannot_answer_what_another_layout_could() -> None:
    narrow = tick(seen({TWO: 0, ONE: 2}, [MANY])).plan
    serves = {"0 of 5": [TIGHT], "150 of 155": [MANY, TIGHT]}
    for words, wanted in serves.items():
        rests = replace(seen({TWO: 0, ONE: 2}, wanted, narrow), rests=True)
        assert tick(rests).plan.explanation[0] == (
            f"The machine is split into 2xcpu-1: this serves {words} rows per second that workers"
            " are to be there for. It was split anew within the last 1,200 s."
        )
