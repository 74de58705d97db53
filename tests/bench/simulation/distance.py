"""How far the bound is from what is possible: ``python -m tests.bench.simulation.distance``.

About a minute. Small random settings and traces are solved by trying every schedule
(``tests.planner.bounds.brute_force``), and the best of them is compared with the bound: queries in
time, mean accuracy of as many queries in time, and cost of as many. Few queries on one or two
devices are where the bound is furthest off: it may interrupt a batch and rent a part of a device
(the second one on cost may not), which matters less the more there are. Nothing depends on the
machine.

``--draws 00,19`` compares the shares that the bound gives to queries instead, on drawn workloads
(``tests.bench.simulation.mixed_speed``): what all of a draw's queries take on its fast devices by
the most accurate variants, in the best batches of neighbours and by the shares. A few seconds.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import mean

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as effort

from planner.bounds.row_times import least_row_ms
from planner.bounds.windows import Floats
from planner.latency_table import LatencyTable
from planner.selection.snapshot import build_snapshot
from planner.simulate import bound
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.types import Objective
from tests.bench.simulation.cases import Case, made
from tests.bench.simulation.mixed_speed import FAST
from tests.planner.bounds.brute_force import best_accuracies, least_costs
from tests.planner.bounds.instances import settings, traces


@dataclass(slots=True)
class Distances:
    """Of the bound from the optimum, on one instance each; none may be negative."""

    in_time: list[float] = field(default_factory=list)
    """Queries."""
    accuracy: list[float] = field(default_factory=list)
    """Of the most queries that can be in time."""
    cost: list[float] = field(default_factory=list)
    """Of the most queries that can be in time, as a part of the optimum."""
    whole: list[float] = field(default_factory=list)
    """The same with whole devices."""


def _report(in_time: int) -> Report:
    """A policy's result, of which the bound looks at the number in time."""
    return Report(
        policy="brute force", requests=in_time, in_time=in_time, late=0, rejected=0,
        violation_ratio=0.0, effective_accuracy=0.0, cost_usd=0.0, busy_ratio=0.0, loads=0,
        evictions=0, load_s_total=0.0, decision_us_p50=0.0, decision_us_p99=0.0, plan_ms_p50=0.0,
        plan_ms_p99=0.0,
    )  # fmt: skip


def measured(count: int, first_seed: int) -> Distances:
    """The distances on so many instances of each kind."""
    found = Distances()
    once = effort(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    @seed(first_seed)
    @once
    @given(settings(), traces())
    def serving(small: Setting, few: Trace) -> None:
        best = best_accuracies(small, few)
        most = max(n for n, accuracy in enumerate(best) if accuracy > -inf)
        known = bound(small, few, [_report(most)])
        found.in_time.append(known.in_time - most)
        if most:
            found.accuracy.append(known.accuracy(most) - best[most] / most)

    @seed(first_seed)
    @once
    @given(
        settings(devices=4, objective=Objective.COST),
        traces(queries=4, spells_s=150),
    )
    def renting(small: Setting, few: Trace) -> None:
        best = least_costs(small, few)
        most = max(n for n, usd in enumerate(best) if usd < inf)
        if most:
            known = bound(small, few, [_report(most)])
            found.cost.append(1 - known.cost_usd(most) / best[most])
            found.whole.append(1 - known.whole_cost_usd(most) / best[most])

    serving()
    renting()
    return found


def line(name: str, values: Sequence[float], form: str) -> str:
    """Mean, nine tenths, largest and smallest, and how often the bound is what is possible."""
    ordered = sorted(values)
    nine_tenths = ordered[int(0.9 * (len(ordered) - 1))]
    exact = sum(1 for each in values if each < 1e-3) / len(values)
    numbers = (mean(values), nine_tenths, ordered[-1], ordered[0])
    cells = " | ".join(format(each, form) for each in numbers)
    return f"| {name} | {len(values)} | {cells} | {exact:.1%} |"


def best_batches_ms(arrival_ms: Floats, deadline_ms: Floats, table: LatencyTable) -> float:
    """The least time of batches of all queries, each in time; infinite where one cannot be.

    Queries ascend by arrival, and only neighbours share a batch. A division that interleaves
    batches may take less still, so the bound's shares are off by no more than this says.
    """
    least_ms = [0.0]
    for last, arrived_ms in enumerate(arrival_ms):
        least_ms.append(
            min(
                [
                    least_ms[last + 1 - size] + table.ms[size]
                    for size in range(1, min(table.max_batch, last + 1) + 1)
                    if arrived_ms + table.ms[size] <= deadline_ms[last + 1 - size]
                ],
                default=inf,
            )
        )
    return least_ms[-1]


def shares(name: str, seed: int) -> str:
    """What a row takes on average of a draw, in the best batches and by the bound's shares."""
    ground, _, drawn = made(Case(catalog="draws", workload=name, seed=seed))
    trace, views = drawn.trace, build_snapshot(ground.catalog, ()).tasks
    arrival_ms = np.asarray(trace.arrival_s, dtype=float) * 1_000
    deadline_ms = arrival_ms + np.asarray(trace.latency_ms, dtype=float)
    best_ms = bound_ms = 0.0
    for number, task in enumerate(trace.tasks):
        on_fast = [c for c in views[task].by_accuracy if c.device_kind == FAST]
        table = max(on_fast, key=lambda candidate: candidate.accuracy).table
        mine = np.asarray(trace.task) == number
        best_ms += best_batches_ms(arrival_ms[mine], deadline_ms[mine], table)
        bound_ms += float(least_row_ms(arrival_ms[mine], deadline_ms[mine], table).sum())
    count, more = len(trace), best_ms / bound_ms - 1
    return f"| {name} | {best_ms / count:.1f} | {bound_ms / count:.1f} | {more:.1%} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=200, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", help="numbers by comma: the shares of queries on these draws")
    asked = parser.parse_args(arguments)
    if asked.draws:
        print("| draw | ms a row, best batches | by the bound's shares | more |\n|---|--:|--:|--:|")
        for number in asked.draws.split(","):
            print(shares(f"draw-{int(number):02}", asked.seed), flush=True)
        return
    found = measured(asked.instances, asked.seed)
    print("| bound - optimum | instances | mean | 90 % | largest | smallest | exact |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    print(line("queries in time", found.in_time, ".2f"))
    print(line("mean accuracy", found.accuracy, ".4f"))
    print(line("cost, part of the optimum", found.cost, ".3f"))
    print(line("the same, whole devices", found.whole, ".3f"))


if __name__ == "__main__":
    main()
