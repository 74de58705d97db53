"""``modelless plan solve``: the best plan for a demand, from files alone."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.cli.outcome import JsonOption, Output, OutputOption, emit
from controlplane.cli.planning.divided_machines import Division
from controlplane.cli.planning.planning_files import CatalogOption, DevicesOption, ObjectiveOption
from controlplane.cli.planning.solution_results import missing, show
from planner.types import Objective
from variants.errors import InvalidInput

if TYPE_CHECKING:
    from planner.solver.problem import AvailableKind, Offer, Problem, Solution

DemandOption = Annotated[
    Path, typer.Option("--demand", metavar="FILE", help="Rates and their SLOs, as CSV.")
]
HourOption = Annotated[
    int | None,
    typer.Option(
        "--hour",
        metavar="H",
        min=0,
        max=23,
        help="Hour of the day in UTC for what energy emits; else the mean of the day.",
    ),
]
TimeLimitOption = Annotated[
    float,
    typer.Option(
        "--time-limit-s", metavar="S", help="Seconds to search; the best plan found is the answer."
    ),
]
GreedyOption = Annotated[
    bool, typer.Option("--greedy", help="Only the greedy planner: at once, nothing proven.")
]
LayoutsOption = Annotated[
    str,
    typer.Option(
        "--layouts",
        metavar="TEXT",
        help="Ways in which a machine may be split, as MODELLESS_SLICES has them: "
        "'1xcpu-4|4xcpu-1'. Of these kinds there are as many as the best division has.",
    ),
]
MachinesOption = Annotated[
    int,
    typer.Option("--machines", metavar="N", min=1, max=1_000, help="Machines with --layouts."),
]


def solve(
    catalog: CatalogOption,
    devices: DevicesOption,
    demand: DemandOption,
    objective: ObjectiveOption = Objective.COST,
    hour: HourOption = None,
    time_limit_s: TimeLimitOption = 10.0,
    greedy: GreedyOption = False,
    layouts: LayoutsOption = "",
    machines: MachinesOption = 1,
    json: JsonOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Find the best plan for a demand from files.

    It also gives a bound that no plan can beat. Nothing has to run.

    \b
    modelless plan solve --catalog catalog.csv --devices devices.csv \\
      --demand demand.csv
    """
    from controlplane.files.catalog import read_catalog, read_devices
    from controlplane.files.demand import read_demand

    if not 0 <= time_limit_s < float("inf"):
        raise InvalidInput(f"--time-limit-s {time_limit_s:g} is no time; 0 or more is needed")
    kinds = read_devices(devices)
    offers = read_catalog(catalog, kinds, devices=devices)
    if objective is Objective.ENERGY:
        kinds = _measured(offers, kinds, hour)
    asked = read_demand(demand, {offer.task for offer in offers}, catalog=catalog)
    from planner.solver.problem import Problem
    from planner.solver.solve import solve as solve_problem

    problem = Problem(offers=offers, kinds=kinds, demand=asked)
    division = Division(layouts, machines, kinds, devices) if layouts else None

    def planner(problem: "Problem", objective: Objective) -> "Solution":
        left_s = began + time_limit_s - time.perf_counter()
        return solve_problem(
            problem,
            objective,
            clock=time.perf_counter,
            time_limit_s=max(0.0, left_s),
            exact=not greedy,
        )

    with _waiting():
        began = time.perf_counter()
        if division is None:
            solution = planner(problem, objective)
        else:
            problem, solution = division.solved(problem, planner, objective)
        solve_ms = 1_000 * (time.perf_counter() - began)
    data = as_json(problem, solution, solve_ms)
    if division is not None:
        data["split"] = [dict(one) for one in division.split]
    emit(
        data,
        Output.JSON if json else output,
        lambda: show(data, objective, problem, missing(problem, solution)),
    )


def _measured(
    offers: "Sequence[Offer]", kinds: "Sequence[AvailableKind]", hour: int | None
) -> "tuple[AvailableKind, ...]":
    """The kinds at an hour of the day.

    Raises:
        InvalidInput: nothing that could be used says what it takes.
    """
    from planner.energy import carbon_at

    idle = {kind.name for kind in kinds if kind.count and kind.idle_w is not None}
    if not any(one.energy is not None and one.device_kind in idle for one in offers):
        raise InvalidInput(
            "no variant has an energy_j at its smallest and largest batch on a device kind with "
            "an idle_w: there is nothing to plan for least energy by"
        )
    if hour is None:
        return tuple(kinds)
    return tuple(
        replace(kind, carbon_g_per_kwh=() if grams is None else (grams,))
        for kind in kinds
        for grams in [carbon_at(kind.carbon_g_per_kwh, hour)]
    )


@contextmanager
def _waiting() -> Iterator[None]:
    """A sign of life on a terminal, on standard error; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status("Solving"):
        yield


def as_json(problem: "Problem", solution: "Solution", solve_ms: float) -> dict[str, Any]:
    """A solution as plain JSON values. Workers are named by their kind and a number from 1."""
    workers = {str(kind.name): 0 for kind in problem.kinds}
    names = []
    for kind in solution.devices:
        workers[kind] += 1
        names.append(f"{kind}-{workers[kind]}")
    return {
        "feasible": solution.feasible,
        "objective": solution.objective,
        "bound": solution.bound,
        "gap": solution.gap,
        "solve_ms": solve_ms,
        "timed_out": solution.timed_out,
        "workers": workers,
        "placements": [
            {
                "worker": names[one.device],
                "device_kind": solution.devices[one.device],
                "task": problem.offers[one.offer].task,
                "variant": problem.offers[one.offer].variant,
                "batch_size": one.batch_size,
                "share": one.share,
                "qps": one.qps,
                "latency_slo_ms": problem.demand[one.demand].latency_ms,
            }
            for one in solution.assignments
        ],
        "served_qps": solution.served_qps,
        "accuracy": solution.accuracy,
        "usd_per_hour": solution.usd_per_hour,
        **({} if solution.power is None else asdict(solution.power)),
    }
