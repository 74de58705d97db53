"""Column generation: its plans and its bounds, against the best plan there is."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner.latency_curve import Curve
from planner.solver.check import violations
from planner.solver.columns.dive import generated
from planner.solver.greedy import plan
from planner.solver.options import Options
from planner.solver.partial_solution import finish
from planner.solver.problem import AvailableKind, Offer, Problem
from planner.solver.solve import solve
from planner.types import Demand, Objective
from tests.planner.solver.instances import interfering, small
from variants.types import DeviceKindName, ModelName, TaskName, VariantName


def never() -> float:
    """A clock that stands still."""
    return 0.0


def roomy(problem: Problem) -> Problem:
    """With devices enough that everything that has a variant is served."""
    kinds = tuple(replace(kind, count=kind.count + 4) for kind in problem.kinds)
    return replace(problem, kinds=kinds, pools=())


@settings(max_examples=25, deadline=None)
@given(st.integers(10_000, 20_000), st.booleans())
@example(seed=17810, noisy=False)  # a variant that is slower alone is faster in small batches
@example(seed=15328, noisy=True)  # one variant for two classes, whose batches one cannot bear
def test_no_plan_is_cheaper_than_the_bound(seed: int, noisy: bool) -> None:
    problem = roomy(interfering(seed) if noisy else small(seed))
    options = Options(problem)
    known = plan(options, Objective.COST, quick=True)
    if known.served_qps < options.reachable_qps * (1 - 1e-9):
        return
    best = solve(problem, Objective.COST, clock=never, time_limit_s=600.0)

    partial, bound = generated(options, known, left=lambda: 600.0)

    found = finish(partial, Objective.COST, bound=bound)
    assert violations(problem, found) == ()
    assert bound <= best.objective * (1 + 1e-7) + 1e-9


def crowded(seed: int, tasks: int) -> Problem:
    """A small and a large kind, of which a device holds one to three variants."""
    draw = Random(seed)
    kinds = (
        AvailableKind(
            name=DeviceKindName("small"), count=200, memory_mib=1_000.0, usd_per_hour=0.2
        ),
        AvailableKind(name=DeviceKindName("large"), count=50, memory_mib=1_500.0, usd_per_hour=1.5),
    )
    offers, demand = [], []
    for number in range(tasks):
        task = TaskName(f"task-{number}")
        memory_mib, row_ms = draw.uniform(200, 900), draw.uniform(2, 20)
        for kind, speed in zip(kinds, (1.0, 0.1), strict=True):
            points = [(b, speed * row_ms * (0.5 + 0.5 * b)) for b in (1, 4, 16)]
            offers.append(
                Offer(
                    task=task,
                    model=ModelName("model"),
                    variant=VariantName("variant"),
                    accuracy=0.9,
                    device_kind=kind.name,
                    curve=Curve(points),
                    memory_mib=memory_mib,
                )
            )
        slo_ms = draw.choice([100.0, 200.0, 500.0])
        demand.append(
            Demand(task=task, latency_ms=slo_ms, accuracy=None, qps=draw.uniform(50, 800))
        )
    return Problem(offers=tuple(offers), kinds=kinds, demand=tuple(demand))


@pytest.mark.slow
@pytest.mark.parametrize("interference", [pytest.param(0.0, marks=pytest.mark.campaign), 0.3])
def test_crowded_devices_are_planned_better_than_by_memory_in_sum(interference: float) -> None:
    """By what the relaxation and packing alone find."""
    problem = crowded(1, 40)
    kinds = tuple(replace(kind, interference=interference) for kind in problem.kinds)
    problem = replace(problem, kinds=kinds)
    packed = solve(problem, Objective.COST, clock=never, time_limit_s=600.0, exact=False)

    found = solve(problem, Objective.COST, clock=never, time_limit_s=600.0)

    assert violations(problem, found) == ()
    assert "dived from generated columns" in found.notes
    assert found.objective < packed.objective
    assert found.bound >= packed.bound
    assert found == solve(problem, Objective.COST, clock=never, time_limit_s=600.0)
