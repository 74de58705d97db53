"""Handover: listening sockets go from a gateway that leaves to one that stays.

The kernel keeps connections at a listening socket until they are taken, and resets them when the
last process that has it closes it. So who leaves sends its socket to another gateway of the
machine, over a Unix socket in the run directory, and that one takes what waits there. gRPC's
library gives its socket to nobody.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from controlplane.gateway.siblings import files_of_others

log = logging.getLogger(__name__)

SUFFIX = ".take"
PATIENCE_S = 1.0
"""How long another gateway may take to answer; its event loop may be full."""
PAUSE_S = 0.1
"""After a question could not be accepted."""
TAKE = b"T"
"""What is asked: to take a socket."""
YES, NO = b"Y", b"N"


class Handover:
    """One gateway's end. ``path`` is that of its Unix socket for this, among those of others."""

    def __init__(
        self,
        path: Path,
        others: str,
        take: Callable[[socket.socket], Awaitable[None]],
    ) -> None:
        """
        Args:
            others: a pattern for the sockets of all gateways of this machine, in its folder.
            take: goes on with a socket that another gateway sends; it raises and leaves it open
                where it cannot.
        """
        self._path = path
        self._pattern = others
        self._take = take
        self._listening: socket.socket | None = None
        self._answering: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Answer other gateways. Without that they open sockets of their own, and lose some."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._path.unlink(missing_ok=True)
            listening.bind(str(self._path))
            listening.listen()
            listening.setblocking(False)
        except OSError as error:
            listening.close()
            log.warning("no other gateway can hand its socket over to this one: %s", error)
            return
        self._listening = listening
        self._answering = asyncio.create_task(self._answer(listening))

    async def stop(self) -> None:
        """Answer nobody any more; a socket that was being sent here was not taken."""
        if self._answering is not None:
            self._answering.cancel()
            await asyncio.gather(self._answering, return_exceptions=True)
        if self._listening is not None:
            self._listening.close()
            self._path.unlink(missing_ok=True)

    async def give(self, listening: socket.socket) -> bool:
        """Send a socket to another gateway; whether one has it now."""
        for other in files_of_others(self._path, self._pattern):
            if await asyncio.to_thread(_give, other, listening):
                return True
        return False

    async def _answer(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer, _ = await loop.sock_accept(listening)
            except OSError as error:  # too many files, as in a flood of connections
                log.warning("no socket can be handed over: %s", error)
                await asyncio.sleep(PAUSE_S)
                continue
            with peer:
                try:
                    await self._serve(peer)
                except (OSError, RuntimeError, ValueError) as error:
                    log.warning("a socket was not handed over: %s", error)

    async def _serve(self, peer: socket.socket) -> None:
        peer.settimeout(PATIENCE_S)
        question, found = await asyncio.to_thread(_received, peer)
        if question != TAKE or found is None:
            peer.sendall(NO)
            return
        try:
            await self._take(found)
        except BaseException:
            found.close()
            raise
        peer.sendall(YES)


def _give(other: Path, listening: socket.socket) -> bool:
    with contextlib.suppress(OSError), _connected(other) as peer:
        socket.send_fds(peer, [TAKE], [listening.fileno()])
        return peer.recv(1) == YES
    return False


def _connected(other: Path) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.settimeout(PATIENCE_S)
    try:
        peer.connect(str(other))
    except OSError:
        peer.close()
        raise
    return peer


def _received(peer: socket.socket) -> tuple[bytes, socket.socket | None]:
    """One byte, and the socket that came with it."""
    said, descriptors, _, _ = socket.recv_fds(peer, 1, 1)
    found = [socket.socket(fileno=one) for one in descriptors]
    for one in found:
        one.setblocking(False)
    return said, found[0] if found else None
