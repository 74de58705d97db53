"""What fleets of a fixed size must violate: ``python -m tests.bench.simulation.regret.fleets``.

The bound on cost may rent by the queries that will come. Where arrivals are Poisson at a rate that
stays, what came before says nothing of what comes, so that a policy that only knows the rate can do
no better than one number of devices, or two in turns. What such a fleet violates at least, however
well it serves, is the bound for queries in time on it. So this tells apart what chance costs who
chooses a fleet, and what it costs who serves.

The first minute of the workload is left out. Half a minute for each fleet; nothing depends on the
machine.

``--policies modelless,static-cheapest`` says beside it what policies violate on such fleets, which
are there from the beginning, once they have known the workload for a minute: how much of the
distance from the bound is in serving. About as long again for each.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

from planner.bounds.ceilings import most_earned
from planner.bounds.classes import classes_of
from planner.bounds.devices import device_time
from planner.bounds.program import ServingProgram
from planner.simulate import offers_of, simulate
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.types import Objective
from tests.bench.simulation.cases import Case, made

BEGIN_S = 60.0
LOADED_S = 10.0
"""When the part that is left begins, so that devices have loaded."""
KNOWN_S = 60.0
"""From then on it counts what policies violate."""


def after(trace: Trace, begin_s: float) -> Trace:
    """The queries that arrive after a beginning."""
    kept = [arrival_s >= begin_s for arrival_s in trace.arrival_s]
    return Trace(
        tasks=trace.tasks,
        arrival_s=[at_s - begin_s + LOADED_S for at_s in compress(trace.arrival_s, kept)],
        task=list(compress(trace.task, kept)),
        latency_ms=list(compress(trace.latency_ms, kept)),
        min_accuracy=list(compress(trace.min_accuracy, kept)),
        max_cost=list(compress(trace.max_cost, kept)),
    )


def violated(
    setting: Setting, trace: Trace, kind: str, counts: Sequence[int]
) -> list[tuple[float, float]]:
    """For so many devices of a kind, beside all others: USD per hour, and violations at least."""
    offers = offers_of(setting.catalog)
    classes = classes_of(setting, trace, offers)
    last_ms = float(trace.arrival_s[-1]) * 1_000
    found = []
    for count in counts:
        kinds = tuple(replace(k, count=count) if k.name == kind else k for k in setting.kinds)
        fleet = replace(setting, kinds=kinds)
        time = device_time(fleet, offers, classes.windows, last_ms)
        prices = ServingProgram(classes, time).most_served()
        most = min(classes.servable, most_earned(classes, time, prices.per_ms, 0.0, 1.0))
        usd_per_hour = sum(each.count * each.usd_per_hour for each in kinds)
        found.append((usd_per_hour, 1 - most / len(trace)))
    return found


def violated_by(
    policy: str, setting: Setting, trace: Trace, kind: str, counts: Sequence[int]
) -> list[float]:
    """For so many devices of a kind: what a policy violates under ``cost``, from a minute on."""
    found = []
    for count in counts:
        kinds = tuple(replace(k, count=count) if k.name == kind else k for k in setting.kinds)
        fleet = replace(setting, kinds=kinds, objective=Objective.COST, elastic=False)
        report = simulate(fleet, trace, policy, clock=lambda: 0.0)
        known = [each for each in report.timeline if each.start_s >= KNOWN_S]
        lost = sum(each.late + each.rejected for each in known)
        found.append(lost / max(1, sum(each.arrived for each in known)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--catalog", default="synthetic")
    parser.add_argument("--workload", default="steady")
    parser.add_argument("--seed", default="0", help="one or several, by commas")
    parser.add_argument("--kind", default="cpu", help="of which there are so many")
    parser.add_argument("--counts", default="23,24,25", help="by commas")
    parser.add_argument("--policies", default="", help="by commas")
    given = parser.parse_args()
    counts = [int(each) for each in given.counts.split(",")]
    for seed in given.seed.split(","):
        ground, _, drawn = made(
            Case(catalog=given.catalog, workload=given.workload, seed=int(seed))
        )
        setting = Setting(
            catalog=ground.catalog, kinds=ground.kinds, objective=Objective.ACCURACY, seed=int(seed)
        )
        trace = after(drawn.trace, BEGIN_S)
        found = violated(setting, trace, given.kind, counts)
        cells = [f"{usd:.2f} USD/h: {part:.2%}" for usd, part in found]
        print(f"| {seed} | " + " | ".join(cells) + " |", flush=True)
        for policy in given.policies.split(",") if given.policies else ():
            parts = violated_by(policy, setting, trace, given.kind, counts)
            print(f"| {policy} | " + " | ".join(f"{part:.2%}" for part in parts) + " |", flush=True)


if __name__ == "__main__":
    main()
