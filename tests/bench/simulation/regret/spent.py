"""What the time of devices went into: ``python -m tests.bench.simulation.regret.spent``.

For a stretch of a workload under our own policy, objective ``accuracy``, and each kind of devices:
how busy they are, how many rows their batches have, and which part of the busy time

* went into answers by more accurate variants than the quickest of the task there, in full batches;
* is what rows take longer than in the variant's largest batch, by why a batch was no larger:
  queries for its variant *stay*, as the others would be late; it is as large as *planned*; queries
  of its task wait on the device for *another variant*; queries for the variant wait *elsewhere*, on
  other devices of the kind; or *nobody* waits.

And of the queries that came: how many were answered there in that time, how many could have been at
most (a linear program of rows in full batches of the quickest variants), and which part of the time
those that were answered would have taken, divided over the kinds in the best way. Where the devices
are busy throughout and that part is one, all that is lost is lost by who is refused.

Some seconds for a workload; nothing depends on the machine.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf, nan
from typing import cast
from unittest.mock import patch

import numpy as np
from scipy.optimize import linprog

from planner.simulate import offers_of, simulate
from planner.simulation.engine import Engine
from planner.simulation.fleet import Ticket, Worker
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.types import Objective
from tests.bench.simulation.ablation import _catalog
from tests.bench.simulation.cases import Case, made
from tests.bench.simulation.policies import setting_of
from variants.types import DeviceKindName, TaskName

WHY = ("stay", "planned", "another variant", "elsewhere", "nobody")
"""Why a batch was no larger."""


@dataclass(slots=True)
class Spent:
    """Of the devices of a kind. Times in ms."""

    batches: int = 0
    rows: int = 0
    busy_ms: float = 0.0
    slower_ms: float = 0.0
    small_ms: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WHY, 0.0))
    """By why."""
    answered: Counter[TaskName] = field(default_factory=Counter)


def why_no_larger(engine: Engine, worker: Worker, ticket: Ticket, rows: int) -> str:
    """Why a batch that has just begun has no more rows."""
    queue, replica = ticket.queue, ticket.replica
    if queue.rows:
        return "stay"
    if queue.limit <= rows:
        return "planned"
    if any(other.rows for other in queue.task_share.queues):
        return "another variant"
    for other in engine.fleet.workers.values():
        there = other.replicas.get(replica.key)
        alike = other is not worker and other.kind.name == worker.kind.name
        if alike and there is not None and there.queue.rows:
            return "elsewhere"
    return "nobody"


@contextmanager
def spending(
    setting: Setting, begin_s: float = 0.0, end_s: float = inf
) -> Iterator[dict[DeviceKindName, Spent]]:
    """What simulations spend in batches that begin within this time, by kind."""
    quickest = quickest_ms(setting)
    found = {kind.name: Spent() for kind in setting.kinds}
    before = Engine._start

    def start(engine: Engine, worker: Worker) -> None:
        before(engine, worker)
        if worker.batch is None or not begin_s * 1_000 <= engine._now_ms < end_s * 1_000:
            return
        ticket = cast(Ticket, worker.batch[0])
        task, table = ticket.replica.key[0], ticket.replica.candidate.table
        rows = sum([item.rows for item in worker.batch])
        spent = found[worker.kind.name]
        spent.batches += 1
        spent.rows += rows
        spent.busy_ms += table.ms[rows]
        spent.answered[task] += rows
        spent.slower_ms += rows * (table.row_ms - quickest[worker.kind.name, task])
        if rows < table.max_batch:
            small_ms = table.ms[rows] - rows * table.row_ms
            spent.small_ms[why_no_larger(engine, worker, ticket, rows)] += small_ms

    with patch.object(Engine, "_start", start):
        yield found


def quickest_ms(setting: Setting) -> dict[tuple[DeviceKindName, TaskName], float]:
    """What a row takes at least on each kind, by task, in ms."""
    found: dict[tuple[DeviceKindName, TaskName], float] = {}
    for kind, offers in offers_of(setting.catalog).items():
        for (task, _), candidate in offers.items():
            found[kind, task] = min(found.get((kind, task), inf), candidate.table.row_ms)
    return found


def most_answered(
    setting: Setting, came: Counter[TaskName], seconds: float, least: float = 0.0
) -> float:
    """How many of the queries the fleet could answer at most in so many seconds.

    Args:
        least: the part of each task's queries that has to be answered; not a number where that is
            more than the fleet can.
    """
    cost, counts = _program(setting, came)
    limits = counts + [kind.count * seconds * 1_000 for kind in setting.kinds]
    of_tasks = cost[: len(counts)]
    found = linprog(
        -np.ones(cost.shape[1]),
        A_ub=np.vstack((cost, -of_tasks)),
        b_ub=limits + [-least * count for count in counts],
    )
    return -float(found.fun) if found.success else nan


def least_part(setting: Setting, answered: Counter[TaskName], seconds: float) -> float:
    """Which part of its time the fleet needs at least to answer all of these queries."""
    cost, counts = _program(setting, answered)
    times = [[-kind.count * seconds * 1_000] for kind in setting.kinds]
    rates, times_of = cost[: len(counts)], np.hstack((cost[len(counts) :], np.array(times)))
    goal = np.append(np.zeros(cost.shape[1]), 1.0)
    found = linprog(
        goal,
        A_ub=times_of,
        b_ub=np.zeros(len(times)),
        A_eq=np.hstack((rates, np.zeros((len(counts), 1)))),
        b_eq=counts,
    )
    return float(found.fun)


def _program(setting: Setting, counts: Counter[TaskName]) -> tuple[np.ndarray, list[float]]:
    """For each task and then each kind a row, over all pairs of kind and task, that has what a
    query counts there; and how many queries of each task there are."""
    tasks, quickest = sorted(counts), quickest_ms(setting)
    kinds = [kind.name for kind in setting.kinds]
    pairs = [(kind, task) for kind in kinds for task in tasks if (kind, task) in quickest]
    cost = np.zeros((len(tasks) + len(kinds), len(pairs)))
    for at, (kind, task) in enumerate(pairs):
        cost[tasks.index(task), at] = 1.0
        cost[len(tasks) + kinds.index(kind), at] = quickest[kind, task]
    return cost, [float(counts[task]) for task in tasks]


def came_within(trace: Trace, begin_s: float, end_s: float) -> Counter[TaskName]:
    """The queries of each task that arrive within a time."""
    pairs = zip(trace.arrival_s, trace.task, strict=True)
    return Counter(trace.tasks[task] for at_s, task in pairs if begin_s <= at_s < end_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="draw-00,draw-16,draw-19,draw-26,draw-29")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from-s", type=float, default=0.0)
    parser.add_argument("--until-s", type=float, default=inf)
    given = parser.parse_args()
    print(f"| workload, kind | busy | rows | slower variants | small | {' | '.join(WHY)} |")
    print("|---|" + "--:|" * (4 + len(WHY)))
    for name in given.only.split(","):
        case = Case(catalog=_catalog(name), workload=name, seed=given.seed, quick=True)
        setting, trace = setting_of(case, Objective.ACCURACY), made(case)[2].trace
        begin_s, end_s = given.from_s, min(given.until_s, trace.arrival_s[-1])
        with spending(setting, begin_s, end_s) as found:
            simulate(setting, trace, "modelless", clock=lambda: 0.0)
        answered: Counter[TaskName] = Counter()
        for kind in setting.kinds:
            spent = found[kind.name]
            answered += spent.answered
            time_ms, busy_ms = kind.count * (end_s - begin_s) * 1_000, max(spent.busy_ms, 1e-9)
            small_ms = sum(spent.small_ms.values())
            cells = [
                f"{busy_ms / time_ms:.3f}",
                f"{spent.rows / max(spent.batches, 1):.2f}",
                *(f"{each / busy_ms:.1%}" for each in (spent.slower_ms, small_ms)),
                *(f"{spent.small_ms[why] / busy_ms:.1%}" for why in WHY),
            ]
            print(f"| {name}, {kind.name} | {' | '.join(cells)} |", flush=True)
        came = came_within(trace, begin_s, end_s)
        print(
            f"{name}: {came.total():,} came, {answered.total():,} were answered, of"
            f" {most_answered(setting, came, end_s - begin_s):,.0f} at most; least part of the"
            f" time: {least_part(setting, answered, end_s - begin_s):.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
