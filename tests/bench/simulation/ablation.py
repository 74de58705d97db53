"""What each idea of planning and following is worth: ``python -m tests.bench.simulation.ablation``.

About three minutes. Each line switches one idea off, by a constant or a function of the module that
has it, and simulates the short workloads on the synthetic catalog again, under ``accuracy``
(``tests.bench.simulation.workloads``). Violations and effective accuracy depend on nothing but the
code. With MODELLESS_BENCH_DATA set, the diurnal workload is the measured one.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import planner.batching.fairness
import planner.policies.modelless
import planner.reconcile.demand_assignment
import planner.reconcile.problem_builder
import planner.selection.plan_following
from planner.batching.deadline_queue import DeadlineQueue
from planner.simulate import simulate
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.types import Objective
from tests.bench.planning.catalogs import synthetic
from tests.bench.simulation.workloads import Workload, draw, workloads

NAMES = ("diurnal", "flash", "zipf", "mixed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something switched off: an attribute of a module or class, and what stands in."""

    name: str
    where: Any = None
    what: str = ""
    instead: Any = None


def _any_length(queue: DeadlineQueue, longest_ms: float | None) -> None:
    """Takes no notice of the longest batch that is planned."""


def _no_room(schedule: DeadlineQueue, item: Any, now_ms: float) -> float:
    return 0.0


def _unlimited(size: float) -> int:
    """Whatever arrives in time, any batch is planned for."""
    return 1 << 20


CHANGES = (
    Change(name="all of it"),
    Change(
        name="congestion window does not shrink",
        where=planner.selection.plan_following,
        what="WINDOW_LOST",
        instead=0.0,
    ),
    Change(
        name="overflow never ends",
        where=planner.selection.plan_following,
        what="OVERFLOW",
        instead=1.0,
    ),
    Change(
        name="no headroom", where=planner.reconcile.demand_assignment, what="TAILS", instead=(0.0,)
    ),
    Change(
        name="any batch planned",
        where=planner.reconcile.problem_builder,
        what="int",
        instead=_unlimited,
    ),
    Change(
        name="longest batch not planned",
        where=DeadlineQueue,
        what="set_longest_batch",
        instead=_any_length,
    ),
    Change(name="no room to fill up", where=DeadlineQueue, what="_room_ms", instead=_no_room),
    Change(name="shares never bind", where=planner.batching.fairness, what="EXCESS", instead=inf),
)


@contextmanager
def switched(change: Change) -> Iterator[None]:
    """The change made, and taken back."""
    if change.where is None:
        yield
        return
    missing = object()
    before = change.where.__dict__.get(change.what, missing)
    setattr(change.where, change.what, change.instead)
    try:
        yield
    finally:
        if before is missing:
            delattr(change.where, change.what)
        else:
            setattr(change.where, change.what, before)


def measured(names: Sequence[str], data: Path | None) -> Callable[[Workload], Report]:
    """Simulates a workload under our policy."""
    ground = synthetic()

    def run(workload: Workload) -> Report:
        drawn = draw(workload, ground, 0)
        setting = Setting(
            catalog=ground.catalog,
            kinds=ground.kinds,
            objective=Objective.ACCURACY,
            failures_every_s=workload.failures_every_s,
        )
        return simulate(setting, drawn.trace, "modelless", clock=time.thread_time)

    return run


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(NAMES), help="workloads, by comma")
    names = parser.parse_args(arguments).only.split(",")
    folder = os.environ.get("MODELLESS_BENCH_DATA")
    data = Path(folder) if folder else None
    chosen = [w for w in workloads(synthetic(), data, quick=True) if w.name in names]
    run = measured(names, data)
    print("| without | " + " | ".join(f"{w.name}: violated, accuracy" for w in chosen) + " |")
    print("|---|" + "--:|" * len(chosen))
    for change in CHANGES:
        with switched(change):
            found = [run(workload) for workload in chosen]
        cells = (f"{r.violation_ratio:.2%}, {r.effective_accuracy:.4f}" for r in found)
        print(f"| {change.name} | " + " | ".join(cells) + " |")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
