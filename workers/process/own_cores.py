"""Cores of a worker's own, which no other worker of the machine has.

Workers agree without a file and without anybody who divides: a core is taken by binding an abstract
Unix socket that is called after it. The kernel gives each name once and takes it back when the
process ends, however it ends, so that whoever replaces a killed worker finds its cores free. It
counts all workers of the machine, those of other kinds and of other installations, too; of
containers with a network of their own it counts each container's.
"""

import os
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from variants.container import quota_cores
from variants.figures import counted
from workers.process.core_choice import Topology, chosen, topology, why_not

PREFIX = "\0modelless-core"


class OwnCores:
    """Takes cores for this process, and gives them back."""

    def __init__(
        self,
        count: int,
        *,
        prefix: str = PREFIX,
        allowed: Collection[int] | None = None,
        of_machine: Callable[[], Topology] = topology,
        quota: Callable[[], float | None] = quota_cores,
    ) -> None:
        """
        Args:
            allowed: those to choose from; as the process may use when ``take`` is first called.
        """
        self._count = count
        self._prefix = prefix
        self._allowed = allowed
        self._of_machine = of_machine
        self._quota = quota
        self._held: dict[int, socket.socket] = {}
        self.problem = ""
        """Why there are none, as one sentence; empty while there are or nobody has asked."""

    @property
    def cores(self) -> tuple[int, ...]:
        return tuple(sorted(self._held))

    def take(self) -> bool:
        """Keep this process to cores of its own; whether it has some.

        It may be tried again: workers that leave give theirs back.
        """
        if self._held:
            return True
        allowed = os.sched_getaffinity(0) if self._allowed is None else set(self._allowed)
        if why := why_not(allowed, self._quota()):
            self.problem = f"its cores are not pinned: {why}"
            return False
        free: dict[int, socket.socket] = {}
        try:
            turn = self._bound("s")  # one at a time, or each of two would hold what both need
            if turn is None:
                return False
            with turn:
                for core in sorted(allowed):
                    if taken := self._bound(f"-{core}"):
                        free[core] = taken
                left = len(free)
                own = chosen(self._count, free, self._of_machine()) if left >= self._count else ()
                for core in free.keys() - set(own):
                    free.pop(core).close()
            if own:
                _keep_to(own)
        except OSError as error:  # not allowed, a core that went, or too many open files
            for taken in free.values():
                taken.close()
            self.problem = f"its cores are not pinned: {error}"
            with suppress(OSError):
                _keep_to(allowed)  # some threads may keep to some by now
            return False
        if not own:
            self.problem = (
                f"its cores are not pinned: other workers of the machine leave {left} of "
                f"{counted(len(allowed), 'core')} free, fewer than its {self._count}"
            )
            return False
        self._held, self._allowed, self.problem = free, allowed, ""
        return True

    def release(self) -> None:
        """Give the cores back; this process may use all that it could before."""
        if self._held and self._allowed is not None:
            with suppress(OSError):
                _keep_to(self._allowed)
        while self._held:
            self._held.popitem()[1].close()

    def _bound(self, name: str) -> socket.socket | None:
        """A socket with this name; None where another process, or this one, has it."""
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            bound.bind(f"{self._prefix}{name}")
        except OSError:
            bound.close()
            return None
        return bound


def _keep_to(cores: Collection[int]) -> None:
    """Every thread of this process; those that they begin stay where they are."""
    seen: set[str] = set()
    while new := {task.name for task in Path("/proc/self/task").iterdir()} - seen:
        for thread in new:
            with suppress(ProcessLookupError):  # it has just ended
                os.sched_setaffinity(int(thread), cores)
        seen |= new
