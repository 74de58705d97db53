"""What admission lets in, what it costs, and whether anybody admitted is late.

Run with ``python -m tests.bench.admission`` from the repository's root. One slice runs in virtual
time with exact latencies; queries arrive as a Poisson process with a fixed seed. So all columns but
the times are the same on every machine. Times are CPU time of this thread, the garbage collector
off. A query's budget counts from its arrival to the end of its batch.

* admitted: share of all queries that were let in; late: admitted ones that were late (must be 0).
* at most: no schedule of any kind serves a larger share. Rows cost at least the table's cheapest
  row, so what has arrived by any moment bounds what is served by the latest deadline.
* goodput: queries in time per second of virtual time.
* admit: µs per decision; batch: µs per batch formed.
"""

import gc
import platform
import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import quantiles
from time import thread_time_ns

from planner.batching import Schedule, Verdict
from planner.lanes import Item
from planner.types import LatencyTable

NONE = LatencyTable([(1, 1.0), (8, 8.0)])
"""Batches gain nothing: 1,000 rows/s."""
GPU = LatencyTable([(1, 4.25), (64, 20.0)])
"""4 ms a batch and 0.25 ms a row: 3,200 rows/s in batches of 64, 235 one by one."""
QUERIES = 20_000


def one_deadline(rng: random.Random) -> float:
    """100 ms for everybody; ``rng`` is not used."""
    return 100.0


def spread(rng: random.Random) -> float:
    """10 ms to 1 s, log-uniform."""
    return float(10.0 ** rng.uniform(1.0, 3.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One line of the table."""

    name: str
    table: LatencyTable
    load: float
    """Rows that arrive over rows that full batches can serve."""
    budget_ms: Callable[[random.Random], float]
    variants: int = 1
    queries: int = QUERIES

    @property
    def per_row_ms(self) -> float:
        return min(ms / rows for rows, ms in enumerate(self.table.ms) if rows)


LOADS = [
    Load(name=f"{name}, {kind}, {variants} variant{'s' * (variants > 1)}, {load:g}x",
         table=table, load=load, budget_ms=budget_ms, variants=variants)
    for name, budget_ms, loads in (
        ("ample", one_deadline, (0.5,)),
        ("one deadline", one_deadline, (2.0,)),
        ("10 ms to 1 s", spread, (2.0, 5.0)),
    )
    for load in loads
    for kind, table in (("no gain", NONE), ("GPU", GPU))
    for variants in (1, 4)
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one load."""

    admitted: int
    late: int
    end_ms: float
    """When the last batch was done."""
    last_ms: float
    """The latest deadline of all."""
    admit_us: list[float]
    batch_us: list[float]


def play(load: Load) -> Outcome:
    """Run a load in virtual time."""
    rng = random.Random(20261120)
    schedule = Schedule()
    lanes = [schedule.add_lane("task", load.table) for _ in range(load.variants)]
    gap_ms = load.per_row_ms / load.load
    admit_us: list[float] = []
    batch_us: list[float] = []
    admitted = late = 0
    now_ms = free_ms = last_ms = 0.0

    def dispatch(until_ms: float) -> None:
        nonlocal free_ms, late
        while schedule.count and free_ms < until_ms:
            began = thread_time_ns()
            late += len(schedule.pop_expired(free_ms))
            batch = schedule.next_batch(free_ms)
            batch_us.append((thread_time_ns() - began) / 1000)
            if batch is None:
                return
            free_ms += batch.predicted_ms
            late += sum(1 for item in batch.items if item.deadline_ms < free_ms - 1e-6)
            if free_ms <= until_ms:
                schedule.finished(batch.lane, free_ms, batch.predicted_ms)

    for _ in range(load.queries):
        now_ms += rng.expovariate(1.0 / gap_ms)
        dispatch(now_ms)
        free_ms = max(free_ms, now_ms)
        deadline_ms = now_ms + load.budget_ms(rng)
        last_ms = max(last_ms, deadline_ms)
        item = Item(rng.choice(lanes), deadline_ms, 1)
        began = thread_time_ns()
        verdict = schedule.admit(item, now_ms)
        admit_us.append((thread_time_ns() - began) / 1000)
        admitted += verdict is Verdict.ADMITTED
    dispatch(float("inf"))
    return Outcome(
        admitted=admitted, late=late, end_ms=max(free_ms, now_ms), last_ms=last_ms,
        admit_us=admit_us, batch_us=batch_us,
    )  # fmt: skip


def percentiles(values: list[float]) -> tuple[float, float]:
    """The median and the 99th percentile."""
    cuts = quantiles(values, n=100)
    return cuts[49], cuts[98]


def main() -> None:
    gc.collect()
    gc.disable()
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    print(f"{QUERIES:,} queries each\n")
    columns = (
        "admitted",
        "at most",
        "late",
        "goodput/s",
        "admit µs p50",
        "p99",
        "batch µs p50",
        "p99",
    )
    print("| load | " + " | ".join(columns) + " |")
    print("|---|" + "--:|" * len(columns))
    for load in LOADS:
        found = play(load)
        admit, batch = percentiles(found.admit_us), percentiles(found.batch_us)
        at_most = min(1.0, found.last_ms / load.per_row_ms / load.queries)
        goodput = (found.admitted - found.late) / found.end_ms * 1000
        print(
            f"| {load.name} | {found.admitted / load.queries:.1%} | {at_most:.1%} | {found.late}"
            f" | {goodput:,.0f} | {admit[0]:.1f} | {admit[1]:.1f}"
            f" | {batch[0]:.0f} | {batch[1]:.0f} |"
        )
        gc.collect()


if __name__ == "__main__":
    main()
