"""Measuring one variant: latency per batch size, memory, load time. Runs in the measuring process.

It measures what a worker does: the same runtime class, the same number of threads, contiguous
inputs, the collector off. The caller decides in which order batch sizes, and variants in other
processes, take turns (``profiler.sandbox.probe``).
"""

import ctypes
import gc
import os
import resource
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from profiler.hardware_counters import DeviceMemory, PowerMeter, find_gpu, idle_watts, meter
from profiler.timing.contention import Contention, Watch, contention_between, lost_s
from profiler.timing.core_speed import EVERY_S, CoreSpeed
from workers.runtimes.protocol import (
    Runtime,
    Tensor,
    finish_loading,
    give_back,
    shares_working_memory,
)
from workers.runtimes.registry import make_runtime
from workers.types import LoadSpec

LOADS = 5
LOADS_S = 1.0
"""Loading is not repeated once it took so long in all."""
ENERGY_S = 0.5
"""How long energy is counted at least."""
WARM_UP_RUNS = 64
SETTLED = 8
"""Number of runs that are compared with as many before them."""
LEVEL = 0.98
GROUP_RUNS = 16
GROUP_S = 0.000_5
"""Runs are watched in groups: to watch each would take longer than a small model's runs."""
SESSION_MIB = 0.3
"""What a loaded variant takes at least: five sessions of the smallest model side by side took 0.2
to 0.3 MiB each, less than one load and the free memory beside it can tell."""
ROAMING = 0.125
"""Batch sizes between those that are measured leave gaps in a runtime's arena: with all sizes from
1 to 64 in turn, what running takes was 11 % more than with the powers of two."""
LEAST_RUNS = 5
"""A turn takes up to so many times its seconds to get the least number of runs."""
_PAGE_BYTES = resource.getpagesize()


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

    times_s: list[list[float]]
    """Time of each run in seconds: one list for each value of ``Contention``, in its order."""
    memory_mib: float
    """Most memory that loading and running have added to the process so far."""
    device_mib: float | None
    """Most memory that they have taken of the GPU; None without a GPU."""


class Weight(NamedTuple):
    """What a variant takes of the memory, in MiB."""

    memory_mib: float
    """As if it were alone."""
    working_mib: float | None = None
    """What batches take of that while they run, where other variants can use it in between."""


class Trial:
    """One variant, loaded, in a process of its own. ``load`` comes first."""

    def __init__(
        self,
        spec: LoadSpec,
        threads: int,
        rows: Sequence[Tensor],
        *,
        gpu: bool = False,
        device_memory: Callable[[], DeviceMemory | None] | None = None,
        power: Callable[[], PowerMeter | None] | None = None,
    ) -> None:
        """
        Args:
            rows: input tensors in the task's order, at least one row in each.
            gpu: whether it runs on one.
            device_memory: begins to watch the GPU's memory; NVML, unless given.
            power: finds what counts energy; NVML or RAPL, unless given.
        """
        self._spec = spec
        self._threads = threads
        self._rows = rows
        self._gpu = gpu
        self._find_memory = device_memory or _device_memory
        self._find_power = power or (lambda: meter(gpu=gpu)[0])
        self._batches: dict[int, list[Tensor]] = {}
        self._core_speed = CoreSpeed(threads)
        self._before_mib = 0.0
        self._memory_mib = 0.0
        self._device: DeviceMemory | None = None
        self._device_mib = 0.0
        self.runtime: Runtime

    def load(self) -> Loaded:
        """Load it several times, one after the other: two at once may be more than there is room.

        Raises:
            RuntimeFailed: it cannot be loaded.
        """
        self.runtime, cold_s = self._timed_load()
        self.runtime.close()
        _give_back_free_memory()
        self._before_mib = resident_mib()
        self._device = self._find_memory() if self._gpu else None
        self.runtime, load_s = self._timed_load()
        self._weigh(resident_mib())
        loads_s = [load_s]
        while len(loads_s) < LOADS and sum(loads_s) < LOADS_S:
            self.runtime.close()
            self.runtime, load_s = self._timed_load()
            loads_s.append(load_s)
        finish_loading(self.runtime)
        forget_highest()
        return Loaded(cold_load_s=cold_s, load_s=float(np.median(loads_s)))

    def turn(
        self, batch_size: int, seconds: float, least: int, most: int, slowest_s: float
    ) -> Turn:
        """Run one batch size for some time, and at least and at most so many times.

        The first turn of a batch size warms up until its runs have settled. A batch slower than
        ``slowest_s`` is not run further. Within ``LEAST_RUNS`` times the seconds a turn ends.

        Raises:
            RuntimeFailed: it cannot be run.
        """
        batch = self._batches.get(batch_size)
        if batch is None:
            batch = self._batches[batch_size] = _batch(self._rows, batch_size)
            took_s = _settle(self.runtime, batch, seconds)
        else:  # the batch size before left its own shapes in the caches
            took_s = _timed_run(self.runtime, batch)
        times_s = [[took_s], [], []]
        if took_s <= slowest_s:
            times_s = _runs(
                self.runtime, batch, self._threads, seconds, least, most, self._core_speed
            )
        self._weigh(highest_mib())
        return Turn(
            times_s=times_s,
            memory_mib=self._memory_mib,
            device_mib=self._device_mib if self._gpu else None,
        )

    def weigh(self, batch_sizes: Sequence[int]) -> Weight | None:
        """What it takes in a worker that serves these batch sizes; None on a GPU.

        It is loaded anew and runs each size twice, so that neither larger batches that were tried
        nor the rows that it was judged on count.

        Raises:
            RuntimeFailed: it cannot be loaded or run.
        """
        if self._gpu:
            return None
        batches = [_batch(self._rows, size) for size in sorted(batch_sizes)]
        self.runtime.close()
        _give_back_free_memory()
        before_mib = resident_mib()
        self.runtime, _ = self._timed_load()
        loaded_mib = resident_mib() - before_mib
        forget_highest()
        for batch in batches:
            self.runtime.run(batch)
            self.runtime.run(batch)
        running_mib = (1 + ROAMING) * max(0.0, highest_mib() - before_mib - loaded_mib)
        file_mib = max(SESSION_MIB, Path(self._spec.path).stat().st_size / 2**20)
        memory_mib = round(max(max(0.0, loaded_mib) + running_mib, file_mib), 3)
        if not shares_working_memory(self.runtime):
            return Weight(memory_mib)
        held_mib = file_mib  # what of the file was not read yet will be held, too
        if (gives := give_back(self.runtime)) is not None:
            gives()
            _give_back_free_memory()
            held_mib = min(max(file_mib, resident_mib() - before_mib), memory_mib)
        return Weight(memory_mib, round(min(running_mib, memory_mib - held_mib), 3))

    def energy(self, batch_size: int, share: float = 1.0) -> float | None:
        """Joules that a batch of that size takes, what the worker draws idle meanwhile included.

        Meters count a whole device, so this is true while nothing else runs on it. Of the device's
        idle draw a worker has a ``share``: with less than all of it, the idle draw is measured
        first, and the rest of it is taken off.

        None where no meter can be read, or the idle draw is needed and cannot be told.
        """
        found = self._find_power()
        if found is None:
            return None
        idle_w = 0.0 if share >= 1.0 else idle_watts(found)
        if idle_w is None:
            return None
        batch, run, runs = _batch(self._rows, batch_size), self.runtime.run, 0
        run(batch)
        try:
            before, began_s = found.read(), time.perf_counter()
            ends_s = began_s + max(ENERGY_S, found.least_s)
            while time.perf_counter() < ends_s:
                run(batch)
                runs += 1
            taken_j = found.energy_j(before, found.read())
            others_j = (1.0 - share) * idle_w * (time.perf_counter() - began_s)
            return max(0.0, taken_j - others_j) / runs
        except OSError:
            return None

    def close(self) -> None:
        self.runtime.close()

    def _timed_load(self) -> tuple[Runtime, float]:
        runtime = make_runtime(self._spec, self._threads)
        started = time.perf_counter()
        runtime.load()
        return runtime, time.perf_counter() - started

    def _weigh(self, now_mib: float) -> None:
        """Keep the most. A device holds the file at least: what a load has left is used again."""
        file_mib = max(0.1, Path(self._spec.path).stat().st_size / 2**20)
        grown_mib = max(self._memory_mib, now_mib - self._before_mib)
        if not self._gpu:
            self._memory_mib = round(max(grown_mib, file_mib), 3)
            return
        taken_mib = 0.0
        if self._device is not None:
            with suppress(OSError):
                taken_mib = self._device.taken_mib()
        self._memory_mib = round(max(grown_mib, 0.0), 3)
        self._device_mib = round(max(self._device_mib, taken_mib, file_mib), 3)


def resident_mib() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * _PAGE_BYTES / 2**20


def highest_mib() -> float:
    """The most that was resident since it was last forgotten; what is resident now, if unknown."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
    return resident_mib()


def forget_highest() -> None:
    """Loading takes more for a moment; what running takes is to be seen by itself."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def pin(cores: Sequence[int]) -> None:
    """Keep this process, and the threads that it starts from now on, on some cores."""
    os.sched_setaffinity(0, cores)


def _batch(rows: Sequence[Tensor], size: int) -> list[Tensor]:
    """From each tensor ``(rows, *shape)`` a batch ``(size, *shape)``, starting over when there are
    fewer rows."""
    return [np.ascontiguousarray(np.resize(tensor, (size, *tensor.shape[1:]))) for tensor in rows]


def _timed_run(runtime: Runtime, batch: list[Tensor]) -> float:
    started = time.perf_counter()
    runtime.run(batch)
    return time.perf_counter() - started


def _settle(runtime: Runtime, batch: list[Tensor], seconds: float) -> float:
    """Warm up until runs get no quicker, twice at least; return the time of the quicker last two.

    The first run of a shape may compile it, so it says little.
    """
    times = [_timed_run(runtime, batch), _timed_run(runtime, batch)]
    while sum(times) < seconds and len(times) < WARM_UP_RUNS and not _level(times):
        times.append(_timed_run(runtime, batch))
    return min(times[-2:])


def _level(times: list[float]) -> bool:
    """Whether the median of the last runs is no less than that of those before."""
    last, before = times[-SETTLED:], times[-2 * SETTLED : -SETTLED]
    return len(before) == SETTLED and bool(np.median(last) >= LEVEL * np.median(before))


def _runs(
    runtime: Runtime,
    batch: list[Tensor],
    threads: int,
    seconds: float,
    least: int,
    most: int,
    core_speed: CoreSpeed,
) -> list[list[float]]:
    """Times of runs in seconds, one list for each value of ``Contention``, in its order.

    What was stolen from a group of runs is taken off, of all its runs alike. Long runs, which have
    no other times on a busy machine, are groups of their own. With several threads nothing is
    taken off: while one waits, another may have done its work. Runs between two looks at the cores
    of which one found a slow core had others beside them.
    """
    run, clock, watch = runtime.run, time.perf_counter, Watch()
    found: list[list[float]] = [[] for _ in Contention]
    unjudged: list[float] = []
    collecting = gc.isenabled()
    gc.disable()
    watch.look()
    was_slow = core_speed.wait()
    try:
        count, began = 0, clock()
        ended = looked = began
        while count < most and (
            ended - began < seconds or (count < least and ended - began < LEAST_RUNS * seconds)
        ):
            before = watch.mark()
            group: list[float] = []
            while len(group) < GROUP_RUNS and ended - before.wall_s < GROUP_S:
                started = clock()
                run(batch)
                ended = clock()
                group.append(ended - started)
            after = watch.mark()
            count += len(group)
            had = contention_between(before, after, threads)
            if had is Contention.INSTEAD and threads == 1:
                kept = 1 - lost_s(before, after) / (after.wall_s - before.wall_s)
                group = [time_s * kept for time_s in group]
            (unjudged if had is Contention.NONE else found[had]).extend(group)
            if ended - looked >= EVERY_S:
                is_slow, looked = core_speed.slow(), clock()
                found[Contention.BESIDE if was_slow or is_slow else Contention.NONE] += unjudged
                was_slow, unjudged = is_slow, []
        slow = unjudged and (was_slow or core_speed.slow())
        found[Contention.BESIDE if slow else Contention.NONE] += unjudged
    finally:
        watch.close()
        if collecting:
            gc.enable()
    return found


def _device_memory() -> DeviceMemory | None:
    device, _ = find_gpu()
    with suppress(OSError):
        return None if device is None else DeviceMemory(device)
    return None


def _give_back_free_memory() -> None:
    """Return freed pages to the system: memory that is reused would not be seen to grow."""
    gc.collect()
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
