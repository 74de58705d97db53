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

Then choices that follow a plan, by prices where it is for accuracy and by routes where it saves
cost: ten tasks on fleets of two kinds. Every choice is noted as sent, so that there are open
batches, and where time goes by its worker is busy for longer. With 10 of 100 variants on each
worker, drawn, no two workers hold the same. A query's time is the least of ``LIVES`` times that the
same queries came to the same fleet. ``--only-plans`` leaves out all before, ``--few`` all but the
fleets with six variants.

After a change, the snapshot is made from the one before: one worker holds one variant less, or the
accuracy of one variant is another.
"""

import argparse
import gc
import platform
import random
from collections.abc import Callable
from dataclasses import replace
from statistics import median, quantiles
from time import perf_counter_ns
from typing import NamedTuple

from planner.selection.plan_following import CongestionWindow, choose
from planner.selection.routes import RouteTable, resolve
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
LIVES = 5
"""So often all queries that follow a plan come, each time to a fleet made anew."""
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


class Fleet(NamedTuple):
    """Workers of two kinds for choices that follow a plan."""

    workers: int
    """Of each kind."""
    variants: int
    """Of each of ten tasks."""
    held: int | None = None
    """Variants of each task that a worker holds, drawn for each; None: all of them."""
    load: float | None = None
    """Queries arrive so fast that the quickest variants, one by one, would take this part of the
    workers' time; None: all at one moment, on workers that are busy for 0 to 100 ms."""

    def __str__(self) -> str:
        held = "all" if self.held is None else f"{self.held} of"
        moving = "" if self.load is None else f", load {self.load:g}"
        return f"{2 * self.workers:,} workers, {held} {self.variants} variants{moving}"


FLEETS = (
    Fleet(8, 6),
    Fleet(500, 6),
    Fleet(8, 100, load=0.9),
    Fleet(500, 100, load=0.9),
    Fleet(500, 100, load=2.0),
    Fleet(500, 100, held=10, load=0.9),
    Fleet(500, 100, held=10, load=2.0),
)


def planned(known: Fleet, prefer: Prefer) -> tuple[Snapshot, RouteTable, float]:
    """A fleet as a gateway sees it, its routes, and the queries per ms for a load of 1."""
    rng = random.Random(3)
    kinds = ("cpu-1", "gpu-a")
    tasks = [f"t{t}" for t in range(10)]
    names = [f"v{v:03}" for v in range(known.variants)]
    step = 6 / known.variants
    registered_ = catalog(
        [variant(v, 0.7 + 0.05 * step * n, task=t) for t in tasks for n, v in enumerate(names)],
        [
            profile(v, (2.0 ** (step * n)) * KINDS[on][1], task=t, kind=on, max_batch=32)
            for t in tasks
            for n, v in enumerate(names)
            for on in kinds
        ],
        kinds=[kind(on, KINDS[on][0], memory_mib=100_000.0) for on in kinds],
    )
    workers = [
        WorkerView(id=WorkerId(f"{on}-{n:04}"), device_kind=DeviceKindName(on))
        for on in kinds
        for n in range(known.workers)
    ]
    everything = frozenset(found.key for found in registered_.variants)
    view = build_snapshot(
        registered_,
        [
            (
                worker,
                everything
                if known.held is None
                else frozenset(
                    (TaskName(t), VariantName(v))
                    for t in tasks
                    for v in rng.sample(names, known.held)
                ),
            )
            for worker in workers
        ],
    )
    routes = [
        Route(
            task=TaskName(t), latency_ms=200.0, accuracy=None, variant=candidate.variant,
            worker=worker.id, batch_size=8, qps=10.0,
        )
        for t in tasks
        for candidate in view.tasks[TaskName(t)].by_cost
        for worker in candidate.ready[:: max(1, len(candidate.ready) // 20)]
    ]  # fmt: skip
    qps = sum(known.workers / KINDS[on][1] for on in kinds)
    return view, resolve(routes, view, prefer), qps


def followed_us(known: Fleet, prefer: Prefer) -> tuple[list[float], list[float]]:
    """Microseconds of each choice that follows a plan, and of each refusal: the least of ``LIVES``
    times that the same queries come to the same fleet. What is more than the least is the doing of
    what else computes. Of each time the first queries are left out, for which menus are made."""
    lives = [_followed(known, prefer) for _ in range(LIVES)]
    chosen_us: list[float] = []
    refused_us: list[float] = []
    for query in list(zip(*lives, strict=True))[QUERIES:]:
        is_choice, _ = query[0]
        (chosen_us if is_choice else refused_us).append(min([us for _, us in query]))
    return chosen_us, refused_us


def _followed(known: Fleet, prefer: Prefer) -> list[tuple[bool, float]]:
    """Whether each query was chosen for, and the microseconds that took. What is chosen is sent: it
    is noted as an open batch, and its worker is busy for longer."""
    rng = random.Random(3)
    view, table, rate = planned(known, prefer)
    for worker in view.workers.values():
        worker.busy_until_ms = NOW_MS + rng.uniform(0.0, 100.0)
    now_ms = NOW_MS
    seen = CongestionWindow()
    took: list[tuple[bool, float]] = []
    for number in range(ROUNDS * QUERIES):
        if known.load is not None:
            now_ms += rng.expovariate(known.load * rate)
        query = Query(
            task=TaskName(f"t{number % 10}"), rows=1, received_ms=now_ms, latency_ms=200.0,
            prefer=prefer, draw=rng.getrandbits(62),
        )  # fmt: skip
        start = perf_counter_ns()
        found = choose(view, table, seen, query, now_ms)
        took_us = (perf_counter_ns() - start) / 1_000
        took.append((isinstance(found, Choice), took_us))
        if isinstance(found, Choice):
            worker = found.worker
            added_ms = seen.batches.sent(found.candidate, worker, 1, now_ms, 100.0)
            if known.load is not None:
                worker.busy_until_ms = max(worker.busy_until_ms, now_ms) + added_ms
    return took


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.planning.select")
    parser.add_argument("--only-plans", action="store_true")
    parser.add_argument("--few", action="store_true")
    asked = parser.parse_args()
    print(f"python {platform.python_version()}, {platform.machine()}, {platform.processor()}")
    print(f"{'catalog':20} {'prefer':9} {'accepted p50 / p99 µs':>20} {'refused p50 / p99 µs':>20}")
    for shape in () if asked.only_plans or asked.few else SHAPES:
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
    print(f"\n{'following a plan':52} {'chosen p50 / p99 µs':>20} {'refused p50 / p99 µs':>20}")
    for each in FLEETS[:2] if asked.few else FLEETS:
        for prefer in (Prefer.ACCURACY, Prefer.COST):
            gc.collect()
            gc.freeze()
            gc.disable()
            chosen_us, refused_us = followed_us(each, prefer)
            gc.enable()
            gc.unfreeze()
            print(
                f"{each!s:43} {prefer.value:8} {percentiles(chosen_us):>20} "
                f"{percentiles(refused_us):>20}"
            )


if __name__ == "__main__":
    main()
