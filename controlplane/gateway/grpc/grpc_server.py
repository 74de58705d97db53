"""GrpcServer: the socket, its limits and its end."""

import asyncio
import logging

import grpc
import grpc.aio

from controlplane.access.tls import FollowedCertificate, Pair
from controlplane.gateway.grpc.service import Service
from controlplane.gateway.http.client_limits import ClientLimits
from controlplane.gateway.protection.connections import ConnectionCaps
from controlplane.gateway.protection.grpc_connections import GrpcConnections
from controlplane.gateway.query.query_path import MAX_IN_FLIGHT
from controlplane.settings import Settings
from workers.process.sparing_log import SparingLog

sparing = SparingLog(logging.getLogger(__name__))

GRACE_S = 10.0
"""What calls in flight have to end when the gateway stops, as with HTTP."""
SETTLE_S = 0.1
"""How long it goes on before it says goodbye. The library cancels calls that have come and that no
handler has begun: on a loop that was busy with the end of this gateway, those of all clients."""
CALLS_PER_CONNECTION = 1_000
"""Calls at once on one connection; more wait at the client."""
KEEPALIVE_S = 60.0
"""A connection that says nothing for so long is asked whether it is still there."""
ANSWER_S = 20.0
"""How long it has to say so."""
AGE_S = 300.0
"""How long a connection lasts, a tenth more or less; then its client is told to connect anew, and
finds another gateway as likely as this one. Calls that have begun end as they would. HTTP's
connections can be passed on to another gateway; the library lets nobody do that with these."""


class GrpcServer:
    """Serves the protocol on the running event loop, beside HTTP, until ``stop``."""

    def __init__(
        self,
        settings: Settings,
        service: Service,
        limits: ClientLimits,
        max_body: int,
        caps: ConnectionCaps,
        certificate: FollowedCertificate | None,
    ) -> None:
        """
        Args:
            max_body: the longest message, in bytes.
            certificate: None where TLS is not spoken here.
        """
        self._certificate = certificate
        self._settings = settings
        self._service = service
        self.connections = GrpcConnections(caps, settings.grpc_port, service.turned_away)
        service.connections = self.connections
        self._sweeping: asyncio.Task[None] | None = None
        self._sweep_s = limits.sweep_s
        self._server = grpc.aio.server(
            maximum_concurrent_rpcs=MAX_IN_FLIGHT,
            options=(
                ("grpc.so_reuseport", 1),
                ("grpc.max_receive_message_length", max_body),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_allowed_incoming_connections", caps.most),
                ("grpc.max_concurrent_streams", CALLS_PER_CONNECTION),
                ("grpc.server_handshake_timeout_ms", round(limits.head_s * 1000)),
                ("grpc.max_connection_idle_ms", round(limits.idle_s * 1000)),
                ("grpc.max_connection_age_ms", round(AGE_S * 1000)),
                ("grpc.keepalive_time_ms", round(KEEPALIVE_S * 1000)),
                ("grpc.keepalive_timeout_ms", round(ANSWER_S * 1000)),
                # It would unpack whatever comes of a message, and then look how much that is.
                ("grpc.per_message_decompression", 0),
            ),
        )
        self._server.add_generic_rpc_handlers(service.handlers())

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be bound.
        """
        settings = self._settings
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = f"{host}:{settings.grpc_port}"
        try:
            if self._certificate is not None:
                self._server.add_secure_port(address, _credentials(self._certificate))
            else:
                self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"{address} cannot be listened on for gRPC: {error}") from error
        await self._server.start()
        self._sweeping = asyncio.create_task(self._sweep())

    async def _sweep(self) -> None:
        """Keep to the cap on connections of one address."""
        while True:
            await asyncio.sleep(self._sweep_s)
            try:
                if self.connections.worth_a_look():
                    await asyncio.to_thread(self.connections.look)
            except Exception as error:
                sparing.error("", error, "looking after connections failed")

    async def stop(self) -> None:
        """Take no more calls, answer those in flight, and close."""
        self._service.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
        await asyncio.sleep(SETTLE_S)
        await self._server.stop(GRACE_S)


def _credentials(certificate: FollowedCertificate) -> grpc.ServerCredentials:
    """Those of the certificate as it is when a connection is made."""
    given = certificate.pair

    def configuration(pair: Pair) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration(((pair.key, pair.certificate),))

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        """Asked before each handshake, in a thread of the library; None: it is the same."""
        nonlocal given
        if certificate.pair is given:
            return None
        given = certificate.pair
        return configuration(given)

    return grpc.dynamic_ssl_server_credentials(configuration(given), renewed)
