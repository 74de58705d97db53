"""Plans for accuracy leave no device idle that could raise it, and fill none needlessly."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from planner.reconcile.demand_assignment import (
    EVEN_LOADS,
    DemandAssignment,
    assign_demand,
)
from planner.reconcile.kept.worth import FULL_COST, FULL_POWER
from planner.reconcile.problem_builder import MOST_LOAD, ProblemBuilder
from planner.selection.eligibility import answers
from planner.solver.problem import Problem, Solution
from planner.solver.solve import solve
from planner.types import Candidate, Demand, Objective, Snapshot, WorkerReport
from tests.planner.builders import catalog, demand, kind, profile, report, snapshot, variant
from variants.types import CatalogSnapshot

KINDS = ("cpu-1", "gpu-a")
KNOWN = {kind(name).name: kind(name) for name in KINDS}


def planner(problem: Problem, objective: Objective) -> Solution:
    return solve(problem, objective, clock=lambda: 0.0, time_limit_s=60.0, exact=False)


def assigned(
    known: CatalogSnapshot, workers: Sequence[WorkerReport], *wanted: Demand
) -> DemandAssignment:
    return assign_demand(snapshot(known), workers, wanted, KNOWN, planner, Objective.ACCURACY)


def loads(view: Snapshot, made: DemandAssignment, workers: Sequence[WorkerReport]) -> list[float]:
    """The part of its time that each worker is given."""
    kinds = {worker.id: worker.device_kind for worker in workers}
    found = dict.fromkeys(kinds, 0.0)
    for route in made.routes:
        [held] = [
            c
            for c in view.tasks[route.task].by_variant[route.variant]
            if c.device_kind == kinds[route.worker]
        ]
        batch_ms = held.table.ms[route.batch_size]
        found[route.worker] += route.qps * batch_ms / (1_000 * route.batch_size)
    return list(found.values())


def mixed() -> CatalogSnapshot:
    """``best`` takes 10 ms on a GPU and 20 ms on a CPU, ``poor`` half of that."""
    times = {("best", "gpu-a"): 10.0, ("best", "cpu-1"): 20.0,
             ("poor", "gpu-a"): 5.0, ("poor", "cpu-1"): 10.0}  # fmt: skip
    return catalog(
        [variant("best", 0.9), variant("poor", 0.5)],
        [profile(name, ms, kind=on, max_batch=1) for (name, on), ms in times.items()],
        kinds=[kind(name) for name in KINDS],
    )


def test_work_is_spread_over_slow_and_fast_devices() -> None:
    """One fast device could carry all of it, at 0.69 of its time."""
    workers = [report("w1", kind="gpu-a"), report("w2", kind="cpu-1"), report("w3", kind="cpu-1")]
    made = assigned(mixed(), workers, demand(60.0))

    assert made.accuracy == pytest.approx(0.9)
    assert 0.0 < max(loads(snapshot(mixed()), made, workers)) <= 0.51


def test_what_only_full_devices_can_serve_well_keeps_its_accuracy() -> None:
    workers = [report("w1", kind="gpu-a")]
    made = assigned(mixed(), workers, demand(60.0))

    assert made.accuracy >= 0.9 - FULL_COST


class Recorder:
    """The planner, and what it was asked: the load of each problem, and whether it was solved."""

    def __init__(self) -> None:
        self.asked: list[tuple[Problem, Solution]] = []

    def __call__(self, problem: Problem, objective: Objective) -> Solution:
        found = planner(problem, objective)
        self.asked.append((problem, found))
        return found

    def worth(self) -> dict[float, float]:
        """Of each load, where all was served."""
        return {p.load: _worth(found, p.load) for p, found in self.asked if found.feasible}


def _worth(found: Solution, load: float) -> float:
    return found.accuracy - FULL_COST * load**FULL_POWER


def test_once_another_load_is_shown_to_be_worse_nothing_is_planned_for_it() -> None:
    """From half of the devices' time on the best variant answers all of it."""
    workers = [report("w1", kind="gpu-a"), report("w2", kind="gpu-a")]
    asked = Recorder()
    made = assign_demand(
        snapshot(mixed()), workers, [demand(60.0)], KNOWN, asked, Objective.ACCURACY
    )

    assert made.accuracy == pytest.approx(0.9)
    assert [problem.load for problem, _ in asked.asked] == [0.2, 0.35, 0.5, 0.65]
    assert list(asked.worth()) == [0.2, 0.35, 0.5]


def test_a_demand_that_is_too_much_is_told_by_its_time_alone() -> None:
    asked = Recorder()
    made = assign_demand(
        snapshot(mixed()), [report("w1", kind="gpu-a")], [demand(500.0)], KNOWN, asked,
        Objective.ACCURACY,
    )  # fmt: skip

    assert not asked.worth().keys() & set(EVEN_LOADS)
    assert made.served_qps < made.asked_qps
    assert made.routes


class InFull(Recorder):
    """Solves every problem in full, as where only packing shows that not all can be served."""

    def __init__(self, *, late: bool = False) -> None:
        super().__init__()
        self.late = late

    def __call__(self, problem: Problem, objective: Objective) -> Solution:
        found = super().__call__(replace(problem, least_accuracy=None), objective)
        return replace(found, timed_out=self.late)


@pytest.mark.parametrize(
    ("late", "loads_asked"), [(False, [0.2, 0.8, 0.95, 0.8]), (True, [0.2, 0.8, 0.95])]
)
def test_an_overload_is_found_out_with_few_even_plans(late: bool, loads_asked: list[float]) -> None:
    """Two for the first headroom, and with less one, or none where there was no time."""
    asked = InFull(late=late)
    made = assign_demand(
        snapshot(mixed()), [report("w1", kind="gpu-a")], [demand(500.0)], KNOWN, asked,
        Objective.ACCURACY,
    )  # fmt: skip

    loads = [problem.load for problem, _ in asked.asked]
    assert loads[: len(loads_asked)] == loads_asked
    assert set(loads[len(loads_asked) :]) == {MOST_LOAD}
    assert made.served_qps < made.asked_qps


@pytest.mark.parametrize("qps", [10.0, 60.0, 110.0, 150.0, 180.0])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_what_is_not_served_at_a_low_load_is_planned_as_by_its_time(
    qps: float, workers: int
) -> None:
    there = [report(f"w{number}", kind="gpu-a") for number in range(workers)]
    view = snapshot(mixed())
    made = [
        assign_demand(view, there, [demand(qps)], KNOWN, asked, Objective.ACCURACY)
        for asked in (Recorder(), InFull())
    ]

    assert made[0] == made[1]


@st.composite
def instances(draw: st.DrawFn) -> tuple[CatalogSnapshot, list[WorkerReport], list[Demand]]:
    tasks = ("digits", "words")[: draw(st.integers(1, 2))]
    names = ("best", "good", "poor")
    steps = {"best": (0.95, 1.0), "good": (0.85, 0.6), "poor": (0.6, 0.3)}
    heavy = {task: draw(st.sampled_from((8.0, 20.0, 45.0))) for task in tasks}
    slow = draw(st.sampled_from((1.0, 2.0, 6.0)))
    known = catalog(
        [variant(name, steps[name][0], task) for task in tasks for name in names],
        [
            profile(
                name,
                heavy[task] * steps[name][1] * (slow if on == "cpu-1" else 1.0),
                kind=on,
                task=task,
                max_batch=draw(st.sampled_from((1, 4))),
            )
            for task in tasks
            for name in names
            for on in KINDS
        ],
        kinds=[kind(name) for name in KINDS],
    )
    workers = [
        report(f"w{number}", kind=draw(st.sampled_from(KINDS)), memory_mib=1_000.0)
        for number in range(draw(st.integers(1, 4)))
    ]
    wanted = [
        demand(draw(st.sampled_from((0.1, 1.0, 10.0, 40.0, 90.0))), 100.0, task=task)
        for task in tasks
    ]
    return known, workers, wanted


@given(instances())
@settings(max_examples=100, deadline=None)
def test_no_device_is_left_idle_that_could_raise_the_accuracy(
    instance: tuple[CatalogSnapshot, list[WorkerReport], list[Demand]],
) -> None:
    """For no class could a worker without routes run a variant, twice within the SLO, that is more
    accurate than one that its queries are routed to."""
    known, workers, wanted = instance
    made = assigned(known, workers, *wanted)
    view = snapshot(known)
    used = {route.worker for route in made.routes}
    accuracy = {(c.task, c.variant): c.accuracy for c in _candidates(view)}
    total = sum(route.qps for route in made.routes)
    for worker in workers:
        if worker.id in used or not made.routes:
            continue
        for route in made.routes:
            for better in view.tasks[route.task].by_cost:
                if better.device_kind != worker.device_kind or not answers(better, None):
                    continue
                if 2 * better.table.ms[1] > route.latency_ms:
                    continue
                gain = better.accuracy - accuracy[route.task, route.variant]
                moved = min(route.qps, 950.0 / better.table.ms[1])
                event("an idle worker could run something")
                assert gain * moved / total <= 1e-6


@given(instances())
@settings(max_examples=60, deadline=None)
def test_the_load_that_is_worth_most_is_planned_for(
    instance: tuple[CatalogSnapshot, list[WorkerReport], list[Demand]],
) -> None:
    """Against planning for every load, whatever that is worth: up to where it falls."""
    known, workers, wanted = instance
    asked = Recorder()
    view = snapshot(known)
    made = assign_demand(view, workers, wanted, KNOWN, asked, Objective.ACCURACY)
    if not made.routes:
        return
    builder = ProblemBuilder(view, asked.asked[0][0].kinds, wanted)
    expected: float | None = None
    for load in (*EVEN_LOADS, MOST_LOAD):
        built = builder.problem(tail=made.tail, load=load)
        found = planner(built.problem, Objective.ACCURACY)
        if not found.feasible or (expected is None and load == MOST_LOAD):
            continue
        worth = _worth(found, load)
        if expected is not None and worth < expected:
            break
        expected = worth
    if expected is None:
        event("no load serves all")
        return
    event("most is worth a higher load" if expected == worth else "the next load is worth less")
    assert max(asked.worth().values()) == pytest.approx(expected)


@given(instances())
@settings(max_examples=30, deadline=None)
def test_the_plan_is_the_same_wherever_the_search_begins(
    instance: tuple[CatalogSnapshot, list[WorkerReport], list[Demand]],
) -> None:
    known, workers, wanted = instance
    view = snapshot(known)
    made = assigned(known, workers, *wanted)
    for likely_load in EVEN_LOADS:
        again = assign_demand(
            view, workers, wanted, KNOWN, planner, Objective.ACCURACY, likely_load=likely_load
        )
        assert again == made


def test_a_search_that_begins_at_the_best_load_solves_no_other() -> None:
    workers = [report("w1", kind="gpu-a"), report("w2", kind="cpu-1")]
    view, wanted = snapshot(mixed()), [demand(75.0)]
    slow, quick = Recorder(), Recorder()
    made = assign_demand(view, workers, wanted, KNOWN, slow, Objective.ACCURACY)
    again = assign_demand(
        view, workers, wanted, KNOWN, quick, Objective.ACCURACY, likely_load=made.load
    )

    assert again == made
    assert made.load == EVEN_LOADS[3]
    assert quick.asked[0][0].load == made.load
    assert len(quick.worth()) == 1 < len(slow.worth())


def _candidates(view: Snapshot) -> list[Candidate]:
    return [c for each in view.tasks.values() for c in each.by_cost]
