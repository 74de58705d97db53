"""How long a choice takes that follows a plan: ``python -m tests.bench.planning.follow``.

A thousand workers of three kinds, a hundred tasks of ten variants, each with a class without a
floor and one with, and a plan for ``--qps`` (``tests.bench.planning.tick``). Queries are drawn as
the plan expects them. How busy the workers are is told in milliseconds of backlog, drawn evenly
from nothing to so much for each worker:

* none: every query finds room on its first target;
* so much that some targets have no room;
* so much that hardly any has: the query goes over all targets, and then wherever it completes
  first.

A query's time is the median of ``ROUNDS`` rounds, each query timed on its own with the garbage
collector off; percentiles are taken over the queries. *Followed* are those that a target had room
for.
"""

import argparse
import gc
import sys
from collections.abc import Sequence
from random import Random
from statistics import median, quantiles
from time import perf_counter_ns

from planner.selection.plan_following import CongestionWindow, choose
from planner.selection.routes import EMPTY, RouteTable, resolve
from planner.selection.snapshot import build_snapshot
from planner.types import Choice, Objective, Query, Reason, Snapshot, WorkerView
from tests.bench.machine import describe
from tests.bench.planning.tick import Fleet, demanded, settled
from variants.types import Prefer, TaskName, VariantName

ROUNDS = 5
QUERIES = 2_000
NOW_MS = 1_000.0
BACKLOGS_MS = (0.0, 60.0, 150.0, 250.0, 1_000.0)


def planned(workers: int, qps: float, objective: Objective) -> tuple[Snapshot, RouteTable]:
    """A fleet that holds what its plan says, as a gateway sees it."""
    fleet = Fleet(workers, qps, objective, elastic=False)
    decision = settled(fleet)
    snapshot = build_snapshot(
        fleet.observation.catalog,
        [
            (
                WorkerView(id=id_, device_kind=fleet.kinds[id_]),
                frozenset((TaskName(t), VariantName(v)) for t, v in held),
            )
            for id_, held in fleet.held.items()
        ],
    )
    return snapshot, resolve(decision.plan.routes, snapshot, prefer_of(objective), EMPTY)


def prefer_of(objective: Objective) -> Prefer:
    return Prefer.ACCURACY if objective is Objective.ACCURACY else Prefer.COST


def queries(qps: float, prefer: Prefer) -> list[Query]:
    draw = Random(1)
    classes = demanded(qps, draw, 0.0)
    drawn = draw.choices(classes, [each.qps for each in classes], k=QUERIES)
    return [
        Query(
            task=each.task,
            rows=1,
            received_ms=NOW_MS - 0.2,
            latency_ms=each.latency_ms,
            accuracy=each.accuracy,
            prefer=prefer,
            draw=draw.getrandbits(62),
        )
        for each in drawn
    ]


def timed(snapshot: Snapshot, routes: RouteTable, asked: Sequence[Query]) -> str:
    window = CongestionWindow()
    rounds: list[list[float]] = []
    for _ in range(ROUNDS):
        took_us = []
        for query in asked:
            start = perf_counter_ns()
            choose(snapshot, routes, window, query, NOW_MS)
            took_us.append((perf_counter_ns() - start) / 1_000)
        rounds.append(took_us)
    us = [median(times) for times in zip(*rounds, strict=True)]
    found = [choose(snapshot, routes, window, query, NOW_MS) for query in asked]
    followed = [isinstance(each, Choice) and each.reason is Reason.PLANNED for each in found]
    tried = [len(routes.targets(query)) for query in asked]
    return (
        f"{median(us):9.2f} {quantiles(us, n=100)[98]:9.2f} {max(us):9.2f} "
        f"{sum(followed) / len(followed):9.1%} {median(tried):9.0f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.planning.follow")
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--qps", type=float, default=20_000.0)
    asked = parser.parse_args(arguments)
    print(describe())
    print(f"{'objective':10} {'backlog':>9} {'p50 µs':>9} {'p99 µs':>9} {'most':>9} "
          f"{'followed':>9} {'targets':>9}")  # fmt: skip
    for objective in (Objective.ACCURACY, Objective.COST):
        snapshot, routes = planned(asked.workers, asked.qps, objective)
        drawn = queries(asked.qps, prefer_of(objective))
        gc.collect()
        gc.freeze()
        gc.disable()
        for backlog_ms in BACKLOGS_MS:
            draw = Random(2)
            for worker in snapshot.workers.values():
                worker.busy_until_ms = NOW_MS + draw.uniform(0.0, backlog_ms)
            shown = timed(snapshot, routes, drawn)
            print(f"{objective.value:10} {backlog_ms:6.0f} ms {shown}", flush=True)
        gc.enable()
        gc.unfreeze()
    return 0


if __name__ == "__main__":
    sys.exit(main())
