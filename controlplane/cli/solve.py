"""``modelless plan solve``: the best plan for a demand, from files alone."""

import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.cli.outcome import JsonOption, Output, OutputOption, emit
from controlplane.cli.planning_files import CatalogOption, DevicesOption
from controlplane.cli.render import details, ms, percent, seconds, table, usd
from planner.problem import Objective
from variants.errors import InvalidInput

if TYPE_CHECKING:
    from planner.problem import Kind, Problem, Solution

SHOWN = 30
"""Rows of placements for people; machines get all."""


def solve(
    catalog: CatalogOption,
    devices: DevicesOption,
    demand: Annotated[
        Path, typer.Option("--demand", metavar="FILE", help="Rates and their SLOs, as CSV.")
    ],
    objective: Annotated[
        Objective, typer.Option("--objective", help="Least cost, or most accuracy.")
    ] = Objective.COST,
    time_limit_s: Annotated[
        float,
        typer.Option("--time-limit-s", metavar="S", help="Then the best plan known is the answer."),
    ] = 10.0,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Only the greedy planner: at once, nothing proven.")
    ] = False,
    json: JsonOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Find the best plan for a demand, with what is proven about it; nothing has to run.

    \b
    modelless plan solve --catalog catalog.csv --devices devices.csv \\
      --demand demand.csv
    """
    from controlplane.planning.catalog import read_catalog, read_devices
    from controlplane.planning.demand import read_demand

    if not 0 <= time_limit_s < float("inf"):
        raise InvalidInput(f"--time-limit-s {time_limit_s:g} is no time; 0 or more is needed")
    kinds = read_devices(devices)
    offers = read_catalog(catalog, kinds, devices=devices)
    asked = read_demand(demand, {offer.task for offer in offers}, catalog=catalog)
    from planner.problem import Problem
    from planner.solve import solve as solve_problem

    problem = Problem(offers=offers, kinds=kinds, demand=asked)
    with _waiting():
        began = time.perf_counter()
        solution = solve_problem(
            problem, objective, clock=time.perf_counter, time_limit_s=time_limit_s, exact=not greedy
        )
        solve_ms = 1_000 * (time.perf_counter() - began)
    data = as_json(problem, solution, solve_ms)
    emit(
        data,
        Output.JSON if json else output,
        lambda: _show(data, objective, kinds, sum(one.qps for one in asked)),
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
    }


# -- for people ---------------------------------------------------------------------------------


def _show(
    data: Mapping[str, Any], objective: Objective, kinds: "Sequence[Kind]", asked_qps: float
) -> None:
    served = data["served_qps"]
    share = served / asked_qps if asked_qps else 1.0
    of = f"{rate(asked_qps)} queries/s"
    by_cost = objective is Objective.COST

    def worth(value: float) -> str:
        return f"{usd(value)} USD per hour" if by_cost else f"{percent(value)} mean accuracy"

    proven = "proven best" if data["gap"] <= 1e-6 else f"gap {percent(data['gap'])}"
    details(
        [
            (
                "feasible",
                f"yes, all {of} are served"
                if data["feasible"]
                else f"no, {rate(served)} of {of} are served ({percent(share)})",
            ),
            ("objective", worth(data["objective"])),
            ("bound", f"{worth(data['bound'])}, {proven}"),
            ("accuracy" if by_cost else "cost", _other(data, by_cost)),
            ("solved in", seconds(data["solve_ms"] / 1_000)),
            *([("", "the time limit cut in")] if data["timed_out"] else []),
        ]
    )
    print()
    _show_workers(data["workers"], kinds)
    print()
    _show_placements(data["placements"])


def _other(data: Mapping[str, Any], by_cost: bool) -> str:
    """What is not the objective."""
    if by_cost:
        return f"{percent(data['accuracy'])} on average"
    return f"{usd(data['usd_per_hour'])} USD per hour"


def _show_workers(workers: Mapping[str, int], kinds: "Sequence[Kind]") -> None:
    opened = [kind for kind in kinds if workers[kind.name]]
    rows = [
        [
            kind.name,
            f"{workers[kind.name]:,}",
            f"{kind.count:,}",
            usd(kind.usd_per_hour),
            usd(workers[kind.name] * kind.usd_per_hour),
        ]
        for kind in opened
    ]
    if len(opened) > 1:
        total = sum(workers[kind.name] * kind.usd_per_hour for kind in opened)
        rows.append(["all", f"{sum(workers.values()):,}", "", "", usd(total)])
    table(["DEVICE", ">WORKERS", ">OF", ">USD/H", ">ALL USD/H"], rows, empty="It opens no worker.")


def _show_placements(placements: Sequence[Mapping[str, Any]]) -> None:
    """One row for all workers that do the same, the busiest first."""
    alike: dict[tuple[str, str, str, int, float], list[Mapping[str, Any]]] = defaultdict(list)
    for one in placements:
        key = ("device_kind", "task", "variant", "batch_size", "latency_slo_ms")
        alike[tuple(one[name] for name in key)].append(one)
    rows = sorted(
        ((sum(one["qps"] for one in ones), *key, ones) for key, ones in alike.items()),
        key=lambda row: (-row[0], row[1:6]),
    )
    table(
        ["TASK", "VARIANT", "DEVICE", ">BATCH", ">SLO MS", ">WORKERS", ">BUSY", ">QUERIES/S"],
        (
            [
                task,
                variant,
                kind,
                str(size),
                ms(slo_ms),
                f"{len({one['worker'] for one in ones}):,}",
                percent(sum(one["share"] for one in ones) / len({one["worker"] for one in ones})),
                rate(qps),
            ]
            for qps, kind, task, variant, size, slo_ms, ones in rows[:SHOWN]
        ),
        empty="It places nothing.",
    )
    if len(rows) > SHOWN:
        typer.echo(f"... and {len(rows) - SHOWN:,} more; -o json prints all")


def rate(qps: float) -> str:
    """Queries per second with three significant digits, or all before the point."""
    return f"{qps:,.0f}" if qps >= 100 else f"{qps:.3g}"
