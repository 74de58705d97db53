"""Whether a timed run had its processor to itself, and whether other processes ran beside it.

On a shared or virtual machine a run may be slow because of other processes. Such a run says little
about the variant, and its time looks like that of any slow run. So no run is judged by its time:
the scheduler is asked whether this process waited for a processor, and whether others ran on other
cores. The latter matters, too: two virtual cores may be the hyper-threads of one core, and a small
model was measured to take 1.6 times as long while the other one computed."""

import os
import resource
import threading
import time
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple

STOLEN_S = 0.000_1
"""Less is not counted: to wake a sleeping thread of one's own takes some microseconds, and they are
the variant's."""
STOLEN_SHARE = 0.02
"""Share of a run's time; a smaller loss does not matter."""


class Contention(IntEnum):
    """What else computed during a run; the lower, the better the measurement."""

    NONE = 0
    BESIDE = 1
    """Other processes ran on other cores."""
    INSTEAD = 2
    """Other processes ran where this one was ready to: processor time was stolen."""


class Mark(NamedTuple):
    """A moment: cumulative times of this process in seconds, and how many threads want to run."""

    wall_s: float
    processor_s: float
    """Processor time of the calling thread."""
    waited_s: float
    """How long the calling thread was ready to run, and did not run."""
    helpers_waited_s: float
    """The same for the process's other threads together."""
    sleeps: int
    """How many times the calling thread has slept so far."""
    runnable: int = 1
    """Threads of the whole system that run or want to."""


class Watch:
    """How long this process's threads have waited for a processor, and how many others run.

    Linux gives the waiting time of each thread in ``/proc/self/task/*/schedstat``, in nanoseconds,
    and the number of runnable threads in ``/proc/loadavg``. Time that a hypervisor takes is in
    neither, and in no thread's processor time: a thread that neither slept nor computed lost it.
    """

    def __init__(self) -> None:
        self._own: int | None = None
        self._helpers: list[int] = []
        self._load: int | None = None

    def look(self) -> None:
        """Find the threads that there are now. To be called by the thread that computes."""
        self.close()
        with suppress(OSError):  # not Linux, or a kernel without it: no contention is seen
            self._load = os.open("/proc/loadavg", os.O_RDONLY)
            self._own = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
            for thread in os.listdir("/proc/self/task"):
                if int(thread) != threading.get_native_id():
                    path = f"/proc/self/task/{thread}/schedstat"
                    self._helpers.append(os.open(path, os.O_RDONLY))

    def mark(self) -> Mark:
        """This moment. Takes some microseconds."""
        runnable = 1
        if self._load is not None:
            runnable = int(os.pread(self._load, 64, 0).split()[3].partition(b"/")[0])
        return Mark(
            wall_s=time.perf_counter(),
            processor_s=time.thread_time(),
            waited_s=_waited_s(self._own),
            helpers_waited_s=sum(map(_waited_s, self._helpers)),
            sleeps=resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw,
            runnable=runnable,
        )

    def close(self) -> None:
        for file in (self._own, self._load, *self._helpers):
            if file is not None:
                os.close(file)
        self._own, self._load, self._helpers = None, None, []


def _waited_s(file: int | None) -> float:
    with suppress(OSError):  # the thread has ended
        return 0.0 if file is None else int(os.pread(file, 64, 0).split()[1]) / 1e9
    return 0.0


def lost_s(before: Mark, after: Mark) -> float:
    """Time that the calling thread wanted to run and did not; no more than it did not compute.

    A thread that has to wait while it marks a moment has waited for longer than lies between the
    two, by what it reads.
    """
    wall_s = after.wall_s - before.wall_s
    idle_s = max(0.0, wall_s - (after.processor_s - before.processor_s))
    slept = after.sleeps > before.sleeps
    return min(after.waited_s - before.waited_s, idle_s) if slept else idle_s


def contention_between(before: Mark, after: Mark, threads: int) -> Contention:
    """What else computed between two moments, for a process that computes with so many threads."""
    wall_s = after.wall_s - before.wall_s
    missing_s = lost_s(before, after) + after.helpers_waited_s - before.helpers_waited_s
    if missing_s > max(STOLEN_S, STOLEN_SHARE * wall_s):
        return Contention.INSTEAD
    crowded = max(before.runnable, after.runnable) > threads
    return Contention.BESIDE if crowded else Contention.NONE
