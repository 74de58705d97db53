"""Servers: what of a gateway takes connections, over HTTP and, where a port is set, over gRPC."""

import asyncio
import socket
from collections.abc import Awaitable
from typing import TYPE_CHECKING, NamedTuple

from controlplane.access.tls import FollowedCertificate
from controlplane.gateway.http.access import Access
from controlplane.gateway.http.client_limits import ClientLimits
from controlplane.gateway.http.guarded import AsgiApp
from controlplane.gateway.http.http_protocol import front_factory
from controlplane.gateway.http.http_server import HttpServer
from controlplane.gateway.listening import bind
from controlplane.gateway.protection.compression import Inflater
from controlplane.gateway.protection.connections import ConnectionCaps
from controlplane.gateway.query.query_path import QueryPath
from controlplane.settings import Settings
from workers.host import settle_memory

if TYPE_CHECKING:
    from controlplane.gateway.grpc.grpc_server import GrpcServer
    from controlplane.gateway.grpc.service import Service

STOP_S = 12.0
"""How long HTTP may take to answer what it has."""


class Prepared(NamedTuple):
    """What answers, and need not wait for an event loop to be made."""

    access: Access
    application: AsgiApp
    """Answers all but queries."""
    service: "Service | None"
    """Answers gRPC."""


class Servers:
    """The servers of one gateway, which share its limits on bodies, clients and connections."""

    def __init__(
        self, settings: Settings, path: QueryPath, limits: ClientLimits | None = None
    ) -> None:
        """
        Args:
            path: what queries are handed to.
            limits: of slow clients; None: those of the settings.
        """
        self._settings = settings
        self._path = path
        self._limits = limits or ClientLimits(idle_s=settings.idle_connection_s)
        self.max_body = int(settings.max_body_mib * 2**20)
        """Bytes of the body of a request."""
        self.inflater = Inflater(self.max_body)
        self.http: HttpServer | None = None
        self.serving: asyncio.Task[None] | None = None
        """Ends when HTTP does."""
        self.grpc: GrpcServer | None = None

    def bind(self) -> socket.socket:
        """The socket of HTTP, which does not listen yet.

        The kernel would give it connections before it takes any, which wait, and are lost where it
        is stopped meanwhile.

        Raises:
            OSError: its address cannot be bound, or that of gRPC.
        """
        if self._settings.grpc_port:
            # gRPC would say less about an address that is taken, and later.
            bind(self._settings, port=self._settings.grpc_port, listen=False).close()
        return bind(self._settings, listen=False)

    async def start(
        self,
        prepared: Prepared,
        certificate: FollowedCertificate | None,
        listening: socket.socket,
    ) -> HttpServer:
        """Take connections over HTTP, and return when they are taken. ``start_grpc`` follows."""
        access, application, service = prepared
        caps = ConnectionCaps.of(self._settings)
        if service is not None:
            from controlplane.gateway.grpc.grpc_server import GrpcServer

            self.grpc = GrpcServer(
                self._settings, service, self._limits, self.max_body, caps.alike(), certificate
            )
        self._path.counters.connections.open["http"] = lambda: caps.open
        self.http = HttpServer(
            application,
            front_factory(self._path, access, self.max_body, caps, self.inflater),
            listening,
            certificate.context if certificate is not None else None,
            self._limits,
        )
        settle_memory()  # all stands still meanwhile, and nobody waits for an answer yet
        self.serving = asyncio.create_task(self.http.run_here())
        while not self.http.started:
            if self.serving.done():
                await self.serving
                raise RuntimeError("the HTTP server ended at once")
            await asyncio.sleep(0.005)
        return self.http

    async def start_grpc(self) -> None:
        """Take calls over gRPC, where a port is set."""
        if self.grpc is not None:
            await self.grpc.start()

    @property
    def stopping(self) -> bool:
        """Whether no requests are to come any more, or not yet."""
        return self.http is None or self.http.leaving or self.http.should_exit

    def check(self) -> None:
        """Raise when nothing can be answered any more."""
        if self.serving is None or self.serving.done():
            raise RuntimeError("the HTTP server has ended")

    async def stop(self) -> None:
        """Answer what is in flight, and take no more."""
        ending: list[Awaitable[None]] = []
        if self.grpc is not None:
            ending.append(self.grpc.stop())
        if self.http is not None and self.serving is not None:
            self.http.should_exit = True
            ending.append(asyncio.wait_for(self.serving, STOP_S))
        await asyncio.gather(*ending, return_exceptions=True)
