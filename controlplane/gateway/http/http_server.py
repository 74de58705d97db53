"""HttpServer: uvicorn on a socket that is already bound, with TLS where the settings ask for it."""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

from controlplane.gateway.http.client_limits import ClientLimits
from controlplane.gateway.http.http_protocol import Front
from controlplane.gateway.listening import BACKLOG
from controlplane.gateway.query.query_path import monotonic_ms

log = logging.getLogger(__name__)

AT_ONCE = 32
"""Connections that a sweep looks at in one turn of the event loop: about 0.1 ms."""
PARTING_S = 5.0
"""How long a gateway that leaves waits for the next request on connections that are kept."""
TICKS_PER_S = 10
"""How often uvicorn calls ``on_tick``."""


class HttpServer(uvicorn.Server):
    """Serves one bound socket. ``encryption`` is ``None`` where TLS is not spoken here.

    A connection that keeps the gateway waiting is ended by a sweep over all of them.
    """

    def __init__(
        self,
        application: Any,
        front: type[Front],
        listening: socket.socket,
        encryption: ssl.SSLContext | None,
        limits: ClientLimits,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                http=front,
                ws="none",
                lifespan="on",
                access_log=False,
                log_config=None,
                server_header=False,
                date_header=False,
                timeout_graceful_shutdown=10,
            )
        )
        self._front = front
        self._listening = listening
        self._encryption = encryption
        self._limits = limits
        self._sweeping: asyncio.Task[None] | None = None
        self.leaving = False
        """It takes no more connections, and waits for the end of those that there are."""
        self._served: dict[asyncio.Server, socket.socket] = {}
        """The sockets that connections are taken from, the own one first."""
        self._ticks = max(1, round(limits.sweep_s * TICKS_PER_S))

    async def run_here(self) -> None:
        """Serve on the running loop until ``should_exit``.

        Signals belong to the process, which is a Serve replica.
        """
        await self._serve([])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. uvicorn cannot say how long a handshake may take, so that is done here."""
        await super().startup([])
        await self._listen(self._listening)

    async def _listen(self, listening: socket.socket) -> None:
        encrypted: dict[str, Any] = {}
        if self._encryption is not None:
            encrypted = {"ssl": self._encryption, "ssl_handshake_timeout": self._limits.head_s}
        server = await asyncio.get_running_loop().create_server(
            self._connection, sock=listening, backlog=BACKLOG, **encrypted
        )
        self.servers.append(server)
        self._served[server] = listening

    async def take(self, listening: socket.socket) -> None:
        """Take connections from one more socket, which another gateway has handed over."""
        await self._listen(listening)

    def spare(self) -> socket.socket | None:
        """A socket that was handed over."""
        taken = list(self._served.values())[1:]
        return taken[-1] if taken else None

    def given(self, listening: socket.socket) -> None:
        """Another gateway takes connections from this socket now."""
        for server, served in tuple(self._served.items()):
            if served is listening:
                del self._served[server]
                self.servers.remove(server)
                server.close()

    async def leave(self, give: Callable[[socket.socket], Awaitable[bool]]) -> None:
        """Give the sockets to another gateway, and let clients go there with their next request.

        A connection that is kept ends with the answer to its next request, which says so; one on
        which none comes is closed after ``PARTING_S``. Where no other gateway is there, nothing is
        waited for: clients would be refused anyway.
        """
        given = [await give(one) for one in self._served.values()]
        for server in self.servers:
            server.close()
        if not all(given):
            return
        until_s = time.monotonic() + PARTING_S
        while self.server_state.connections and time.monotonic() < until_s:
            for front in tuple(self.server_state.connections):
                assert isinstance(front, Front)
                front.part()
            await asyncio.sleep(0.05)

    def _connection(self) -> Front:
        return self._front(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def on_tick(self, counter: int) -> bool:
        """End what clients have left undone, about once a second."""
        idle = self._sweeping is None or self._sweeping.done()
        if counter % self._ticks == 0 and idle and self.server_state.connections:
            self._sweeping = asyncio.create_task(self._sweep())
        return await super().on_tick(counter)

    async def _sweep(self) -> None:
        """Look at all connections, some at a time: queries do not wait for thousands of them."""
        now_ms = monotonic_ms()
        for at, front in enumerate(tuple(self.server_state.connections), 1):
            try:
                assert isinstance(front, Front)
                if front in self.server_state.connections:  # it may have ended meanwhile
                    front.sweep(now_ms, self._limits)
            except Exception:
                log.exception("looking after a connection failed")
            if at % AT_ONCE == 0:
                await asyncio.sleep(0)
                now_ms = monotonic_ms()
