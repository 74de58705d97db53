"""How a process of this machine ended that is nobody's child here: by which signal, or with which
exit code, and what else speaks of it.

Ray starts the processes of workers, and does not say how one ended. The kernel tells whoever holds
a pidfd (Linux 6.15 and later). Before that, and for more than a number, there is what the process
left: the trace of a crash, the variant that it ran, and that the kernel has killed something for
want of memory since it last looked.
"""

import asyncio
import errno
import fcntl
import os
import select
import signal
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self

import orjson

from workers.process.last_batch import (
    IDLE,
    RUNNING,
    Evidence,
    entry_of,
    evidence,
    read_page,
    trace_of,
)

GET_INFO = 0xC040FF0B
"""``PIDFD_GET_INFO`` of linux/pidfd.h, with the first version of its answer, of 64 bytes."""
EXIT = 1 << 3
"""``PIDFD_INFO_EXIT``: the process has ended, and was waited for by its parent."""
INFO = struct.Struct("<QQ11Ii")
"""Mask, cgroup, eleven ids, and the status as ``waitpid`` has it."""
WITHIN_S, LOOK_S = 0.2, 0.01
"""How long the end of a process is waited for whose connections are closed, and how often it is
looked for. A process closes them milliseconds before its parent knows."""
FATAL = "Fatal Python error: "


class Sockets(Protocol):
    """Of a socket, what is asked here."""

    def getsockopt(self, level: int, option: int, length: int, /) -> bytes: ...


def peer_of(end: Sockets | None) -> int:
    """The process on the other side of a Unix socket, as this process numbers it; else 0."""
    if end is None:
        return 0
    try:
        told = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except (OSError, AttributeError):
        return 0
    return max(0, int(struct.unpack("3i", told)[0]))


class WatchedProcess:
    """A process whose end is to be known; ``close`` it."""

    def __init__(self, pidfd: int) -> None:
        self._pidfd = pidfd
        self._tells = True
        """Whether the kernel says how a process ended."""

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """None where it is of another machine, or gone, or this system has no pidfd."""
        if not pid:
            return None
        try:
            return cls(os.pidfd_open(pid))
        except (OSError, AttributeError):
            return None

    @property
    def ended(self) -> bool:
        """Whether it has; its parent may not know that yet."""
        return bool(select.select([self._pidfd], [], [], 0)[0])

    def status(self) -> int | None:
        """As ``waitpid`` has it; None while it runs, and where the kernel does not tell."""
        asked = bytearray(INFO.pack(EXIT, *(0,) * 13))
        try:
            fcntl.ioctl(self._pidfd, GET_INFO, asked)
        except OSError as error:
            self._tells = error.errno == errno.ESRCH  # it has ended, and was not waited for
            return None
        mask, *_, status = INFO.unpack(asked)
        return int(status) if mask & EXIT else None

    def kill(self) -> bool:
        """End it at once, whatever it does; returns whether this process may, and it was there."""
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except (OSError, AttributeError):
            return False
        return True

    async def ending(self) -> tuple[bool, int | None]:
        """Whether it has ended, and its status where the kernel tells; waits for that a moment."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + WITHIN_S
        while (status := self.status()) is None and loop.time() < until_s:
            if self.ended and not self._tells:
                break
            await asyncio.sleep(LOOK_S)
        return self.ended, status

    def close(self) -> None:
        """Watch it no more; called once."""
        os.close(self._pidfd)


def ending_words(status: int | None, page: str) -> str:
    """``its process was ended by SIGSEGV (Segmentation fault), while it ran digits/mlp``; empty
    where nothing is known.

    Args:
        status: as ``waitpid`` has it, or None.
        page: what the process left (``workers.process.last_batch``), on this machine or not.
    """
    content, where = read_page(page), Path(page)
    told, words = evidence(content, where) if content else Evidence.NONE, ""
    if status is not None:
        words = f"its process {_status_words(status)}"
    elif told is Evidence.CRASHED:
        words = "its process crashed"
    if told is Evidence.CRASHED:
        crash = trace_of(where).partition("\n")[0].removeprefix(FATAL)
        words += f" ({crash[:80]})" if crash else ""
    elif told is Evidence.OUT_OF_MEMORY and (status is None or _killed(status)):
        words = words or "its process is gone"
        words += "; the kernel has just killed one for want of memory"
    return words and words + _ran_words(content, where)


def ran_words(page: str) -> str:
    """``, while it ran digits/mlp``; empty where that was nothing, or is not known.

    Args:
        page: what a process keeps of what it runs (``workers.process.last_batch``).
    """
    content = read_page(page)
    return _ran_words(content, Path(page)) if content else ""


def _ran_words(content: bytes, page: Path) -> str:
    variant = _running(content, page)
    return f", while it ran {variant}" if variant else ""


def _status_words(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"was ended by {signal.Signals(number).name}"
        except ValueError:
            return f"was ended by signal {number}"
    code = os.WEXITSTATUS(status)
    return f"ended with exit code {code}" if code else "ended by itself, with exit code 0"


def _killed(status: int) -> bool:
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _running(content: bytes, page: Path) -> str:
    """The variant whose batch or load was under way; empty where that was none, or is not known."""
    running = entry_of(content, RUNNING)
    if running in (IDLE, b""):
        return ""
    with suppress(OSError, ValueError, LookupError, TypeError):
        names = orjson.loads((page.parent / f"{running.hex()}.name").read_bytes())
        return f"{names['task']}/{names['variant']}"
    return ""
