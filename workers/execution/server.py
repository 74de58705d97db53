"""The tensor channel, from the worker's side: it listens, proves itself, and takes queries in."""

import asyncio
import hmac
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from math import inf
from pathlib import Path
from struct import error as StructError
from typing import Any, cast

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
from workers.channel.messages import decode, encode_error, named
from workers.channel.outbox import Outbox
from workers.channel.queue_news import Wanted, decode_wanted, encode_news
from workers.channel.shared_clock import left_us
from workers.channel.shared_memory import borrow
from workers.execution.executor import Executor
from workers.types import ASKED_S, variant_id

log = logging.getLogger(__name__)

HANDSHAKE_S = 2.0
MAX_CONNECTIONS = 256
MAX_UNPROVEN = 32
"""Connections that have not proved yet that they know the secret."""
LOOKS = 5
"""So often within the time after which a peer is to be told of the queue it is looked whether that
has passed."""
MAX_CONTROLS = 64
"""Control messages of one connection that are being worked on."""
MOST_JOINED = 1_000_000
"""Queries that one message may say to have waited for a load."""
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


class Peer(asyncio.Protocol):
    """One connection to a gateway or a controller."""

    def __init__(self, server: "ChannelServer") -> None:
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
        except Exception:  # a mistake of the queue must not keep answers back
            log.exception("telling of the queue")
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
            log.exception("%s failed", kind.name)
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
        log.warning("closing a connection: %s", error)
        self._closed = True
        self._transport.abort()


class ChannelServer:
    """Listens on a Unix socket (``unix``) or on a free port of an address (``tcp:HOST``)."""

    def __init__(
        self, executor: Executor, worker: str, secret: bytes, max_frame_mib: int,
        status: Callable[[], bytes], control: Control,
    ) -> None:  # fmt: skip
        self.executor = executor
        self.worker = worker.encode()
        self.secret = secret
        self.max_frame = max_frame_mib * 2**20
        self.status = status
        self.control = control
        self.peers: set[Peer] = set()
        self.time_s = asyncio.get_running_loop().time
        self.followed = False
        """Whether any peer wants to be told of the queue by the clock."""
        self.looking = False
        """Whether it will be looked whom to tell, without more queries."""
        self._seen = 0
        """Queries that had come when that was looked last."""
        self._active_s = -inf
        """When there was something to do last."""
        self._asked: dict[Peer, tuple[int, float]] = {}
        """Of peers that have sent queries: how many, and when it was seen that there were more."""
        self._clients: dict[Client, Client] = {}
        """One value for each, whoever tells of it: they are compared by identity."""
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self._noticed = asyncio.Event()

    async def listen(self, where: str, run_dir: str) -> str:
        """Open the socket and return its address."""
        loop = asyncio.get_running_loop()
        if where == "unix":
            self._path = Path(f"{run_dir}/w-{secrets.token_hex(6)}.sock")
            listener = _bind(self._path)
            self._server = await loop.create_unix_server(lambda: Peer(self), sock=listener)
            return f"unix:{self._path}"
        scheme, _, host = where.partition(":")
        if scheme != "tcp" or not host:
            raise Internal(f"a worker listens on 'unix' or 'tcp:HOST', not {where!r}")
        self._server = await loop.create_server(lambda: Peer(self), host.strip("[]"), 0)
        return f"tcp:{host}:{self._server.sockets[0].getsockname()[1]}"

    async def reopen(self) -> bool:
        """Listen again at the same path where the socket's file was removed, such as by what cleans
        up below ``/tmp``; connections that are there stay. Whether that was needed.

        Raises:
            Internal: that cannot be.
        """
        if self._path is None or self._server is None or self._path.exists():
            return False
        before, listener = self._server, _bind(self._path)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: Peer(self), sock=listener)
        before.close()
        return True

    def check(self) -> None:
        """Raise ``Internal`` when no connection can be made any more."""
        if self._server is None or not self._server.is_serving():
            raise Internal("the worker's socket is closed")
        if self._path is not None and not self._path.exists():
            raise Internal(f"the worker's socket {self._path} was removed")

    def enter(self, peer: Peer) -> bool:
        """Whether there is room for one more connection."""
        unproven = sum(1 for other in self.peers if not other.known)
        if len(self.peers) >= MAX_CONNECTIONS or unproven >= MAX_UNPROVEN:
            return False
        self.peers.add(peer)
        return True

    def joined(self, message: dict[str, Any]) -> None:
        """Count queries that found a variant missing, as a gateway tells (its client's ``joined``).

        Here and at once: many such messages may come together.
        """
        queries = message.get("queries")
        if type(queries) is not int or not 0 <= queries <= MOST_JOINED:
            raise FrameRefused(Violation.MALFORMED, "queries that joined a load")
        variant, waits = variant_id(*named(message)), message.get("waiting") is True
        self.executor.usage.urgency.missed(variant, waits=waits, queries=queries)

    def client(self, message: dict[str, Any]) -> Client:
        """A client that queries of a connection come from (its client's ``infer``)."""
        name, weight = message.get("name"), message.get("weight")
        if not isinstance(name, str) or not isinstance(weight, float) or not weight > 0:
            raise FrameRefused(Violation.MALFORMED, "a client")
        if len(self._clients) >= 4 * MOST_CLIENTS:
            self._clients.clear()
        client = Client(name, weight)
        return self._clients.setdefault(client, client)

    def announce(self) -> None:
        """Send the status to every connected gateway and controller."""
        known = [peer for peer in self.peers if peer.known]
        if known:
            frame = small_frame(FrameKind.STATUS, self.status())
            for peer in known:
                peer.send(frame)

    # -- what is told of the queue ----------------------------------------------------------------

    def follow(self) -> None:
        """Peers have come or gone, or want to be told of the queue at other times."""
        self.followed = any(peer.wanted.every_s for peer in self.peers)

    def look(self) -> None:
        """Tell those of the queue who have heard nothing for long, as long as there is any news."""
        now_s = self.time_s()
        seen = sum([peer.queries for peer in self.peers])
        busy = seen != self._seen or self.executor.in_flight > 0
        self._seen = seen
        if busy:
            self._active_s = now_s
        following = [peer for peer in self.peers if peer.wanted.every_s]
        for peer in following:
            if peer.told_s < self._active_s and now_s - peer.told_s >= peer.wanted.every_s:
                peer.tell()
        self.looking = busy or any(peer.told_s < self._active_s for peer in following)
        if self.looking and following:
            every_s = min(peer.wanted.every_s for peer in following)
            asyncio.get_running_loop().call_later(every_s / LOOKS, self.look)
        else:
            self.looking = False

    def askers(self) -> int:
        """How many connections have sent queries lately, as far as is seen whenever this is
        asked."""
        now_s = self.time_s()
        asked = {
            peer: (peer.queries, now_s if peer.queries != count else at_s)
            for peer in self.peers
            for count, at_s in (self._asked.get(peer, (0, -inf)),)
        }
        self._asked = asked
        return sum(now_s - at_s <= ASKED_S for _, at_s in asked.values())

    def notice(self) -> None:
        """A peer has left, or has said that no more queries follow."""
        self._noticed.set()

    async def finished(self) -> None:
        """Return once every peer that is still there has said that no more queries follow.

        They say so when they hear that the worker leaves. Only then may it close: a query that is
        on its way is refused, and asked elsewhere, and not lost.
        """
        while not all(peer.finished for peer in self.peers if peer.known):
            self._noticed.clear()
            await self._noticed.wait()

    def close(self) -> None:
        """Stop listening, close all connections, remove the socket."""
        if self._server is not None:
            self._server.close()
        for peer in tuple(self.peers):
            peer.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _bind(path: Path) -> socket.socket:
    """A bound Unix socket that only its owner can reach from the moment it exists."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
    except OSError as error:
        listener.close()
        raise Internal(f"the worker cannot listen on {path}: {error}") from error
    listener.setblocking(False)
    return listener
