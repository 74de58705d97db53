"""Handover: sockets go from one gateway to another of the same machine.

The kernel keeps connections at a listening socket until they are taken, and resets them when the
last process that has it closes it. So who leaves sends its listening socket to another gateway,
over a Unix socket in the run directory, and that one takes what waits there. gRPC's library gives
its socket to nobody. Open connections on which nothing is due go the same way, to a gateway that
has less to do; their clients notice nothing.
"""

import asyncio
import contextlib
import logging
import socket
import struct
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from controlplane.gateway.neighbours.siblings import files_of_others

log = logging.getLogger(__name__)

SUFFIX = ".take"
PATIENCE_S = 1.0
"""How long another gateway may take to answer; its event loop may be full."""
PAUSE_S = 0.1
"""After a question could not be accepted."""
TAKE, JOIN, BUSY = b"T", b"J", b"B"
"""What is asked: to take a listening socket, to go on with connections, how busy it is."""
YES, NO = b"Y", b"N"
NOW = b"!"
"""The gateway that sent connections reads them no more. Only then does the other one: if both did,
each would get a part of what a client sends."""
MOST_AT_ONCE = 64
"""Connections in one message; the kernel takes no more than 253."""
_SHARE = struct.Struct("<d")


class Taker(Protocol):
    """A gateway, as others hand something over to it."""

    async def take_socket(self, listening: socket.socket) -> None:
        """Go on with a listening socket; raises and leaves it open where it cannot."""

    def has_room(self, connections: Sequence[socket.socket]) -> bool:
        """Whether it may go on with all of these."""

    async def take_connections(self, connections: Sequence[socket.socket]) -> None:
        """Go on with all of these; raises where it cannot."""

    def busy(self) -> float:
        """The share of its time that its event loop computes."""


class Handover:
    """One gateway's end. ``path`` is that of its Unix socket for this, among those of others."""

    def __init__(self, path: Path, others: str, taker: Taker) -> None:
        """
        Args:
            others: a pattern for the sockets of all gateways of this machine, in its folder.
            taker: this gateway.
        """
        self._path = path
        self._pattern = others
        self._taker = taker
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
        """Send a listening socket to another gateway; whether one has it now."""
        for other in self._others():
            if await asyncio.to_thread(_send, other, TAKE, [listening]) == YES:
                return True
        return False

    async def give_connections(self, other: Path, connections: Sequence[socket.socket]) -> bool:
        """Send up to ``MOST_AT_ONCE`` connections to one gateway; whether it has them now.

        They stay open here, for the caller to close or to go on with.
        """
        return await asyncio.to_thread(_send, other, JOIN, connections) == YES + NOW

    async def busy_others(self) -> dict[Path, float]:
        """The other gateways that answer, and the share of its time that each one's loop computes.

        All are asked at once.
        """
        others = self._others()
        told = await asyncio.gather(*(asyncio.to_thread(_send, one, BUSY, []) for one in others))
        return {
            one: _SHARE.unpack(said)[0]
            for one, said in zip(others, told, strict=True)
            if len(said) == _SHARE.size
        }

    def _others(self) -> list[Path]:
        return files_of_others(self._path, self._pattern)

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
        if question == BUSY:
            peer.sendall(_SHARE.pack(self._taker.busy()))
            return
        try:
            taken = await self._take(peer, question, found)
        except BaseException:
            _close(found)
            raise
        if not taken:
            _close(found)

    async def _take(
        self, peer: socket.socket, question: bytes, found: Sequence[socket.socket]
    ) -> bool:
        """Take what came with a question, and answer; whether it is this gateway's now."""
        if question == TAKE and len(found) == 1:
            await self._taker.take_socket(found[0])
            peer.sendall(YES)
            return True
        if question != JOIN or not found or not self._taker.has_room(found):
            peer.sendall(NO)
            return False
        peer.sendall(YES)
        if not await asyncio.to_thread(_reads_no_more, peer):
            return False
        await self._taker.take_connections(found)
        return True


def _send(other: Path, question: bytes, sockets: Sequence[socket.socket]) -> bytes:
    """Ask, and return the answer, with ``NOW`` where that was said then; nothing without one."""
    with contextlib.suppress(OSError), _connected(other) as peer:
        socket.send_fds(peer, [question], [one.fileno() for one in sockets])
        said = peer.recv(_SHARE.size)
        if question == JOIN and said == YES:
            peer.sendall(NOW)
            said += NOW
        return said
    return b""


def _reads_no_more(peer: socket.socket) -> bool:
    """Whether the gateway that sent connections has said so.

    Where it has not in time it cannot any more: it would close what this one closes as well.
    """
    with contextlib.suppress(TimeoutError):
        return peer.recv(1) == NOW
    peer.shutdown(socket.SHUT_RD)
    # What it said before that can still be read.
    return peer.recv(1) == NOW


def _connected(other: Path) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.settimeout(PATIENCE_S)
    try:
        peer.connect(str(other))
    except OSError:
        peer.close()
        raise
    return peer


def _received(peer: socket.socket) -> tuple[bytes, list[socket.socket]]:
    """One byte, and the sockets that came with it.

    No process that this one starts gets them: the kernel would go on giving connections to a
    listening socket that such a process holds and never reads, and the end of a connection would
    not reach its client. Python sees to that for sockets that it makes, and not for these, and its
    ``socket.recv_fds`` passes no flags on (3.11).
    """
    descriptors = array("i")
    room = socket.CMSG_LEN(MOST_AT_ONCE * descriptors.itemsize)
    said, told, _, _ = peer.recvmsg(1, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in told:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    found = [socket.socket(fileno=one) for one in descriptors]
    for one in found:
        one.setblocking(False)
    return said, found


def _close(sockets: Sequence[socket.socket]) -> None:
    for one in sockets:
        one.close()
