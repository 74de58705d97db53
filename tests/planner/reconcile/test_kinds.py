"""Ticks of a fleet of several device kinds: how many of each, and who does the work."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.reconcile.tick import tick
from planner.solver.greedy import greedy
from planner.solver.problem import Problem, Solution
from planner.types import Decision, Load, Objective, Observation, ReplicaReport, Scale
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
from variants.types import CatalogSnapshot, DeviceKindName, Plan, ReplicaState

QUICK, SLOW = DeviceKindName("quick"), DeviceKindName("slow")


def known(slow_usd: float = 0.36, quick_usd: float = 0.36) -> CatalogSnapshot:
    """A variant that takes 10 ms on one kind and 40 on the other."""
    return catalog(
        [variant("a")],
        [profile("a", 10.0, kind="quick"), profile("a", 40.0, kind="slow")],
        kinds=[kind("quick", quick_usd), kind("slow", slow_usd)],
    )


def seen(
    qps: float,
    running: Mapping[DeviceKindName, int],
    plan: Plan | None = None,
    *,
    slow_usd: float = 0.36,
    quick_usd: float = 0.36,
) -> Observation:
    """So many workers of each kind, which all hold it; SLO 200 ms."""
    holds = [
        report(f"{name}-{n}", replica("a"), kind=name)
        for name, count in running.items()
        for n in range(count)
    ]
    return observation(
        known(slow_usd, quick_usd), *holds, demand=[demand(qps, 200.0)] if qps else [], plan=plan,
        inventory={str(name): count for name, count in running.items()},
    )  # fmt: skip


def rates(plan: Plan) -> dict[str, float]:
    """Rows per second by worker."""
    found: dict[str, float] = {}
    for route in plan.routes:
        found[route.worker] = found.get(route.worker, 0.0) + route.qps
    return {worker: round(qps, 1) for worker, qps in found.items()}


# -- who does the work ---------------------------------------------------------------------------


def test_the_demand_is_divided_over_kinds() -> None:
    plan = tick(seen(100.0, {QUICK: 1, SLOW: 1})).plan

    found = rates(plan)
    assert sum(found.values()) == 100.0
    assert found["quick-0"] > 3 * found["slow-0"] > 0


def test_a_kind_without_work_is_no_reason_for_another_plan() -> None:
    first = tick(seen(20.0, {QUICK: 1, SLOW: 1}))
    assert rates(first.plan) == {"quick-0": 20.0}

    again = tick(seen(20.5, {QUICK: 1, SLOW: 1}, first.plan))

    assert not again.changed


def test_a_worker_that_can_hold_nothing_is_no_reason_for_another_plan() -> None:
    """As a GPU is where no variant was built for GPUs: no plan ever names it."""
    solved = 0

    def counting(problem: Problem, objective: Objective) -> Solution:
        nonlocal solved
        solved += 1
        return greedy(problem, objective)

    other = DeviceKindName("other")
    first = tick(seen(20.0, {QUICK: 1, other: 1}), counting)
    assert solved
    solved = 0

    again = tick(seen(20.5, {QUICK: 1, other: 1}, first.plan), counting)

    assert (again.changed, solved) == (False, 0)


def test_a_worker_that_joins_gets_its_part() -> None:
    first = tick(seen(100.0, {QUICK: 1})).plan

    joined = tick(seen(100.0, {QUICK: 1, SLOW: 1}, first))

    assert joined.changed
    assert rates(joined.plan)["slow-0"] > 0


# -- how many there are --------------------------------------------------------------------------


def wanted(
    qps: float,
    most: Mapping[DeviceKindName, int],
    least: Mapping[DeviceKindName, int],
    *,
    running: Mapping[DeviceKindName, int] | None = None,
    slow_usd: float = 0.36,
    quick_usd: float = 0.36,
    **said: Any,
) -> dict[DeviceKindName, int]:
    """How many workers the plan has run, where ``most`` ran before."""
    now = dict(most if running is None else running)
    before = Plan(version=1, epoch=1, placements=(), workers=now)
    one = seen(qps, now, before, slow_usd=slow_usd, quick_usd=quick_usd)
    decided = tick(replace(one, inventory=most, least=least, elastic=True, **said))
    for action in decided.actions:
        if isinstance(action, Scale):
            assert decided.plan.workers.get(action.device_kind, 0) == action.count
    return dict(decided.plan.workers)


def test_a_fixed_kind_stays_whatever_plans_decide_of_others() -> None:
    assert wanted(20.0, {QUICK: 3, SLOW: 2}, {QUICK: 0, SLOW: 2}) == {SLOW: 2}
    assert wanted(20.0, {QUICK: 3, SLOW: 2}, {QUICK: 1, SLOW: 2}) == {QUICK: 1, SLOW: 2}


def test_what_is_there_anyway_serves_before_anything_is_bought() -> None:
    # By price alone one quick worker would do instead of the slow ones.
    assert wanted(30.0, {QUICK: 3, SLOW: 2}, {SLOW: 2}, slow_usd=3.6) == {SLOW: 2}
    assert wanted(100.0, {QUICK: 3, SLOW: 2}, {SLOW: 2}, slow_usd=3.6) == {QUICK: 1, SLOW: 2}


def test_more_than_the_least_is_bought_where_it_is_cheapest() -> None:
    assert wanted(150.0, {QUICK: 4, SLOW: 9}, {QUICK: 1, SLOW: 1}) == {QUICK: 2, SLOW: 1}
    cheap = wanted(105.0, {QUICK: 4, SLOW: 9}, {QUICK: 1, SLOW: 1}, slow_usd=0.02)
    assert cheap[QUICK] == 1
    assert cheap[SLOW] > 1


def test_without_demand_the_least_stay() -> None:
    assert wanted(0.0, {QUICK: 3, SLOW: 2}, {QUICK: 1}) == {QUICK: 1}
    assert wanted(0.0, {QUICK: 3, SLOW: 2}, {QUICK: 1, SLOW: 1}) == {QUICK: 1, SLOW: 1}
    assert wanted(0.0, {QUICK: 3}, {QUICK: 2}) == {QUICK: 2}


def test_a_kind_grows_from_its_least() -> None:
    assert wanted(250.0, {QUICK: 4, SLOW: 1}, {QUICK: 1, SLOW: 1}, running={QUICK: 1, SLOW: 1}) == {
        QUICK: 3,
        SLOW: 1,
    }


def test_workers_without_a_price_go_as_well_when_they_are_needed_no_more() -> None:
    free: dict[str, Any] = {"quick_usd": 0.0, "slow_usd": 0.0}
    assert wanted(20.0, {QUICK: 5}, {}, **free) == {QUICK: 1}
    assert wanted(20.0, {QUICK: 5, SLOW: 4}, {QUICK: 2}, **free) == {QUICK: 2}
    none_known = wanted(20.0, {QUICK: 5}, {}, watched=0.4, **free)
    assert none_known == {QUICK: 3}, "no more than was watched may go"


def test_no_more_workers_without_a_price_start_than_are_needed() -> None:
    most, one = {QUICK: 5, SLOW: 9}, {QUICK: 1, SLOW: 0}
    found = wanted(150.0, most, {QUICK: 1}, running=one, quick_usd=0.0, slow_usd=0.0)
    assert found == {QUICK: 2}


def test_workers_without_a_price_come_before_others_and_go_beside_them() -> None:
    assert wanted(20.0, {QUICK: 1, SLOW: 9}, {}, slow_usd=0.0) == {SLOW: 2}
    # One worker with a price has to stay, whose price hides what those without one count as.
    assert wanted(20.0, {QUICK: 1, SLOW: 9}, {QUICK: 1}, slow_usd=0.0) == {QUICK: 1}


def test_what_is_not_needed_goes_at_once_where_most_is_needed_and_what_comes_stays() -> None:
    """Four workers are needed of five, and one is of five."""
    few: dict[str, Any] = {"watched": 0.0, "steady": 0.2}
    assert wanted(280.0, {QUICK: 5}, {}, watched=0.0) == {QUICK: 5}
    assert wanted(280.0, {QUICK: 5}, {}, **few) == {QUICK: 4}
    assert wanted(20.0, {QUICK: 5}, {}, **few) == {QUICK: 5}
    assert wanted(20.0, {QUICK: 5}, {}, watched=0.4, steady=0.2) == {QUICK: 3}


def test_a_plan_says_that_what_comes_hardly_changes() -> None:
    before = Plan(version=1, epoch=1, placements=(), workers={QUICK: 5})
    one = replace(seen(280.0, {QUICK: 5}, before), elastic=True, watched=0.0, steady=0.2)
    decided = tick(one)
    why = "fewer suffice, and what comes hardly changes"
    assert [each.why for each in decided.actions if isinstance(each, Scale)] == [
        f"4 instead of 5: {why}"
    ]
    assert any(why in each for each in decided.plan.explanation)


# -- kinds for which a machine would have to come --------------------------------------------------

BOTH: dict[DeviceKindName, int] = {QUICK: 1, SLOW: 1}
ABSENT: dict[str, Any] = {"absent": frozenset({SLOW})}


def test_a_kind_without_a_machine_is_not_started_before_the_demand_is_known() -> None:
    least, running = {QUICK: 1, SLOW: 0}, {QUICK: 1, SLOW: 0}
    unknown: dict[str, Any] = {"plan": None, "expected": (), "watched": 0.0}

    here = wanted(0.0, BOTH, least, running=running, **unknown)
    away = wanted(0.0, BOTH, least, running=running, **unknown, **ABSENT)

    assert (here, away) == (BOTH, {QUICK: 1})


def test_where_no_machine_is_there_at_all_one_has_to_come() -> None:
    none = dict.fromkeys(BOTH, 0)
    unknown: dict[str, Any] = {"plan": None, "expected": (), "watched": 0.0}
    assert wanted(0.0, BOTH, none, running=none, absent=frozenset(BOTH), **unknown) == BOTH


def test_a_kind_without_a_machine_is_wanted_as_soon_as_its_profile_says_that_it_is_needed() -> None:
    least, running = {QUICK: 1, SLOW: 0}, {QUICK: 1, SLOW: 0}

    assert wanted(20.0, BOTH, least, running=running, **ABSENT) == {QUICK: 1}
    assert wanted(100.0, BOTH, least, running=running, **ABSENT) == BOTH


def test_what_waits_for_a_machine_is_taken_back_when_it_is_needed_no_more() -> None:
    least = {QUICK: 1, SLOW: 0}
    assert wanted(100.0, BOTH, least, **ABSENT) == BOTH
    assert wanted(20.0, BOTH, least, watched=0.0, **ABSENT) == {QUICK: 1}
    assert wanted(20.0, BOTH, least, watched=0.0) == BOTH, "a worker that is there stays"


# -- a kind of which none is to stay ---------------------------------------------------------------


def last_of_its_kind(*loaded: ReplicaReport) -> Decision:
    """The slow kind suffices, and the quick one goes; ``loaded`` is on the slow one."""
    workers = (
        report("quick-0", replica("a"), kind="quick"),
        report("slow-0", *loaded, kind="slow"),
    )
    running = {QUICK: 1, SLOW: 1}
    before = Plan(version=1, epoch=1, placements=(), workers=running)
    one = replace(seen(5.0, running, before, slow_usd=0.01), workers=workers)
    return tick(replace(one, least={QUICK: 0, SLOW: 1}, elastic=True))


def test_the_last_of_a_kind_goes_when_others_have_loaded_what_is_asked_for() -> None:
    first = last_of_its_kind()
    assert [type(action) for action in first.actions] == [Load]
    assert rates(first.plan) == {"slow-0": 5.0}

    loading = last_of_its_kind(replica("a", state=ReplicaState.LOADING))
    assert loading.actions == ()

    [scale] = last_of_its_kind(replica("a")).actions
    assert isinstance(scale, Scale)
    assert (scale.device_kind, scale.count) == (QUICK, 0)


def test_the_last_of_a_kind_stays_while_none_of_the_others_is_there() -> None:
    """A node has come whose worker starts; or it drains, or its worker is started anew."""
    quick = report("quick-0", replica("a"), kind="quick")
    gone = report("slow-0", replica("a"), kind="slow", draining=True)
    running = {QUICK: 1, SLOW: 1}
    before = Plan(version=1, epoch=1, placements=(), workers=running)
    for least in ({QUICK: 0, SLOW: 0}, {QUICK: 0, SLOW: 1}):
        for workers in ((quick,), (quick, gone)):
            one = replace(seen(5.0, running, before, slow_usd=0.01), workers=workers)
            decided = tick(replace(one, least=least, elastic=True))
            assert [action for action in decided.actions if isinstance(action, Scale)] == []
            assert rates(decided.plan) == {"quick-0": 5.0}


def test_the_last_of_a_kind_goes_on_where_a_plan_has_others_that_left_since() -> None:
    one = seen(0.0, {QUICK: 1, SLOW: 1}, slow_usd=0.01)
    before = Plan(version=1, epoch=1, placements=(), workers={SLOW: 1})
    alone = replace(one, workers=one.workers[:1], plan=before, elastic=True)
    decided = tick(alone)
    assert [action for action in decided.actions if isinstance(action, Scale)] == []


def test_a_kind_of_which_an_operator_wants_none_goes_at_once() -> None:
    """What shall replace it may need its room."""
    one = seen(5.0, {QUICK: 1, SLOW: 1})
    for elastic in (True, False):
        alone = replace(
            one, workers=one.workers[:1], inventory={QUICK: 0, SLOW: 1}, elastic=elastic
        )
        [scale] = [each for each in tick(alone).actions if isinstance(each, Scale)]
        assert (scale.device_kind, scale.count) == (QUICK, 0)


def test_the_last_of_a_kind_does_not_wait_for_what_cannot_be_loaded() -> None:
    [scale] = last_of_its_kind(replica("a", state=ReplicaState.FAILED)).actions
    assert isinstance(scale, Scale)
