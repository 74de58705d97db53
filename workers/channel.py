"""The tensor channel, from the side of gateway and controller: one connection to one worker.

The worker is proved to know the cluster secret, and so are we, before anything else is said. A
query costs no future and no task: ``infer`` writes, and the reply calls back.
"""

import asyncio
import hmac
import logging
import secrets
from collections.abc import Callable, Sequence
from itertools import count
from struct import error as StructError
from typing import Any, NamedTuple, cast

from variants.errors import DeadlineExceeded, ModellessError, ReplicaLost, Unauthenticated
from workers.frames import (
    HANDSHAKE_LIMIT,
    HEADER,
    VERSION,
    FrameRefused,
    Kind,
    Splitter,
    Violation,
    infer_frame,
    layout_of,
    small_frame,
    small_payload,
    unpack_prefix,
    unpack_reply,
)
from workers.messages import decode, decode_error, decode_replica, decode_status, encode
from workers.outbox import Outbox
from workers.runtime import Tensor
from workers.types import LoadSpec, ReplicaStatus, ReplyCode, WorkerStatus

log = logging.getLogger(__name__)

NONCE = 32
SILENCE_S = 15.0
"""A worker reports once a second; one that says nothing for this long is taken for lost."""


class Reply(NamedTuple):
    """How a query ended at the worker. ``outputs`` are read-only views; only ``OK`` has any."""

    code: ReplyCode
    batch_size: int
    queue_us: int
    run_us: int
    backlog_us: int
    message: str
    outputs: list[Tensor]


def prove(secret: bytes, direction: bytes, first: bytes, second: bytes, worker: bytes) -> bytes:
    """What one side sends to show that it knows the secret. Each direction has its own."""
    text = b"\0".join((b"modelless", direction, bytes([VERSION]), first, second, worker))
    return hmac.digest(secret, text, "sha256")


class WorkerConnection(asyncio.Protocol):
    """An authenticated connection. Make one with ``open``."""

    status: WorkerStatus
    """The latest report."""

    def __init__(
        self, address: str, secret: bytes, on_status: Callable[[WorkerStatus], None],
        on_lost: Callable[[str], None], max_frame_mib: int,
    ) -> None:  # fmt: skip
        self.address = address
        self._secret = secret
        self._on_status = on_status
        self._on_lost = on_lost
        self._max_frame = max_frame_mib * 2**20
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._splitter = Splitter(HANDSHAKE_LIMIT)
        self._state = Kind.HELLO
        self._nonce = secrets.token_bytes(NONCE)
        self._expected = b""
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox
        self._pending: dict[int, Callable[[Reply], None]] = {}
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._ids = count(1)
        self._reason = ""
        self._lost = False
        self._heard_s = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls, address: str, secret: bytes, *,
        on_status: Callable[[WorkerStatus], None], on_lost: Callable[[str], None],
        timeout_s: float = 2.0, max_frame_mib: int = 64,
    ) -> "WorkerConnection":  # fmt: skip
        """Connect to ``unix:/path`` or ``tcp:host:port`` and return once a first status is there.

        ``on_status`` is called for every report, the first included; ``on_lost`` once, when a
        connection that was opened ends for another reason than ``close``.

        Raises:
            ReplicaLost: nobody answers there, or not in time, or in another way.
            Unauthenticated: one side does not know the other's secret.
        """
        connection = cls(address, secret, on_status, on_lost, max_frame_mib)
        try:
            async with asyncio.timeout(timeout_s):
                await _connect(address, connection)
                await connection._ready
        except TimeoutError as error:  # an OSError too
            connection.close()
            raise ReplicaLost(
                f"worker at {address} did not answer within {timeout_s:g} s"
            ) from error
        except (OSError, ValueError) as error:
            raise ReplicaLost(f"worker at {address} cannot be reached: {error}") from error
        except asyncio.CancelledError:
            connection.close()
            raise
        return connection

    @property
    def in_flight(self) -> int:
        """Queries without a reply."""
        return len(self._pending)

    def infer(
        self, variant: int, rows: int, budget_us: int, tensors: Sequence[Tensor],
        on_reply: Callable[[Reply], None],
    ) -> int:  # fmt: skip
        """Send a query and return its id. ``on_reply`` is called exactly once, never from here.

        Raises:
            TypeError: a tensor has a type that the channel does not carry.
        """
        request_id = next(self._ids) & 0xFFFFFFFF
        if self._lost:
            self._loop.call_soon(on_reply, _lost(self._reason))
            return request_id
        budget_us = min(max(budget_us, 0), 0xFFFFFFFF)
        chunks = infer_frame(request_id, variant, rows, budget_us, tensors)
        self._pending[request_id] = on_reply
        self._outbox.write(chunks)
        return request_id

    async def load(
        self, spec: LoadSpec, timeout_s: float, *, make_room: bool = False, force: bool = False
    ) -> ReplicaStatus:
        """Load a variant and return once it is ready; a loaded one takes over share and latencies.

        Args:
            make_room: variants that are idle may be evicted for it.
            force: lift a quarantine.

        Raises:
            RuntimeFailed: it cannot be loaded.
            Overloaded: there is no room.
            Conflict: it is in quarantine.
            DeadlineExceeded: it took too long; it may become ready later.
            ReplicaLost: the connection ended.
        """
        message = encode({"spec": spec, "make_room": make_room, "force": force})
        return decode_replica(decode(await self._ask(Kind.LOAD, message, timeout_s)))

    async def unload(self, task: str, variant: str, timeout_s: float) -> None:
        """Unload a variant once its queries are answered; one that is not loaded is no error.

        Raises:
            DeadlineExceeded: it took too long; it goes on.
            ReplicaLost: the connection ended.
        """
        await self._ask(Kind.UNLOAD, encode({"task": task, "variant": variant}), timeout_s)

    async def drain(self, timeout_s: float) -> None:
        """Make the worker refuse new queries, for good, and return once all others are answered.

        Raises:
            DeadlineExceeded: it took too long; it goes on.
            ReplicaLost: the connection ended.
        """
        await self._ask(Kind.DRAIN, b"{}", timeout_s)

    def close(self) -> None:
        """End the connection. Queries without a reply get ``LOST``; ``on_lost`` is not called."""
        self._end("closed", announce=False)

    # -- control ----------------------------------------------------------------------------------

    async def _ask(self, kind: Kind, payload: bytes, timeout_s: float) -> bytes:
        if self._lost:
            raise ReplicaLost(f"worker at {self.address} is lost: {self._reason}")
        request_id = next(self._ids) & 0xFFFFFFFF
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._answers[request_id] = answer
        self._outbox.write([small_frame(kind, payload, request_id=request_id)])
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"worker at {self.address} did not finish {kind.name} within {timeout_s:g} s"
            ) from error
        finally:
            self._answers.pop(request_id, None)

    # -- what arrives -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._outbox = Outbox(self._transport, self._max_frame, self._slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc) if exc else "the worker closed the connection")

    def data_received(self, data: bytes) -> None:
        if self._lost:
            return
        self._heard_s = self._loop.time()
        stepwise = self._splitter.stepwise
        try:
            data, begins = self._splitter.feed(data)
            for at in begins:
                if data[at + 4] == Kind.REPLY and self._state is Kind.STATUS:
                    self._on_reply(data, at)
                else:
                    length = int.from_bytes(data[at : at + 4], "little")
                    self._on_small(data[at : at + length])
        except (ModellessError, StructError) as error:
            self._refuse(error)
            return
        if stepwise and begins:
            self.data_received(b"")

    def pause_writing(self) -> None:
        self._outbox.pause()

    def resume_writing(self) -> None:
        self._outbox.resume()

    def _on_reply(self, data: bytes, at: int) -> None:
        (length, _, code, described, request_id,
         batch_size, queue_us, run_us, backlog_us, said) = unpack_reply(data, at)  # fmt: skip
        begin = at + HEADER
        outputs: list[Tensor] = []
        message = ""
        if code == 0:
            base = begin + described
            layout = layout_of(data[begin:base])
            if HEADER + described + layout.nbytes != length:
                raise FrameRefused(Violation.MALFORMED, "a reply has another length than it says")
            outputs = layout.tensors(data, base)
        else:
            if HEADER + said > length or code > ReplyCode.QUARANTINED:
                raise FrameRefused(Violation.MALFORMED, "a refusal's message ends early")
            message = data[begin : begin + said].decode(errors="replace")
        on_reply = self._pending.pop(request_id, None)
        if on_reply is not None:
            reply = Reply(
                _REPLY_CODES[code], batch_size, queue_us, run_us, backlog_us, message, outputs
            )
            _call(on_reply, reply)

    def _on_small(self, frame: bytes) -> None:
        _, kind, code, version, request_id = unpack_prefix(frame)
        payload = small_payload(frame)
        if self._state is Kind.STATUS:
            if kind == Kind.STATUS:
                self._take_status(payload)
            elif kind == Kind.ANSWER:
                answer = self._answers.get(request_id)
                if answer is not None and not answer.done():
                    if code:
                        answer.set_exception(decode_error(payload))
                    else:
                        answer.set_result(payload)
            else:
                raise FrameRefused(Violation.WRONG_KIND, str(kind))
        elif kind != self._state:
            raise FrameRefused(Violation.WRONG_KIND, f"{kind} before the handshake was over")
        elif version != VERSION:
            raise FrameRefused(Violation.WRONG_VERSION, f"{version}, not {VERSION}")
        elif kind == Kind.HELLO:
            self._say_who(payload)
        elif not hmac.compare_digest(payload, self._expected):
            raise FrameRefused(Violation.UNAUTHENTICATED, "the worker does not know it")
        else:
            self._state = Kind.STATUS
            self._splitter.limit = self._max_frame
            self._splitter.stepwise = False

    def _say_who(self, payload: bytes) -> None:
        theirs, worker = payload[:NONCE], payload[NONCE:]
        proof = prove(self._secret, b"client", theirs, self._nonce, worker)
        self._expected = prove(self._secret, b"worker", self._nonce, theirs, worker)
        self._state = Kind.AUTH_OK
        self._outbox.write([small_frame(Kind.AUTH, self._nonce + proof)])

    def _take_status(self, payload: bytes) -> None:
        self.status = decode_status(payload)
        if not self._ready.done():
            self._watch = self._loop.call_later(SILENCE_S, self._listen)
            self._ready.set_result(None)
        _call(self._on_status, self.status)

    # -- the end ----------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Take a worker that has fallen silent for lost."""
        left_s = self._heard_s + SILENCE_S - self._loop.time()
        if left_s <= 0:
            self._refuse(FrameRefused(Violation.SILENT))
        else:
            self._watch = self._loop.call_later(left_s, self._listen)

    def _slow(self) -> None:
        self._refuse(FrameRefused(Violation.SLOW_PEER))

    def _refuse(self, error: Exception) -> None:
        log.warning("closing the connection to the worker at %s: %s", self.address, error)
        self._end(str(error))

    def _end(self, reason: str, announce: bool = True) -> None:
        if self._lost:
            return
        self._lost, self._reason = True, reason
        if self._watch is not None:
            self._watch.cancel()
        if self._transport is not None:
            self._transport.abort()
        opened = self._ready.done() and not self._ready.cancelled() and not self._ready.exception()
        if not self._ready.done():
            gone = f"worker at {self.address}: {reason}"
            # Nothing but our proof was on its way: it was not believed, or theirs was wrong.
            refused = self._state is Kind.AUTH_OK
            self._ready.set_exception(Unauthenticated(gone) if refused else ReplicaLost(gone))
            self._ready.exception()
        pending, self._pending = self._pending, {}
        for on_reply in pending.values():
            _call(on_reply, _lost(reason))
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ReplicaLost(f"worker at {self.address} is lost: {reason}"))
        if opened and announce:
            _call(self._on_lost, reason)


_REPLY_CODES = tuple(ReplyCode)


def _lost(reason: str) -> Reply:
    return Reply(ReplyCode.LOST, 0, 0, 0, 0, reason, [])


def _call(callback: Callable[[Any], None], value: object) -> None:
    """Call back; a mistake there must not break the connection for all others."""
    try:
        callback(value)
    except Exception:
        log.exception("a callback of the tensor channel raised")


async def _connect(address: str, protocol: WorkerConnection) -> None:
    loop = asyncio.get_running_loop()
    scheme, _, where = address.partition(":")
    if scheme == "unix" and where:
        await loop.create_unix_connection(lambda: protocol, where)
    elif scheme == "tcp" and ":" in where:
        host, _, port = where.rpartition(":")
        await loop.create_connection(lambda: protocol, host.strip("[]"), int(port))
    else:
        raise ValueError(f"an address is unix:/path or tcp:host:port, not {address!r}")
