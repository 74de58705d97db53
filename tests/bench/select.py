"""How long a choice takes, and a new snapshot.

Run with ``python -m tests.bench.select`` from the repository's root. Each number is the median of
``ROUNDS`` rounds; in a round every query is timed on its own, with the garbage collector off, and
percentiles are taken over the queries.

Three catalogs: 14 variants, as the digits family has; 1,000 in the task and 10,000 in all, with
accuracy and latency drawn independently; and the same where every costlier variant is more
accurate, so that nothing can be pruned.
"""

import gc
import platform
import random
from collections.abc import Callable
from statistics import median, quantiles
from time import perf_counter_ns

from planner.selection import select
from planner.snapshot import build_snapshot
from planner.types import Choice, Query, Snapshot, WorkerView
from tests.planner.builders import Key, catalog, kind, profile, variant
from variants.types import CatalogSnapshot, DeviceKindName, Prefer, TaskName, WorkerId

ROUNDS = 5
QUERIES = 2_000
NOW_MS = 1_000.0


def independent(rng: random.Random, rank: float) -> tuple[float, float]:
    """Accuracy and latency that know nothing of each other; ``rank`` is not used."""
    return rng.uniform(0.7, 0.99), 10 ** rng.uniform(0, 2)


def monotone(rng: random.Random, rank: float) -> tuple[float, float]:
    """The slower, the more accurate, without exception; ``rng`` is not used."""
    return 0.7 + 0.29 * rank, 10 ** (2 * rank)


def registered(
    tasks: int, each: int, draw: Callable[[random.Random, float], tuple[float, float]]
) -> CatalogSnapshot:
    rng = random.Random(0)
    variants, profiles = [], []
    for t in range(tasks):
        for v in range(each):
            accuracy, latency_ms = draw(rng, v / each)
            name = f"v{v:04d}"
            variants.append(variant(name, accuracy, task=f"t{t}"))
            profiles.append(profile(name, latency_ms, task=f"t{t}", max_batch=32, memory_mib=1.0))
    return catalog(variants, profiles, kinds=[kind(memory_mib=100_000.0)])


def fleet(known: CatalogSnapshot) -> list[tuple[WorkerView, frozenset[Key]]]:
    """Eight workers that hold everything, busy for 0 to 7 ms."""
    everything = frozenset(v.key for v in known.variants)
    return [
        (
            WorkerView(
                id=WorkerId(f"w{index}"),
                device_kind=DeviceKindName("cpu-1"),
                busy_until_ms=NOW_MS + index,
            ),
            everything,
        )
        for index in range(8)
    ]


def queries(prefer: Prefer) -> list[Query]:
    rng = random.Random(1)
    return [
        Query(
            task=TaskName("t0"),
            rows=rng.choice((1, 1, 1, 4)),
            received_ms=NOW_MS - 0.2,
            latency_ms=rng.uniform(20, 200),
            accuracy=rng.choice((None, rng.uniform(0.7, 0.98))),
            prefer=prefer,
            draw=rng.getrandbits(32),
        )
        for _ in range(QUERIES)
    ]


def timed(view: Snapshot, asked: list[Query]) -> tuple[list[float], list[float]]:
    """Microseconds of each accepted choice and of each refusal."""
    accepted: list[float] = []
    refused: list[float] = []
    for query in asked:
        start = perf_counter_ns()
        answer = select(view, query, NOW_MS)
        took_us = (perf_counter_ns() - start) / 1_000
        (accepted if isinstance(answer, Choice) else refused).append(took_us)
    return accepted, refused


def percentiles(samples: list[list[float]]) -> str:
    if not all(len(round_) >= 2 for round_ in samples):
        return "        -         -"
    p50 = median(median(round_) for round_ in samples)
    p99 = median(quantiles(round_, n=100)[98] for round_ in samples)
    return f"{p50:9.2f} {p99:9.2f}"


def main() -> None:
    print(f"python {platform.python_version()}, {platform.machine()}, {platform.processor()}")
    print(f"{'catalog':24} {'prefer':9} {'accepted p50 / p99 µs':>20} {'refused p50 / p99 µs':>20}")
    for name, tasks, each, draw in (
        ("14 variants", 1, 14, monotone),
        ("1,000 independent", 10, 1_000, independent),
        ("1,000 monotone", 10, 1_000, monotone),
    ):
        known = registered(tasks, each, draw)
        workers = fleet(known)
        builds_ms = []
        for _ in range(ROUNDS):
            start = perf_counter_ns()
            view = build_snapshot(known, workers)
            builds_ms.append((perf_counter_ns() - start) / 1e6)
        gc.collect()
        gc.freeze()
        gc.disable()
        for prefer in Prefer:
            asked = queries(prefer)
            rounds = [timed(view, asked) for _ in range(ROUNDS)]
            accepted = percentiles([a for a, _ in rounds])
            refused = percentiles([r for _, r in rounds])
            print(f"{name:24} {prefer.value:9} {accepted:>20} {refused:>20}")
        gc.enable()
        gc.unfreeze()
        print(f"{name:24} snapshot of {tasks * each:,} variants: {median(builds_ms):.1f} ms")


if __name__ == "__main__":
    main()
