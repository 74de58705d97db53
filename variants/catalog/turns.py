"""Whose turn it is to write a SQLite catalog, of all threads and processes: as they came.

SQLite wakes nobody who waits for another writer: each looks again now and then, and where others
begin anew at once, one may look in vain until its patience is over. So threads queue up in their
process, and processes by locks of two files beside the database, which the kernel grants and takes
back when a process dies::

    catalog.db-next     whoever writes next waits with this
    catalog.db-turn     whoever writes has this

Who has just written waits for the first, behind the one that has it. These locks are for order
alone: where there are none, such as on a file system without locks, or where the turn does not
come, SQLite's own decides, as it does with processes that know nothing of turns.
"""

import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from variants.errors import StateUnavailable

PART = 0.5
"""For so much of its patience a writer waits for its turn among processes: one that was stopped
while it had it must not hold the others up for good."""


class Turns:
    """Whose turn it is to write, of the threads of one process, and of several processes."""

    def __init__(self, database: Path | None = None) -> None:
        """
        Args:
            database: the file that processes take turns with; None: threads alone do.
        """
        self._database = database
        self._changing = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._taken = False
        self._left: _Wait | None = None
        """The wait for a lock of a file that was given up last."""

    @contextmanager
    def turn(self, patience_s: float) -> Iterator[None]:
        """Wait for the turn, and have it in this context.

        Raises:
            StateUnavailable: other threads wrote for as long as the patience.
        """
        own = threading.Event()
        with self._changing:
            if self._taken:
                self._waiting.append(own)
            else:
                self._taken = True
                own.set()
        if not own.wait(patience_s):
            with self._changing:
                if not own.is_set():  # else it has come just now
                    self._waiting.remove(own)
                    raise StateUnavailable(
                        f"the catalog is not available: others have written for {patience_s:,g} s"
                    )
        try:
            with self._among_processes(PART * patience_s):
                yield
        finally:
            with self._changing:
                if self._waiting:
                    self._waiting.popleft().set()
                else:
                    self._taken = False

    @contextmanager
    def _among_processes(self, patience_s: float) -> Iterator[None]:
        until_s = time.monotonic() + patience_s
        turn = None
        if self._database is not None and (self._left is None or self._left.is_over):
            next_one = self._locked(Path(f"{self._database}-next"), until_s)
            if next_one is not None:
                turn = self._locked(Path(f"{self._database}-turn"), until_s)
                _unlock(next_one)
        try:
            yield
        finally:
            if turn is not None:
                _unlock(turn)

    def _locked(self, path: Path, until_s: float) -> int | None:
        """The open file, locked; None where it cannot be locked, or was not until then."""
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            wait = _Wait(file)
            if wait.ended(until_s):
                return file
            self._left = wait
            return None
        except OSError:
            os.close(file)
            return None
        return file


def _unlock(file: int) -> None:
    # Closing it would not do where a process was forked meanwhile, which has it open too.
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)


class _Wait:
    """Waiting for the lock of a file, in a thread of its own: the kernel knows no end of it.

    One that was given up lasts until the lock is had, and nobody waits beside it: while a process
    is stopped that has the turn, SQLite decides, and there is one thread.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self._changing = threading.Lock()
        self._has, self._over = False, threading.Event()
        self._given_up = False
        threading.Thread(target=self._wait, name="catalog-turn", daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Whether the thread waits no more."""
        return self._over.is_set()

    def ended(self, until_s: float) -> bool:
        """Whether the lock was had until then; else the file will be closed."""
        self._over.wait(max(until_s - time.monotonic(), 0.0))
        with self._changing:
            if self.is_over:
                return self._has
            self._given_up = True
            return False

    def _wait(self) -> None:
        has = False
        with suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_EX)
            has = True
        with self._changing:
            self._has = has and not self._given_up
            self._over.set()
        if not self._has:
            _unlock(self._file)
