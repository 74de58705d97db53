"""The tensor channel, from the side of gateway and controller: one connection to one worker.

Both sides prove that they know the cluster secret before anything else is said. A query costs no
future and no task: ``infer`` writes, and the reply calls back.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from itertools import count
from struct import error as StructError
from time import monotonic
from typing import Any, cast

from planner.types import ANYBODY, DEFAULT_PRIORITY, Client
from variants.errors import (
    DeadlineExceeded,
    ModellessError,
    Overloaded,
    ReplicaLost,
    Unauthenticated,
)
from workers.channel.address import connect
from workers.channel.frames import (
    HANDSHAKE_LIMIT,
    HEADER,
    MOST_CLIENTS,
    VERSION,
    FrameKind,
    FrameRefused,
    Splitter,
    Violation,
    bytes_of,
    infer_frame,
    layout_of,
    small_frame,
    small_payload,
    unpack_prefix,
    unpack_reply,
)
from workers.channel.handshake import ClientHandshake, NoCommonVersion
from workers.channel.lending import SHARED_FROM, Lending
from workers.channel.messages import (
    decode,
    decode_checked,
    decode_error,
    decode_history,
    decode_replica,
    decode_status,
    encode,
)
from workers.channel.outbox import Outbox
from workers.channel.reply import Reply, leaving_reply, lost_reply
from workers.channel.round_trip import RoundTrip
from workers.channel.shared_clock import LONGEST_US, clock_name, moment_us
from workers.channel.shared_memory import CAN_SHARE, Budget
from workers.process.last_batch import Evidence, query_entry, read_last, read_running
from workers.runtimes.protocol import Tensor
from workers.types import Checked, LoadSpec, Occurrence, ReplicaStatus, ReplyCode, WorkerStatus

log = logging.getLogger(__name__)

SILENCE_S = 15.0
"""A worker reports once a second; one that says nothing for this long is taken for lost."""


class WorkerConnection(asyncio.Protocol):
    """An authenticated connection. Make one with ``open``."""

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
        self.round_trip = RoundTrip()
        self._elsewhere = False
        """Whether the worker is at another address than this process."""
        self._measured: tuple[int, float] | None = None
        """The frame whose answer is waited for, and when it was sent."""
        self._heard_s = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls, address: str, secret: bytes, *,
        on_status: Callable[[WorkerStatus], None], on_lost: Callable[[str], None],
        timeout_s: float = 2.0, max_frame_mib: int = 64, shared_from: int = SHARED_FROM,
        budget: Budget | None = None,
    ) -> "WorkerConnection":  # fmt: skip
        """Connect to ``unix:/path`` or ``tcp:host:port`` and return once a first status is there.

        ``on_status`` is called for every report, the first included; ``on_lost`` once, when a
        connection that was opened ends for another reason than ``close``. Tensors of
        ``shared_from`` bytes are lent to a worker of this machine, smaller ones are sent, and all
        where ``budget``, that of this process, leaves no memory for it.

        Raises:
            NoCommonVersion: a worker answers that speaks other versions of the channel.
            ReplicaLost: no worker answers there, or not in time, or in another way.
            Unauthenticated: one side does not know the other's secret.
        """
        connection = cls(address, secret, on_status, on_lost, max_frame_mib, shared_from, budget)
        try:
            async with asyncio.timeout(timeout_s):
                await connect(address, connection)
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

    def infer(
        self, variant: int, rows: int, budget_us: int, tensors: Sequence[Tensor],
        on_reply: Callable[[Reply], None], priority: int = DEFAULT_PRIORITY,
        client: Client = ANYBODY,
    ) -> int:  # fmt: skip
        """Send a query and return its id. ``on_reply`` is called exactly once, never from here.

        Args:
            variant: the number of the task's variant (``workers.types.variant_id``).
            budget_us: what is left until the reply has to leave the worker, in µs.
            tensors: the inputs, each of shape (rows, ...).
            priority: 1 is the highest. It counts where not all can be served, as ``client`` does.

        Raises:
            TypeError: a tensor has a type that the channel does not carry.
        """
        request_id = next(self._ids) & 0xFFFFFFFF
        if self._lost or self._leaving:
            reply = lost_reply(self._reason) if self._lost else leaving_reply()
            self._loop.call_soon(on_reply, reply)
            return request_id
        budget_us = min(max(budget_us, 0), 0xFFFFFFFF)
        until = self._one_clock and budget_us <= LONGEST_US
        if until:
            budget_us = moment_us(budget_us)
        number = 0
        if self._version == 1:
            priority = 0 if priority == DEFAULT_PRIORITY else priority
        elif client is not ANYBODY:
            number = self._number_of(client)
        asked = (request_id, variant, rows, budget_us, tensors, priority, until, number)
        lent: bytes | None = None
        if self._lending is not None and bytes_of(tensors) >= self._shared_from:
            lent = self._lending.frame(*asked)
        chunks = infer_frame(*asked) if lent is None else [lent]
        self._pending[request_id] = on_reply
        self._outbox.write(chunks)
        return request_id

    def _number_of(self, client: Client) -> int:
        """The number of a client on this connection, which the worker learns with its first query.

        Those that there may be are numbered anew when one more comes: others have no key any more.
        """
        number = self._clients.get(client)
        if number is None:
            if len(self._clients) >= MOST_CLIENTS:
                self._clients.clear()
            number = self._clients[client] = len(self._clients) + 1
            self._outbox.write([small_frame(FrameKind.CLIENT, encode(client._asdict()))])
        return number

    async def load(
        self,
        spec: LoadSpec,
        timeout_s: float,
        *,
        make_room: bool = False,
        waiting: bool = False,
        patience_s: float = 0.0,
        begin: bool = False,
        need: str = "",
    ) -> ReplicaStatus:
        """Load a variant and return once it is ready; a loaded one takes over share and latencies.

        Args:
            make_room: queries ask for it: what is worth less may be evicted.
            waiting: with ``make_room``: a query waits for this load.
            patience_s: how much later than at once the load may begin, for that query to be
                answered in time.
            begin: return when the load has begun, and its memory is reserved.
            need: with ``make_room``: what the query asks for, in words, for the worker's history.

        Raises:
            RuntimeFailed: it cannot be loaded.
            Overloaded: there is no room.
            Conflict: it is in quarantine.
            DeadlineExceeded: it took too long; it may become ready later.
            ReplicaLost: the connection ended.
        """
        message = encode(
            {
                "spec": spec, "make_room": make_room, "waiting": waiting,
                "patience_s": patience_s, "begin": begin, "need": need,
            }
        )  # fmt: skip
        return decode_replica(decode(await self._ask(FrameKind.LOAD, message, timeout_s)))

    async def unload(
        self, task: str, variant: str, timeout_s: float, *, seen: tuple[int, bool] | None = None
    ) -> bool:
        """Unload a variant once its queries are answered. One that is not loaded is no error.

        Args:
            seen: ``load_no`` and ``asked`` as they were when this was decided; what has been
                loaded anew or asked for since stays.

        Returns:
            Whether it is gone.

        Raises:
            DeadlineExceeded: it took too long; it goes on.
            ReplicaLost: the connection ended.
        """
        message = encode({"task": task, "variant": variant, "seen": seen})
        return (
            decode(await self._ask(FrameKind.UNLOAD, message, timeout_s)).get("gone") is not False
        )

    async def readmit(self, task: str, variant: str, timeout_s: float) -> None:
        """End the quarantine of a variant; one that is in none is no error.

        Raises:
            Conflict: its runtime is still being closed.
            DeadlineExceeded: it took too long.
            ReplicaLost: the connection ended.
        """
        message = encode({"task": task, "variant": variant})
        await self._ask(FrameKind.READMIT, message, timeout_s)

    async def check(self, task: str, variant: str, timeout_s: float) -> Checked:
        """Run a few lone batches of a variant, so that live latency knows what it takes.

        Raises:
            NotFound: it is not ready there.
            Overloaded: there was no time for it, or the worker is of a release that cannot.
            RuntimeFailed: it failed.
            DeadlineExceeded: it took too long; it goes on.
            ReplicaLost: the connection ended.
        """
        if not self._handshake.negotiated:
            raise Overloaded("a worker of an older release checks no profiles")
        message = encode({"task": task, "variant": variant})
        return decode_checked(await self._ask(FrameKind.CHECK, message, timeout_s))

    async def history(
        self, told: Collection[int], after: int, timeout_s: float
    ) -> list[Occurrence]:
        """Loads and evictions for queries that the worker still remembers, oldest first.

        Args:
            told: numbers of those that are stored for good; the worker forgets them.
            after: only those with a higher number are returned.

        Raises:
            DeadlineExceeded: it took too long.
            ReplicaLost: the connection ended.
        """
        message = encode({"told": list(told), "after": after})
        return decode_history(await self._ask(FrameKind.HISTORY, message, timeout_s))

    async def drain(self, timeout_s: float) -> None:
        """Make the worker refuse new queries, for good, and return once all others are answered.

        Raises:
            DeadlineExceeded: it took too long; it goes on.
            ReplicaLost: the connection ended.
        """
        await self._ask(FrameKind.DRAIN, b"{}", timeout_s)

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

    def joined(self, task: str, variant: str, queries: int, *, waits: bool) -> None:
        """Tell that more queries found a variant missing than the one that its load was for.

        There is no answer.

        Args:
            waits: they waited for the load; else they could not.
        """
        named = {"task": task, "variant": variant}
        self._tell(FrameKind.JOINED, encode({**named, "queries": queries, "waiting": waits}))

    def _tell(self, kind: FrameKind, message: bytes) -> int:
        """Send what needs no answer, what comes is not looked at; returns its id."""
        request_id = next(self._ids) & 0xFFFFFFFF
        self._outbox.write([small_frame(kind, message, request_id=request_id)])
        return request_id

    def hand_back(self) -> None:
        """Answer the queries as lost that the worker has and does not run: it says nothing.

        Where it cannot be read what it runs, none: a query that hangs its worker must not be tried
        on the next one. The connection stays.
        """
        running = read_running(self.status.page) if self.status.page else None
        if running is None:
            return
        tag = self._handshake.tag
        for request_id in tuple(self._pending):
            if not running.company_of(query_entry(tag, request_id)):
                on_reply = self._pending.pop(request_id, None)
                if on_reply is not None:
                    _call(on_reply, lost_reply("it does not answer"))

    def close(self) -> None:
        """End the connection. Queries without a reply get ``LOST``; ``on_lost`` is not called."""
        self._end("closed", announce=False)

    # -- control ----------------------------------------------------------------------------------

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
                f"worker at {self.address} did not finish {kind.name} within {timeout_s:g} s"
            ) from error
        finally:
            self._answers.pop(request_id, None)

    # -- what arrives -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        ends = [transport.get_extra_info(name) for name in ("sockname", "peername")]
        # TCP has a pair of address and port for each end, and equal addresses are one machine's.
        tcp = all(isinstance(end, tuple) for end in ends)
        self._elsewhere = tcp and ends[0][0] != ends[1][0]
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
                if data[at + 4] == FrameKind.REPLY and self._state is FrameKind.STATUS:
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
        if self._lending is not None and self._lending.block is not None:
            self._lending.returned(request_id)
        on_reply = self._pending.pop(request_id, None)
        if on_reply is not None:
            reply = Reply(
                _REPLY_CODES[code], batch_size, queue_us, run_us, backlog_us, message, outputs
            )
            _call(on_reply, reply)

    def _on_small(self, frame: bytes) -> None:
        _, kind, code, version, request_id = unpack_prefix(frame)
        payload = small_payload(frame)
        if self._state is FrameKind.STATUS:
            if kind == FrameKind.STATUS:
                self._take_status(payload)
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
            # Only the proofs were on their way: one side did not accept the other's.
            refused = self._state is FrameKind.AUTH_OK
            self._ready.set_exception(Unauthenticated(gone) if refused else ReplicaLost(gone))
            self._ready.exception()
        pending, self._pending = self._pending, {}
        page = self.status.page if opened and announce and pending else ""
        last = read_last(page, self.status.pid) if page else None
        tag = self._handshake.tag
        for request_id, on_reply in pending.items():
            ran = last.company_of(query_entry(tag, request_id)) if last is not None else 0
            _call(on_reply, lost_reply(reason, ran, last.evidence if last else Evidence.NONE))
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ReplicaLost(f"worker at {self.address} is lost: {reason}"))
        if opened and announce:
            _call(self._on_lost, reason)
        if self._lending is not None:
            self._lending.close()


_REPLY_CODES = tuple(ReplyCode)


def _call(callback: Callable[[Any], None], value: object) -> None:
    """Call back; a mistake there must not break the connection for all others."""
    try:
        callback(value)
    except Exception:
        log.exception("a callback of the tensor channel raised")
