"""One client's connection: what is due on it, in which order it is answered, and when it ends.

Queries are answered as they are (``answer``); everything else goes the ordinary way to an ASGI
application. Every answer is written the moment it is made, in the order of the requests. What is
read of a connection, and what is asked by it, is in ``http_protocol``.
"""

import asyncio
import os
import select
import socket
from collections.abc import Callable, Sized
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

from controlplane.gateway.http.client_limits import Phase
from controlplane.gateway.http.exchange import BUSY, Exchange, told_wait_ms, whole_answer
from controlplane.gateway.http.turn_clock import Arrival
from controlplane.gateway.protection.connections import ConnectionCaps
from controlplane.gateway.protection.turned_away import TurnedAway, answer_to
from controlplane.gateway.query.query_path import QueryPath, monotonic_ms

AT_ONCE = 1_024
"""Bytes of many requests at once that are read in one turn of the event loop."""
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
"""By HTTP/1.1 a client takes it and goes on waiting, whether or not it has asked for it."""
LOOKS_S = (0.005, 0.05, 0.25, 1.0)
"""How long after an interim answer it is looked whether a client is still there that sends nothing
more. No more of them are sent than these, as some clients take five at most."""
LINGER_S = 5.0
"""How long a refused body is still taken off the wire. Closing at once would reset the connection,
and the client would see that instead of the answer."""


class OneByOne(FlowControl):
    """Reads no more while requests wait that came ahead of their turn: whoever sends on and on
    would have them all kept here. The one that is answered then has come in full."""

    def __init__(self, transport: asyncio.Transport, *ahead: Sized) -> None:
        super().__init__(transport)
        self._ahead = ahead

    def resume_reading(self) -> None:
        if not any(self._ahead):
            super().resume_reading()


class ClientConnection(HttpToolsProtocol):
    """A connection whose requests ``Front`` reads."""

    path: QueryPath
    caps: ConnectionCaps

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cycle: RequestResponseCycle | None = None  # type: ignore[assignment]
        self.exchange: Exchange | None = None
        """The query that is being read or answered."""
        self.receiving: RequestResponseCycle | None = None
        """An ordinary request whose body has not come in full."""
        self.in_head = False
        self.reading = False
        """The query's body has not come in full."""
        self.skipping = False
        """The rest of a body is thrown away: its query was refused by its headers."""
        self.deaf = False
        """Whatever else comes is thrown away: the connection ends with the answer."""
        self.closing = False
        self.moves: Callable[[socket.socket], None] | None = None
        """What its socket goes to as soon as nothing is due on it."""
        self.began_ms = 0.0
        """When the first byte of the request came."""
        self.arrived_ms = 0.0
        """When the bytes came that are being read."""
        self.told_ms = 0.0
        """When the client was told to come back; 0 where that says nothing of the next query."""
        self.address = ""
        self.arrival: Arrival
        self.counted = False
        """Whether it is one of the connections that there may be."""
        self.rest = bytearray()
        """What came of many requests at once, and is read when those before it are answered."""
        self.rest_came_ms = 0.0
        """When the last of it came."""
        self.rest_due: asyncio.Handle | None = None
        self.running: RequestResponseCycle | None = None
        """The ordinary request that was begun last; others may wait behind it."""
        self.ended = False
        """The last answer is written."""
        self.half_closed = False
        """Its client sends nothing more."""
        self.looking = False
        """It is looked whether its client is still there."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        error = self.caps.enter(self.address)
        if error is None:
            self.counted = True
            # As uvicorn's, but that its socket is asked for both ends when the ordinary way does.
            self.connections.add(self)
            self.transport = transport
            self.flow = OneByOne(transport, self.pipeline, self.rest)
            self.arrival = Arrival(transport)
            return
        self.path.counters.connections.refused("http", error.code)
        stranger = TurnedAway(error, STATUS_LINE[answer_to(error)])
        transport.set_protocol(stranger)
        stranger.connection_made(transport)

    def _go_the_ordinary_way(self) -> None:
        if self.scheme is None:
            self.server = get_local_addr(self.transport)
            self.client = get_remote_addr(self.transport)
            self.scheme = "https" if is_ssl(self.transport) else "http"
        url, headers = self.url, self.headers
        super().on_message_begin()
        self.url = url
        for name, value in headers:
            super().on_header(name, value)
        self.scope["state"]["received_ms"] = self.began_ms
        super().on_headers_complete()
        self.receiving = self.cycle
        if self.closing and self.cycle is not None:
            self.cycle.keep_alive = False

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start an ordinary request, once the query before it on the connection is answered."""
        if self.exchange is not None:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, app))
        else:
            self._run(cycle, app)

    def _run(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """An ordinary request was answered."""
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self._next()
            if self.half_closed and not self._is_due():
                self.transport.close()
            elif self.moves is not None:
                self.loop.call_soon(self._move)

    def read_later(self, data: bytes) -> None:
        """Read many requests that came at once in pieces, each in a turn of the event loop, and the
        next one when those before it are answered: others are answered in between."""
        self.rest += data
        self.rest_came_ms = self.arrived_ms
        self.flow.pause_reading()
        self._go_on()

    def _go_on(self) -> None:
        if self.rest and self.rest_due is None:
            self.rest_due = self.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        self.rest_due = None
        if self.deaf or self.transport.is_closing():
            self.rest.clear()
        if self.pipeline or self.flow.write_paused or not self.rest:
            return
        piece = bytes(self.rest[:AT_ONCE])
        del self.rest[:AT_ONCE]
        self.arrived_ms = self.rest_came_ms
        self._take(piece)
        if self.rest:
            self._go_on()
        elif not self.pipeline and not self.flow.write_paused:
            self.flow.resume_reading()

    def _take(self, data: bytes) -> None:
        """Read bytes that came at ``arrived_ms``."""
        raise NotImplementedError

    def answer(self, exchange: Exchange, status: int, body: bytes, headers: bytes) -> None:
        """Write the answer of the query in ``exchange``."""
        self.exchange = None
        waits = status == BUSY and not exchange.forwarded
        self._write(status, body, headers, not exchange.keep_alive, waits)

    def answer_at_once(self, status: int, body: bytes, headers: bytes) -> None:
        """Write the answer of a query without an exchange, whose client asked for no end."""
        self._write(status, body, headers, last=False, waits=True)

    def _write(self, status: int, body: bytes, headers: bytes, last: bool, waits: bool) -> None:
        """Write an answer; ``waits``: it may tell its client when to come back."""
        wait_ms = told_wait_ms(status, headers) if waits else 0.0
        self.told_ms = monotonic_ms() + wait_ms if wait_ms else 0.0
        transport = self.transport
        if transport.is_closing():
            return
        last = last or (self.closing and not self.pipeline and not self.rest)
        transport.write(whole_answer(STATUS_LINE[status], body, headers, last))
        self.server_state.total_requests += 1
        if not last:
            self._next()
            if self.moves is not None:
                self.loop.call_soon(self._move)
        else:
            self._end()

    def _next(self) -> None:
        """Go on with what waits on this connection, and read more where that is the last."""
        if self.pipeline:
            self._run(*self.pipeline.pop())
        if self.rest and not self.pipeline:
            self._go_on()
        flow = self.flow
        if flow.read_paused and not flow.write_paused:
            flow.resume_reading()

    def is_asking(self) -> bool:
        """Whether a query that came over it is still to be answered."""
        return self.exchange is not None

    def _idle(self) -> bool:
        """Whether every request so far has its answer."""
        cycle = self.cycle
        return self.exchange is None and (cycle is None or cycle.response_complete)

    def _waits_for_nothing_else(self) -> bool:
        """Whether an ordinary request is being received, and its answer is the next one due."""
        cycle = self.receiving
        due = cycle is not None and not cycle.response_started
        return due and self.exchange is None and not self.pipeline

    def pause_writing(self) -> None:
        """Read no more requests of a client that does not read its answers."""
        super().pause_writing()
        self.flow.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.flow.resume_reading()
        self._go_on()

    def phase(self) -> Phase:
        """What this connection is doing now."""
        cycle = self.cycle
        if self.transport.is_closing():
            return Phase.ENDING
        if self.flow.write_paused:
            return Phase.UNREAD
        if self.deaf or self.flow.read_paused:
            return Phase.OURS
        if self.in_head:
            return Phase.HEAD
        if self.reading or self.skipping:
            return Phase.BODY
        if self.receiving is not None:
            return Phase.OURS if self.receiving.waiting_for_100_continue else Phase.BODY
        if self.exchange is not None or (cycle is not None and not cycle.response_complete):
            return Phase.OURS
        return Phase.IDLE

    def move(self, to: Callable[[socket.socket], None]) -> None:
        """Give the socket to ``to``, and end here, as soon as nothing is due on the connection.

        Bytes that have not been read go with it. One with TLS stays, and ends with its next answer.
        """
        if self.transport.get_extra_info("ssl_object") is not None:
            self.part()
            return
        self.moves = to
        self.loop.call_soon(self._move)

    def _move(self) -> None:
        """Called between two looks at the sockets: what was answered is written by now, and nothing
        more was read."""
        to, transport = self.moves, self.transport
        if to is None or transport.is_closing():
            return
        if self.phase() is not Phase.IDLE or self.closing or transport.get_write_buffer_size():
            return  # with a later answer
        self.moves = None
        with suppress(OSError):  # too many files are open: it stays
            own = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
            transport.abort()
            to(own)

    def part(self) -> None:
        """Say with the next answer that the connection ends with it."""
        self.closing = True
        if self.cycle is not None and not self.cycle.response_started:
            self.cycle.keep_alive = False

    def shutdown(self) -> None:
        """Close when what is in flight on this connection is answered."""
        if self.exchange is not None:
            self.closing = True
            if self.cycle is not None:
                self.cycle.keep_alive = False
        elif self.skipping and not self.deaf:
            self._end()
        elif not self.deaf:  # or else it ends by itself
            super().shutdown()

    def _end(self) -> None:
        """Close, later where the client may still be sending: it has to read what was answered."""
        self.ended = True
        if (self.deaf or self.skipping) and self.transport.can_write_eof():
            self.deaf = True
            try:
                self.transport.write_eof()
            except OSError:  # it has just been reset
                self.transport.abort()
                return
            self.loop.call_later(LINGER_S, self.transport.close)
        else:
            self.transport.close()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """The client sends nothing more. It has gone, or shuts down its sending side alone and
        waits for what it has asked: only who writes to it learns which of both.

        Returns:
            Whether the connection stays open.
        """
        if not self._is_due() or self.transport.get_extra_info("ssl_object") is not None:
            return None
        if not self.half_closed:
            self.half_closed = True
            self.part()
            self._see_whether_it_is_there()
        return True

    def look_unread(self) -> None:
        """See whether a client has gone while nothing is read of it, as requests wait that came
        ahead of their turn. Its end is not read then; called about once a second."""
        if not self.flow.read_paused or self.looking or not self._is_due():
            return
        if self._poll(select.POLLRDHUP) and self.scheme != "https":
            self._see_whether_it_is_there()

    def _see_whether_it_is_there(self) -> None:
        if self._knows_interim_answers():
            self.looking = True
            self._ask_whether_it_waits(LOOKS_S)

    def _is_due(self) -> bool:
        """Whether an answer is due to a request that has come in full."""
        if self.ended:
            return False
        cycle = self.cycle
        if self.pipeline or self.rest or (self.exchange is not None and not self.reading):
            return True
        if cycle is None or cycle.disconnected or self.receiving is not None:
            return False
        return not cycle.response_complete

    def _poll(self, events: int) -> bool:
        """Whether the kernel tells one of these events, an error, or that both sides are closed."""
        asked = select.poll()
        asked.register(self.transport.get_extra_info("socket").fileno(), events)
        return bool(asked.poll(0))

    def _knows_interim_answers(self) -> bool:
        """Whether its requests are of HTTP/1.1."""
        if self.exchange is not None and self.exchange.keep_alive:
            return True  # perhaps its head was known, and the parser has seen nothing
        return bool(self.parser.get_http_version() == "1.1")

    def _ask_whether_it_waits(self, looks_s: tuple[float, ...]) -> None:
        """Send what a client that waits takes no notice of, and look soon what comes back."""
        if self.transport.is_closing() or not self._is_due() or not looks_s:
            return
        running = self.running
        if running is None or running.response_complete or not running.response_started:
            self.transport.write(INTERIM)
        self.loop.call_later(looks_s[0], self._see_whether_it_waits, looks_s[1:])

    def _see_whether_it_waits(self, looks_s: tuple[float, ...]) -> None:
        if self.transport.is_closing():
            return
        if self._poll(0):  # an error, or closed on both sides: it has refused what was sent
            self.transport.abort()
        else:
            self._ask_whether_it_waits(looks_s)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.exchange is not None and not self.reading:
            self.path.departures.left(self.exchange.respond)
        running = self.running
        if running is not None and running is not self.cycle and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        self.pipeline.clear()
        self.exchange = None
        self.reading = False
        self.rest.clear()
        if self.counted:
            self.counted = False
            self.caps.leave(self.address)
        super().connection_lost(exc)

    def _unset_keepalive_if_required(self) -> None:
        """Called by uvicorn where it would cancel its timer; there is none."""
