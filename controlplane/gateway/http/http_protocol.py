"""The HTTP front: uvicorn's protocol, with a short way in for the inference routes.

A request for ``POST /v1/query``, ``/v1/embeddings`` or ``/v2/models/.../infer`` is read and
answered right here, without an ASGI scope or an application around it. Everything else goes the
ordinary way to FastAPI. So does a query that comes while an answer is still due on its connection:
it waits there for its turn, so that every answer is written the moment it is made, in the order of
the requests.
"""

import logging
from functools import partial
from typing import Any, cast

import httptools

from controlplane.gateway.embeddings import answering as embeddings
from controlplane.gateway.http.access import Access, KnownClients, too_large
from controlplane.gateway.http.breaking_off import BreakingOff
from controlplane.gateway.http.client_connection import AT_ONCE, ClientConnection
from controlplane.gateway.http.client_limits import Watch
from controlplane.gateway.http.exchange import (
    EMBEDDINGS,
    V1,
    Exchange,
    asked_in_headers,
    has_several_hosts,
    head_without_upgrade,
    is_query,
    route_of,
    task_and_variant,
)
from controlplane.gateway.http.known_head import TRIES, KnownHead, KnownHeads, known_head
from controlplane.gateway.http.returning import Returning
from controlplane.gateway.http.turn_clock import TurnClock
from controlplane.gateway.images.asked import KIND
from controlplane.gateway.images.misplaced import MISPLACED_BYTES, misplaced
from controlplane.gateway.protection.compression import Body, Inflater
from controlplane.gateway.protection.connections import ConnectionCaps
from controlplane.gateway.query.early_refusals import LainMs, known_to_be_new
from controlplane.gateway.query.query_context import Respond
from controlplane.gateway.query.query_path import QueryPath, monotonic_ms
from variants.errors import InvalidInput, ModellessError, NotFound
from workers.process.sparing_log import SparingLog

sparing = SparingLog(logging.getLogger(__name__))

IMAGE = KIND.encode()
"""A body of this kind goes the ordinary way."""
MAX_HEAD = 65_536
"""Bytes of request line and headers, beyond the first piece that arrives."""
HEAD_END = b"\r\n\r\n"
LINE = 128
"""Shorter lines, in the mean of more bytes than that, are those of several heads."""


class Front(BreakingOff):
    """One client connection. Made by ``front_factory``, which fills in the class attributes."""

    access: Access
    max_body: int
    turn: TurnClock
    inflater: Inflater
    returning: Returning
    heads: KnownHeads

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.upgrading = False
        self.head_bytes = 0
        self.head_tail = b""
        """The last bytes that came of a head that is not complete: its end may begin there."""
        self.between = True
        """The parser waits for a request to begin."""
        self.piece = b""
        """What is being parsed, where a request begins with it."""
        self.known: KnownHead | None = None
        self.known_by: KnownClients = self.access.clients
        """The keys by which that head was permitted: others may not permit it."""
        self.unknown = 0
        """Heads of queries that were parsed since one was known."""
        self.received = 0
        self.watch = Watch()
        self.lain_ms: float | None = None
        """For how long the bytes that are read now lay there when this turn of the event loop
        began; None: that was not asked yet."""

    def data_received(self, data: bytes) -> None:
        if self.deaf:
            return
        self.arrived_ms = self.turn.arrived_ms()
        self.lain_ms = None
        self.received += len(data)
        if self.between and not self.rest and self._idle():
            known = self.known if self.known_by is self.access.clients else None
            if self.received == len(data):  # the first that comes over this connection
                self.known_by = self.access.clients
                known = self.known = self.heads.of(data, self.max_body, self.known_by)
            at = 0 if known is None else known.body_at(data, self.max_body)
            if known is not None and at:
                self.unknown = 0
                at_once = known.plain and self.path.under_pressure()
                if not (at_once and self._refused_at_once(known, data, at)):
                    self.began_ms = self.arrived_ms
                    exchange = self.exchange = Exchange(
                        self, known.target, known.fields, self.began_ms, known.client
                    )
                    self._handle(exchange, data[at:], self._lain_ms)
                self.turn.pace()
                return
        if self.rest or (len(data) > AT_ONCE and data.count(b"\r") * LINE > len(data)):
            self.read_later(data)
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        """Read bytes that came at ``arrived_ms``."""
        if self.in_head:
            end = (self.head_tail + data).find(HEAD_END)  # others may follow in the same piece
            self.head_bytes += len(data) if end < 0 else end
            if self.head_bytes > MAX_HEAD:
                self._malformed(f"its headers are larger than {MAX_HEAD:,} bytes")
                return
        elif self.between and self._idle():
            self.piece = data
        if not self.reading and self.path.under_pressure():
            self.arrived_ms -= self._lain_ms()
        self._feed(data)
        if self.in_head:
            self.head_tail = data[-len(HEAD_END) + 1 :]
        self.piece = b""
        self.turn.pace()

    def _refused_at_once(self, known: KnownHead, data: bytes, at: int) -> bool:
        """Refuse a query whose body begins at ``at``, if others were refused the same a moment ago;
        whether it was.

        Most queries of an overload end here, so it does what the ordinary way does and no more.
        """
        return self.path.refuse_at_once(
            known.outline(data, at),
            self.answer_at_once,
            self.arrived_ms,
            self._back_too_soon_ms(),
            known.client,
            self._lain_ms,
        )

    def _lain_ms(self) -> float:
        """``lain_ms``; the kernel is asked once."""
        if self.lain_ms is None:
            self.lain_ms = self.turn.lain_ms(self.arrival.waited_ms())
        return self.lain_ms

    def _back_too_soon_ms(self) -> float:
        """Until when its client was told to wait, where it did not; 0 where nothing follows."""
        told_ms = self.told_ms
        if told_ms <= self.arrived_ms:
            return 0.0
        others = cast("set[ClientConnection]", self.connections)
        is_pool = self.returning.is_of_a_pool(self.address, others, self.arrived_ms)
        return 0.0 if is_pool else told_ms

    def _feed(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = self._decline_upgrade(data[upgrade.args[0] :])
            except httptools.HttpParserError as error:
                cause = error.__context__
                if cause is None or isinstance(cause, httptools.HttpParserError):
                    self._malformed(str(cause or error))
                else:  # a mistake of ours, in one of the methods below
                    sparing.error("", cause, "reading a request failed")
                    self.transport.close()
                return
            else:
                return

    def on_message_begin(self) -> None:
        # No scope yet: only the ordinary way needs one.
        self.between = False
        self.url = b""
        self.headers = []
        self.began_ms = self.arrived_ms
        self.in_head = True
        self.head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_head:
            self.headers.append((name.lower(), value))
        elif not self.deaf:
            self._break_off(InvalidInput("the HTTP request is malformed: trailers are not taken"))

    def on_headers_complete(self) -> None:
        self.in_head = False
        if self.deaf:
            return
        if self.parser.should_upgrade():
            self.upgrading = True
            return
        if has_several_hosts(self.headers):
            self._malformed("it has several Host headers")
            return
        target = self.url.partition(b"?")[0]
        if is_query(target) and self.parser.get_method() == b"POST" and self._idle():
            fields = dict(self.headers)
            image = fields.get(b"content-type", b"").lower().startswith(IMAGE)
            if b"expect" not in fields and not image:
                self._begin(target, fields)
                return
        self._go_the_ordinary_way()

    def on_body(self, body: bytes) -> None:
        if not self.reading:
            if not self.deaf and not self.skipping:
                super().on_body(body)
            return
        exchange = self.exchange
        assert exchange is not None
        if exchange.take(body) > self.max_body:
            self.path.refused_unread(exchange.client)
            self._refuse(exchange, too_large(self.max_body))

    def on_message_complete(self) -> None:
        self.between = True
        self.piece = b""
        if self.reading:
            self.reading = False
            exchange = self.exchange
            assert exchange is not None
            # Not kept: a refusal may be held for a second and more.
            body, exchange.body = exchange.body, b""
            self._handle(exchange, body)
        elif self.skipping:
            self.skipping = False
        elif not self.deaf and not self.upgrading:
            self.receiving = None
            super().on_message_complete()

    def _begin(self, target: bytes, fields: dict[bytes, bytes]) -> None:
        """Take a query whose headers are complete."""
        exchange = self.exchange = Exchange(self, target, fields, self.began_ms)
        # As the ordinary way has it: a client of HTTP/1.0 that asks to keep the connection reads
        # until its end, unless the answer says that it stays.
        exchange.keep_alive = (
            self.parser.should_keep_alive() and self.parser.get_http_version() != "1.0"
        )
        error = self.access.permit_query(fields, self.max_body)
        if error is not None:
            self._refuse(exchange, error)
            return
        authorization = fields.get(b"authorization", b"")
        client = exchange.client = self.access.client_of(authorization)
        if target != EMBEDDINGS and not fields.keys().isdisjoint(MISPLACED_BYTES):
            self.path.refused_unread(client)
            self._refuse(exchange, misplaced(map(bytes.decode, fields), v2=target != V1))
            return
        asked = asked_in_headers(target, fields)
        if exchange.keep_alive and self.unknown < TRIES:
            self.unknown += 1
            known = known_head(self.piece, target, fields, client)
            if known is not None and not self.access.clients.follows(authorization):
                self.known, self.known_by = known, self.access.clients
                self.heads.add(known, self.known_by)
        if asked is not None:
            self.skipping = True  # also while it is answered
            received_ms, given_id = exchange.received_ms, exchange.given_id
            respond = exchange.respond if self.path.traces is None else self._watched(exchange)
            self.skipping = self.path.turn_away_by_headers(
                *asked, received_ms, respond, given_id, self._back_too_soon_ms(), client
            )
        self.reading = not self.skipping

    def _handle(
        self, exchange: Exchange, body: bytes | bytearray, lain_ms: LainMs = known_to_be_new
    ) -> None:
        """Hand a query to the query path; ``body`` is all that came of it."""
        coding = exchange.fields.get(b"content-encoding")
        if coding is None:
            self._ask(exchange, body, lain_ms)
        else:
            if self.path.under_pressure():
                exchange.received_ms -= lain_ms()
            self.inflater.inflate(body, coding, partial(self._unpacked, exchange))

    def _unpacked(self, exchange: Exchange, found: Body | ModellessError) -> None:
        if self.exchange is not exchange:  # its client has gone meanwhile
            respond = self.path.enter(exchange.client, exchange.respond)
            self.path.gave_up(respond, monotonic_ms(), None)
        elif isinstance(found, ModellessError):
            self.path.refused_unread(exchange.client)
            self._fail(exchange, found)
        else:
            self._ask(exchange, found, known_to_be_new)

    def _watched(self, exchange: Exchange) -> Respond:
        """Where its answer goes, if it may be traced."""
        traces, fields = self.path.traces, exchange.fields
        assert traces is not None
        return traces.watch(
            exchange.respond,
            route_of(exchange.target),
            exchange.received_ms,
            fields.get(b"traceparent"),
            fields.get(b"tracestate"),
        )

    def _ask(self, exchange: Exchange, body: Body, lain_ms: LainMs) -> None:
        respond = exchange.respond if self.path.traces is None else self._watched(exchange)
        if exchange.target == V1:
            self.path.handle_v1(
                body,
                exchange.received_ms,
                respond,
                exchange.given_id,
                self._back_too_soon_ms(),
                lain_ms,
                exchange.takes if self.path.compresses else b"",
                exchange.client,
            )
        elif exchange.target == EMBEDDINGS:
            embeddings.answer(
                self.path,
                body,
                exchange.fields,
                exchange.received_ms,
                respond,
                exchange.given_id,
                exchange.client,
            )
        else:
            self._infer(exchange, body, lain_ms, respond)

    def _infer(
        self, exchange: Exchange, body: bytes | bytearray, lain_ms: LainMs, respond: Respond
    ) -> None:
        """``/v2/models/{task}/infer`` or ``/v2/models/{task}/versions/{variant}/infer``."""
        named = task_and_variant(exchange.target)
        if named is None:
            where = exchange.target.decode("latin-1")
            self._fail(exchange, NotFound(f"there is nothing at POST {where}"))
            return
        self.path.handle_v2(
            *named,
            body,
            exchange.fields.get(b"inference-header-content-length"),
            exchange.received_ms,
            respond,
            exchange.given_id,
            self._back_too_soon_ms(),
            lain_ms,
            exchange.takes if self.path.compresses else b"",
            exchange.client,
        )

    def _decline_upgrade(self, rest: bytes) -> bytes:
        """What to read as if no other protocol had been offered, which HTTP leaves to the server.

        The parser stops at such a request and forgets its body. Clients that offer HTTP/2 with
        every request (Java's does) would never get an answer, so it is read once more without the
        offer.
        """
        self.upgrading = False
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._malformed("CONNECT is not possible here")
            return b""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.arrived_ms = self.began_ms
        return head_without_upgrade(method, self.url, self.headers) + rest


class CrossOriginFront(Front):
    """A connection over which pages of other origins may ask; others do without its cost."""

    def answer(self, exchange: Exchange, status: int, body: bytes, headers: bytes) -> None:
        more = self.access.cross_origin.lines(exchange.fields.get(b"origin"))
        super().answer(exchange, status, body, headers + more)


def front_factory(
    path: QueryPath, access: Access, max_body: int, caps: ConnectionCaps, inflater: Inflater
) -> type[Front]:
    """A protocol class for uvicorn, bound to one query path."""
    bound = {
        "path": path,
        "access": access,
        "max_body": max_body,
        "turn": TurnClock(monotonic_ms, path.catch_up),
        "caps": caps,
        "inflater": inflater,
        "returning": Returning(),
        "heads": KnownHeads(),
    }
    front = CrossOriginFront if access.cross_origin else Front
    return type("BoundFront", (front,), bound)
