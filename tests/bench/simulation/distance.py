"""How far the bound is from what is possible: ``python -m tests.bench.simulation.distance``.

About a minute. Small random settings and traces are solved by trying every schedule
(``tests.planner.bounds.brute_force``), and the best of them is compared with the bound: queries in
time, mean accuracy of as many queries in time, and cost of as many. Few queries on one or two
devices are where the bound is furthest off: it may interrupt a batch and rent a part of a device
(the second one on cost may not), which matters less the more there are. Nothing depends on the
machine.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import mean

from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as effort

from planner.simulate import bound
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.types import Objective
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


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=200, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    found = measured(asked.instances, asked.seed)
    print("| bound - optimum | instances | mean | 90 % | largest | smallest | exact |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    print(line("queries in time", found.in_time, ".2f"))
    print(line("mean accuracy", found.accuracy, ".4f"))
    print(line("cost, part of the optimum", found.cost, ".3f"))
    print(line("the same, whole devices", found.whole, ".3f"))


if __name__ == "__main__":
    main()
