"""What queries are lost for want of: ``python -m tests.bench.simulation.lost.parts --only flash``.

Our own policy on a workload. Of each query that is late or refused, and looked at when it is, the
first of these that is true:

* *late*: it was accepted, and answered too late or given up;
* *waited for a load*: it was accepted where its variant was being loaded, and had no time left;
* *a free worker*: somewhere a worker stood idle that had a variant ready which would have answered
  in time;
* *a load*: an idle worker did not have any variant of its task ready;
* *workers that start*: devices were ordered that were not there yet;
* *workers nobody had ordered*: there may be more devices than there were;
* *behind others*: all devices that there can be were there, and none was free, but one had a
  variant that would have answered in time behind all that waited there: queues are kept short for
  others;
* *time*: none would have.

How many of them the gateway shed for what they cost stands beside that, and for the stretch from
``--from-s`` to ``--until-s`` how many queries have to be lost at least, by all devices in full
batches of the quickest variants (a linear program), and how many where a part of each task has to
be answered: who loses less than that refuses most of some tasks.

Some seconds for a workload; nothing depends on the machine.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from unittest.mock import patch

from planner.simulate import simulate
from planner.simulation.engine import Engine
from planner.simulation.fleet import Replica, Ticket
from planner.simulation.tally import Tally
from planner.types import Objective, Query, Refusal
from tests.bench.simulation.ablation import _catalog
from tests.bench.simulation.cases import Case, made
from tests.bench.simulation.policies import setting_of
from tests.bench.simulation.regret.spent import came_within, most_answered
from variants.types import ReplicaState, TaskName

WHY = (
    "late", "waited for a load", "a free worker", "a load",
    "workers that start", "workers nobody had ordered", "behind others", "time",
)  # fmt: skip
LEAST = (0.0, 0.5, 0.6, 0.7, 0.75, 0.8)
"""Parts of each task that may have to be answered."""


def why_refused(engine: Engine, query: Query) -> str:
    """Why a query that is refused now could not be answered."""
    now_ms, due_ms = engine._now_ms, query.received_ms + query.latency_ms
    behind = without = False
    for worker in engine.fleet.workers.values():
        if worker.draining:
            continue
        idle = worker.batch is None and not worker.queue.count
        fits = [
            each.candidate.table.ms[query.rows]
            for each in worker.replicas.values()
            if each.state is ReplicaState.READY and may_answer(each, query)
        ]
        backlog_ms = 0.0 if idle else worker.queue.backlog_ms(now_ms)
        if fits and now_ms + backlog_ms + min(fits) <= due_ms:
            if idle:
                return "a free worker"
            behind = True
        without = without or (idle and not fits)
    if without:
        return "a load"
    if engine.fleet.ordered:
        return "workers that start"
    kinds = engine._setting.kinds
    if any(engine.fleet.count(kind.name) < kind.count for kind in kinds):
        return "workers nobody had ordered"
    return "behind others" if behind else "time"


def may_answer(replica: Replica, query: Query) -> bool:
    """Whether a variant is what a query asks for, whatever it takes."""
    candidate = replica.candidate
    return (
        candidate.task == query.task
        and (query.accuracy is None or candidate.accuracy >= query.accuracy)
        and (query.cost is None or candidate.price_usd_per_1k <= query.cost)
    )


@dataclass(slots=True)
class Lost:
    """Of a simulation: queries lost by why, and by task those that were refused."""

    why: Counter[str] = field(default_factory=Counter)
    refused: Counter[TaskName] = field(default_factory=Counter)
    shed: int = 0
    """Of them, those that the gateway shed for what they cost."""


@contextmanager
def losing(begin_s: float = 0.0, end_s: float = inf) -> Iterator[Lost]:
    """What simulations lose of the queries that arrive within this time."""
    found = Lost()
    arrives: list[tuple[Engine, Query]] = []
    arrive, warm = Engine._arrive, Engine._warm
    rejects, never, ran = Tally.rejects, Tally.never, Tally.ran

    def counts(arrived_ms: float) -> bool:
        return begin_s * 1_000 <= arrived_ms < end_s * 1_000

    def arriving(engine: Engine, query: Query) -> None:
        arrives.append((engine, query))
        arrive(engine, query)
        arrives.pop()

    def warming(engine: Engine, refusal: Refusal) -> None:
        found.shed += refusal.shed and counts(arrives[-1][1].received_ms)
        warm(engine, refusal)

    def rejecting(tally: Tally, arrived_ms: float) -> None:
        rejects(tally, arrived_ms)
        if not counts(arrived_ms):
            return
        if arrives and arrives[-1][1].received_ms == arrived_ms:
            engine, query = arrives[-1]
            found.why[why_refused(engine, query)] += 1
            found.refused[query.task] += 1
        else:
            found.why["waited for a load"] += 1

    def giving_up(tally: Tally, arrived_ms: float) -> None:
        never(tally, arrived_ms)
        found.why["late"] += counts(arrived_ms)

    def running(
        tally: Tally, tickets: Iterable[Ticket], now_ms: float, run_ms: float, accuracy: float
    ) -> None:
        tickets = list(tickets)
        ran(tally, tickets, now_ms, run_ms, accuracy)
        found.why["late"] += sum(
            counts(each.arrived_ms) and not tally.in_time(each, now_ms) for each in tickets
        )

    with (
        patch.object(Engine, "_arrive", arriving),
        patch.object(Engine, "_warm", warming),
        patch.object(Tally, "rejects", rejecting),
        patch.object(Tally, "never", giving_up),
        patch.object(Tally, "ran", running),
    ):
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="flash", help="workloads, by commas")
    parser.add_argument("--seed", default="0", help="one or several, by commas")
    parser.add_argument("--objective", choices=list(Objective), default=Objective.ACCURACY)
    parser.add_argument("--full", action="store_true", help="workloads in full length")
    parser.add_argument("--from-s", type=float, default=0.0)
    parser.add_argument("--until-s", type=float, default=inf)
    given = parser.parse_args()
    objective = Objective(given.objective)
    print(f"| workload, seed | came | lost | {' | '.join(WHY)} |")
    print("|---|" + "--:|" * (2 + len(WHY)))
    for name in given.only.split(","):
        for seed in map(int, given.seed.split(",")):
            case = Case(catalog=_catalog(name), workload=name, seed=seed, quick=not given.full)
            setting, trace = setting_of(case, objective), made(case)[2].trace
            begin_s, end_s = given.from_s, min(given.until_s, trace.arrival_s[-1])
            with losing(begin_s, end_s) as lost:
                simulate(setting, trace, "modelless", clock=lambda: 0.0)
            came = came_within(trace, begin_s, end_s)
            total = lost.why.total()
            cells = " | ".join(f"{lost.why[why]:,}" for why in WHY)
            print(f"| {name}, {seed} | {came.total():,} | {total:,} | {cells} |", flush=True)
            parts = [f"{lost.refused[each] / came[each]:.0%}" for each in sorted(came)]
            print(f"  shed: {lost.shed:,}; refused of each task: {', '.join(parts)}")
            seconds = end_s - begin_s
            for least in LEAST:
                least_lost = came.total() - most_answered(setting, came, seconds, least)
                print(f"  at least, where {least:.0%} of each task are answered: {least_lost:,.0f}")


if __name__ == "__main__":
    main()
