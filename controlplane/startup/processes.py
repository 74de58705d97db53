"""Processes below this one, and ending those that were started here."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from types import FrameType

import psutil

from workers.process.niceness import YIELDING


def on_end(handle: Callable[[int, FrameType | None], object]) -> None:
    """Have SIGTERM handled so, and the SIGHUP of a terminal that is closed. Where that is ignored,
    as `nohup` has it, it stays so."""
    signal.signal(signal.SIGTERM, handle)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, handle)


@contextlib.contextmanager
def deaf_to_hang_ups() -> Iterator[None]:
    """What is started within does not get the SIGHUP of a terminal that is closed, and neither does
    what it starts: it goes on until it is ended in its turn. This process gets one that comes
    meanwhile afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def calm_serve() -> None:
    """Put Serve's controller behind queries: it looks at everything four times a second.

    One that Ray starts anew does not yield. On a cluster it is no process of ours.
    """
    for process in descendants():
        with contextlib.suppress(psutil.Error, OSError):
            if (process.cmdline() or [""])[0].startswith("ray::ServeController"):
                for thread in process.threads():
                    os.setpriority(os.PRIO_PROCESS, thread.id, YIELDING)


def end_processes(processes: set[tuple[int, float]], *, wait_s: float) -> int:
    """End these processes if they are still the ones we knew; return how many there were.

    A pid may have been given to another process since; the time of its creation tells.
    """
    found = still_alive(processes)
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(found, timeout=wait_s)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=2)
    return len(found)


class StartedProcesses:
    """All processes below this one that came after it was made, so that none can be forgotten."""

    def __init__(self) -> None:
        # What this process had started before is not ended by it.
        self._others = set(descendants())
        self.ids: set[tuple[int, float]] = set()
        """Each a pid and its time of creation."""

    def look(self) -> bool:
        """Note those that run now; whether there are new ones."""
        known: set[tuple[int, float]] = set()
        for process in descendants():
            if process in self._others:
                continue
            with contextlib.suppress(psutil.Error):  # it has just ended
                known.add((process.pid, process.create_time()))
        if known <= self.ids:
            return False
        # A process that lost its parent is no descendant any more and must still be ended.
        self.ids = known | {(pid, at) for pid, at in self.ids if psutil.pid_exists(pid)}
        return True

    def end(self) -> None:
        """End them all, whatever they do."""
        end_processes(self.ids, wait_s=3.0)


def still_alive(processes: Iterable[tuple[int, float]]) -> list[psutil.Process]:
    """Those of these processes, each a pid and its time of creation, that run still."""
    found: list[psutil.Process] = []
    for pid, created in processes:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            # A pid may have been given to another process since.
            if abs(process.create_time() - created) < 0.5 and is_alive(process):
                found.append(process)
    return found


def identified(pids: Iterable[int]) -> list[psutil.Process]:
    """Those of these processes that are there: told apart from later ones with the same number."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            found.append(psutil.Process(pid))
    return found


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs still; one that ended and was not waited for does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
