"""What admission lets in, what it costs, and whether anybody admitted is late.

Run with ``python -m tests.bench.serving.admission`` from the repository's root. One slice runs in
virtual time: first with exact latencies, then with latencies that vary and a correction that
learns, and at last with time that passes between batches, which is learned or not. Queries arrive
as a Poisson process with a fixed seed, so all columns but the times are the same on every machine.
Times are CPU time of this thread, the garbage collector off. A query's budget counts from its
arrival to the end of its batch.

* admitted: share of all queries that were let in; late: admitted ones that were late (0 if exact).
* at most: no schedule of any kind serves a larger share while latencies are exact: even in the
  cheapest batches, no more rows fit before the last deadline.
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

from planner.batching.deadline_queue import DeadlineQueue
from planner.batching.live_costs import LiveCosts
from planner.batching.protocol import Batch, Verdict
from planner.batching.variant_queues import Item
from planner.latency_table import LatencyTable
from planner.live_model import LiveModel

NONE = LatencyTable([(1, 1.0), (8, 8.0)])
"""Batches gain nothing: 1,000 rows/s."""
GPU = LatencyTable([(1, 4.25), (64, 20.0)])
"""4 ms a batch and 0.25 ms a row: 3,200 rows/s in batches of 64, 235 one by one."""
QUERIES = 20_000
SIGMA = 0.1
"""Of the logarithm of the factor by which a batch's time varies, in the second table."""

BETWEEN = (0.05, 0.3)
"""Of a full batch, in the tables after these."""


def one_deadline(rng: random.Random) -> float:
    """100 ms for every query; ``rng`` is not used."""
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


def play(load: Load, sigma: float = 0.0, between: float = 0.0, *, learned: bool = True) -> Outcome:
    """Run a load in virtual time; batches take a log-normal factor of what the table says.

    Args:
        load: what comes.
        sigma: of the logarithm of the factor.
        between: what passes between two batches where queries wait, in times of the largest one.
        learned: whether that is told to what learns.
    """
    rng = random.Random(20261120)
    slice_queue = DeadlineQueue()
    queues = [slice_queue.add_variant("task", load.table) for _ in range(load.variants)]
    costs = LiveCosts(slice_queue)
    models = {queue: LiveModel(load.table, load.table) for queue in queues}
    gap_ms = load.per_row_ms / load.load
    admit_us: list[float] = []
    batch_us: list[float] = []
    admitted = late = 0
    now_ms = began_ms = free_ms = last_ms = 0.0
    running: Batch | None = None
    kept_waiting = False

    def end() -> None:
        """End the running batch at ``free_ms``; the slice is free a little later."""
        nonlocal running, late, free_ms, kept_waiting
        assert running is not None
        queue, took_ms = running.queue, free_ms - began_ms
        slice_queue.finished(queue, free_ms, took_ms)
        missed = sum(1 for item in running.items if item.deadline_ms < free_ms - 1e-6)
        late += missed
        if sigma:
            costs.ran(
                queue, models[queue], running.rows, began_ms, took_ms,
                kept_waiting=kept_waiting and learned, queries=len(running.items), late=missed,
            )  # fmt: skip
        running = None
        kept_waiting = slice_queue.count > 0
        if kept_waiting:
            free_ms += between * load.table.ms[-1]

    def dispatch(until_ms: float) -> None:
        """Run what begins before a moment."""
        nonlocal free_ms, late, began_ms, running
        while True:
            if running is not None:
                if free_ms > until_ms:
                    return
                end()
            if not slice_queue.count or free_ms >= until_ms:
                return
            started = thread_time_ns()
            given_up = len(slice_queue.pop_expired(free_ms))
            late += given_up
            costs.gave_up(given_up)
            running = slice_queue.next_batch(free_ms)
            batch_us.append((thread_time_ns() - started) / 1000)
            if running is not None:
                factor = rng.lognormvariate(0.0, sigma) if sigma else 1.0
                began_ms = free_ms
                free_ms += load.table.ms[running.rows] * factor

    for _ in range(load.queries):
        now_ms += rng.expovariate(1.0 / gap_ms)
        dispatch(now_ms)
        if running is None:
            free_ms = max(free_ms, now_ms)
        deadline_ms = now_ms + load.budget_ms(rng)
        last_ms = max(last_ms, deadline_ms)
        item = Item(rng.choice(queues), deadline_ms, 1)
        started = thread_time_ns()
        verdict = slice_queue.admit(item, now_ms)
        admit_us.append((thread_time_ns() - started) / 1000)
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
    report(0.0)
    print(f"\nLatencies vary: log-normal, sigma {SIGMA:g}\n")
    report(SIGMA)
    for between in BETWEEN:
        print(
            f"\nThe same, with {between:.0%} of a full batch between two: not learned → learned\n"
        )
        report_between(between)


def report_between(between: float) -> None:
    """Capacity is less by what passes between batches, so loads are larger than they say."""
    print("| load | admitted | late of admitted | goodput/s |\n|---|--:|--:|--:|")
    for load in LOADS:
        told = []
        for learned in (False, True):
            found = play(load, SIGMA, between, learned=learned)
            goodput = (found.admitted - found.late) / found.end_ms * 1000
            late = found.late / max(1, found.admitted)
            told.append((f"{found.admitted / load.queries:.1%}", f"{late:.2%}", f"{goodput:,.0f}"))
        print(
            f"| {load.name} | "
            + " | ".join(" → ".join(pair) for pair in zip(*told, strict=True))
            + " |"
        )


def report(sigma: float) -> None:
    """One table."""
    columns = (
        "admitted", "at most", "late", "goodput/s", "admit µs p50", "p99", "batch µs p50", "p99",
    )  # fmt: skip
    print("| load | " + " | ".join(columns) + " |")
    print("|---|" + "--:|" * len(columns))
    for load in LOADS:
        found = play(load, sigma)
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
