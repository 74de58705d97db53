"""Measuring one variant: latency per batch size, memory, load time. Runs in the measuring process.

It measures what a worker does: the same runtime class, the same number of threads, contiguous
inputs, the collector off. Who calls decides in which order batch sizes, and variants in other
processes, take turns (``profiler.probe``).
"""

import ctypes
import gc
import os
import resource
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from variants.types import PROFILE_BATCH_SIZES
from workers.runtime import Runtime, Tensor, make_runtime
from workers.types import LoadSpec

LOADS = 5
LOADS_S = 1.0
"""Loading is not repeated once it took so long in all."""
_PAGE_BYTES = resource.getpagesize()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureLimits:
    """How long measuring may go on. A variant too slow for a batch size goes without it."""

    batch_sizes: tuple[int, ...] = PROFILE_BATCH_SIZES
    point_s: float = 0.2
    """Time for all runs of one batch size, unless ``min_runs`` need more."""
    min_runs: int = 12
    max_runs: int = 2_000
    rounds: int = 4
    """Batch sizes take turns so often, at least."""
    precision: float = 0.02
    """A batch size is done when its median is known to this share, either way, at 95 %; or when its
    time is up."""
    slowest_batch_s: float = 5.0
    """A batch that takes longer is not profiled, and neither are larger ones; one row always is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What loading cost."""

    cold_load_s: float
    """The first load, without the import of the back end."""
    load_s: float
    """Median of later loads, the first run included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Runs of one batch size, one after another."""

    clean_s: list[float]
    stolen_s: list[float]
    memory_mib: float
    """What loading and running have added to the process so far, at its height."""


class Trial:
    """One variant, loaded, in a process of its own. ``load`` comes first."""

    def __init__(self, spec: LoadSpec, threads: int, rows: Sequence[Tensor]) -> None:
        """``rows`` are input tensors in the task's order, at least one row in each."""
        self._spec = spec
        self._threads = threads
        self._rows = rows
        self._batches: dict[int, list[Tensor]] = {}
        self._before_mib = 0.0
        self._memory_mib = 0.0
        self.runtime: Runtime

    def load(self) -> Loaded:
        """Load it, several times.

        Raises:
            RuntimeFailed: it cannot be loaded.
        """
        runtime, cold_s = self._timed_load()
        runtime.close()
        _give_back_free_memory()
        self._before_mib = resident_mib()
        self.runtime, load_s = self._timed_load()
        self._weigh()
        loads_s = [load_s]
        while len(loads_s) < LOADS and sum(loads_s) < LOADS_S:
            runtime, load_s = self._timed_load()
            runtime.close()
            loads_s.append(load_s)
        return Loaded(cold_load_s=cold_s, load_s=float(np.median(loads_s)))

    def turn(
        self, batch_size: int, seconds: float, least: int, most: int, slowest_s: float
    ) -> Turn:
        """Run one batch size for some time, and at least and at most so many times.

        The first turn of a batch size warms up until its runs have settled. A batch slower than
        ``slowest_s`` is run once.

        Raises:
            RuntimeFailed: it cannot be run.
        """
        batch = self._batches.get(batch_size)
        if batch is None:
            batch = self._batches[batch_size] = _batch(self._rows, batch_size)
            took_s = _settle(self.runtime, batch, seconds)
        else:  # the batch size before left its own shapes in the caches
            took_s = _timed_run(self.runtime, batch)
        times = [took_s]
        if took_s <= slowest_s:
            times = _runs(self.runtime, batch, seconds, least, most)
        self._weigh()
        return Turn(clean_s=times, stolen_s=[], memory_mib=self._memory_mib)

    def close(self) -> None:
        self.runtime.close()

    def _timed_load(self) -> tuple[Runtime, float]:
        runtime = make_runtime(self._spec, self._threads)
        started = time.perf_counter()
        runtime.load()
        return runtime, time.perf_counter() - started

    def _weigh(self) -> None:
        file_mib = Path(self._spec.path).stat().st_size / 2**20
        grown_mib = resident_mib() - self._before_mib
        self._memory_mib = max(self._memory_mib, grown_mib, file_mib, 0.1)


def resident_mib() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * _PAGE_BYTES / 2**20


def pin(cores: Sequence[int]) -> None:
    """Keep this process, and the threads that it starts from now on, on some cores."""
    os.sched_setaffinity(0, cores)


def _batch(rows: Sequence[Tensor], size: int) -> list[Tensor]:
    """``size`` rows, starting over when there are fewer."""
    return [np.ascontiguousarray(np.resize(tensor, (size, *tensor.shape[1:]))) for tensor in rows]


def _timed_run(runtime: Runtime, batch: list[Tensor]) -> float:
    started = time.perf_counter()
    runtime.run(batch)
    return time.perf_counter() - started


def _settle(runtime: Runtime, batch: list[Tensor], seconds: float) -> float:
    """Run until the last runs are no quicker than those before; return what the last one took."""
    times: list[float] = []
    while sum(times) < seconds and len(times) < 64:
        times.append(_timed_run(runtime, batch))
        last, before = times[-4:], times[-8:-4]
        if len(before) == 4 and np.median(last) >= 0.98 * np.median(before):
            break
    return times[-1]


def _runs(
    runtime: Runtime, batch: list[Tensor], seconds: float, least: int, most: int
) -> list[float]:
    run, clock = runtime.run, time.perf_counter
    collecting = gc.isenabled()
    gc.disable()
    try:
        times: list[float] = []
        ends = clock() + seconds
        while len(times) < most and (len(times) < least or clock() < ends):
            started = clock()
            run(batch)
            times.append(clock() - started)
    finally:
        if collecting:
            gc.enable()
    return times


def _give_back_free_memory() -> None:
    """Return freed pages to the system: memory that is reused would not be seen to grow."""
    gc.collect()
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
