"""What following the plan is worth by default: ``python -m tests.bench.simulation.following``.

About five minutes. The product's default, objective ``cost`` on a fixed fleet, is simulated once as
it is and once with queries that know of no routes, so that each takes the cheapest variant that
fits. Plans, placements, shares and longest batches are made and told in both. Three minutes of each
workload (``tests.bench.simulation.workloads``), at its own load, where the peak is 0.9 of what the
fleet's cheapest variants could serve (1.2 in the flash crowd), and at half and a tenth of it. With
MODELLESS_BENCH_DATA set, the measured image models and the tweet stream are used too.

``one worker`` is what ``make up`` runs: two tasks on one device.

Nothing but the times of decisions depends on the machine.
"""

import argparse
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from planner.policies import modelless
from planner.selection.routes import EMPTY
from planner.simulate import simulate
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from tests.bench.planning.catalogs import Ground, synthetic, timm
from tests.bench.simulation.workloads import Workload, draw, workloads
from variants.types import TaskName

NAMES = ("steady", "diurnal", "flash", "zipf", "mixed")
LOADS = (1.0, 0.5, 0.1)
SMALL_MIB = 65_536.0


def one_worker() -> Ground:
    """Two tasks of the synthetic catalog on one CPU device with room for everything."""
    ground = synthetic()
    tasks = (TaskName("t0"), TaskName("t5"))
    catalog, cpu = ground.catalog, ground.kinds[0]
    profiles = tuple(p for p in catalog.profiles if p.task in tasks and p.device_kind == cpu.name)
    profiled = {(p.task, p.variant) for p in profiles}
    return Ground(
        name="one worker",
        catalog=replace(
            catalog,
            tasks=tuple(t for t in catalog.tasks if t.name in tasks),
            versions=tuple(v for v in catalog.versions if v.task in tasks),
            variants=tuple(v for v in catalog.variants if v.key in profiled),
            profiles=profiles,
        ),
        kinds=(replace(cpu, count=1, memory_mib=SMALL_MIB),),
        latency_ms={task: ground.latency_ms[task] for task in tasks},
    )


@contextmanager
def routes_unknown() -> Iterator[None]:
    """Queries know of no routes for a while."""
    before = vars(modelless)["resolve"]
    setattr(modelless, "resolve", lambda *_: EMPTY)  # noqa: B010
    try:
        yield
    finally:
        setattr(modelless, "resolve", before)  # noqa: B010


def played(ground: Ground, workload: Workload, seed: int) -> Report:
    """The product's default on a workload."""
    setting = Setting(
        catalog=ground.catalog,
        kinds=ground.kinds,
        elastic=False,
        seed=seed,
        failures_every_s=workload.failures_every_s,
    )
    drawn = draw(workload, ground, seed)
    return simulate(setting, drawn.trace, "modelless", clock=time.thread_time)


def cells(reports: Sequence[Report]) -> str:
    """Violations of each seed, then means of accuracy, busy ratio and cost."""
    count = len(reports)
    violated = ", ".join(f"{r.violation_ratio:.2%}" for r in reports)
    accuracy = sum(r.effective_accuracy for r in reports) / count
    busy = sum(r.busy_ratio for r in reports) / count
    usd = sum(r.cost_usd for r in reports) / count
    return f"{violated} | {accuracy:.4f} | {busy:.1%} | {usd:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(NAMES), help="workloads, by comma")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--grounds", default="synthetic,timm,one worker", help="by comma")
    asked = parser.parse_args(arguments)
    folder = os.environ.get("MODELLESS_BENCH_DATA")
    data = None if folder is None else Path(folder)
    print("| catalog, workload, load | routes | violated, by seed | accuracy | busy | USD |")
    print("|---|---|--:|--:|--:|--:|")
    for ground in _grounds(asked.grounds.split(","), data):
        for workload in workloads(ground, data, quick=True):
            if workload.name not in asked.only.split(","):
                continue
            for load in LOADS:
                part = replace(workload, load=[each * load for each in workload.load])
                name = f"{ground.name}, {workload.name}, {load:g}"
                followed = [played(ground, part, seed) for seed in range(asked.seeds)]
                print(f"| {name} | followed | {cells(followed)} |", flush=True)
                with routes_unknown():
                    unknown = [played(ground, part, seed) for seed in range(asked.seeds)]
                print(f"| | not followed | {cells(unknown)} |", flush=True)


def _grounds(names: Sequence[str], data: Path | None) -> Iterable[Ground]:
    if "synthetic" in names:
        yield synthetic()
    if "timm" in names and data is not None:
        yield timm(data)
    if "one worker" in names:
        yield one_worker()


if __name__ == "__main__":
    main()
