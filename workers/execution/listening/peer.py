"""Peer: one connection of a gateway or a controller to a worker.

It proves that it knows the secret, and then each frame is a query or a control message.
"""

import asyncio
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from math import inf
from struct import error as StructError
from typing import Any, Protocol, cast

from planner.types import ANYBODY, TOLD_AGAIN_MS, Client
from variants.errors import Internal, ModellessError
from workers.channel.frames import (
    HANDSHAKE_LIMIT,
    HEADER,
    MOST_CLIENTS,
    OLDEST,
    PLACE,
    VERSION,
    Chunk,
    FrameKind,
    FrameRefused,
    Layout,
    Splitter,
    Violation,
    as_in_version_1,
    layout_of,
    small_frame,
    small_payload,
    unpack_infer,
    unpack_place,
    unpack_prefix,
)
from workers.channel.handshake import NONCE, TAG, offer, prove, versions_words
from workers.channel.messages import decode, encode_error
from workers.channel.outbox import Outbox
from workers.channel.queue_news import Wanted, decode_wanted, encode_news
from workers.channel.shared_clock import left_us
from workers.channel.shared_memory import borrow
from workers.execution.executor import Executor
from workers.process.sparing_log import SparingLog

sparing = SparingLog(logging.getLogger(__name__))

HANDSHAKE_S = 2.0
MAX_CONTROLS = 64
"""Control messages of one connection that are being worked on."""
CONTROLS = frozenset(
    (
        FrameKind.LOAD,
        FrameKind.UNLOAD,
        FrameKind.DRAIN,
        FrameKind.HISTORY,
        FrameKind.READMIT,
        FrameKind.CHECK,
    )
)

INFER, INFER_LENT = int(FrameKind.INFER), int(FrameKind.INFER_LENT)
QUERIES = frozenset((INFER, INFER_LENT))
REPLY = int(FrameKind.REPLY)

Control = Callable[[FrameKind, dict[str, Any]], Awaitable[bytes]]
"""Does what a control message asks; returns the answer as JSON, raises a ``ModellessError``."""


class Listening(Protocol):
    """The server, as its connections see it."""

    executor: Executor
    worker: bytes
    """The name that it proves itself by."""
    secret: bytes
    max_frame: int
    """Bytes."""
    status: Callable[[], bytes]
    control: Control
    peers: set["Peer"]
    time_s: Callable[[], float]
    followed: bool
    """Whether any peer wants to be told of the queue by the clock."""
    looking: bool
    """Whether it will be looked whom to tell, without more queries."""

    def enter(self, peer: "Peer", /) -> bool: ...

    def joined(self, message: dict[str, Any], /) -> None: ...

    def client(self, message: dict[str, Any], /) -> Client: ...

    def follow(self) -> None: ...

    def look(self) -> None: ...

    def notice(self) -> None: ...


class Peer(asyncio.Protocol):
    """One connection to a gateway or a controller."""

    def __init__(self, server: Listening) -> None:
        self._server = server
        self._splitter = Splitter(HANDSHAKE_LIMIT)
        self._nonce = secrets.token_bytes(NONCE)
        self._transport: asyncio.Transport
        self._outbox: Outbox
        self._timer: asyncio.TimerHandle | None = None
        self._submit = server.executor.submit
        self._controls: set[asyncio.Task[None]] = set()
        self._closed = False
        self._block: memoryview | None = None
        """Memory that the other end lends. Queries that still run keep what they read of it."""
        self._clients = [ANYBODY]
        """Those that queries name by their number."""
        self._version = VERSION
        """The one that its other end has chosen."""
        self.queries = 0
        """That came from it."""
        self.wanted = Wanted(replies=False, every_s=0.0)
        """When it wants to be told of the queue."""
        self.told_s = -inf
        """When it was."""
        self.tag = bytes(TAG)
        self.known = False
        """The handshake is over."""
        self.finished = False
        """It has said that no more queries follow."""

    # -- writing ----------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        if not self._closed:
            self._outbox.write((frame,))
            if self.wanted.replies and frame[4] == REPLY and self._is_time():
                self.tell()

    def answer(self, chunks: list[Chunk]) -> None:
        if not self._closed:
            if self.wanted.replies and self._is_time():
                self.tell()  # leaves with what follows
            self._outbox.write_now(chunks)

    def _is_time(self) -> bool:
        """Whether a reply is to tell of the queue as well."""
        return self._server.time_s() - self.told_s >= TOLD_AGAIN_MS / 1_000

    def tell(self) -> None:
        """Tell of the queue as it is now, at the end of this turn of the event loop or sooner."""
        if self._closed:
            return
        self.told_s = self._server.time_s()
        try:
            news = encode_news(self._server.executor.queue_news())
        except Exception as error:  # a mistake of the queue must not keep answers back
            sparing.error("", error, "telling of the queue")
        else:
            self._outbox.write((small_frame(FrameKind.QUEUE, news),))

    # -- protocol ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._outbox = Outbox(self._transport, self._server.max_frame, self._slow)
        if not self._server.enter(self):
            self._refuse(FrameRefused(Violation.TOO_MANY))
            return
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE_S, self._too_late)
        hello = self._nonce + offer(self._server.worker)
        self.send(small_frame(FrameKind.HELLO, hello, version=OLDEST))

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self._block = None
        if self._timer is not None:
            self._timer.cancel()
        self._server.peers.discard(self)
        self._server.executor.left(self)
        self._server.follow()
        self._server.notice()

    def pause_writing(self) -> None:
        self._outbox.pause()

    def resume_writing(self) -> None:
        self._outbox.resume()

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        stepwise = self._splitter.stepwise
        try:
            data, begins = self._splitter.feed(data)
            for at in begins:
                if self.known and data[at + 4] in QUERIES:
                    self.queries += 1
                    (length, kind, until, described, request_id, rows, variant, budget_us,
                     priority, number) = unpack_infer(data, at)  # fmt: skip
                    if self._version == 1:
                        priority, number = as_in_version_1(priority, number), 0
                    if until:
                        budget_us = left_us(budget_us)
                    begin = at + HEADER
                    base = begin + described
                    layout = layout_of(data[begin:base])
                    body = layout.nbytes if kind == INFER else PLACE
                    if HEADER + described + body != length:
                        raise FrameRefused(Violation.MALFORMED, "a query has another length")
                    tensors: Chunk = data
                    if kind == INFER_LENT:
                        tensors, base = self._lent(unpack_place(data, base)[0], layout), 0
                    self._submit(
                        variant, rows, budget_us, layout, tensors, base, self, request_id, priority,
                        self._clients[number],
                    )  # fmt: skip
                else:
                    length = int.from_bytes(data[at : at + 4], "little")
                    self._on_small(data[at : at + length])
        except (ModellessError, StructError, IndexError) as error:
            self._refuse(error)
            return
        if self._server.followed and not self._server.looking:
            self._server.look()
        if stepwise and begins:
            self.data_received(b"")

    def _lent(self, begin: int, layout: Layout) -> memoryview:
        """The bytes of tensors in the memory that the other end lends."""
        end = begin + layout.nbytes
        if self._block is None or begin % 8 or end > len(self._block):
            raise FrameRefused(Violation.MALFORMED, "a query's tensors lie in no shared memory")
        return self._block[begin:end]

    # -- handshake and control --------------------------------------------------------------------

    def _on_small(self, frame: bytes) -> None:
        _, kind, _, version, request_id = unpack_prefix(frame)
        payload = small_payload(frame)
        if not self.known:
            if kind != FrameKind.AUTH:
                raise FrameRefused(Violation.WRONG_KIND, f"{kind} before the handshake was over")
            if not OLDEST <= version <= VERSION:
                known = versions_words(OLDEST, VERSION)
                raise FrameRefused(
                    Violation.WRONG_VERSION, f"the other end speaks {version}, this worker {known}"
                )
            self._version = version
            self._authenticate(payload)
        elif kind == FrameKind.WITHDRAW:
            self._server.executor.withdraw(self, request_id)
        elif kind == FrameKind.JOINED:
            self._server.joined(decode(payload))
        elif kind == FrameKind.CLIENT:
            if len(self._clients) > MOST_CLIENTS:
                del self._clients[1:]  # the other end numbers them anew
            self._clients.append(self._server.client(decode(payload)))
        elif kind == FrameKind.FOLLOW:
            self.wanted = decode_wanted(payload)
            self._server.follow()
        elif kind == FrameKind.LEND:
            self._borrow(request_id, decode(payload))
        elif kind in CONTROLS:
            if len(self._controls) >= MAX_CONTROLS:
                raise FrameRefused(Violation.TOO_MANY, "control messages")
            if kind == FrameKind.DRAIN:
                self.finished = True
                self._server.notice()
            task = asyncio.create_task(self._control(FrameKind(kind), request_id, decode(payload)))
            self._controls.add(task)
            task.add_done_callback(self._controls.discard)
        else:
            raise FrameRefused(Violation.WRONG_KIND, str(kind))

    def _borrow(self, request_id: int, offer: dict[str, Any]) -> None:
        """Map the block that the other end lends; it has one."""
        if self._block is not None:
            raise FrameRefused(Violation.TOO_MANY, "blocks of shared memory")
        answer, code = b"{}", 0
        try:
            self._block = borrow(self._transport.get_extra_info("socket"), offer)
        except ModellessError as error:
            answer, code = encode_error(error), 1
        self.send(small_frame(FrameKind.ANSWER, answer, request_id=request_id, code=code))

    def _authenticate(self, payload: bytes) -> None:
        secret, worker, version = self._server.secret, offer(self._server.worker), self._version
        theirs, proof = payload[:NONCE], payload[NONCE:]
        expected = prove(secret, b"client", version, self._nonce, theirs, worker)
        if len(theirs) != NONCE or not hmac.compare_digest(proof, expected):
            raise FrameRefused(Violation.UNAUTHENTICATED)
        self.known = True
        self.tag = theirs[:TAG]
        self._splitter.limit = self._server.max_frame
        self._splitter.stepwise = False
        if self._timer is not None:
            self._timer.cancel()
        own = prove(secret, b"worker", version, theirs, self._nonce, worker)
        self.send(small_frame(FrameKind.AUTH_OK, own, version=version))
        self.send(small_frame(FrameKind.STATUS, self._server.status()))

    async def _control(self, kind: FrameKind, request_id: int, message: dict[str, Any]) -> None:
        try:
            answer, code = await self._server.control(kind, message), 0
        except ModellessError as error:
            answer, code = encode_error(error), 1
        except Exception as error:
            sparing.error(kind.name, error, "%s failed", kind.name)
            answer, code = encode_error(Internal(f"{kind.name} failed: {error!r}")), 1
        self.send(small_frame(FrameKind.ANSWER, answer, request_id=request_id, code=code))

    # -- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Send what is waiting, then close."""
        if not self._closed:
            self._outbox.flush()
            self._closed = True
            self._transport.close()

    def _too_late(self) -> None:
        if not self.known:
            self._refuse(FrameRefused(Violation.HANDSHAKE_TIMEOUT))

    def _slow(self) -> None:
        self._refuse(FrameRefused(Violation.SLOW_PEER))

    def _refuse(self, error: Exception) -> None:
        sparing.warning("", "closing a connection: %s", error)
        self._closed = True
        self._transport.abort()
