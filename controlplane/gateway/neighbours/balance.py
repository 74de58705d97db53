"""Balance: a gateway that has more to do than the others passes connections on to them.

The kernel deals new connections out at random, and a connection stays where it is for as long as
its client keeps it: hours, with a pool. So a gateway that was added for a load gets nothing of it,
and of a few connections one gateway has twice as many as another. Once a second a gateway whose
event loop is busy asks the others how busy they are. If it is busier than all are on average, it
sends them as many of its connections as had that part of what it received lately. Each goes at a
moment when nothing is due on it, and its client notices nothing. A connection with TLS cannot be
sent: it ends with its next answer, which says so, and its client connects anew.
"""

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from controlplane.gateway.neighbours.handover import MOST_AT_ONCE

BUSY = 0.5
"""Share of its time that an event loop computes from which on queries wait noticeably for it."""
APART = 0.1
"""By how much a gateway must be busier than all are on average."""
REST_S = 3.0
"""What was passed on must show in what gateways report before more is."""
TOO_MUCH = 1.5
"""A connection that asks more than that many times the part that is still to go stays: where it
went, there would be too much to do."""


K = TypeVar("K", bound=Hashable)
C = TypeVar("C", bound="Passable")


def parts(own: float, others: Mapping[K, float]) -> dict[K, float]:
    """Which part of its work a gateway should pass on to each other one.

    Args:
        own: the share of its time that its event loop computes.
        others: the same of the others.

    Returns:
        For those that are less busy than all are on average, so that after that all are as busy as
        that; nothing where this one is not busy, or not much busier than that.
    """
    mean = (own + sum(others.values())) / (1 + len(others))
    if own < BUSY or own - mean < APART:
        return {}
    lacking = {other: mean - busy for other, busy in others.items() if busy < mean}
    whole = sum(lacking.values())
    return {other: (own - mean) / own * lack / whole for other, lack in lacking.items()}


class Passable(Hashable, Protocol):
    """A connection of a client."""

    received: int
    """Bytes in all."""

    def move(self, to: Callable[[socket.socket], None]) -> None:
        """Give its socket to ``to`` as soon as nothing is due on it."""


def chosen(
    asked: Mapping[C, int], wanted: Mapping[K, float], rng: random.Random
) -> dict[K, list[C]]:
    """Which connections make up these parts of all that was asked.

    Args:
        asked: what came over each, in bytes.
        wanted: the part that each gateway is to get, 1 in all at most.
    """
    left = [connection for connection, size in asked.items() if size]
    rng.shuffle(left)
    whole = sum(asked.values())
    found: dict[K, list[C]] = {}
    for gateway, part in wanted.items():
        lacking, stays = part * whole, []
        for connection in left:
            size = asked[connection]
            if lacking > 0.0 and size <= TOO_MUCH * lacking:
                lacking -= size
                found.setdefault(gateway, []).append(connection)
            else:
                stays.append(connection)
        left = stays
    return found


class Neighbours(Protocol):
    """The other gateways of the machine (``handover.Handover``)."""

    async def busy_others(self) -> dict[Path, float]: ...

    async def give_connections(self, other: Path, connections: Sequence[socket.socket]) -> bool: ...


class Balance:
    """One gateway's part. Times are the caller's, in seconds."""

    def __init__(
        self,
        neighbours: Neighbours,
        connections: Callable[[], Iterable[Passable]],
        take_back: Callable[[Sequence[socket.socket]], Awaitable[None]],
        count: Callable[[int], None],
        rng: random.Random | None = None,
    ) -> None:
        """
        Args:
            connections: those that are open here and could be moved.
            take_back: goes on here with connections that no other gateway has taken.
            count: is told how many another one has.
        """
        self._neighbours = neighbours
        self._connections = connections
        self._take_back = take_back
        self._count = count
        self._rng = rng or random.Random()
        self._received: dict[Passable, int] = {}
        """What had come over each connection when it was looked last, while this one is busy."""
        self._rests_until_s = float("-inf")
        self._waiting: dict[Path, list[socket.socket]] = {}
        """Connections that are read no more, by where they are to go."""
        self._sending: dict[Path, asyncio.Task[None]] = {}

    async def look(self, busy: float, now_s: float) -> None:
        """Choose what is passed on, if this gateway has more to do than the others.

        Args:
            busy: the share of its time that its event loop computed lately.
        """
        if busy < BUSY:
            self._received.clear()
            return
        before, here = self._received, list(self._connections())
        self._received = {one: one.received for one in here}
        if not before or now_s < self._rests_until_s:
            return
        wanted = parts(busy, await self._neighbours.busy_others())
        asked = {one: size - before.get(one, size) for one, size in self._received.items()}
        for other, those in chosen(asked, wanted, self._rng).items():
            self._rests_until_s = now_s + REST_S
            for one in those:
                one.move(partial(self._leaves, other))

    async def close(self) -> None:
        """Wait until what is on its way has arrived, or is back."""
        await asyncio.gather(*self._sending.values(), return_exceptions=True)

    def _leaves(self, other: Path, connection: socket.socket) -> None:
        """Send a connection that is read no more; those that come meanwhile go together."""
        self._waiting.setdefault(other, []).append(connection)
        if other not in self._sending:
            self._sending[other] = asyncio.create_task(self._send(other))

    async def _send(self, other: Path) -> None:
        waiting = self._waiting[other]
        try:
            while waiting:
                some = waiting[:MOST_AT_ONCE]
                del waiting[: len(some)]
                if await self._neighbours.give_connections(other, some):
                    self._count(len(some))
                    for one in some:
                        one.close()
                else:
                    await self._take_back(some)
        finally:
            del self._sending[other], self._waiting[other]
