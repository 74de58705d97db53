"""Neighbourhood: one gateway among those of its machine that share its port."""

import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import monotonic
from typing import Protocol

from controlplane.gateway.counting.counters import Counters
from controlplane.gateway.neighbours.balance import Balance, Passable
from controlplane.gateway.neighbours.handover import SUFFIX, Handover
from controlplane.gateway.neighbours.siblings import named_after_node


class Server(Protocol):
    """The HTTP server of a gateway."""

    async def take_socket(self, listening: socket.socket) -> None: ...

    def has_room(self, connections: Sequence[socket.socket]) -> bool: ...

    async def take_connections(self, connections: Sequence[socket.socket]) -> None: ...

    def connections(self) -> Iterable[Passable]: ...


class Neighbourhood:
    """What one gateway gives to the others, and takes from them."""

    def __init__(
        self,
        folder: Path,
        gateway: str,
        server: Server,
        counters: Counters,
        busy: Callable[[], float],
    ) -> None:
        """
        Args:
            folder: the run directory, which only this user may enter.
            gateway: the id of this one.
            busy: the share of its time that its event loop computed lately.
        """
        node = named_after_node()
        self.busy = busy
        self.take_socket = server.take_socket
        self.take_connections = server.take_connections
        self.has_room = server.has_room
        self._handover = Handover(
            folder / f"{node}-{gateway[:8]}{SUFFIX}", f"{node}-*{SUFFIX}", self
        )
        self._balance = Balance(
            self._handover,
            server.connections,
            server.take_connections,
            counters.connections.went_on,
        )

    async def start(self) -> None:
        """Answer the others."""
        await self._handover.start()

    async def leave(self) -> None:
        """Take nothing any more, and wait for what is on its way."""
        await self._handover.stop()
        await self._balance.close()

    async def give(self, listening: socket.socket) -> bool:
        """Send a listening socket to another gateway; whether one has it now."""
        return await self._handover.give(listening)

    async def look(self) -> None:
        """Pass connections on, if this gateway has more to do than the others."""
        await self._balance.look(self.busy(), monotonic())
