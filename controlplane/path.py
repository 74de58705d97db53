"""The query path: from a parsed query to exactly one answer.

Everything on it is callbacks on one event loop: no task, future or timer per query. A query is
selected, sent to a worker and answered when the worker's reply arrives; a worker that refuses or
breaks is replaced once, within what is left of the deadline.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from itertools import chain
from random import getrandbits
from typing import Protocol

import orjson

from controlplane.http_errors import error_body, error_headers, request_id, status_of
from controlplane.metrics import Counters
from controlplane.query import Asked, parse_v1, parse_v2
from controlplane.replies import Used, encode_v1, encode_v2
from planner.following import Patience, choose
from planner.routes import EMPTY, RouteTable
from planner.types import Candidate, Choice, Query, Refusal, RefusalCode, Snapshot, WorkerView
from variants.errors import (
    Cold,
    Conflict,
    DeadlineExceeded,
    Internal,
    InvalidInput,
    ModellessError,
    NotFound,
    Overloaded,
    ReplicaLost,
    SloInfeasible,
    TaskNotFound,
)
from variants.types import Task, TaskName, WorkerId
from workers.channel import SILENCE_S, Reply, WorkerConnection
from workers.types import ReplyCode, variant_id

log = logging.getLogger(__name__)

RETURN_MS = 0.2
"""Kept back from what a worker may use: the reply's way home and its encoding."""
GRACE_MS = 180.0
"""How long past its deadline a best-effort query may be answered (the contract: 250, of which the
guard may take two of its periods)."""
GUARD_MS = 20.0
"""Period of the guard that answers what nobody answered."""
MAX_IN_FLIGHT = 50_000
JSON = b"content-type: application/json\r\n"
MAX_CLASSES = 10_000

Respond = Callable[[int, bytes, bytes], None]
"""Status, body, and header lines (each ending in CRLF) but the length, to the client's socket."""

_RETRY = frozenset(
    {
        ReplyCode.OVERLOADED,
        ReplyCode.COLD,
        ReplyCode.DRAINING,
        ReplyCode.QUARANTINED,
        ReplyCode.LOST,
    }
)
_OK = ReplyCode.OK


def monotonic_ms() -> float:
    return time.monotonic() * 1000


class Loader(Protocol):
    """Loads a variant on a worker when a query asks for it."""

    def __call__(self, candidate: Candidate, worker: WorkerId) -> "asyncio.Future[None]":
        """Start the load, or join the one under way.

        The future ends when the variant is ready, or with the ``ModellessError`` that prevented it.
        """


class QueryPath:
    """Answers queries from an in-memory snapshot and open connections to workers.

    Whoever owns it keeps ``snapshot``, ``routes``, ``tasks`` and ``connections`` current.
    """

    def __init__(self, *, loader: Loader, clock_ms: Callable[[], float] = monotonic_ms) -> None:
        self.snapshot = Snapshot(revision=0, tasks={}, workers={})
        self.routes: RouteTable = EMPTY
        self.patience = Patience()
        self.tasks: Mapping[TaskName, Task] = {}
        self.connections: dict[WorkerId, WorkerConnection] = {}
        self.counters = Counters()
        self.demand: dict[tuple[TaskName, float, float | None], int] = {}
        """Rows asked since it was last taken: by task, latency SLO and floor."""
        self.load = loader
        self.clock_ms = clock_ms
        self.ids: dict[tuple[str, str], int] = {}
        self._guard_handle: asyncio.TimerHandle | None = None
        self._wheel: dict[int, set[InFlight]] = {}

    # -- entry ----------------------------------------------------------------------------------

    def handle_v1(
        self,
        body: bytes | bytearray,
        received_ms: float,
        respond: Respond,
        given_id: bytes | None = None,
    ) -> None:
        """Answer a ``POST /v1/query``; ``given_id`` is the caller's ``X-Request-Id``."""
        try:
            asked = parse_v1(body, self.tasks, received_ms, getrandbits(32))
            self.start(asked, respond, given_id)
        except Exception as error:
            self.fail(error, respond, given_id=given_id)

    def handle_v2(
        self,
        task: str,
        pinned: str | None,
        body: bytes | bytearray,
        json_header: bytes | None,
        received_ms: float,
        respond: Respond,
        given_id: bytes | None = None,
    ) -> None:
        """Answer a ``POST /v2/models/{task}[/versions/{variant}]/infer``.

        ``json_header`` is the header ``Inference-Header-Content-Length``.
        """
        try:
            draw = getrandbits(32)
            asked = parse_v2(body, task, pinned, self.tasks, received_ms, draw, json_header)
            self.start(asked, respond, given_id)
        except Exception as error:
            self.fail(error, respond, given_id=given_id)

    def start(self, asked: Asked, respond: Respond, given_id: bytes | None = None) -> None:
        """Take responsibility for a query: ``respond`` is called exactly once from now on."""
        counters = self.counters
        query = asked.query
        if counters.in_flight >= MAX_IN_FLIGHT:
            full = Overloaded(f"{MAX_IN_FLIGHT} queries are in flight through this gateway.")
            self.fail(full, respond, query.task, given_id)
            return
        counters.in_flight += 1
        flight = InFlight(self, asked, respond, given_id)
        self._guard(flight)
        key = (query.task, query.latency_ms, query.accuracy)
        demand = self.demand
        if key in demand or len(demand) < MAX_CLASSES:
            demand[key] = demand.get(key, 0) + query.rows
        try:
            flight.dispatch(query)
        except Exception as error:
            flight.fail(error)

    def fail(
        self,
        error: Exception,
        respond: Respond,
        task: str = "",
        given_id: bytes | None = None,
    ) -> None:
        """Answer with an error; one that is not ours is logged and shown as an id only."""
        id_ = request_id(given_id)
        if not isinstance(error, ModellessError) or isinstance(error, Internal):
            log.error("request %s failed", id_, exc_info=error)
        code = error.code if isinstance(error, ModellessError) else "INTERNAL"
        self.counters.task(task).failed(code)
        body = orjson.dumps(error_body(error, id_))
        headers = b"%sx-request-id: %s\r\n%s" % (JSON, id_.encode(), header_lines(error))
        respond(status_of(error), body, headers)

    def take_demand(self) -> dict[tuple[TaskName, float, float | None], int]:
        taken, self.demand = self.demand, {}
        return taken

    def id_of(self, task: str, variant: str) -> int:
        key = (task, variant)
        found = self.ids.get(key)
        if found is None:
            found = self.ids[key] = variant_id(task, variant)
        return found

    # -- the guard ------------------------------------------------------------------------------

    def _guard(self, flight: "InFlight") -> None:
        """See that a query is answered by its deadline and the grace, give or take one period.

        A wheel of sets instead of a timer per query: one that is answered in time, as nearly all
        are, costs one addition and one removal.
        """
        bucket = self._wheel.get(flight.slot)
        if bucket is None:
            self._wheel[flight.slot] = {flight}
        else:
            bucket.add(flight)
        if self._guard_handle is None:
            self._guard_handle = self._later(GUARD_MS / 1000, self._sweep)

    def unguard(self, flight: "InFlight") -> None:
        bucket = self._wheel.get(flight.slot)
        if bucket is not None:
            bucket.discard(flight)
            if not bucket:  # a deadline may be an hour away, and there are many moments in an hour
                del self._wheel[flight.slot]

    def _sweep(self) -> None:
        now_slot = int(self.clock_ms() / GUARD_MS)
        due = [self._wheel.pop(slot) for slot in list(self._wheel) if slot <= now_slot]
        self._guard_handle = self._later(GUARD_MS / 1000, self._sweep) if self._wheel else None
        for flight in chain.from_iterable(due):
            try:
                flight.expire()
            except Exception:
                log.exception("the guard could not answer a query")

    def _later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, call)


class InFlight:
    """One query between its first byte and its answer."""

    __slots__ = (
        "asked",
        "candidate",
        "done",
        "given_id",
        "path",
        "refused",
        "respond",
        "slot",
        "tries",
        "why",
        "worker",
    )

    def __init__(
        self, path: QueryPath, asked: Asked, respond: Respond, given_id: bytes | None
    ) -> None:
        self.path = path
        self.asked = asked
        self.respond = respond
        self.given_id = given_id
        query = asked.query
        grace_ms = GRACE_MS if query.best_effort else 0.0
        self.slot = int((query.received_ms + query.latency_ms + grace_ms) / GUARD_MS) + 1
        self.done = False
        self.tries = 0
        self.refused = _OK
        self.why = ""
        """Why the first worker did not answer."""
        self.candidate: Candidate | None = None
        self.worker: WorkerView | None = None

    def dispatch(self, query: Query) -> None:
        """Select a variant and a worker and send the query there, or answer why not."""
        path = self.path
        now_ms = path.clock_ms()
        found = choose(path.snapshot, path.routes, path.patience, query, now_ms)
        if isinstance(found, Refusal):
            self._turned_down(found)
            return
        self.tries += 1
        if found.cold:
            self._load_first(found, query)
            return
        self._send(found.candidate, found.worker, query, now_ms)

    def _send(self, candidate: Candidate, worker: WorkerView, query: Query, now_ms: float) -> None:
        path = self.path
        self.candidate = candidate
        self.worker = worker
        connection = path.connections.get(worker.id)
        if connection is None:
            self._again(ReplyCode.LOST, f"worker {worker.id} is gone")
            return
        left_ms = query.received_ms + query.latency_ms - now_ms - RETURN_MS
        if query.best_effort:
            left_ms = max(left_ms, 0.0) + GRACE_MS
        table = candidate.table
        busy_until_ms = worker.busy_until_ms
        busy_until_ms = max(busy_until_ms, now_ms)
        # What one more query adds once it shares batches; the reply brings the worker's own figure.
        worker.busy_until_ms = busy_until_ms + table.ms[-1] * query.rows / table.max_batch
        connection.infer(
            path.id_of(query.task, candidate.variant),
            query.rows,
            int(max(left_ms, 0.0) * 1000),
            self.asked.tensors,
            self._replied,
        )

    def _replied(self, reply: Reply) -> None:
        code = reply.code
        worker = self.worker
        assert worker is not None
        now_ms = self.path.clock_ms()
        if code is not ReplyCode.LOST:
            worker.busy_until_ms = now_ms + reply.backlog_us / 1000
        if code is ReplyCode.OVERLOADED:
            self.path.patience.refused(now_ms)
        if self.done:
            return
        try:
            if code is _OK:
                self._answer(reply, now_ms)
            elif code in _RETRY:
                self._again(code, reply.message)
            else:
                self.fail(_worker_error(code, reply.message, self.asked.query))
        except Exception as error:
            self.fail(error)

    def _answer(self, reply: Reply, now_ms: float) -> None:
        asked = self.asked
        query = asked.query
        candidate = self.candidate
        assert candidate is not None
        assert self.worker is not None
        elapsed_ms = now_ms - query.received_ms
        in_time = elapsed_ms <= query.latency_ms
        if not in_time and not query.best_effort:
            self.fail(_expired(query))
            return
        price = candidate.usd_per_hour * reply.run_us / (3_600_000.0 * reply.batch_size)
        met = (
            in_time
            and (query.accuracy is None or candidate.accuracy >= query.accuracy)
            and (query.cost is None or candidate.price_usd_per_1k <= query.cost)
        )
        used = Used(
            candidate.variant,
            candidate.model_version,
            self.worker.id,
            reply.batch_size,
            reply.queue_us / 1000,
            reply.run_us / 1000,
            candidate.accuracy,
            price,
            met,
        )
        body, headers = _encode(asked, reply, used)
        path = self.path
        # Encoding large outputs takes time, too.
        elapsed_ms = path.clock_ms() - query.received_ms
        if in_time and elapsed_ms > query.latency_ms:
            if not query.best_effort:
                self.fail(_expired(query))
                return
            met = False
            body, headers = _encode(asked, reply, used._replace(slo_met=False))
        self.done = True
        path.counters.in_flight -= 1
        path.counters.task(query.task).answered(
            candidate.variant,
            elapsed_ms,
            query.rows,
            reply.queue_us,
            reply.run_us,
            price * query.rows / 1000,
            met,
        )
        self._release()(200, body, headers)

    def _again(self, code: ReplyCode, message: str) -> None:
        """Try once more elsewhere, or answer with what the worker said."""
        query = self.asked.query
        worker = self.worker
        assert worker is not None
        if self.tries >= 2:
            self.fail(_worker_error(code, message, query))
            return
        self.refused, self.why = code, message
        self.path.counters.retried(code.name.lower())
        self.dispatch(query._replace(avoid=worker.id))

    def _turned_down(self, refusal: Refusal) -> None:
        """Selection found nobody; after a first try, that there is nobody else is no news."""
        if self.refused is ReplyCode.LOST:
            self.fail(ReplicaLost("The worker was lost and no other could answer in time."))
            return
        if refusal.load is not None:
            candidate, worker = refusal.load
            # Started for the queries to come; this one is answered at once.
            _ignore_outcome(self.path.load(candidate, worker.id))
        elif self.refused is not _OK and refusal.code is RefusalCode.OVERLOADED:
            self.fail(_worker_error(self.refused, self.why, self.asked.query))
            return
        self.fail(refusal_error(refusal))

    def _load_first(self, choice: Choice, query: Query) -> None:
        loading = self.path.load(choice.candidate, choice.worker.id)

        def loaded(outcome: "asyncio.Future[None]") -> None:
            error = None if outcome.cancelled() else outcome.exception()
            if self.done:
                return
            try:
                if outcome.cancelled():
                    self.fail(ReplicaLost("The load was given up."))
                elif error is None:
                    self._send(choice.candidate, choice.worker, query, self.path.clock_ms())
                elif isinstance(error, Conflict | Overloaded | ReplicaLost):
                    self.worker = choice.worker
                    self._again(ReplyCode.COLD, str(error))
                else:
                    self.fail(error if isinstance(error, Exception) else Internal(str(error)))
            except Exception as unexpected:
                self.fail(unexpected)

        loading.add_done_callback(loaded)

    def expire(self) -> None:
        """The guard's answer, when nobody else gave one.

        Whoever kept silent is expected to do so as long again, so that the next queries go
        elsewhere: a worker that hangs is noticed by its connection much later. Its next reply says
        better.
        """
        query, worker = self.asked.query, self.worker
        if worker is not None:
            silent_ms = min(query.latency_ms, SILENCE_S * 1000)
            expected_ms = self.path.clock_ms() + silent_ms
            worker.busy_until_ms = max(worker.busy_until_ms, expected_ms)
        self.fail(_expired(query))

    def fail(self, error: Exception) -> None:
        """Answer with an error, unless there was an answer."""
        if self.done:
            return
        self.done = True
        self.path.counters.in_flight -= 1
        task = self.asked.query.task
        self.path.fail(error, self._release(), task, self.given_id)

    def _release(self) -> Respond:
        respond = self.respond
        self.respond = _answered
        self.path.unguard(self)
        return respond


def _encode(asked: Asked, reply: Reply, used: Used) -> tuple[bytes, bytes]:
    """The body of an answer and its header lines."""
    if asked.v2 is None:
        return encode_v1(asked.task, reply.outputs, used), JSON
    body, json_length = encode_v2(asked.task, asked.v2, reply.outputs, used)
    if json_length is None:
        return body, JSON
    lines = b"content-type: application/octet-stream\r\ninference-header-content-length: %d\r\n"
    return body, lines % json_length


def _answered(_status: int, _body: bytes, _headers: bytes) -> None:
    raise AssertionError("a query was answered twice")


def _ignore_outcome(future: "asyncio.Future[None]") -> None:
    future.add_done_callback(lambda done: done.cancelled() or done.exception())


def _expired(query: Query) -> DeadlineExceeded:
    return DeadlineExceeded(f"Not answered within {query.latency_ms:g} ms.")


def _worker_error(code: ReplyCode, message: str, query: Query) -> ModellessError:
    """The error behind a worker's refusal; what the worker said is a part of its sentence."""
    why = f": {message.rstrip('.')}." if message else "."
    if code is ReplyCode.EXPIRED:
        return _expired(query)
    if code is ReplyCode.INVALID:
        return InvalidInput(f"The worker refused the tensors{why}")
    if code is ReplyCode.LOST:
        return ReplicaLost("The worker was lost while it answered.")
    if code is ReplyCode.COLD:
        return Cold(f"The variant is not loaded yet{why}", retry_after_s=1.0)
    if code is ReplyCode.FAILED:
        return Internal(message)
    return Overloaded(f"No worker can answer in time right now{why}")


def refusal_error(refusal: Refusal) -> ModellessError:
    """The error behind a refusal of selection."""
    message = refusal.message
    match refusal.code:
        case RefusalCode.TASK_NOT_FOUND:
            return TaskNotFound(message)
        case RefusalCode.VARIANT_NOT_FOUND:
            return NotFound(message)
        case RefusalCode.SLO_INFEASIBLE:
            return SloInfeasible(
                message, reasons=refusal.reasons, alternatives=refusal.alternatives
            )
        case RefusalCode.COLD:
            return Cold(message, retry_after_s=refusal.retry_after_s or 1.0)
        case RefusalCode.OVERLOADED:
            return Overloaded(message)
        case RefusalCode.DEADLINE_EXCEEDED:
            return DeadlineExceeded(message)


def header_lines(error: Exception) -> bytes:
    """An error's own headers as they go on the wire."""
    return b"".join(
        f"{name.lower()}: {value}\r\n".encode("latin-1")
        for name, value in error_headers(error).items()
    )
