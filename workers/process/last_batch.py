"""The last batch of a worker that is gone: which queries were in it, and what ended the process.

A worker writes down what it runs (``workers.process.quarantine``) in a page that outlives it. Who
asked it, on the same machine, reads there which of its queries may have ended the process, and
which had not begun.
"""

import fcntl
import os
from enum import StrEnum
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from workers.process.memory_kills import memory_kills
from workers.process.slot import ENTRY_BYTES, IN_PLACE, PAGE_BYTES, file_system

IDLE = bytes(ENTRY_BYTES)
RUNNING = 0
"""Entry of the variant that runs."""
QUERIES = 64
"""Entry of the number of queries in the batch; the queries themselves follow, an entry each."""
HUNG = 510
"""Entry of the last variant that was found to hang."""
KILLS = 511
"""Entry of the kernel's count of processes killed for want of memory, as it last was."""
MOST_QUERIES = HUNG - QUERIES - 1
EXITING = 4
STORAGE_FAULT = "Fatal Python error: Bus error"
"""Begins a trace that is the disk's fault, not the variant's."""


class Evidence(StrEnum):
    """What says that a batch ended its process."""

    NONE = ""
    """Nothing: it may have been killed from outside."""
    CRASHED = "crashed"
    OUT_OF_MEMORY = "killed for memory"
    HUNG = "hung"


class LastBatch(NamedTuple):
    """What a process ran when it ended."""

    queries: frozenset[bytes]
    """As ``query_entry`` makes them."""
    size: int
    """All of the batch, those that found no place included."""
    evidence: Evidence

    def company_of(self, query: bytes) -> int:
        """How many queries the batch had that a query was in; 0 if it had not begun."""
        known = query in self.queries or self.size > len(self.queries)
        return self.size if known else 0


NOTHING_RAN = LastBatch(frozenset(), 0, Evidence.NONE)


query_entry = Struct("<4sI").pack
"""A query as an entry, by its connection's tag and its number there."""


def read_last(page: str, pid: int) -> LastBatch | None:
    """The last batch of the process that a page belonged to, and that had this id.

    Returns:
        ``None`` where it lives, or where nothing of it can be read: it may be on another machine.
    """
    try:
        with open(page, "rb") as file:
            content = file.read(PAGE_BYTES)
            # A process that ends closes its connections before it lets go of the lock.
            lives = _is_locked(file.fileno()) and not _ends(pid)
            gone = not os.fstat(file.fileno()).st_nlink
    except OSError:
        return None
    if len(content) < PAGE_BYTES or gone:
        return None
    hung = entry_of(content, HUNG) == entry_of(content, RUNNING) != IDLE
    if lives and not hung:
        return None
    last = _batch(content)
    if last is NOTHING_RAN:
        return last
    return last._replace(evidence=Evidence.HUNG if hung else evidence(content, Path(page)))


def read_running(page: str) -> LastBatch | None:
    """What a process that lives runs now; ``None`` where that cannot be read.

    On a file system that machines share a page may be read before what was written there has come:
    a query that runs would be taken for one that does not.
    """
    if file_system(Path(page)) not in IN_PLACE:
        return None
    try:
        content = Path(page).read_bytes()
    except OSError:
        return None
    return _batch(content) if len(content) >= PAGE_BYTES else None


def _batch(content: bytes) -> LastBatch:
    if entry_of(content, RUNNING) == IDLE:
        return NOTHING_RAN
    count = int.from_bytes(entry_of(content, QUERIES), "little")
    listed = range(QUERIES + 1, QUERIES + 1 + min(count, MOST_QUERIES))
    queries = frozenset(entry_of(content, index) for index in listed)
    return LastBatch(queries, count, Evidence.NONE)


def read_page(page: str) -> bytes:
    """A whole page; empty where there is none that can be read."""
    if not page:
        return b""
    try:
        content = Path(page).read_bytes()
    except OSError:
        return b""
    return content if len(content) >= PAGE_BYTES else b""


def trace_of(page: Path) -> str:
    """What ``faulthandler`` wrote of a crash of the process of a page; empty where it did not."""
    try:
        trace = page.with_suffix(".trace").read_bytes()
    except OSError:
        return ""
    return trace.partition(b"\0")[0].decode(errors="replace")


def evidence(content: bytes, page: Path) -> Evidence:
    """What a dead process' page and trace say of its end."""
    trace = trace_of(page)
    if trace and not trace.startswith(STORAGE_FAULT):
        return Evidence.CRASHED
    return Evidence.OUT_OF_MEMORY if out_of_memory(content, memory_kills()) else Evidence.NONE


def out_of_memory(content: bytes, kills: int) -> bool:
    """Whether the kernel has killed for want of memory since a page was last written to."""
    return len(content) >= PAGE_BYTES and kills > int.from_bytes(entry_of(content, KILLS), "little")


def entry_of(content: bytes, index: int) -> bytes:
    """One entry of a page."""
    return content[index * ENTRY_BYTES : (index + 1) * ENTRY_BYTES]


def _ends(pid: int) -> bool:
    """Whether a process of this machine is about to end, or has."""
    try:
        # man 5 proc_pid_stat: what follows the name in brackets; flags as in linux/sched.h
        state, *_, flags = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:7]
    except OSError:
        return True
    return state in "ZX" or bool(int(flags) & EXITING)


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
