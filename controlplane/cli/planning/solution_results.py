"""What people read of a plan that was solved from files: its figures, workers and placements."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from controlplane.cli.render import details, ms, percent, seconds, table, usd
from planner.types import Objective
from variants.figures import accuracy_floor, accuracy_text, figure
from variants.types import DeviceKindName

if TYPE_CHECKING:
    from planner.solver.problem import AvailableKind, Problem, Solution
    from planner.types import Demand

SHOWN = 30
"""Rows of placements for people; machines get all."""
GATEWAY_QPS = 10_000.0
"""Above so many queries a second one gateway may not do: 15,000 were measured on two cores."""
NOTHING = 1e-9
"""Part of a rate that is rounding, not missing."""
IN_LESS = "answers within less than"
LEAST_BUSY = 1e-4
"""A smaller part of a worker's time than this is as good as none."""


def missing(problem: "Problem", solution: "Solution") -> list[tuple["Demand", float]]:
    """The classes of which not all is served, with what is missing in queries per second."""
    served = [0.0] * len(problem.demand)
    for one in solution.assignments:
        served[one.demand] += one.qps
    return [
        (demand, demand.qps - qps)
        for demand, qps in zip(problem.demand, served, strict=True)
        if demand.qps - qps > NOTHING * demand.qps
    ]


def why(problem: "Problem", demand: "Demand") -> str:
    """What keeps a class from being served in full, in a few words."""
    floor = 0.0 if demand.accuracy is None else demand.accuracy
    that_accurate = " that accurate" if floor > 0.0 else ""
    offers = [one for one in problem.offers if one.task == demand.task]
    best = max(one.accuracy for one in offers)
    if best < floor:
        return f"the most accurate variant has {accuracy_text(best)}"
    kinds = {kind.name: kind for kind in problem.kinds if kind.count}
    offers = [one for one in offers if one.accuracy >= floor and one.device_kind in kinds]
    if not offers:
        return f"no device for a variant{that_accurate}"
    # A query that just missed a batch waits for that one, and then takes its own.
    least_ms = min(2 * one.curve.latency_ms(1) + problem.overhead_ms for one in offers)
    if least_ms > demand.latency_ms:
        return f"no variant{that_accurate} {IN_LESS} {ms(least_ms)} ms"
    if all(
        one.memory_mib > kinds[one.device_kind].memory_mib
        for one in offers
        if 2 * one.curve.latency_ms(1) + problem.overhead_ms <= demand.latency_ms
    ):
        return "what answers in time fits in no device's memory"
    return "the devices are full"


def show(
    data: Mapping[str, Any],
    objective: Objective,
    problem: "Problem",
    unserved: Sequence[tuple["Demand", float]],
) -> None:
    """Print a solution.

    Args:
        data: the solution as plain JSON values.
        unserved: what ``missing`` found.
    """
    kinds = problem.kinds
    served, asked_qps = data["served_qps"], sum(one.qps for one in problem.demand)
    share = served / asked_qps if asked_qps else 1.0
    of = f"{rate(asked_qps)} queries/s"
    by_accuracy = objective is Objective.ACCURACY
    unit = "USD per hour"
    if objective is Objective.ENERGY:
        unit = "W" if data["carbon_g_per_hour"] is None else "g of CO2 per hour"

    def worth(value: float) -> str:
        return f"{percent(value)} mean accuracy" if by_accuracy else f"{usd(value)} {unit}"

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
            *_others(data, objective),
            ("solved in", seconds(data["solve_ms"] / 1_000)),
            *([("", "the time limit cut in")] if data["timed_out"] else []),
        ]
    )
    if "split" in data:
        print()
        _show_split(data["split"])
    print()
    _show_workers(data["workers"], kinds)
    print()
    _show_placements(data["placements"])
    if unserved:
        print()
        _show_unserved(problem, unserved)
    if served > GATEWAY_QPS:
        print()
        typer.echo(
            "Only devices are counted. One gateway passes some 10,000 queries of one row a second,"
            " so take several rows to a query, or several gateways, whose cores come on top."
        )


def _others(data: Mapping[str, Any], objective: Objective) -> list[tuple[str, str]]:
    """The figures that are not the objective."""
    cost = ("cost", f"{usd(data['usd_per_hour'])} USD per hour")
    if objective is Objective.ACCURACY:
        return [cost]
    accuracy = percent(data["accuracy"] if data["served_qps"] else None)
    shown = [("accuracy", f"{accuracy} on average")]
    if objective is Objective.COST:
        return shown
    draw = f"{usd(data['watts'])} W, {usd(data['idle_watts'])} of it idle"
    shown += [cost, ("draws", draw)]
    if data["unmeasured_qps"]:
        shown.append(("not counted", f"{rate(data['unmeasured_qps'])} queries/s: not measured"))
    return shown


def _show_split(split: Sequence[Mapping[DeviceKindName, int]]) -> None:
    """How many machines have each layout."""
    from planner.layouts import words

    counts = Counter(words(one) for one in split)
    table([">MACHINES", "LAYOUT"], ([str(n), one] for one, n in sorted(counts.items())), empty="")


def _show_workers(workers: Mapping[str, int], kinds: "Sequence[AvailableKind]") -> None:
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
                figure(slo_ms),
                f"{len({one['worker'] for one in ones}):,}",
                busy(sum(one["share"] for one in ones) / len({one["worker"] for one in ones})),
                rate(qps),
            ]
            for qps, kind, task, variant, size, slo_ms, ones in rows[:SHOWN]
        ),
        empty="It places nothing.",
        alike=("DEVICE", ">SLO MS"),
        spare=(">BATCH",),
    )
    if len(rows) > SHOWN:
        typer.echo(f"... and {len(rows) - SHOWN:,} more; -o json prints all")


def _show_unserved(problem: "Problem", unserved: Sequence[tuple["Demand", float]]) -> None:
    """The classes that are not served in full, the most missing first."""
    ordered = sorted(unserved, key=lambda row: (-row[1], row[0].task, row[0].latency_ms))
    rows = [(demand, qps, why(problem, demand)) for demand, qps in ordered]
    table(
        ["NOT SERVED", ">SLO MS", ">ACCURACY", ">QUERIES/S", ">OF", "WHY"],
        (
            [
                demand.task,
                figure(demand.latency_ms),
                "-" if demand.accuracy is None else accuracy_floor(demand.accuracy),
                rate(qps),
                rate(demand.qps),
                reason,
            ]
            for demand, qps, reason in rows[:SHOWN]
        ),
        empty="",
    )
    if len(rows) > SHOWN:
        typer.echo(f"... and {len(rows) - SHOWN:,} more")
    if any(IN_LESS in reason for _, _, reason in rows):
        typer.echo(
            f"\nPlanned is for a query that has just missed a batch: that one, its own, and"
            f" {figure(problem.overhead_ms)} ms for the way. While little is asked it is quicker,"
            " so an installation may answer some of these."
        )


def busy(share: float) -> str:
    """A part of a worker's time."""
    return f"< {percent(LEAST_BUSY)}" if 0.0 < share < LEAST_BUSY else percent(share)


def rate(qps: float) -> str:
    """Queries per second with three significant digits, or all before the point."""
    return f"{qps:,.0f}" if qps >= 100 else f"{qps:.3g}"
