"""Devices that variants have alone or share: plans and bounds, against the best plan there is."""

from dataclasses import replace
from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.latency_curve import Curve
from planner.solver.check import violations
from planner.solver.milp import Answer
from planner.solver.options import Options
from planner.solver.partial_solution import finish
from planner.solver.problem import AvailableKind, Offer, Problem
from planner.solver.relaxation.interference import apart_or_together, known_bound
from planner.solver.solve import solve
from planner.types import Demand, Objective
from tests.planner.solver.instances import interfering
from variants.types import DeviceKindName, ModelName, TaskName, VariantName

KIND = DeviceKindName("cpu")


def never() -> float:
    """A clock that stands still."""
    return 0.0


def roomy(problem: Problem) -> Problem:
    """With devices enough that everything that has a variant is served, and memory without end."""
    kinds = tuple(replace(kind, count=kind.count + 4, memory_mib=inf) for kind in problem.kinds)
    return replace(problem, kinds=kinds, pools=())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_no_plan_is_cheaper_than_the_bound(seed: int) -> None:
    problem = roomy(interfering(seed))
    options = Options(problem)
    best = solve(problem, Objective.COST, clock=never, time_limit_s=600.0)
    if best.served_qps < options.reachable_qps * (1 - 1e-9):
        return

    partial, bound = apart_or_together(options, left=lambda: 600.0)

    found = finish(partial, Objective.COST, bound=bound)
    assert violations(problem, found) == ()
    assert bound <= best.objective * (1 + 1e-7) + 1e-9


def tasks(rates: list[float], *, interference: float) -> Problem:
    """Tasks of 10 ms and 100 ms on one kind; a device serves 80 queries per second."""
    kinds = (
        AvailableKind(
            name=KIND, count=100, memory_mib=inf, usd_per_hour=1.0, interference=interference
        ),
    )
    names = [TaskName(f"task-{number}") for number in range(len(rates))]
    offers = tuple(
        Offer(
            task=task,
            model=ModelName("model"),
            variant=VariantName("variant"),
            accuracy=0.9,
            device_kind=KIND,
            curve=Curve([(1, 10.0)]),
        )
        for task in names
    )
    demand = tuple(
        Demand(task=task, latency_ms=100.0, accuracy=None, qps=qps)
        for task, qps in zip(names, rates, strict=True)
    )
    return Problem(offers=offers, kinds=kinds, demand=demand)


def test_devices_are_shared_where_that_saves_one() -> None:
    """80 queries on a device of one task; with 25 % interference 64 on a shared one."""
    options = Options(tasks([32.0, 32.0], interference=0.25))

    partial, bound = apart_or_together(options, left=lambda: 600.0)

    assert partial.usd_per_hour == 1.0
    assert bound == pytest.approx(1.0)


def test_devices_are_kept_apart_where_sharing_saves_none() -> None:
    """Shared, 70 and 70 queries would need 2.2 devices."""
    options = Options(tasks([70.0, 70.0], interference=0.25))

    partial, bound = apart_or_together(options, left=lambda: 600.0)

    assert partial.usd_per_hour == 2.0
    assert bound == pytest.approx(2.0)
    assert all(len(device.parts) == 1 for device in partial.devices)


def test_many_tasks_are_planned_within_one_percent() -> None:
    """Where columns alone left gaps of several percent."""
    draw = Random(0)
    problem = tasks([10 ** draw.uniform(0.5, 2.5) for _ in range(60)], interference=0.2)

    found = solve(problem, Objective.COST, clock=never, time_limit_s=600.0)

    assert violations(problem, found) == ()
    assert found.gap <= 0.01
    assert found.notes[-1] != "dived from generated columns"


@pytest.mark.parametrize(
    ("bound", "infeasible", "known"),
    [
        (5.0, False, 5.0),
        (5.0, True, 0.0),
        (-inf, False, 0.0),
        (inf, False, 0.0),
        (1e20, False, 0.0),
    ],
)
def test_a_bound_is_known_without_a_plan(bound: float, infeasible: bool, known: float) -> None:
    """As where the time ended before the first one."""
    answer = Answer(values=None, objective=inf, bound=bound, optimal=False, infeasible=infeasible)
    assert known_bound(answer) == known
