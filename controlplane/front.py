"""The HTTP front: uvicorn's protocol, with a short way in for the inference routes.

A request for ``POST /v1/query`` or ``POST /v2/models/.../infer`` is read and answered right here,
without an ASGI scope, a task or an application around it; everything else goes the ordinary way to
FastAPI, and so does a query that comes while its connection still owes an answer: it waits there
for its turn, so that every answer is written the moment it is made, in the order of the requests.
"""

import asyncio
import logging
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from controlplane.access import Access
from controlplane.path import QueryPath, monotonic_ms
from variants.errors import InvalidInput, ModellessError, PayloadTooLarge

log = logging.getLogger(__name__)

V1 = b"/v1/query"
V2 = b"/v2/models/"
INFER = b"/infer"
MAX_HEAD = 65_536
"""Bytes of request line and headers, beyond the first piece that arrives."""
LINGER_S = 5.0
"""How long a refused body is still taken off the wire. Closing at once would reset the connection,
and the client would see that instead of the answer."""
_UPGRADE = frozenset({b"upgrade", b"connection", b"http2-settings"})


class Exchange:
    """One query on a connection: what has come of it, and its answer."""

    __slots__ = ("body", "fields", "front", "keep_alive", "received_ms", "target")

    def __init__(
        self, front: "Front", target: bytes, fields: dict[bytes, bytes], received_ms: float
    ) -> None:
        self.front = front
        self.target = target
        self.fields = fields
        self.received_ms = received_ms
        self.body: bytes | bytearray = b""
        self.keep_alive = True

    def respond(self, status: int, body: bytes, headers: bytes) -> None:
        """Write the answer, unless the client has gone."""
        if self.front.exchange is self:
            self.front.answer(self, status, body, headers)


class Front(HttpToolsProtocol):
    """One client connection. Made by ``front_factory``, which fills in the class attributes."""

    path: QueryPath
    access: Access
    max_body: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cycle: RequestResponseCycle | None = None  # type: ignore[assignment]
        self.exchange: Exchange | None = None
        """The query that is being read or answered."""
        self.reading = False
        """Its body has not come in full."""
        self.in_head = False
        self.head_bytes = 0
        self.upgrading = False
        self.deaf = False
        """Whatever else comes is thrown away: the connection ends with the answer."""
        self.closing = False
        self.arrived_ms = self.began_ms = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.arrived_ms = monotonic_ms()
        self._watch_idle(self.timeout_keep_alive)

    # -- bytes in -------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.deaf:
            return
        self.arrived_ms = monotonic_ms()
        if self.in_head:
            self.head_bytes += len(data)
            if self.head_bytes > MAX_HEAD:
                self._malformed(f"its headers are larger than {MAX_HEAD} bytes")
                return
        self._feed(data)

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
                    log.error("reading a request failed", exc_info=cause)
                    self.transport.close()
                return
            else:
                return

    def on_message_begin(self) -> None:
        # No scope yet: only the ordinary way needs one.
        self.url = b""
        self.headers = []
        self.began_ms = self.arrived_ms
        self.in_head = True
        self.head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_head:  # and not in a trailer
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.in_head = False
        if self.deaf:
            return
        if self.parser.should_upgrade():
            self.upgrading = True
            return
        target = self.url
        if b"?" in target:
            target = target.partition(b"?")[0]
        if (
            (target == V1 or (target.startswith(V2) and target.endswith(INFER)))
            and self.parser.get_method() == b"POST"
            and self.exchange is None
            and (self.cycle is None or self.cycle.response_complete)
        ):
            fields = dict(self.headers)
            if b"expect" not in fields:
                self._begin(target, fields)
                return
        self._go_the_ordinary_way()

    def on_body(self, body: bytes) -> None:
        if not self.reading:
            if not self.deaf:
                super().on_body(body)
            return
        exchange = self.exchange
        assert exchange is not None
        if not exchange.body:
            exchange.body = body
        else:
            if isinstance(exchange.body, bytes):
                exchange.body = bytearray(exchange.body)
            exchange.body += body
        if len(exchange.body) > self.max_body:
            self._refuse(exchange, self._too_large())

    def on_message_complete(self) -> None:
        if self.reading:
            self.reading = False
            exchange = self.exchange
            assert exchange is not None
            if exchange.target == V1:
                self.path.handle_v1(
                    exchange.body,
                    exchange.received_ms,
                    exchange.respond,
                    exchange.fields.get(b"x-request-id"),
                )
            else:
                self._infer(exchange)
        elif not self.deaf and not self.upgrading:
            super().on_message_complete()

    def _begin(self, target: bytes, fields: dict[bytes, bytes]) -> None:
        """Take a query whose headers are complete."""
        exchange = self.exchange = Exchange(self, target, fields, self.began_ms)
        exchange.keep_alive = self.parser.should_keep_alive()
        error = self._check(fields)
        if error is None:
            self.reading = True
        else:
            self._refuse(exchange, error)

    def _check(self, fields: dict[bytes, bytes]) -> ModellessError | None:
        """What is wrong with the headers of a query, if anything."""
        if int(fields.get(b"content-length", 0)) > self.max_body:
            return self._too_large()
        if fields.get(b"content-encoding", b"identity").lower() != b"identity":
            return InvalidInput("a compressed body is not supported")
        return self.access.permit(fields)

    def _infer(self, exchange: Exchange) -> None:
        """``/v2/models/{task}/infer`` or ``/v2/models/{task}/versions/{variant}/infer``."""
        parts = exchange.target.decode("latin-1").split("/")
        pinned: str | None = None
        if len(parts) == 7 and parts[4] == "versions":
            pinned = unquote(parts[5])
        elif len(parts) != 5:
            self._fail(exchange, InvalidInput("not an inference route"))
            return
        self.path.handle_v2(
            unquote(parts[3]),
            pinned,
            exchange.body,
            exchange.fields.get(b"inference-header-content-length"),
            exchange.received_ms,
            exchange.respond,
            exchange.fields.get(b"x-request-id"),
        )

    def _fail(self, exchange: Exchange, error: ModellessError) -> None:
        given_id = exchange.fields.get(b"x-request-id")
        self.path.fail(error, exchange.respond, given_id=given_id)

    def _too_large(self) -> PayloadTooLarge:
        return PayloadTooLarge(f"the body is larger than {self.max_body / 2**20:g} MiB")

    def _refuse(self, exchange: Exchange, error: ModellessError) -> None:
        """Answer before the body has come in full, and end the connection."""
        exchange.keep_alive = False
        self.deaf = True
        self.reading = False
        self._fail(exchange, error)

    def _malformed(self, reason: str) -> None:
        """Answer what is no HTTP, after whatever is still to be answered before it."""
        error = InvalidInput(f"the HTTP request is malformed: {reason}")
        cycle = self.cycle
        if self.reading and self.exchange is not None:
            self._refuse(self.exchange, error)
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
            self._refuse(self.exchange, error)

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
        head = [method, b" ", self.url, b" HTTP/1.1\r\n"]
        for name, value in self.headers:
            if name not in _UPGRADE:
                head += [name, b": ", value, b"\r\n"]
            elif name == b"connection" and b"close" in value.lower():
                head.append(b"connection: close\r\n")
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.arrived_ms = self.began_ms
        return b"".join([*head, b"\r\n", rest])

    # -- the ordinary way -----------------------------------------------------------------------

    def _go_the_ordinary_way(self) -> None:
        url, headers = self.url, self.headers
        super().on_message_begin()
        self.url = url
        for name, value in headers:
            super().on_header(name, value)
        self.scope["state"]["received_ms"] = self.began_ms
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start an ordinary request, once the query before it on the connection is answered."""
        if self.exchange is not None:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, app))
        else:
            super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """An ordinary request was answered."""
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self._next()

    # -- bytes out ------------------------------------------------------------------------------

    def answer(self, exchange: Exchange, status: int, body: bytes, headers: bytes) -> None:
        """Write the answer of the query in ``exchange``."""
        self.exchange = None
        transport = self.transport
        if transport.is_closing():
            return
        last = not exchange.keep_alive or (self.closing and not self.pipeline)
        transport.write(
            b"%s%scontent-length: %d\r\n%s\r\n%s"
            % (
                STATUS_LINE[status],
                headers,
                len(body),
                b"connection: close\r\n" if last else b"",
                body,
            )
        )
        self.server_state.total_requests += 1
        if not last:
            self._next()
        elif self.deaf and transport.can_write_eof():
            transport.write_eof()
            self.loop.call_later(LINGER_S, transport.close)
        else:
            transport.close()

    def _next(self) -> None:
        """Go on with what waits on this connection."""
        flow = self.flow
        if flow.read_paused and not flow.write_paused:
            flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        """A client that does not read its answers is not asked for more questions."""
        super().pause_writing()
        self.flow.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.pipeline:
            self.flow.resume_reading()

    # -- the end --------------------------------------------------------------------------------

    def _watch_idle(self, after_s: float) -> None:
        """One timer per connection that re-arms itself, instead of one per request."""
        self.timeout_keep_alive_task = self.loop.call_later(
            after_s, self.timeout_keep_alive_handler
        )

    def _unset_keepalive_if_required(self) -> None:
        """Called by uvicorn where it would cancel its timer; ours looks for itself."""

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.is_closing():
            return
        now_ms = monotonic_ms()
        # A query whose body has not come in full is idle, too: a client may not hold it for ever.
        unanswered = self.exchange is not None and not self.reading
        if unanswered or (self.cycle is not None and not self.cycle.response_complete):
            self.arrived_ms = now_ms
        left_s = self.timeout_keep_alive - (now_ms - self.arrived_ms) / 1000
        if left_s > 0:
            self._watch_idle(left_s)
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.exchange = None
        self.reading = False
        timer, self.timeout_keep_alive_task = self.timeout_keep_alive_task, None
        if timer is not None:
            timer.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close when what is in flight on this connection is answered."""
        if self.exchange is None:
            super().shutdown()
            return
        self.closing = True
        if self.cycle is not None:
            self.cycle.keep_alive = False


def front_factory(path: QueryPath, access: Access, max_body: int) -> type[asyncio.Protocol]:
    """A protocol class for uvicorn, bound to one query path."""
    return type("BoundFront", (Front,), {"path": path, "access": access, "max_body": max_body})
