"""What several gateways lose: ``python -m tests.bench.simulation.gateways``.

Each gateway knows of a worker's queue only what it has sent and what replies say
(``planner.policies.several_gateways``). Workloads of ``tests.bench.simulation.workloads``, three
minutes of each, at constant loads (parts of what the fleet's cheapest variants could serve), with
so many gateways. Where accuracy counts one gateway learns of queues by replies as well, and else it
knows them as they are; ``1r`` learns by replies and ``1k`` knows, whatever counts.
``bursts`` is steady with a rate of each task that jumps between two levels
(``Arrivals.MODULATED``). Cells are violations from a minute on and, under ``accuracy``, the
effective accuracy of all. With MODELLESS_BENCH_DATA set there are the measured image models, too.
Nothing of it depends on the machine.

``--tasks-stay`` has all queries of a task come to one gateway instead of a random one.
"""

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from planner.simulate import simulate
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.types import Objective
from tests.bench.planning.catalogs import Ground, synthetic, timm
from tests.bench.simulation.arrivals import Arrivals
from tests.bench.simulation.workloads import QUICK_S, Workload, draw, workloads

NAMES = ("steady", "zipf", "mixed", "bursts")
LOADS = "0.5,0.7,0.9,1.2"
FROM_S = 60.0
"""What comes before is left out: everything starts empty."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.simulation.gateways")
    parser.add_argument("--gateways", default="1,2,4,8", help="by commas; 1r and 1k: see above")
    parser.add_argument("--only", default=",".join(NAMES), help="workloads, by commas")
    parser.add_argument("--loads", default=LOADS, help="parts of capacity, by commas")
    parser.add_argument("--catalog", choices=("synthetic", "timm", "both"), default="synthetic")
    parser.add_argument("--objective", choices=("accuracy", "cost", "both"), default="both")
    parser.add_argument("--seed", default="0", help="one or several, by commas")
    parser.add_argument("--seconds", type=int, default=QUICK_S)
    parser.add_argument("--tick-s", type=float, default=10.0, help="between two plans")
    parser.add_argument("--tasks-stay", action="store_true")
    asked = parser.parse_args(arguments)
    counts, seeds = asked.gateways.split(","), [int(each) for each in asked.seed.split(",")]
    both = [Objective.COST, Objective.ACCURACY]
    objectives = both if asked.objective == "both" else [Objective(asked.objective)]
    print(f"| catalog, workload, load, objective | {' | '.join(counts)} |")
    print("|---|" + "--:|" * len(counts), flush=True)
    for ground in _grounds(asked.catalog):
        for workload in _workloads(ground, asked.only.split(","), asked.seconds):
            for load in [float(each) for each in asked.loads.split(",")]:
                part = replace(workload, load=[load] * workload.duration_s)
                traces = {seed: draw(part, ground, seed).trace for seed in seeds}
                for objective in objectives:
                    cells = []
                    for count in counts:
                        setting = Setting(
                            catalog=ground.catalog,
                            kinds=ground.kinds,
                            objective=objective,
                            tick_s=asked.tick_s,
                            failures_every_s=workload.failures_every_s,
                            gateways=int(count.rstrip("rk")),
                            by_replies={"r": True, "k": False}.get(count[-1]),
                            tasks_stay=asked.tasks_stay,
                        )
                        found = []
                        for seed, trace in traces.items():
                            gc.collect()
                            gc.freeze()  # the traces are not looked through again and again
                            known = replace(setting, seed=seed)
                            found.append(
                                simulate(known, trace, "modelless", clock=time.thread_time)
                            )
                            gc.unfreeze()
                        cells.append(cell(found, objective))
                    name = f"{ground.name}, {workload.name}, {load:g}, {objective}"
                    print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return 0


def _grounds(catalog: str) -> Iterator[Ground]:
    if catalog != "timm":
        yield synthetic()
    data = os.environ.get("MODELLESS_BENCH_DATA")
    if catalog != "synthetic":
        if data is None:
            sys.exit("the timm catalog needs MODELLESS_BENCH_DATA, a directory")
        yield timm(Path(data))


def _workloads(ground: Ground, names: Sequence[str], seconds: int) -> Iterator[Workload]:
    for workload in workloads(ground, None, seconds=seconds):
        if workload.name in names:
            yield workload
        if workload.name == "steady" and "bursts" in names:
            yield replace(workload, name="bursts", arrivals=Arrivals.MODULATED)


def cell(reports: Sequence[Report], objective: Objective) -> str:
    """Means over seeds."""
    violated = f"{fmean(_violated(each) for each in reports):.3%}"
    if objective is Objective.ACCURACY:
        return f"{violated}, {fmean(each.effective_accuracy for each in reports):.4f}"
    return violated


def _violated(report: Report) -> float:
    later = [each for each in report.timeline if each.start_s >= FROM_S]
    arrived = sum(each.arrived for each in later)
    return 1 - sum(each.in_time for each in later) / arrived if arrived else 0.0


if __name__ == "__main__":
    sys.exit(main())
