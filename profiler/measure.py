"""Measuring one variant: latency per batch size, memory, load time. Runs in the measuring process.

It measures what a worker does: the same runtime class, the same number of threads, the collector
off. Batch sizes take turns in rounds, so that a busy moment of the machine does not fall on one of
them alone.
"""

import ctypes
import gc
import resource
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from variants.types import PROFILE_BATCH_SIZES, LatencyPoint
from workers.runtime import Runtime, Tensor, make_runtime
from workers.types import LoadSpec

LOADS = 5
_PAGE_BYTES = resource.getpagesize()
ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureLimits:
    """How long measuring may go on. A variant too slow for a batch size goes without it."""

    batch_sizes: tuple[int, ...] = PROFILE_BATCH_SIZES
    point_s: float = 0.2
    """Time for all runs of one batch size, unless ``min_runs`` need more."""
    min_runs: int = 12
    max_runs: int = 2_000
    slowest_batch_s: float = 5.0
    """A batch that takes longer is not profiled, and neither are larger ones; one row always is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    points: tuple[LatencyPoint, ...]
    memory_mib: float
    """What loading and running the largest batch added to the process, at its height."""
    load_s: float
    """Median of several loads, the first run included."""


def measure(
    spec: LoadSpec,
    threads: int,
    rows: Sequence[Tensor],
    *,
    limits: MeasureLimits | None = None,
    announce: Callable[[str], None] = lambda _: None,
) -> Measurement:
    """Load the variant, run it on real rows, and say what it costs.

    ``rows`` are input tensors in the task's order, at least one row in each.

    Raises:
        RuntimeFailed: it cannot be loaded or run.
    """
    limits = limits or MeasureLimits()
    batches = {size: _batch(rows, size) for size in limits.batch_sizes}
    # Imports the back end, which a worker has done long before it loads a variant.
    _timed_load(spec, threads)[0].close()
    _give_back_free_memory()
    before_mib = resident_mib()
    runtime, first_load_s = _timed_load(spec, threads)
    loads_s = [first_load_s]
    try:
        announce("warming up")
        sizes = _warm_up(runtime, batches, limits)
        memory_mib = max(resident_mib() - before_mib, Path(spec.path).stat().st_size / 2**20)
        announce(f"measuring batches of up to {sizes[-1]}")
        points = _latencies(runtime, {size: batches[size] for size in sizes}, limits)
    finally:
        runtime.close()
    while len(loads_s) < LOADS and sum(loads_s) < limits.slowest_batch_s:
        runtime, load_s = _timed_load(spec, threads)
        runtime.close()
        loads_s.append(load_s)
    return Measurement(
        points=points,
        memory_mib=round(max(memory_mib, 0.1), 3),
        load_s=round(float(np.median(loads_s)), 6),
    )


def resident_mib() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * _PAGE_BYTES / 2**20


def percentile_point(batch_size: int, times_s: Sequence[float]) -> LatencyPoint:
    """p50, p95 and p99 by the nearest-rank rule: each is a time that was really seen."""
    p50, p95, p99 = np.percentile(times_s, [50, 95, 99], method="higher") * 1000
    return LatencyPoint(
        batch_size=batch_size,
        p50_ms=round(float(p50), 5),
        p95_ms=round(float(p95), 5),
        p99_ms=round(float(p99), 5),
    )


def _timed_load(spec: LoadSpec, threads: int) -> tuple[Runtime, float]:
    runtime = make_runtime(spec, threads)
    started = time.perf_counter()
    runtime.load()
    return runtime, time.perf_counter() - started


def _batch(rows: Sequence[Tensor], size: int) -> list[Tensor]:
    """``size`` rows, starting over when there are fewer."""
    return [np.ascontiguousarray(np.resize(tensor, (size, *tensor.shape[1:]))) for tensor in rows]


def _warm_up(
    runtime: Runtime, batches: dict[int, list[Tensor]], limits: MeasureLimits
) -> list[int]:
    """Run every batch size until it has settled; return those that are quick enough."""
    usable: list[int] = []
    for size, batch in sorted(batches.items()):
        started = time.perf_counter()
        runtime.run(batch)
        took_s = time.perf_counter() - started
        if usable and took_s > limits.slowest_batch_s:
            break
        usable.append(size)
        for _ in range(2 if took_s < limits.point_s else 0):
            runtime.run(batch)
    return usable


def _latencies(
    runtime: Runtime, batches: dict[int, list[Tensor]], limits: MeasureLimits
) -> tuple[LatencyPoint, ...]:
    times_s: dict[int, list[float]] = {size: [] for size in batches}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(ROUNDS):
            for size, batch in batches.items():
                times_s[size] += _round(runtime, batch, limits)
    finally:
        if collecting:
            gc.enable()
    return tuple(percentile_point(size, times) for size, times in times_s.items())


def _round(runtime: Runtime, batch: list[Tensor], limits: MeasureLimits) -> list[float]:
    """One turn of one batch size: a quarter of its time and of its runs."""
    run, clock = runtime.run, time.perf_counter
    run(batch)  # the batch size before left its own shapes in the caches
    least, most = -(-limits.min_runs // ROUNDS), max(1, limits.max_runs // ROUNDS)
    ends = clock() + limits.point_s / ROUNDS
    times: list[float] = []
    while len(times) < most and (len(times) < least or clock() < ends):
        started = clock()
        run(batch)
        times.append(clock() - started)
    return times


def _give_back_free_memory() -> None:
    """Return freed pages to the system: memory that is reused would not be seen to grow."""
    gc.collect()
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
