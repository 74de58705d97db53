"""Ticks under the objective ``energy``: what they plan for, how many workers run, what they say."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from planner.reconcile.tick import tick as production_tick
from planner.solver.problem import Problem, Solution
from planner.solver.solve import solve
from planner.types import Decision, Objective, Observation
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
from variants.types import CatalogSnapshot


def planner(problem: Problem, objective: Objective) -> Solution:
    return solve(problem, objective, clock=lambda: 0.0, time_limit_s=60.0, exact=False)


def tick(seen: Observation) -> Decision:
    return production_tick(replace(seen, objective=Objective.ENERGY), planner)


def two(
    quick_j: float | None, frugal_j: float | None, *, idle_w: float | None = 10.0, **about: Any
) -> CatalogSnapshot:
    """A quick, and so cheap, variant and a frugal one."""
    return catalog(
        [variant("quick"), variant("frugal")],
        [
            profile("quick", 5.0, energy_j=quick_j),
            profile("frugal", 8.0, energy_j=frugal_j),
        ],
        kinds=[kind(idle_w=idle_w, **about)],
    )


def planned(known: CatalogSnapshot) -> tuple[set[str], str]:
    """The variants with routes on a worker that is there, and the first sentence about the plan."""
    held = report("w1", replica("quick"), replica("frugal"))
    plan = tick(observation(known, held, demand=[demand(10.0)])).plan
    return {route.variant for route in plan.routes}, plan.explanation[1]


def test_the_plan_takes_the_fewest_joules_and_says_what_its_work_takes() -> None:
    used, said = planned(two(3.0, 1.0))

    assert used == {"frugal"}
    assert said.startswith("Its work takes ")
    assert said.endswith(" W beyond the 10 W that these workers draw idle.")


def test_grams_are_said_where_they_are_known() -> None:
    assert planned(two(3.0, 1.0, carbon=(300.0,)))[1].endswith(" g of CO2 per hour.")


@pytest.mark.parametrize(("joules", "chosen"), [((3.0, None), "quick"), ((None, 9.0), "frugal")])
def test_what_was_not_measured_is_not_taken_for_free(
    joules: Sequence[float | None], chosen: str
) -> None:
    assert planned(two(*joules))[0] == {chosen}


def test_without_any_measured_energy_the_plan_is_by_cost_and_says_so() -> None:
    assert planned(two(None, None)) == (
        {"quick"}, "No energy was measured, so it was divided by cost.",
    )  # fmt: skip


# -- how many workers run -------------------------------------------------------------------------


def fleet(idle_cpu_w: float | None, idle_gpu_w: float | None, qps: float = 20.0) -> dict[str, int]:
    """Workers wanted for a demand that one CPU serves or one GPU; a CPU costs less and takes
    twice the joules for a row."""
    known = catalog(
        [variant("a")],
        [
            profile("a", 10.0, kind="cpu-1", energy_j=1.0),
            profile("a", 2.0, kind="gpu-a", energy_j=0.5),
        ],
        kinds=[kind("cpu-1", 0.1, idle_w=idle_cpu_w), kind("gpu-a", 5.0, idle_w=idle_gpu_w)],
    )
    seen = observation(known, demand=[demand(qps)], inventory={"cpu-1": 4, "gpu-a": 4}, running={})
    return {str(k): n for k, n in tick(replace(seen, elastic=True)).plan.workers.items()}


def test_the_fleet_draws_the_least_at_idle_and_at_work() -> None:
    assert fleet(5.0, 100.0) == {"cpu-1": 1}
    assert fleet(5.0, 6.0) == {"gpu-a": 1}


def test_a_fleet_whose_idle_draw_is_not_all_known_goes_by_cost() -> None:
    assert fleet(5.0, None) == {"cpu-1": 1}
    assert fleet(None, 6.0) == {"cpu-1": 1}


def test_workers_are_replaced_where_that_saves_power() -> None:
    """Four CPUs idle at 5 W each and take 1 J a row; one GPU that draws 6 W would do."""
    known = catalog(
        [variant("a")],
        [
            profile("a", 10.0, kind="cpu-1", energy_j=1.0),
            profile("a", 2.0, kind="gpu-a", energy_j=0.5),
        ],
        kinds=[kind("cpu-1", 0.1, idle_w=5.0), kind("gpu-a", 5.0, idle_w=6.0)],
    )
    workers = [report(f"w{n}", replica("a")) for n in range(4)]
    seen = observation(
        known, *workers, demand=[demand(20.0)], inventory={"cpu-1": 4, "gpu-a": 1},
        running={"cpu-1": 4},
    )  # fmt: skip
    first = tick(seen).plan
    wanted = tick(replace(seen, elastic=True, plan=first)).plan.workers

    assert dict(wanted) == {"cpu-1": 4, "gpu-a": 1}  # first what replaces them
