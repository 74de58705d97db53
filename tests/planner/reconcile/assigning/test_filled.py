"""Plans for the least cost have batches that fill on the devices that they are planned for."""

from dataclasses import replace

import pytest

from planner.latency_curve import Curve
from planner.reconcile.assigning.filled import TOO_FULL, filled
from planner.solver.check import violations
from planner.solver.problem import AvailableKind, Offer, Problem, Solution
from planner.types import Objective
from tests.planner.builders import demand
from tests.planner.reconcile.assigning.test_even_plans import planner
from variants.types import DeviceKindName, ModelName, TaskName, VariantName

CPU, GPU = DeviceKindName("cpu"), DeviceKindName("gpu")
TASKS = ("a", "b", "c", "d", "e")
SLO_MS = 600.0


def asked(*rates: float, cpus: int = 12, gpus: int = 1) -> Problem:
    """A row takes 100 ms on a GPU and sixteen take 130; on a CPU each takes 75 ms."""
    offers = [
        Offer(
            task=TaskName(task),
            model=ModelName(task),
            variant=VariantName(task),
            accuracy=0.9,
            device_kind=kind,
            curve=Curve(points),
        )
        for task in TASKS[: len(rates)]
        for kind, points in ((CPU, [(1, 75.0)]), (GPU, [(1, 100.0), (16, 130.0)]))
    ]
    kinds = [
        AvailableKind(name=CPU, count=cpus, memory_mib=1e9, usd_per_hour=0.3),
        AvailableKind(name=GPU, count=gpus, memory_mib=1e9, usd_per_hour=0.4),
    ]
    return Problem(
        offers=tuple(offers),
        kinds=tuple(kind for kind in kinds if kind.count),
        demand=tuple(
            [
                demand(qps, task=task, latency_ms=SLO_MS)
                for task, qps in zip(TASKS, rates, strict=False)
            ]
        ),
        load=0.985,
        most=tuple([max(1, int(qps * 0.299)) for qps in rates]),
    )


def busiest(problem: Problem, found: Solution) -> float:
    """The most of its time that a device needs where rows wait for a third of a second."""
    takes = [0.0] * len(found.devices)
    for part in found.assignments:
        batch = min(part.batch_size, max(1, round(part.qps / 3)))
        latency_ms = problem.offers[part.offer].curve.latency_ms(batch)
        takes[part.device] += part.qps * latency_ms / (1_000 * batch)
    return max(takes)


def test_what_does_not_fill_its_batches_on_a_full_device_is_planned_elsewhere() -> None:
    """Two tasks fill most of the GPU in batches of sixteen. What is left of it would be too little
    for a third one, which a solver sees in such batches as well."""
    problem = asked(52.0, 52.0, 40.0)
    found = planner(problem, Objective.COST)
    assert found.feasible
    assert busiest(problem, found) > TOO_FULL

    made = filled(problem, found, planner)
    assert made.feasible
    assert busiest(problem, made) <= TOO_FULL
    assert made.served_qps == pytest.approx(144.0)
    assert not violations(problem, made)


def test_what_fills_its_batches_stays_as_it_is() -> None:
    problem = asked(52.0, 52.0)
    found = planner(problem, Objective.COST)
    assert filled(problem, found, planner) is found


def test_where_there_is_no_other_place_less_is_served() -> None:
    """Five tasks on two GPUs, of which each can serve two and hardly more."""
    problem = replace(asked(*[45.0] * 5, cpus=0, gpus=2), most=())
    found = planner(problem, Objective.COST)
    assert found.feasible
    made = filled(problem, found, planner)
    assert not made.feasible
    assert made.served_qps < found.served_qps
    assert not violations(problem, made)


def test_a_plan_that_does_not_serve_all_stays_as_it_is() -> None:
    problem = asked(52.0, 52.0, 90.0, cpus=1)
    found = planner(problem, Objective.COST)
    assert not found.feasible
    assert filled(problem, found, planner) is found
