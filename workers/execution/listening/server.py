"""ChannelServer: the socket of a worker, and what all connections to it share."""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

from planner.types import Client
from variants.errors import Internal
from workers.channel.frames import (
    MOST_CLIENTS,
    FrameKind,
    FrameRefused,
    Violation,
    small_frame,
)
from workers.channel.messages import named
from workers.execution.executor import Executor
from workers.execution.listening.peer import Control, Peer
from workers.types import ASKED_S, variant_id

MAX_CONNECTIONS = 256
MAX_UNPROVEN = 32
"""Connections that have not proved yet that they know the secret."""
LOOKS = 5
"""So often within the time after which a peer is to be told of the queue it is looked whether that
has passed."""
MOST_JOINED = 1_000_000
"""Queries that one message may say to have waited for a load."""


class ChannelServer:
    """Listens on a Unix socket (``unix``) or on a free port of an address (``tcp:HOST``)."""

    def __init__(
        self, executor: Executor, worker: str, secret: bytes, max_frame_mib: int,
        status: Callable[[], bytes], control: Control,
    ) -> None:  # fmt: skip
        self.executor = executor
        self.worker = worker.encode()
        self.secret = secret
        self.max_frame = max_frame_mib * 2**20
        self.status = status
        self.control = control
        self.peers: set[Peer] = set()
        self.time_s = asyncio.get_running_loop().time
        self.followed = False
        """Whether any peer wants to be told of the queue by the clock."""
        self.looking = False
        """Whether it will be looked whom to tell, without more queries."""
        self._seen = 0
        """Queries that had come when that was looked last."""
        self._active_s = -inf
        """When there was something to do last."""
        self._asked: dict[Peer, tuple[int, float]] = {}
        """Of peers that have sent queries: how many, and when it was seen that there were more."""
        self._clients: dict[Client, Client] = {}
        """One value for each, whoever tells of it: they are compared by identity."""
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self._noticed = asyncio.Event()

    async def listen(self, where: str, run_dir: str) -> str:
        """Open the socket and return its address."""
        loop = asyncio.get_running_loop()
        if where == "unix":
            self._path = Path(f"{run_dir}/w-{secrets.token_hex(6)}.sock")
            listener = _bind(self._path)
            self._server = await loop.create_unix_server(lambda: Peer(self), sock=listener)
            return f"unix:{self._path}"
        scheme, _, host = where.partition(":")
        if scheme != "tcp" or not host:
            raise Internal(f"a worker listens on 'unix' or 'tcp:HOST', not {where!r}")
        self._server = await loop.create_server(lambda: Peer(self), host.strip("[]"), 0)
        return f"tcp:{host}:{self._server.sockets[0].getsockname()[1]}"

    async def reopen(self) -> bool:
        """Listen again at the same path where the socket's file was removed, such as by what cleans
        up below ``/tmp``; connections that are there stay. Whether that was needed.

        Raises:
            Internal: that cannot be.
        """
        if self._path is None or self._server is None or self._path.exists():
            return False
        before, listener = self._server, _bind(self._path)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: Peer(self), sock=listener)
        before.close()
        return True

    def check(self) -> None:
        """Raise ``Internal`` when no connection can be made any more."""
        if self._server is None or not self._server.is_serving():
            raise Internal("the worker's socket is closed")
        if self._path is not None and not self._path.exists():
            raise Internal(f"the worker's socket {self._path} was removed")

    def enter(self, peer: Peer) -> bool:
        """Whether there is room for one more connection."""
        unproven = sum(1 for other in self.peers if not other.known)
        if len(self.peers) >= MAX_CONNECTIONS or unproven >= MAX_UNPROVEN:
            return False
        self.peers.add(peer)
        return True

    def joined(self, message: dict[str, Any]) -> None:
        """Count queries that found a variant missing, as a gateway tells (its client's ``joined``).

        Here and at once: many such messages may come together.
        """
        queries = message.get("queries")
        if type(queries) is not int or not 0 <= queries <= MOST_JOINED:
            raise FrameRefused(Violation.MALFORMED, "queries that joined a load")
        variant, waits = variant_id(*named(message)), message.get("waiting") is True
        self.executor.usage.urgency.missed(variant, waits=waits, queries=queries)

    def client(self, message: dict[str, Any]) -> Client:
        """A client that queries of a connection come from (its client's ``infer``)."""
        name, weight = message.get("name"), message.get("weight")
        if not isinstance(name, str) or not isinstance(weight, float) or not weight > 0:
            raise FrameRefused(Violation.MALFORMED, "a client")
        if len(self._clients) >= 4 * MOST_CLIENTS:
            self._clients.clear()
        client = Client(name, weight)
        return self._clients.setdefault(client, client)

    def announce(self) -> None:
        """Send the status to every connected gateway and controller."""
        known = [peer for peer in self.peers if peer.known]
        if known:
            frame = small_frame(FrameKind.STATUS, self.status())
            for peer in known:
                peer.send(frame)

    # -- what is told of the queue ----------------------------------------------------------------

    def follow(self) -> None:
        """Peers have come or gone, or want to be told of the queue at other times."""
        self.followed = any(peer.wanted.every_s for peer in self.peers)

    def look(self) -> None:
        """Tell those of the queue who have heard nothing for long, as long as there is any news."""
        now_s = self.time_s()
        seen = sum([peer.queries for peer in self.peers])
        busy = seen != self._seen or self.executor.in_flight > 0
        self._seen = seen
        if busy:
            self._active_s = now_s
        following = [peer for peer in self.peers if peer.wanted.every_s]
        for peer in following:
            if peer.told_s < self._active_s and now_s - peer.told_s >= peer.wanted.every_s:
                peer.tell()
        self.looking = busy or any(peer.told_s < self._active_s for peer in following)
        if self.looking and following:
            every_s = min(peer.wanted.every_s for peer in following)
            asyncio.get_running_loop().call_later(every_s / LOOKS, self.look)
        else:
            self.looking = False

    def askers(self) -> int:
        """How many connections have sent queries lately, as far as is seen whenever this is
        asked."""
        now_s = self.time_s()
        asked = {
            peer: (peer.queries, now_s if peer.queries != count else at_s)
            for peer in self.peers
            for count, at_s in (self._asked.get(peer, (0, -inf)),)
        }
        self._asked = asked
        return sum(now_s - at_s <= ASKED_S for _, at_s in asked.values())

    def notice(self) -> None:
        """A peer has left, or has said that no more queries follow."""
        self._noticed.set()

    async def finished(self) -> None:
        """Return once every peer that is still there has said that no more queries follow.

        They say so when they hear that the worker leaves. Only then may it close: a query that is
        on its way is refused, and asked elsewhere, and not lost.
        """
        while not all(peer.finished for peer in self.peers if peer.known):
            self._noticed.clear()
            await self._noticed.wait()

    def close(self) -> None:
        """Stop listening, close all connections, remove the socket."""
        if self._server is not None:
            self._server.close()
        for peer in tuple(self.peers):
            peer.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _bind(path: Path) -> socket.socket:
    """A bound Unix socket that only its owner can reach from the moment it exists."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
    except OSError as error:
        listener.close()
        raise Internal(f"the worker cannot listen on {path}: {error}") from error
    listener.setblocking(False)
    return listener
