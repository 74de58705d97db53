"""When the bytes that are read now were there.

A turn of the event loop reads from many connections, one after the other. All of them had their
bytes when it began; the last is read many milliseconds later, and its query has waited for as long
(``TurnClock``). How long they lay there before that turn, the kernel knows (``Arrival``).

Until such a turn ends, nothing would be sent to a worker and none of their replies be read. So
every 4 ms of it both are done (``TurnClock.pace``).
"""

import asyncio
import ctypes
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, cast

_TCP_INFO = getattr(socket, "TCP_INFO", 0)


class _Told(ctypes.Structure):
    """The beginning of Linux's ``struct tcp_info``."""

    _fields_ = (("_before", ctypes.c_char * 52), ("last_received_ms", ctypes.c_uint32))


_told, _length, _END = _Told(), ctypes.c_uint32(), ctypes.sizeof(_Told)


def _found() -> "Callable[..., int] | None":
    """The system call; a ``socket.socket`` would close what is the event loop's."""
    if not _TCP_INFO or not sys.platform.startswith("linux"):
        return None
    call = ctypes.PyDLL(None).getsockopt  # it does not wait, so that the lock is kept
    call.argtypes = [ctypes.c_int] * 3 + [ctypes.POINTER(_Told), ctypes.POINTER(ctypes.c_uint32)]
    call.restype = ctypes.c_int
    return cast("Callable[..., int]", call)


_getsockopt = _found()
_COARSE = 6
"""Linux's ``CLOCK_MONOTONIC_COARSE``, which goes on with the kernel's ticks."""
TICK_MS = 1_000 * time.clock_getres(_COARSE) if _getsockopt else 0.0
"""How coarse the kernel's answer is."""


PACE_MS = 4.0
"""In a turn that takes longer, workers are sent to and heard so often in between. What is sent at
the end of a turn in which a hundred queries are read would reach an idle worker 15 ms late. With
0.5 and 1 ms as much is won, but 32 clients get a fifth less where other processes have the cores:
every time wakes a worker up (decision 3)."""

MEAN_WEIGHT = 1 / 32
"""Of one time that the kernel tells in the mean of all."""


class TurnClock:
    """The time at which a turn of the event loop began to read, and the pace of a long one."""

    def __init__(
        self, clock_ms: Callable[[], float], catch_up: Callable[[], None] = lambda: None
    ) -> None:
        """``catch_up`` does what cannot wait for the end of a long turn."""
        self._clock_ms = clock_ms
        self._catch_up = catch_up
        self._began_ms: float | None = None
        self._caught_up_ms = 0.0
        self._last_ms = self._before_ms = clock_ms()
        self._mean_ms = 0.0
        """What the kernel tells in the mean, at most a tick each time."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """Asking which one runs costs a system call."""

    def arrived_ms(self) -> float:
        """When bytes that are read now were there, by the clock that it was given."""
        if self._began_ms is None:
            self._before_ms, self._last_ms = self._last_ms, self._clock_ms()
            self._began_ms = self._caught_up_ms = self._last_ms
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._end)
        return self._began_ms

    def lain_ms(self, told_ms: float) -> float:
        """For how long bytes that are read now had lain there when this turn began.

        Args:
            told_ms: how long ago they came, as the kernel says it in its ticks.

        The true time is up to a tick more or less, seldom half of one more. The mean of all tells
        it apart: where bytes lie until the turn before them ends, they lie for up to twice the
        mean, and that is taken; where they are read as they come, for next to nothing. What the
        turn before did not find came after it.
        """
        most_ms = 2.0 * self._mean_ms
        self._mean_ms += MEAN_WEIGHT * (min(told_ms, TICK_MS) - self._mean_ms)
        lain_ms = min(max(most_ms, told_ms - TICK_MS), told_ms + TICK_MS / 2)
        began_ms = self.arrived_ms()
        return max(0.0, began_ms - max(self._before_ms, self._clock_ms() - lain_ms))

    def pace(self) -> None:
        """After each that was read: where this turn takes long, do what cannot wait for its end."""
        if self._clock_ms() - self._caught_up_ms >= PACE_MS:
            self._catch_up()
            self._caught_up_ms = self._clock_ms()

    def _end(self) -> None:
        self._began_ms = None


class Arrival:
    """When the last bytes of one connection came."""

    def __init__(self, transport: Any) -> None:
        connection = transport.get_extra_info("socket")
        known = _getsockopt is not None and connection is not None
        self._number = connection.fileno() if known else -1

    def waited_ms(self) -> float:
        """For how long they have been there, in ms, to a tick (``TICK_MS``); 0 if it is not known.

        The connection must be open. It costs a system call.
        """
        if self._number < 0 or _getsockopt is None:
            return 0.0
        _length.value = _END
        if _getsockopt(self._number, socket.IPPROTO_TCP, _TCP_INFO, _told, _length):
            self._number = -1  # none of TCP
            return 0.0
        if _length.value < _END:  # an older kernel
            return 0.0
        return float(_told.last_received_ms)
