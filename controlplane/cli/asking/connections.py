"""Many queries over a bounded number of connections to one gateway, on an event loop.

A client that is to send many queries at their times has to spend little on each. Here a query is
bytes that are written at once where a connection is free, and its answer is a callback.

A connection carries one query at a time. One that the gateway has closed while it was idle is
replaced, and a query that was written to it just then is sent again, once.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast
from urllib.parse import urlsplit

from controlplane.access.bearer import authorization
from controlplane.cli.gateway_client import Access, wrong_url

CONNECT_S = 10.0
"""How long a connection may take to open."""

UNREACHABLE = "UNREACHABLE"
"""No connection could be made."""
BROKEN = "REPLICA_LOST"
"""The connection broke; the name is that of the error which a gateway tells of its workers."""
UNANSWERED = "UNANSWERED"
"""Nothing came within the time that was given."""


class Answer(NamedTuple):
    """What became of a query. Times are of the event loop's clock, in s."""

    status: int
    """Of HTTP; 0 where no whole answer came."""
    body: bytes
    headers: Mapping[bytes, bytes]
    """By their names in lower case."""
    sent_s: float
    """When its bytes were handed to the socket; when it was given up, if none ever were."""
    done_s: float
    failure: str = ""
    """Why no answer came: one of the three words above."""
    waited: bool = False
    """Whether all connections were busy when it was to be sent."""


Told = Callable[[Answer], None]


class Connections:
    """Connections to a gateway, at most so many. Made and used on one event loop."""

    def __init__(self, access: Access, most: int, *, headers: Mapping[str, str] | None = None):
        """``headers`` go with every request.

        Raises:
            InvalidInput: the URL is none, or no header can carry the token.
        """
        self.url = access.url
        self._host, self._port, self._prefix, secure = _place(access.url)
        self._tls = access.trust() if secure else None
        host = urlsplit(access.url).netloc.rpartition("@")[2]
        said = {"Host": host, **(headers or {}), **authorization(access.token)}
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in said.items()).encode()
        self._most = most
        self._open = 0
        self._idle: list[_Line] = []
        self._lines: set[_Line] = set()
        self._waiting: deque[_Asked] = deque()
        self._opening: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    def head(self, path: str, **fields: str) -> bytes:
        """The first lines of requests to a path, up to the length of their body."""
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
        line = f"POST {self._prefix}{path} HTTP/1.1\r\n{more}".encode()
        return line + self._headers + b"Content-Length: "

    def send(self, head: bytes, body: bytes, timeout_s: float, told: Told) -> None:
        """Send a request as soon as a connection is free; ``told`` is called once, never from in
        here.

        Args:
            head: as ``head`` makes it.
            timeout_s: how long to wait for its answer once it was sent.
        """
        asked = _Asked(b"%s%d\r\n\r\n%s" % (head, len(body), body), timeout_s, told)
        while self._idle:
            if self._idle[-1].closing:
                self._idle.pop()
                continue
            self._idle.pop().put(asked)
            return
        self._waiting.append(asked)
        if self._open < self._most:
            self._connect()
        else:
            asked.waited = True

    async def ask(self, head: bytes, body: bytes, timeout_s: float) -> Answer:
        """As ``send``, for who waits for the answer."""
        told: asyncio.Future[Answer] = self._loop.create_future()

        def tell(answer: Answer) -> None:
            if not told.done():  # who waited may have been cancelled
                told.set_result(answer)

        self.send(head, body, timeout_s, tell)
        return await told

    async def close(self) -> None:
        """Give all connections up; queries that are under way are told of no more."""
        self._waiting.clear()
        self._most = 0
        for task in tuple(self._opening):
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for line in tuple(self._lines):
            if (asked := line.give_up()) is not None:
                asked.forget()
        await asyncio.sleep(0)  # what was aborted is told of its end

    # -- connections ------------------------------------------------------------------------------

    def _connect(self) -> None:
        self._open += 1
        task = self._loop.create_task(self._opened())
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _opened(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                _, line = await self._loop.create_connection(
                    lambda: _Line(self), self._host, self._port, ssl=self._tls
                )
        except OSError:  # a timeout and what TLS says are among them
            self._open -= 1
            if self._waiting:
                self._waiting.popleft().end(self._loop.time(), UNREACHABLE)
            if self._waiting and self._open < self._most:
                self._connect()
            return
        self._lines.add(line)
        self.free(line)

    def free(self, line: "_Line") -> None:
        """A connection has nothing to do: it takes who has waited longest."""
        while self._waiting:
            asked = self._waiting.popleft()
            if not asked.ended:
                line.put(asked)
                return
        self._idle.append(line)

    def lost(self, line: "_Line", asked: "_Asked | None") -> None:
        """A connection is gone; ``asked`` was to be answered by it."""
        self._open -= 1
        self._lines.discard(line)
        if line in self._idle:
            self._idle.remove(line)
        if asked is not None:
            if line.reused and not line.begun and not asked.again and self._most:
                asked.again, asked.line = True, None
                self._waiting.appendleft(asked)
            else:
                asked.end(self._loop.time(), BROKEN)
        if self._waiting and self._open < self._most:
            self._connect()


class _Asked:
    """A query on its way."""

    __slots__ = (
        "_timer", "_told", "again", "ended", "line", "request", "sent_s", "timeout_s", "waited",
    )  # fmt: skip

    def __init__(self, request: bytes, timeout_s: float, told: Told) -> None:
        self.request = request
        self.timeout_s = timeout_s
        self._told = told
        self._timer: asyncio.TimerHandle | None = None
        self.line: _Line | None = None
        """The connection that it is on."""
        self.sent_s: float | None = None
        self.waited = False
        self.again = False
        """Whether it is sent for the second time."""
        self.ended = False

    def sent(self, line: "_Line", loop: asyncio.AbstractEventLoop) -> None:
        """A connection carries it from now on."""
        self.line = line
        if self.sent_s is None:
            self.sent_s = loop.time()
            self._timer = loop.call_at(self.sent_s + self.timeout_s, self._late, loop)

    def _late(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.line is not None:
            self.line.give_up()
        self.end(loop.time(), UNANSWERED)

    def forget(self) -> None:
        """Nobody is told of it any more."""
        self.ended = True
        if self._timer is not None:
            self._timer.cancel()

    def end(
        self,
        now_s: float,
        failure: str = "",
        status: int = 0,
        body: bytes = b"",
        headers: Mapping[bytes, bytes] | None = None,
    ) -> None:
        """Tell what became of it, once."""
        if self.ended:
            return
        self.forget()
        sent_s = now_s if self.sent_s is None else self.sent_s
        self._told(Answer(status, body, headers or {}, sent_s, now_s, failure, self.waited))


class _Line(asyncio.Protocol):
    """One connection."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._asked: _Asked | None = None
        self._body: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}
        self.reused = False
        """Whether it has answered before."""
        self.begun = False
        """Whether an answer has begun."""

    @property
    def closing(self) -> bool:
        return self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        import httptools

        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpResponseParser(self)

    def put(self, asked: _Asked) -> None:
        """Send a query."""
        self._asked = asked
        self.begun = False
        self._body.clear()
        self._headers = {}
        asked.sent(self, self._loop)
        self._transport.write(asked.request)

    def give_up(self) -> _Asked | None:
        """Close it at once; the query that it carried, which is told of nothing here."""
        asked, self._asked = self._asked, None
        self._transport.abort()
        return asked

    def data_received(self, data: bytes) -> None:
        import httptools

        self.begun = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()  # what answers there does not speak HTTP

    def connection_lost(self, exc: Exception | None) -> None:
        asked, self._asked = self._asked, None
        self._connections.lost(self, asked)

    # -- what the parser calls --------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        asked, self._asked = self._asked, None
        stays = self._parser.should_keep_alive()
        status, body = self._parser.get_status_code(), b"".join(self._body)
        self.reused = True
        if stays and asked is not None:
            # Not from within the parser, which has not finished with this answer; and before who
            # was told of it asks for the next one.
            self._loop.call_soon(self._next)
        else:
            self._transport.close()
        if asked is not None:
            asked.end(self._loop.time(), "", status, body, self._headers)

    def _next(self) -> None:
        if not self._transport.is_closing():
            self._connections.free(self)


def _place(url: str) -> tuple[str, int, str, bool]:
    """Host, port, path before all paths, and whether it speaks TLS.

    Raises:
        InvalidInput: it is no URL of HTTP.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise wrong_url(url)
    secure = parts.scheme == "https"
    return parts.hostname, port or (443 if secure else 80), parts.path.rstrip("/"), secure
