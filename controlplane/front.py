"""The HTTP front: uvicorn's protocol, with a short way in for the inference route.

A request for ``POST /v1/query`` or ``POST /v2/models/.../infer`` is read and answered right here,
without an ASGI scope, a task or an application around it; everything else goes the ordinary way to
FastAPI. Keep-alive, pipelining, limits and shutdown work the same on both ways, and answers leave
a connection in the order of its requests.
"""

import asyncio
from collections import deque
from typing import Any
from urllib.parse import unquote

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from controlplane.access import Access
from controlplane.path import QueryPath, monotonic_ms
from variants.errors import InvalidInput, ModellessError, PayloadTooLarge

V1 = b"/v1/query"
V2 = b"/v2/models/"
INFER = b"/infer"
MAX_PIPELINED = 64
MAX_HEADERS = 100


class Exchange:
    """One request of the inference route and its answer."""

    __slots__ = (
        "answer", "body", "content_length", "error", "front", "headers", "keep_alive",
        "received_ms", "target",
    )  # fmt: skip

    def __init__(
        self,
        front: "Front",
        target: bytes,
        headers: list[tuple[bytes, bytes]],
        received_ms: float,
    ) -> None:
        self.front = front
        self.target = target
        self.headers = headers
        self.received_ms = received_ms
        self.body: bytes | bytearray = b""
        self.answer: bytes | None = None
        self.error: ModellessError | None = None
        self.keep_alive = True

    def respond(self, status: int, body: bytes, headers: bytes) -> None:
        """Write the answer, or keep it until earlier ones on the connection have gone."""
        head = b"%scontent-type: application/json\r\ncontent-length: %d\r\n%s%s\r\n" % (
            STATUS_LINE[status],
            len(body),
            headers,
            b"" if self.keep_alive else b"connection: close\r\n",
        )
        self.front.answered(self, head + body)


class Front(HttpToolsProtocol):
    """One client connection. Made by ``front_factory``, which fills in the class attributes."""

    path: QueryPath
    access: Access
    max_body: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.exchange: Exchange | None = None
        self.waiting: deque[Exchange] = deque()
        self.arrived_ms = 0.0
        self.last_ms = 0.0
        self.closing = False
        self.cycle: RequestResponseCycle | None = None  # type: ignore[assignment]
        self._arm_keep_alive()

    # -- bytes in -------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.arrived_ms = monotonic_ms()
        super().data_received(data)

    def on_message_begin(self) -> None:
        self.exchange = None
        self.began_ms = self.arrived_ms
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self.parser.get_method() == b"POST" and self._is_inference():
            self._begin()
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            super().on_body(body)
        elif exchange.error is None:
            if not exchange.body:
                exchange.body = body
            else:
                if isinstance(exchange.body, bytes):
                    exchange.body = bytearray(exchange.body)
                exchange.body += body
            if len(exchange.body) > self.max_body:
                exchange.body = b""
                exchange.error = self._too_large()
                self._refuse(exchange)

    def on_message_complete(self) -> None:
        exchange = self.exchange
        if exchange is None:
            super().on_message_complete()
            return
        self.exchange = None
        if exchange.error is not None:
            return
        if exchange.target == V1:
            self.path.handle_v1(exchange.body, exchange.received_ms, exchange.respond)
        else:
            self._infer(exchange)

    def _is_inference(self) -> bool:
        """Whether this request can take the short way.

        One that waits behind an ordinary request on the same connection cannot: it goes to the same
        query path through FastAPI, which keeps the order.
        """
        url = self.url.partition(b"?")[0] if b"?" in self.url else self.url
        if url != V1 and not (url.startswith(V2) and url.endswith(INFER)):
            return False
        cycle = self.cycle
        return (
            (cycle is None or cycle.response_complete)
            and not self.pipeline
            and not self.expect_100_continue
            and not self.parser.should_upgrade()
        )

    def _begin(self) -> None:
        """Take a request whose headers are complete."""
        url = self.url.partition(b"?")[0]
        exchange = self.exchange = Exchange(self, url, self.headers, self.began_ms)
        exchange.keep_alive = (
            self.parser.should_keep_alive() and self.parser.get_http_version() != "1.0"
        )
        self.waiting.append(exchange)
        if len(self.waiting) > MAX_PIPELINED:
            self.flow.pause_reading()
        exchange.error = self._check(self.headers)
        if exchange.error is not None:
            self._refuse(exchange)

    def _check(self, headers: list[tuple[bytes, bytes]]) -> ModellessError | None:
        """What is wrong with the headers of a query, if anything."""
        for name, value in headers:
            if name == b"content-length":
                if int(value) > self.max_body:
                    return self._too_large()
            elif name == b"content-encoding" and value != b"identity":
                return InvalidInput("a compressed body is not supported")
        return self.access.check(headers)

    def _infer(self, exchange: Exchange) -> None:
        """``/v2/models/{task}/infer`` or ``/v2/models/{task}/versions/{variant}/infer``."""
        parts = exchange.target.decode("latin-1").split("/")
        if len(parts) == 5:
            task, pinned = unquote(parts[3]), None
        elif len(parts) == 7 and parts[4] == "versions":
            task, pinned = unquote(parts[3]), unquote(parts[5])
        else:
            self.path.fail(InvalidInput("not an inference route"), exchange.respond)
            return
        json_length: int | None = None
        for name, value in exchange.headers:
            if name == b"inference-header-content-length":
                if not value.isdigit():
                    error = InvalidInput("Inference-Header-Content-Length must be a number")
                    self.path.fail(error, exchange.respond)
                    return
                json_length = int(value)
        self.path.handle_v2(
            task, pinned, exchange.body, json_length, exchange.received_ms, exchange.respond
        )

    def _too_large(self) -> PayloadTooLarge:
        return PayloadTooLarge(f"the body is larger than {self.max_body / 2**20:g} MiB")

    def _refuse(self, exchange: Exchange) -> None:
        """Answer before the body is read; the connection is closed, so it need not be."""
        exchange.keep_alive = False
        assert exchange.error is not None
        self.path.fail(exchange.error, exchange.respond)

    # -- bytes out ------------------------------------------------------------------------------

    def answered(self, exchange: Exchange, answer: bytes) -> None:
        waiting = self.waiting
        if waiting and waiting[0] is exchange and len(waiting) == 1:
            waiting.popleft()
            self._write(exchange, answer)
        else:
            exchange.answer = answer
            while waiting and waiting[0].answer is not None:
                first = waiting.popleft()
                assert first.answer is not None
                self._write(first, first.answer)
        if not waiting:
            self._after_answers()

    def _write(self, exchange: Exchange, answer: bytes) -> None:
        transport = self.transport
        if transport.is_closing():
            return
        transport.write(answer)
        self.server_state.total_requests += 1
        if not exchange.keep_alive or self.closing:
            transport.close()

    def _after_answers(self) -> None:
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            super()._start_asgi_task(cycle, app)
        else:
            self._arm_keep_alive()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """An ordinary request waits for the queries before it on the same connection."""
        if self.waiting:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, app))
        else:
            super()._start_asgi_task(cycle, app)

    # -- idle connections -----------------------------------------------------------------------

    def _arm_keep_alive(self) -> None:
        """One timer per connection that re-arms itself, instead of one per request."""
        self.last_ms = self.arrived_ms
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _unset_keepalive_if_required(self) -> None:
        """Called by uvicorn for each chunk of data; the timer looks for itself."""

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self.transport.is_closing():
            return
        # A query whose body has not come in full is idle, too: a client may not hold it for ever.
        unanswered = len(self.waiting) - (self.exchange is not None)
        busy = unanswered or (self.cycle is not None and not self.cycle.response_complete)
        idle_s = (monotonic_ms() - self.arrived_ms) / 1000
        left_s = self.timeout_keep_alive - idle_s
        if busy or left_s > 0:
            self.timeout_keep_alive_task = self.loop.call_later(
                max(left_s, 1.0), self.timeout_keep_alive_handler
            )
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.waiting.clear()
        timer, self.timeout_keep_alive_task = self.timeout_keep_alive_task, None
        if timer is not None:
            timer.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close when the queries in flight on this connection are answered."""
        if self.waiting:
            self.closing = True
        else:
            super().shutdown()


def front_factory(path: QueryPath, access: Access, max_body: int) -> type[asyncio.Protocol]:
    """A protocol class for uvicorn, bound to one query path."""
    return type("BoundFront", (Front,), {"path": path, "access": access, "max_body": max_body})
