"""Requests that are malformed, too long or too slow, or are refused before they have come in full.

Each gets its answer, behind those that are due before it, and the connection ends.
"""

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from controlplane.gateway.embeddings import answering as embeddings
from controlplane.gateway.http.client_connection import ClientConnection
from controlplane.gateway.http.client_limits import ClientLimits, Phase, Verdict, Watch
from controlplane.gateway.http.exchange import EMBEDDINGS, Exchange
from variants.errors import InvalidInput, ModellessError

TOO_SLOW = 408
"""Status of a request that does not come in full; its code is that of what cannot be right."""


class BreakingOff(ClientConnection):
    """A connection whose requests ``Front`` reads, as far as they end otherwise than by an answer
    to what was asked."""

    received: int
    """Bytes in all."""
    watch: Watch

    def _fail(self, exchange: Exchange, error: ModellessError, status: int = 0) -> None:
        """``status`` in the place of the error's own."""

        def respond(own: int, body: bytes, headers: bytes) -> None:
            exchange.respond(status or own, body, headers)

        if exchange.target == EMBEDDINGS:
            embeddings.fail(self.path, error, respond, exchange.given_id)
        else:
            self.path.fail(error, respond, given_id=exchange.given_id)

    def _refuse(self, exchange: Exchange, error: ModellessError, status: int = 0) -> None:
        """Answer before the body has come in full, and end the connection."""
        exchange.keep_alive = False
        self.deaf = True
        self.reading = False
        self._fail(exchange, error, status)

    def _malformed(self, reason: str) -> None:
        self._break_off(InvalidInput(f"the HTTP request is malformed: {reason}"))

    def _break_off(self, error: ModellessError, status: int = 0) -> None:
        """Answer what is no request, after whatever is still to be answered before it."""
        cycle = self.cycle
        if self.skipping and self.exchange is None:  # it has its answer
            self._end()
        elif self.reading and self.exchange is not None:
            self._refuse(self.exchange, error, status)
        elif self._waits_for_nothing_else():
            assert self.receiving is not None
            self._give_up(self.receiving, error, status)
        elif cycle is not None and not cycle.response_complete:
            self.deaf = True
            cycle.keep_alive = False
            if cycle.more_body:  # it would be waited for
                self.transport.close()
        elif self.exchange is not None:
            self.deaf = True
            self.exchange.keep_alive = False
        elif not self.deaf:
            self.exchange = Exchange(self, b"", {}, self.began_ms)
            self._refuse(self.exchange, error, status)

    def sweep(self, now_ms: float, limits: ClientLimits) -> None:
        """End this connection if its client is too slow, or has gone unseen; called about once a
        second."""
        if not self.transport.is_closing():
            self.look_unread()
        phase = self.phase()
        unread = phase is Phase.UNREAD
        mark = float(self.transport.get_write_buffer_size()) if unread else self.began_ms
        verdict = self.watch.look(phase, mark, self.received, now_ms, limits)
        if verdict is not None:
            self.path.counters.connections.ended(verdict.name.lower())
        if verdict is Verdict.CLOSE:
            self.transport.close()
        elif verdict is Verdict.ABORT:
            self.transport.abort()
        elif verdict is not None:
            self._late(limits.sentence(verdict))

    def _late(self, reason: str) -> None:
        """Answer a request that does not come in full."""
        error = InvalidInput(f"the request takes too long: {reason}")
        if self.receiving is not None and self.receiving.response_started:
            self.transport.close()
        else:
            self._break_off(error, TOO_SLOW)

    def _give_up(self, cycle: RequestResponseCycle, error: ModellessError, status: int) -> None:
        """Answer an ordinary request whose body has not come in full.

        The application learns that the client is gone, and its answer goes nowhere.
        """
        cycle.disconnected = True
        cycle.waiting_for_100_continue = False  # nobody asks for the rest of its body any more
        cycle.message_event.set()
        fields = dict(cycle.scope["headers"])
        self.exchange = Exchange(self, b"", fields, self.began_ms)
        self._refuse(self.exchange, error, status)
