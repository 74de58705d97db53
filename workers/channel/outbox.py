"""Outbox: what leaves on a connection. Frames of one turn of the event loop leave together."""

import asyncio
from collections.abc import Callable, Sequence

from workers.channel.frames import JOIN_LIMIT, Chunk

UNREAD_FRAMES = 2
"""A peer that leaves more than so many of the largest frames unread is too slow."""


class Outbox:
    """Collects what is written in one turn of the event loop and sends it with one system call.

    Small pieces are joined, large ones handed over as they are. ``on_slow`` is called when the peer
    does not read what was sent.
    """

    __slots__ = ("_chunks", "_limit", "_loop", "_on_slow", "_paused", "_scheduled", "_transport")

    def __init__(
        self, transport: asyncio.Transport, max_frame: int, on_slow: Callable[[], None]
    ) -> None:
        self._limit = UNREAD_FRAMES * max_frame
        self._transport = transport
        self._on_slow = on_slow
        self._loop = asyncio.get_running_loop()
        self._chunks: list[Chunk] = []
        self._scheduled = False
        self._paused = False

    def write(self, chunks: Sequence[Chunk]) -> None:
        """Send the pieces of a frame at the end of this turn."""
        self._chunks += chunks
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def write_now(self, chunks: Sequence[Chunk]) -> None:
        """Send frames at once, behind what was to be sent at the end of this turn."""
        self._chunks += chunks
        self._send()

    def flush(self) -> None:
        """Send what is there."""
        self._scheduled = False
        self._send()

    def send_now(self) -> None:
        """Send what is there before this turn ends, where that takes long."""
        if self._chunks:
            self._send()

    def _send(self) -> None:
        chunks, self._chunks = self._chunks, []
        transport = self._transport
        if transport.is_closing() or not chunks:
            return
        if len(chunks) == 1:
            transport.write(chunks[0])
        else:
            transport.writelines(_joined(chunks))
        if self._paused and transport.get_write_buffer_size() > self._limit:
            self._on_slow()

    def pause(self) -> None:
        """The socket's buffer is full."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False


def _joined(chunks: list[Chunk]) -> list[Chunk]:
    """The same bytes with neighbouring small pieces joined."""
    if max(map(len, chunks)) <= JOIN_LIMIT:
        return [b"".join(chunks)]
    joined: list[Chunk] = []
    small: list[Chunk] = []
    for chunk in chunks:
        if len(chunk) <= JOIN_LIMIT:
            small.append(chunk)
        else:
            if small:
                joined.append(b"".join(small))
                small = []
            joined.append(chunk)
    if small:
        joined.append(b"".join(small))
    return joined
