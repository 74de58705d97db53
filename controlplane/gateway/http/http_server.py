"""HttpServer: uvicorn on a socket that is already bound, with TLS where the settings ask for it."""

import asyncio
import logging
import socket
import ssl
from typing import Any

import uvicorn

from controlplane.gateway.http.client_limits import ClientLimits
from controlplane.gateway.http.http_protocol import Front
from controlplane.gateway.query.query_path import monotonic_ms

log = logging.getLogger(__name__)

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
        self._ticks = max(1, round(limits.sweep_s * TICKS_PER_S))

    async def run_here(self) -> None:
        """Serve on the running loop until ``should_exit``.

        Signals belong to the process, which is a Serve replica.
        """
        await self._serve([])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. uvicorn cannot say how long a handshake may take, so that is done here."""
        await super().startup([])
        encrypted: dict[str, Any] = {}
        if self._encryption is not None:
            encrypted = {"ssl": self._encryption, "ssl_handshake_timeout": self._limits.head_s}
        server = await asyncio.get_running_loop().create_server(
            self._connection, sock=self._listening, **encrypted
        )
        self.servers.append(server)

    def _connection(self) -> Front:
        return self._front(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def on_tick(self, counter: int) -> bool:
        """End what clients have left undone, about once a second."""
        if counter % self._ticks == 0:
            now_ms = monotonic_ms()
            for front in tuple(self.server_state.connections):
                try:
                    assert isinstance(front, Front)
                    front.sweep(now_ms, self._limits)
                except Exception:
                    log.exception("looking after a connection failed")
        return await super().on_tick(counter)
