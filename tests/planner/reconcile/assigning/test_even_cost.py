"""Under ``cost`` the workers that are there are filled evenly, and shared where they have to be."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from planner.reconcile.assigning.widest import MANY, NEARLY
from planner.reconcile.demand_assignment import DemandAssignment, assign_demand
from planner.solver.problem import Problem, Solution
from planner.types import Demand, Objective, WorkerReport
from tests.planner.builders import catalog, demand, kind, profile, report, snapshot, task, variant
from tests.planner.reconcile.assigning.test_even_plans import loads, planner
from variants.types import CatalogSnapshot

KNOWN = {kind("cpu-1").name: kind("cpu-1")}
WORKERS = [report(f"w{number}") for number in range(1, 5)]


def several(*names: str) -> CatalogSnapshot:
    """Tasks with a variant each, of which a row counts as 12 ms."""
    return catalog(
        [variant(name, 0.9, task=name) for name in names],
        [profile(name, 10.0, task=name, max_batch=1) for name in names],
        tasks=[task(name) for name in names],
        kinds=[kind("cpu-1")],
    )


def assigned(
    known: CatalogSnapshot, workers: Sequence[WorkerReport], *wanted: Demand
) -> DemandAssignment:
    return assign_demand(snapshot(known), workers, wanted, KNOWN, planner, Objective.COST)


def asked(known: CatalogSnapshot, qps: float) -> list[Demand]:
    return [demand(qps, task=each.name, latency_ms=1_000.0) for each in known.tasks]


@pytest.mark.parametrize("qps", [30.0, 60.0, 90.0, 105.0, 115.0])
def test_workers_are_evenly_full(qps: float) -> None:
    """Three tasks on four workers of 83 rows per second, from a quarter of their time to more than
    all of it."""
    known = several("a", "b", "c")
    made = assigned(known, WORKERS, *asked(known, qps))
    found = loads(snapshot(known), made, WORKERS)
    assert sum(found) == pytest.approx(3 * qps * 0.012)
    assert max(found) <= 1.1 * sum(found) / 4


def test_tasks_that_fill_a_worker_each_do_not_share_one() -> None:
    """Of rates that differ by as much as is left, a solver that sees no cost in it makes a chain:
    what does not fit onto one worker goes to the next."""
    known = several("a", "b", "c", "d")
    rates = dict(zip("abcd", (78.0, 74.0, 76.0, 75.0), strict=True))
    wanted = [replace(each, qps=rates[each.task]) for each in asked(known, 1.0)]
    made = assigned(known, WORKERS, *wanted)
    tasks_of: dict[str, set[str]] = {}
    for route in made.routes:
        tasks_of.setdefault(route.worker, set()).add(route.task)
    assert [len(tasks) for tasks in tasks_of.values()] == [1] * 4


def test_what_is_served_is_no_more_than_what_is_asked_for() -> None:
    known = several("a")
    made = assigned(known, WORKERS[:1], *asked(known, 40.0))
    assert (made.served_qps, made.asked_qps) == pytest.approx((40.0, 40.0))
    assert sum(route.qps for route in made.routes) == pytest.approx(40.0)


def test_batches_are_no_larger_than_the_demand_fills() -> None:
    """Room for twice the demand is looked for, with the batches that this would fill."""
    known = catalog([variant("a", 0.9)], [profile("a", 1.0, max_batch=64)], kinds=[kind("cpu-1")])
    made = assigned(known, WORKERS[:1], demand(20.0, latency_ms=1_000.0))
    assert {route.batch_size for route in made.routes} <= set(range(1, 11))


def test_a_tight_class_has_more_room_than_a_loose_one() -> None:
    """Its queries cannot wait for others, so that its worker has to be idle for longer."""
    known = several("tight", "loose")
    rates = {"tight": (50.0, 60.0), "loose": (150.0, 5_000.0)}
    wanted = [demand(qps, latency_ms, task=name) for name, (qps, latency_ms) in rates.items()]
    made = assigned(known, WORKERS[:3], *wanted)
    busy = dict(zip("123", loads(snapshot(known), made, WORKERS[:3]), strict=True))
    serving = {route.worker[1:] for route in made.routes if route.task == "tight"}
    assert max(busy[one] for one in serving) < 0.9 * max(busy.values())


def test_a_fleet_of_many_workers_is_planned_once() -> None:
    """Each plan for hundreds of workers takes long, and their last one is a small part of them."""
    solved: list[Problem] = []

    def counting(problem: Problem, objective: Objective) -> Solution:
        solved.append(problem)
        return planner(problem, objective)

    known = several("a")
    many = [report(f"w{number}") for number in range(MANY + 1)]
    made = assign_demand(
        snapshot(known), many, asked(known, 500.0), KNOWN, counting, Objective.COST
    )
    assert len(solved) == 1
    assert made.served_qps == pytest.approx(500.0)


def test_where_every_multiple_fits_only_the_first_and_the_last_are_planned_for() -> None:
    """Four tasks on four workers: whatever is tried fits, up to what would fill all of them."""
    known = several("a", "b", "c", "d")
    asked_qps: list[float] = []

    def counting(problem: Problem, objective: Objective) -> Solution:
        asked_qps.append(sum(each.qps for each in problem.demand))
        return planner(problem, objective)

    made = assign_demand(
        snapshot(known), WORKERS, asked(known, 30.0), KNOWN, counting, Objective.COST
    )
    once, first, last = asked_qps
    assert once < first < last <= first / NEARLY
    assert loads(snapshot(known), made, WORKERS) == pytest.approx([30.0 * 0.012] * 4)
