"""The niceness of this process: what answers queries must not yield to everything else."""

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

YIELDING = 5
"""Of what may wait a moment while queries may not: at 5 a full core still leaves it a fifth or
more."""


HURRIES_NOT = 10
"""Of what may take its time to start: a tenth of a core that is full."""


ASIDE_S = 2.0
"""How long what is done aside waits for idle cores; then it takes its part of full ones."""

T = TypeVar("T")


def aside(work: Callable[[], T], patience_s: float = ASIDE_S) -> T:
    """Do what need not hurry in a thread of its own that yields, and wait for it.

    The thread computes only while a core has nothing else to do (``SCHED_IDLE``), and after
    ``patience_s`` as all others do. Where this process may not take that back, which Linux allows
    the privileged and who has ``RLIMIT_NICE`` for it, it runs at niceness ``HURRIES_NOT``, where it
    is never without a part of a core. Either way no other thread of this process is changed, so
    nothing is to be taken back from those that go on.

    Raises:
        Exception: whatever ``work`` raises.
    """
    done: Future[T] = Future()

    def run() -> None:
        if _may_take_back():
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        else:
            own = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PROCESS, 0, max(own, HURRIES_NOT))
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=run, name="aside")
    thread.start()
    with contextlib.suppress(TimeoutError):
        done.exception(patience_s)
    _stop_waiting()  # it, and threads that have begun in it
    return done.result()


def _may_take_back() -> bool:
    """Whether this thread may take a better priority than it has."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, own - 1)
    except OSError:
        return False
    os.setpriority(os.PRIO_PROCESS, 0, own)
    return True


def _stop_waiting() -> None:
    """Have threads of this process that wait for idle cores compute as all others do, where that is
    allowed."""
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.sched_getscheduler(int(task.name)) == os.SCHED_IDLE:
                os.sched_setscheduler(int(task.name), os.SCHED_OTHER, os.sched_param(0))


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
