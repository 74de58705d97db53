"""A session with one worker: the handshake, the frames that come, and the end.

Both sides prove that they know the cluster secret before anything else is said. What is asked of a
worker is in ``workers.channel.client``; here is what every question stands on: that its frame
leaves, that its reply finds who waits for it, and that nobody waits for a worker that is lost.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from itertools import count
from struct import error as StructError
from time import monotonic
from typing import Any, cast

from planner.types import Client, QueueNews
from variants.errors import DeadlineExceeded, ModellessError, ReplicaLost, Unauthenticated
from variants.slots import tuple_of
from workers.channel.frames import (
    HANDSHAKE_LIMIT,
    HEADER,
    VERSION,
    FrameKind,
    FrameRefused,
    Splitter,
    Violation,
    layout_of,
    small_frame,
    small_payload,
    unpack_prefix,
    unpack_reply,
)
from workers.channel.handshake import ClientHandshake, NoCommonVersion
from workers.channel.lending import SHARED_FROM, Lending
from workers.channel.messages import decode_error, decode_status, encode
from workers.channel.outbox import Outbox
from workers.channel.queue_news import decode_news
from workers.channel.reply import Reply, lost_reply
from workers.channel.round_trip import RoundTrip
from workers.channel.shared_clock import clock_name
from workers.channel.shared_memory import CAN_SHARE, Budget
from workers.process.ending import peer_of
from workers.process.last_batch import Evidence, query_entry, read_last
from workers.process.sparing_log import SparingLog
from workers.runtimes.protocol import Tensor
from workers.types import ReplyCode, WorkerStatus

sparing = SparingLog(logging.getLogger(__name__))

SILENCE_S = 15.0
"""A worker reports once a second; one that says nothing for this long is taken for lost."""

READ_BYTES = 256 * 1024
"""That are read at once, as by the event loop."""

_REPLY_CODES = tuple(ReplyCode)
_REPLY, _STATUS, _NO_EVIDENCE = int(FrameKind.REPLY), FrameKind.STATUS, Evidence.NONE


class WorkerSession(asyncio.Protocol):
    """What any use of a connection stands on; ``WorkerConnection`` says what it is used for.

    It ends once, for whatever reason: then every query without a reply is answered as lost.
    """

    status: WorkerStatus
    """The latest report."""

    def __init__(
        self, address: str, secret: bytes, on_status: Callable[[WorkerStatus], None],
        on_lost: Callable[[str], None], max_frame_mib: int, shared_from: int = SHARED_FROM,
        budget: Budget | None = None,
    ) -> None:  # fmt: skip
        self.address = address
        self._on_status = on_status
        self._on_lost = on_lost
        self._max_frame = max_frame_mib * 2**20
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._splitter = Splitter(HANDSHAKE_LIMIT)
        self._state = FrameKind.HELLO
        self._handshake = ClientHandshake(secret)
        self._version = 0
        """The one that is spoken, once the worker has said which it knows."""
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox
        self._number = -1
        """Of the file of its socket, while that is open."""
        self._pending: dict[int, Callable[[Reply], None]] = {}
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._clients: dict[Client, int] = {}
        """Those that the worker was told of, and their numbers."""
        self._ids = count(1)
        self._lost, self._reason = False, ""
        self._leaving = False
        """The worker has said that it leaves, and was told that no more queries follow."""
        self._one_clock = False
        """Whether the worker reads the same clock."""
        self._shared_from = shared_from
        self._budget = Budget() if budget is None else budget
        self._lending: Lending | None = None
        """Where the worker takes tensors in shared memory."""
        self._on_queue: Callable[[QueueNews], None] = lambda _: None
        """Told what the worker tells of its queue."""
        self.round_trip = RoundTrip()
        self._elsewhere = False
        """Whether the worker is at another address than this process."""
        self._measured: tuple[int, float] | None = None
        """The frame whose answer is waited for, and when it was sent."""
        self.peer_pid = 0
        """The worker's process as this machine numbers it; 0 where it is on another."""
        self._heard_s = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None

    @property
    def heard_s(self) -> float:
        """When the worker last said anything, by the event loop's clock."""
        return self._heard_s

    @property
    def return_ms(self) -> float:
        """How much of a budget the way takes: back, and there too where it is told as what is left
        when it arrives."""
        return self.round_trip.ms / 2 if self._one_clock else self.round_trip.ms

    def ping(self) -> int:
        """Have the worker say something, whatever it runs, as long as its event loop turns."""
        return self._tell(FrameKind.HISTORY, encode({"told": [], "after": 2**62}))

    def measure(self) -> None:
        """Have the round trip measured, unless that is under way, and again until it is known. It
        is none on one machine."""
        if self._elsewhere and self._measured is None and not self._lost:
            self.round_trip.lag.measure()
            sent_s = monotonic()
            self._measured = self.ping(), sent_s

    def _tell(self, kind: FrameKind, message: bytes) -> int:
        """Send what needs no answer, what comes is not looked at; returns its id."""
        request_id = next(self._ids) & 0xFFFFFFFF
        self._outbox.write([small_frame(kind, message, request_id=request_id)])
        return request_id

    async def _ask(self, kind: FrameKind, payload: bytes, timeout_s: float | None) -> bytes:
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
                f"worker at {self.address} did not finish {kind.name} within {timeout_s:,g} s"
            ) from error
        finally:
            self._answers.pop(request_id, None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        ends = [transport.get_extra_info(name) for name in ("sockname", "peername")]
        # TCP has a pair of address and port for each end, and equal addresses are one machine's.
        tcp = all(isinstance(end, tuple) for end in ends)
        self._elsewhere = tcp and ends[0][0] != ends[1][0]
        self._outbox = Outbox(self._transport, self._max_frame, self._slow)
        end = transport.get_extra_info("socket")
        self._number = -1 if end is None else end.fileno()
        self.peer_pid = peer_of(end)

    def connection_lost(self, exc: Exception | None) -> None:
        self._number = -1
        self._end(str(exc) if exc else "the worker closed the connection")

    def data_received(self, data: bytes) -> None:
        if self._lost:
            return
        self._heard_s = self._loop.time()
        stepwise = self._splitter.stepwise
        try:
            data, begins = self._splitter.feed(data)
            for at in begins:
                if data[at + 4] == _REPLY and self._state is _STATUS:
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

    def catch_up(self) -> None:
        """Send what waits for the end of this turn of the event loop, and take in the replies that
        have come since it began."""
        if self._number >= 0:
            self._outbox.send_now()
            if self._pending:
                self.hear()

    def hear(self) -> None:
        """Take in what has come and was not read yet; an end is left to the event loop."""
        if self._number < 0:
            return
        try:
            data = os.read(self._number, READ_BYTES)
        except OSError:  # mostly: nothing is there
            return
        if data:
            self.data_received(data)

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
        if self._lending is not None and self._lending.block is not None:
            self._lending.returned(request_id)
        on_reply = self._pending.pop(request_id, None)
        if on_reply is not None:
            fields = (
                _REPLY_CODES[code], batch_size, queue_us, run_us, backlog_us, message, outputs,
                _NO_EVIDENCE, bool(code and described),
            )  # fmt: skip
            call_back(on_reply, tuple_of(Reply, fields))

    def _on_small(self, frame: bytes) -> None:
        _, kind, code, version, request_id = unpack_prefix(frame)
        payload = small_payload(frame)
        if self._state is FrameKind.STATUS:
            if kind == FrameKind.STATUS:
                self._take_status(payload)
            elif kind == FrameKind.QUEUE:
                call_back(self._on_queue, decode_news(payload))
            elif kind == FrameKind.ANSWER:
                if self._measured is not None and self._measured[0] == request_id:
                    self._came_back()
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
        elif kind == FrameKind.HELLO:
            self._say_who(payload, version)
        elif version != self._version:
            raise FrameRefused(Violation.WRONG_VERSION, f"{version}, not {self._version}")
        elif not self._handshake.is_proof(payload):
            raise FrameRefused(Violation.UNAUTHENTICATED, "the worker does not know it")
        else:
            self._state = FrameKind.STATUS
            self._splitter.limit = self._max_frame
            self._splitter.stepwise = False

    def _came_back(self) -> None:
        """The answer is here to the frame by which the round trip is measured."""
        measured, self._measured = self._measured, None
        if measured is not None:
            self.round_trip.saw(1_000 * (monotonic() - measured[1]))
            if not self.round_trip.known:
                self.measure()

    def _say_who(self, hello: bytes, oldest: int) -> None:
        try:
            self._version, proof = self._handshake.answer(hello, oldest)
        except NoCommonVersion as error:
            # So the worker's log says as well who cannot talk to it.
            self._outbox.write([small_frame(FrameKind.AUTH, b"", version=VERSION)])
            self._outbox.flush()
            self._ready.set_exception(error)
            self._ready.exception()
            self._end(str(error), announce=False)
            return
        self._state = FrameKind.AUTH_OK
        self._outbox.write([small_frame(FrameKind.AUTH, proof, version=self._version)])

    def _take_status(self, payload: bytes) -> None:
        self.status = decode_status(payload)
        if not self._ready.done():
            self._one_clock = self.status.clock == clock_name() != ""
            near = CAN_SHARE and self.address.startswith("unix:")
            if near and self.status.borrows and self._budget.size:
                self._lending = Lending(self._ask, self._budget)
            self._watch = self._loop.call_later(SILENCE_S, self._listen)
            self._ready.set_result(None)
        if self._lending is not None:
            self._lending.reported()
        if self.status.draining and not self._leaving:
            # Whatever was sent before this arrives before it; the worker waits for it.
            self._leaving = True
            self._outbox.write([small_frame(FrameKind.DRAIN, b"{}", request_id=next(self._ids))])
        call_back(self._on_status, self.status)

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
        said = "closing the connection to the worker at %s: %s"
        sparing.warning(self.address, said, self.address, error)
        self._end(str(error))

    def _end(self, reason: str, announce: bool = True) -> None:
        if self._lost:
            return
        self._lost, self._reason = True, reason
        self._number = -1
        if self._watch is not None:
            self._watch.cancel()
        if self._transport is not None:
            self._transport.abort()
        opened = self._ready.done() and not self._ready.cancelled() and not self._ready.exception()
        if not self._ready.done():
            gone = f"worker at {self.address}: {reason}"
            # Only the proofs were on their way: one side did not accept the other's.
            refused = self._state is FrameKind.AUTH_OK
            self._ready.set_exception(Unauthenticated(gone) if refused else ReplicaLost(gone))
            self._ready.exception()
        pending, self._pending = self._pending, {}
        if opened and announce:
            # Before the queries: who tries them elsewhere knows by then that this one is gone.
            call_back(self._on_lost, reason)
        page = self.status.page if opened and announce and pending else ""
        last = read_last(page, self.status.pid) if page else None
        tag = self._handshake.tag
        for request_id, on_reply in pending.items():
            ran = last.company_of(query_entry(tag, request_id)) if last is not None else 0
            call_back(on_reply, lost_reply(reason, ran, last.evidence if last else Evidence.NONE))
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ReplicaLost(f"worker at {self.address} is lost: {reason}"))
        if self._lending is not None:
            self._lending.close()


def call_back(callback: Callable[[Any], None], value: object) -> None:
    """Call back; a mistake there must not break the connection for all others."""
    try:
        callback(value)
    except Exception as error:
        sparing.error("", error, "a callback of the tensor channel raised")
