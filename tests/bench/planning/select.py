"""How long a choice takes, and a new snapshot.

Run with ``python -m tests.bench.planning.select`` from the repository's root. A query's time is the
median of ``ROUNDS`` rounds, each query timed on its own with the garbage collector off; percentiles
are taken over the queries. A snapshot's time is the median of as many builds, the collector on.

Catalogs, all but the first with 1,000 variants in the task and 10,000 in all:

* 14 variants, as the digits family has, the costlier the more accurate;
* independent: accuracy and latency drawn independently, so that nearly all is pruned;
* monotone: every costlier variant is more accurate, so that nothing can be;
* scattered: the same, and every variant is ready on two workers of the eight only;
* three kinds: the same, each variant on one of three device kinds of different price and speed, so
  that price, accuracy and latency are three orders;
* joules: the same, and two in three have joules that were drawn independently.

Then choices by prices, where plans are for accuracy: ten tasks of six variants on fleets of two
kinds, of which each worker holds everything and is busy for 0 to 100 ms; every choice is noted as
sent, so that there are open batches.

After a change, the snapshot is made from the one before: one worker holds one variant less, or the
accuracy of one variant is another.
"""

import gc
import platform
import random
from collections.abc import Callable
from dataclasses import replace
from statistics import median, quantiles
from time import perf_counter_ns
from typing import NamedTuple

from planner.selection.plan_following import CongestionWindow, choose
from planner.selection.routes import resolve
from planner.selection.select import select
from planner.selection.snapshot import build_snapshot
from planner.types import Choice, Query, Snapshot, WorkerView
from tests.planner.builders import catalog, kind, profile, variant
from variants.types import (
    CatalogSnapshot,
    DeviceKindName,
    Prefer,
    Route,
    TaskName,
    VariantKey,
    VariantName,
    WorkerId,
)

ROUNDS = 5
QUERIES = 2_000
NOW_MS = 1_000.0


def independent(rng: random.Random, rank: float) -> tuple[float, float]:
    """Accuracy and latency that know nothing of each other; ``rank`` is not used."""
    return rng.uniform(0.7, 0.99), 10 ** rng.uniform(0, 2)


def monotone(rng: random.Random, rank: float) -> tuple[float, float]:
    """The slower, the more accurate, without exception; ``rng`` is not used."""
    return 0.7 + 0.29 * rank, 10 ** (2 * rank)


class Shape(NamedTuple):
    name: str
    tasks: int
    each: int
    draw: Callable[[random.Random, float], tuple[float, float]]
    copies: int = 8
    """Workers of each kind that hold a variant, of eight."""
    kinds: int = 1
    joules: bool = False


SHAPES = (
    Shape("14 variants", 1, 14, monotone),
    Shape("1,000 independent", 10, 1_000, independent),
    Shape("1,000 monotone", 10, 1_000, monotone),
    Shape("1,000 scattered", 10, 1_000, monotone, copies=2),
    Shape("1,000 three kinds", 10, 1_000, monotone, kinds=3),
    Shape("1,000 joules", 10, 1_000, monotone, kinds=3, joules=True),
)

KINDS = {"cpu-1": (0.36, 1.0), "cpu-4": (1.2, 0.5), "gpu-a": (3.6, 0.2)}
"""USD per hour and latency relative to the first."""


def registered(shape: Shape) -> CatalogSnapshot:
    rng = random.Random(0)
    variants, profiles = [], []
    for t in range(shape.tasks):
        for v in range(shape.each):
            accuracy, latency_ms = shape.draw(rng, v / shape.each)
            name, on = f"v{v:04d}", rng.choice(tuple(KINDS)[: shape.kinds])
            variants.append(variant(name, accuracy, task=f"t{t}"))
            profiles.append(
                profile(
                    name,
                    latency_ms * KINDS[on][1],
                    task=f"t{t}",
                    kind=on,
                    max_batch=32,
                    memory_mib=1.0,
                    energy_j=rng.choice((None, rng.random(), rng.random()))
                    if shape.joules
                    else None,
                )
            )
    kinds = [kind(on, price, memory_mib=100_000.0) for on, (price, _) in KINDS.items()]
    return catalog(variants, profiles, kinds=kinds[: shape.kinds])


def fleet(known: CatalogSnapshot, shape: Shape) -> list[tuple[WorkerView, frozenset[VariantKey]]]:
    """Eight workers of each kind, busy for 0 to 7 ms, that hold everything or what was drawn."""
    rng = random.Random(2)
    held: dict[int, set[VariantKey]] = {index: set() for index in range(8)}
    for found in known.variants:
        for index in rng.sample(range(8), shape.copies):
            held[index].add(found.key)
    return [
        (
            WorkerView(
                id=WorkerId(f"{on}-{index}"),
                device_kind=DeviceKindName(on),
                busy_until_ms=NOW_MS + index,
            ),
            frozenset(held[index]),
        )
        for on in tuple(KINDS)[: shape.kinds]
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
    rounds: list[list[float]] = []
    for _ in range(ROUNDS):
        took_us = []
        for query in asked:
            start = perf_counter_ns()
            select(view, query, NOW_MS)
            took_us.append((perf_counter_ns() - start) / 1_000)
        rounds.append(took_us)
    accepted: list[float] = []
    refused: list[float] = []
    for query, *times in zip(asked, *rounds, strict=True):
        is_choice = isinstance(select(view, query, NOW_MS), Choice)
        (accepted if is_choice else refused).append(median(times))
    return accepted, refused


def percentiles(us: list[float]) -> str:
    if len(us) < 2:
        return f"{'-':>9} {'-':>9}"
    return f"{median(us):9.2f} {quantiles(us, n=100)[98]:9.2f}"


def built_ms(make: Callable[[], Snapshot]) -> float:
    took_ms = []
    for _ in range(ROUNDS):
        start = perf_counter_ns()
        make()
        took_ms.append((perf_counter_ns() - start) / 1e6)
    return median(took_ms)


def builds(known: CatalogSnapshot, workers: list[tuple[WorkerView, frozenset[VariantKey]]]) -> str:
    before = build_snapshot(known, workers)
    (view, ready), *others = workers
    fewer = [(view, ready - {min(ready)}), *others]
    worse = replace(known.variants[0], accuracy=0.5)
    changed = replace(known, variants=(worse, *known.variants[1:]))
    cold_ms = built_ms(lambda: build_snapshot(known, workers))
    worker_ms = built_ms(lambda: build_snapshot(known, fewer, before=before))
    variant_ms = built_ms(lambda: build_snapshot(changed, workers, before=before))
    fleet_ms = built_ms(lambda: build_snapshot(known, others, before=before))
    return (
        f"cold {cold_ms:.1f} ms; after a change of what a worker holds {worker_ms:.1f}, of a "
        f"variant {variant_ms:.1f}, of who is in the fleet {fleet_ms:.1f}"
    )


def priced_us(count: int) -> list[float]:
    """Microseconds of each choice by prices on so many workers of each of two kinds."""
    rng = random.Random(3)
    kinds = ("cpu-1", "gpu-a")
    names = [(f"t{t}", f"v{v}") for t in range(10) for v in range(6)]
    known = catalog(
        [variant(v, 0.7 + 0.05 * int(v[1:]), task=t) for t, v in names],
        [
            profile(v, (2.0 ** int(v[1:])) * KINDS[on][1], task=t, kind=on, max_batch=32)
            for t, v in names
            for on in kinds
        ],
        kinds=[kind(on, KINDS[on][0], memory_mib=100_000.0) for on in kinds],
    )
    held = frozenset(found.key for found in known.variants)
    workers = [
        WorkerView(
            id=WorkerId(f"{on}-{n:04}"),
            device_kind=DeviceKindName(on),
            busy_until_ms=NOW_MS + rng.uniform(0.0, 100.0),
        )
        for on in kinds
        for n in range(count)
    ]
    view = build_snapshot(known, [(worker, held) for worker in workers])
    routes = [
        Route(
            task=TaskName(t), latency_ms=200.0, accuracy=None, variant=VariantName(v),
            worker=workers[n % len(workers)].id, batch_size=8, qps=10.0,
        )
        for n, (t, v) in enumerate(names)
    ]  # fmt: skip
    table = resolve(routes, view, Prefer.ACCURACY)
    seen = CongestionWindow()
    took_us = []
    for number in range(ROUNDS * QUERIES):
        query = Query(
            task=TaskName(f"t{number % 10}"), rows=1, received_ms=NOW_MS, latency_ms=200.0,
            prefer=Prefer.ACCURACY, draw=rng.getrandbits(32),
        )  # fmt: skip
        start = perf_counter_ns()
        found = choose(view, table, seen, query, NOW_MS)
        took_us.append((perf_counter_ns() - start) / 1_000)
        if isinstance(found, Choice):
            seen.batches.sent(found.candidate, found.worker, 1, NOW_MS, 100.0)
    return took_us[QUERIES:]


def main() -> None:
    print(f"python {platform.python_version()}, {platform.machine()}, {platform.processor()}")
    print(f"{'catalog':20} {'prefer':9} {'accepted p50 / p99 µs':>20} {'refused p50 / p99 µs':>20}")
    for shape in SHAPES:
        known = registered(shape)
        workers = fleet(known, shape)
        print(f"{shape.name:20} snapshot of {len(known.variants):,}: {builds(known, workers)}")
        view = build_snapshot(known, workers)
        gc.collect()
        gc.freeze()
        gc.disable()
        for prefer in Prefer:
            accepted, refused = timed(view, queries(prefer))
            print(
                f"{shape.name:20} {prefer.value:9} {percentiles(accepted):>20} "
                f"{percentiles(refused):>20}"
            )
        gc.enable()
        gc.unfreeze()
    for count in (8, 500):
        print(f"{f'{2 * count:,} workers':20} by prices {percentiles(priced_us(count)):>20}")


if __name__ == "__main__":
    main()
