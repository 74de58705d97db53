"""Whether the system took a processor away while something was timed.

On a shared or virtual machine a run may be slow because somebody else computed. Such a run says
nothing of the variant, and it looks exactly like a slow run that does. So nothing is judged by its
time: the scheduler is asked whether the process waited for a processor.
"""

import os
import resource
import time
from contextlib import suppress
from typing import NamedTuple

STOLEN_S = 0.000_1
"""Less is not counted: to wake a sleeping thread of one's own takes some microseconds, and they are
the variant's."""
STOLEN_SHARE = 0.02
"""Of the time that something took; less does not matter."""


class Mark(NamedTuple):
    """Cumulative times of this process, in seconds, and how often the calling thread has slept."""

    wall_s: float
    processor_s: float
    """Of the calling thread."""
    waited_s: float
    """Of all threads: ready to run, and not running."""
    sleeps: int


class Watch:
    """What this process's threads have waited for a processor.

    Linux tells it for each thread (``/proc/self/task/*/schedstat``, in nanoseconds). What a
    hypervisor takes is not in there, and is in no thread's processor time either: a thread that
    did not sleep and did not compute was robbed.
    """

    def __init__(self) -> None:
        self._files: list[int] = []

    def look(self) -> None:
        """Find the threads that there are now."""
        self.close()
        with suppress(OSError):  # not Linux, or a kernel without it: nothing is seen to be waited
            for thread in os.listdir("/proc/self/task"):
                self._files.append(os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY))

    def mark(self) -> Mark:
        """This moment. Takes a microsecond for each thread."""
        waited_ns = 0
        for file in self._files:
            with suppress(OSError):  # the thread has ended
                waited_ns += int(os.pread(file, 64, 0).split()[1])
        return Mark(
            wall_s=time.perf_counter(),
            processor_s=time.thread_time(),
            waited_s=waited_ns / 1e9,
            sleeps=resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw,
        )

    def close(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []


def is_stolen(before: Mark, after: Mark) -> bool:
    """Whether a processor was missing in a part of this time that matters."""
    wall_s = after.wall_s - before.wall_s
    lost_s = after.waited_s - before.waited_s
    if after.sleeps == before.sleeps:
        lost_s = max(lost_s, wall_s - (after.processor_s - before.processor_s))
    return lost_s > max(STOLEN_S, STOLEN_SHARE * wall_s)
