"""HttpServer: uvicorn on a socket that is already bound, with TLS where the settings ask for it."""

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import uvicorn

from controlplane.gateway.http.client_limits import ClientLimits
from controlplane.gateway.http.http_protocol import Front
from controlplane.gateway.listening import BACKLOG
from controlplane.gateway.neighbours.steering import lead_away, let_go
from controlplane.gateway.query.query_path import monotonic_ms
from workers.process.sparing_log import SparingLog

sparing = SparingLog(logging.getLogger(__name__))

AT_ONCE = 32
"""Connections that a sweep looks at in one turn of the event loop: about 0.1 ms."""
GIVING_S = 2.5
"""How long a gateway that leaves tries to hand over its sockets."""
PARTING_S = 3.0
"""How long it waits for the next request on connections that are kept."""
SETTLE_S = 1.0
"""How long connections are taken from a socket that was handed over, before it is closed."""


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
        self._ending = asyncio.Event()
        super().__init__(
            uvicorn.Config(
                application,
                http=front,
                ws="none",
                lifespan="on",
                access_log=False,
                log_config=None,
                log_level=logging.WARNING,  # the gateway says itself when it listens and stops
                server_header=False,
                date_header=False,
                timeout_graceful_shutdown=10,
            )
        )
        self._front = front
        self._listening = listening
        self._limits = limits
        self._sweeping: asyncio.Task[None] | None = None
        self.leaving = False
        """It takes no more connections, and waits for the end of those that there are."""
        self._served: dict[asyncio.Server, socket.socket] = {}
        """The sockets that connections are taken from."""
        self._settling: set[asyncio.Task[None]] = set()
        self._parting = asyncio.Event()
        """It leaves: sockets that were handed over and are not closed yet go on to another one."""
        self._encrypted: dict[str, Any] = {}
        if encryption is not None:
            self._encrypted = {"ssl": encryption, "ssl_handshake_timeout": limits.head_s}

    @property
    def should_exit(self) -> bool:
        """Whether it ends, or has ended."""
        return self._ending.is_set()

    @should_exit.setter
    def should_exit(self, ends: bool) -> None:
        if ends:
            self._ending.set()
        else:
            self._ending.clear()

    async def run_here(self) -> None:
        """Serve on the running loop until ``should_exit``.

        Signals belong to the process, which is a Serve replica.
        """
        await self._serve([])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. uvicorn cannot say how long a handshake may take, so that is done here."""
        await super().startup([])
        await self._listen(self._listening)

    async def _listen(self, listening: socket.socket) -> asyncio.Server:
        let_go(listening)  # what one that was killed has left
        server = await asyncio.get_running_loop().create_server(
            self._connection, sock=listening, backlog=BACKLOG, **self._encrypted
        )
        self.servers.append(server)
        self._served[server] = listening
        return server

    def has_room(self, connections: Sequence[socket.socket]) -> bool:
        """Whether as many more connections of these clients may be open here."""
        if self.leaving or self._encrypted:
            return False
        return self._front.caps.have_room(map(_address, connections))

    async def take_connections(self, connections: Sequence[socket.socket]) -> None:
        """Go on with connections of another gateway, or that another one has not taken.

        Those that have ended meanwhile are closed.
        """
        loop = asyncio.get_running_loop()
        connecting = (loop.connect_accepted_socket(self._connection, one) for one in connections)
        for one, made in zip(
            connections, await asyncio.gather(*connecting, return_exceptions=True), strict=True
        ):
            if isinstance(made, BaseException):
                one.close()

    def connections(self) -> list[Front]:
        """Those that are open."""
        return [one for one in self.server_state.connections if isinstance(one, Front)]

    async def take_socket(self, listening: socket.socket) -> None:
        """Take over what waits at a socket of another gateway, which leaves.

        It is not kept: the kernel would give this gateway two shares of all new connections.

        Raises:
            OSError: this gateway leaves as well.
        """
        if self.leaving:
            raise OSError("this gateway leaves as well")
        rest = listening.dup()
        try:
            server = await self._listen(listening)
        except BaseException:
            rest.close()
            raise
        settling = asyncio.create_task(self._settle(server, rest))
        self._settling.add(settling)
        settling.add_done_callback(self._settling.discard)

    async def _settle(self, server: asyncio.Server, rest: socket.socket) -> None:
        """Close a socket once the gateway that left has closed it, with nobody waiting there.

        Args:
            rest: the same socket, which stays open until what waits has been taken from it.
        """
        with rest:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_S):
                    await self._parting.wait()
                return
            del self._served[server]
            self.servers.remove(server)
            server.close()
            await asyncio.sleep(0.05)  # the event loop closes its own one in a later turn
            waiting = await lead_away(rest, self._listening)
        let_go(self._listening)
        loop = asyncio.get_running_loop()
        connecting = (
            loop.connect_accepted_socket(self._connection, one, **self._encrypted)
            for one in waiting
        )
        await asyncio.gather(*connecting, return_exceptions=True)

    async def leave(self, give: Callable[[socket.socket], Awaitable[bool]]) -> None:
        """Give the sockets to another gateway, and let clients go there with their next request.

        A connection that is kept ends with the answer to its next request, which says so; one on
        which none comes is closed after ``PARTING_S``. Where no other gateway is there, nothing is
        waited for: clients would be refused anyway.
        """
        self._parting.set()
        await asyncio.gather(*self._settling, return_exceptions=True)
        given = [False]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GIVING_S):
                given = [await give(one) for one in tuple(self._served.values())]
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

    async def main_loop(self) -> None:
        """End what clients have left undone, about once a second, until ``should_exit``.

        uvicorn's own looks ten times a second whether it is to end.
        """
        while not await self.on_tick(0):
            idle = self._sweeping is None or self._sweeping.done()
            if idle and self.server_state.connections:
                self._sweeping = asyncio.create_task(self._sweep())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.sweep_s):
                    await self._ending.wait()

    async def _sweep(self) -> None:
        """Look at all connections, some at a time: queries do not wait for thousands of them."""
        now_ms = monotonic_ms()
        for at, front in enumerate(tuple(self.server_state.connections), 1):
            try:
                assert isinstance(front, Front)
                if front in self.server_state.connections:  # it may have ended meanwhile
                    front.sweep(now_ms, self._limits)
            except Exception as error:
                sparing.error("", error, "looking after a connection failed")
            if at % AT_ONCE == 0:
                await asyncio.sleep(0)
                now_ms = monotonic_ms()


def _address(connection: socket.socket) -> str:
    """Of the client; empty of one that has ended."""
    with contextlib.suppress(OSError):
        return str(connection.getpeername()[0])
    return ""
