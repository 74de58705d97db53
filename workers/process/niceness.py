"""The niceness of this process: what answers queries must not yield to everything else."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

YIELDING = 5
"""Of what may wait a moment while queries may not: at 5 a full core still leaves it a fifth or
more."""


HURRIES_NOT = 10
"""Of what may take its time to start: a tenth of a core that is full."""


@contextlib.contextmanager
def behind(niceness: int) -> Iterator[None]:
    """Run this thread at ``niceness`` meanwhile, where that can be taken back.

    Threads that begin meanwhile keep it: ``take_niceness`` brings them back.
    """
    own = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, own - 1)
    except OSError:
        yield
        return
    os.setpriority(os.PRIO_PROCESS, 0, niceness)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, own)


def only_while_idle() -> None:
    """Have every thread of this process compute only while a core has nothing else to do, and give
    it up at once when it has; new threads and processes do the same. There is no way back.

    Between levels of niceness a core is divided, and who wakes up may wait for milliseconds until
    it is given up; what Linux schedules as idle (``SCHED_IDLE``) never has anybody wait.
    """
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.sched_setscheduler(int(task.name), os.SCHED_IDLE, os.sched_param(0))


def take_niceness(wanted: int) -> int:
    """Bring every thread of this process to ``wanted``; down only where that is allowed. To 0 none
    is brought up: an operator may have put them before everything else.

    Linux keeps a niceness for each thread, and new threads take that of the one that makes them.
    Returns the highest that is left.
    """
    left = []
    for task in Path("/proc/self/task").iterdir():
        thread = int(task.name)
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            niceness = os.getpriority(os.PRIO_PROCESS, thread)
            if niceness > wanted or (wanted > 0 and niceness != wanted):
                with contextlib.suppress(PermissionError):
                    os.setpriority(os.PRIO_PROCESS, thread, wanted)
                niceness = os.getpriority(os.PRIO_PROCESS, thread)
            left.append(niceness)
    return max(left)
