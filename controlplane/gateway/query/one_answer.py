"""One answer: how a query in flight ends, whatever ends it.

A worker's reply is encoded, what it cost and whether it was in time is counted, and it is handed to
the client's socket; or an error is. What leads there is in ``in_flight``.
"""

from collections.abc import Sequence

from controlplane.gateway.canaries.arms import Arm
from controlplane.gateway.lengths.cutting import cut, cut_apart
from controlplane.gateway.protection.compression import packed
from controlplane.gateway.query.parsing import ParsedQuery
from controlplane.gateway.query.query_context import QueryContext, Respond
from controlplane.gateway.query.query_errors import expired_error
from controlplane.gateway.query.replies import JSON, ReplyMetadata, encode_v1, encode_v1_apart
from controlplane.gateway.tracing.watched import Watched
from planner.types import Candidate, PlacedReason, Reason, WorkerView
from variants.slots import tuple_of
from workers.channel.reply import Reply
from workers.runtimes.protocol import Tensor

BEYOND_WEIGHT, BEYOND_MOST, BEYOND_MORE_MS = 1 / 16, 8.0, 4.0
"""Of one answer in the mean of what answers take beyond their time at a worker, and the most that
it counts for: so many times the mean, and so much more. One stall says nothing yet."""


class OneAnswer:
    """A query that is answered once. ``InFlight`` fills in what is known of it."""

    __slots__ = (
        "arm",
        "candidate",
        "done",
        "given_id",
        "nbytes",
        "parsed",
        "path",
        "read_ms",
        "reason",
        "respond",
        "sent_ms",
        "slot",
        "watched",
        "worker",
    )

    path: QueryContext
    parsed: ParsedQuery
    respond: Respond
    given_id: bytes | None
    nbytes: int
    """Bytes of its tensors."""
    slot: int
    """The guard's period after which it is too late."""
    read_ms: float
    """What reading it took."""
    sent_ms: float
    """When it was sent to the worker that has it now."""
    done: bool
    arm: Arm | None
    """What it counts for, where a canary of its task has a share."""
    candidate: Candidate | None
    worker: WorkerView | None
    reason: Reason | PlacedReason
    """Why the candidate was chosen; it says nothing before that."""
    watched: Watched | None
    """Where its answer passes, if it may be traced."""

    def expire(self) -> None:
        """Answer because the deadline has passed."""
        raise NotImplementedError

    def _answer(self, reply: Reply, now_ms: float) -> None:
        """Answer with what a worker has made of it, unless that came too late."""
        parsed = self.parsed
        query = parsed.query
        candidate = self.candidate
        worker = self.worker
        assert candidate is not None
        assert worker is not None
        # Taking a named tuple apart costs as much as asking it for one field.
        task, rows, received_ms, latency_ms, floor, ceiling, _, best_effort = query[:8]
        _, batch_size, queue_us, run_us, _, _, outputs, _, _ = reply
        variant, accuracy = candidate.variant, candidate.accuracy
        elapsed_ms = now_ms - received_ms
        beyond_ms = now_ms - self.sent_ms - (queue_us + run_us) / 1000
        mean_ms = worker.beyond_ms
        most_ms = BEYOND_MOST * mean_ms + BEYOND_MORE_MS
        beyond_ms = most_ms if beyond_ms > most_ms else beyond_ms
        worker.beyond_ms = mean_ms + BEYOND_WEIGHT * (beyond_ms - mean_ms)
        worker.answers += 1
        in_time = elapsed_ms <= latency_ms
        if not in_time and not best_effort:
            self.fail(expired_error(query))
            return
        price = candidate.usd_per_hour * run_us / (3_600_000.0 * batch_size)
        met = (
            in_time
            and (floor is None or accuracy >= floor)
            and (ceiling is None or candidate.price_usd_per_1k <= ceiling)
        )
        fields = (
            variant, candidate.model_version, worker.id, batch_size,
            queue_us / 1000, run_us / 1000, accuracy, price, met,
        )  # fmt: skip
        metadata = tuple_of(ReplyMetadata, fields)
        body, headers = encode(parsed, outputs, metadata)
        path = self.path
        # Encoding large outputs takes time, too.
        encoded_ms = path.clock_ms()
        elapsed_ms = encoded_ms - received_ms
        if in_time and elapsed_ms > latency_ms:
            if not best_effort:
                self.fail(expired_error(query))
                return
            met = False
            metadata = metadata._replace(slo_met=False)
            body, headers = encode(parsed, outputs, metadata)
        id_line = path.answers.note(self.given_id, parsed.task, variant, outputs, self.arm, now_ms)
        if self.watched is not None:
            self.watched.made = metadata
        self.done = True
        path.counters.in_flight -= 1
        self._release()(200, body, headers + path.choice_lines(self.reason) + id_line)
        # What is learned from it is no part of the time that its client waits.
        path.advice.answered(now_ms)
        if path.clients.only is None:
            took_ms = run_us * rows / (1_000 * batch_size)
            path.clients.use(query.client, took_ms, now_ms)
        path.asked.query((task, variant))
        path.lethal.answered(task, variant, parsed.tensors)
        if self.arm is not None:
            self.arm.answered(elapsed_ms, in_time=elapsed_ms <= latency_ms)
        counters = path.counters.task(task)
        counters.chosen(self.reason)
        if not met and path.is_infeasible(query, now_ms):
            counters.infeasible_answered += 1
        counters.answered(
            variant, elapsed_ms, rows, queue_us, run_us,
            price * rows / 1000, met, batch_size=batch_size,
            read_ms=self.read_ms, encode_ms=encoded_ms - now_ms, now_ms=encoded_ms,
        )  # fmt: skip

    def fail(self, error: Exception) -> None:
        """Answer with an error, unless there was an answer."""
        if self.done:
            return
        self.done = True
        self.path.counters.in_flight -= 1
        if self.arm is not None:
            self.arm.ended(error, sent=self.sent_ms > 0.0)
        task = self.parsed.query.task
        variant = self.candidate.variant if self.candidate is not None else ""
        self.path.fail(error, self._release(), task, self.given_id, f"{task}/{variant}")

    def _release(self) -> Respond:
        respond = self.respond
        self.respond = _answered
        path = self.path
        path.held_bytes -= self.nbytes
        path.held[self.parsed.query.task] -= 1
        path.guard.remove(self)
        return respond


def encode(
    parsed: ParsedQuery, outputs: Sequence[Tensor], metadata: ReplyMetadata
) -> tuple[bytes, bytes]:
    """The body of an answer and its header lines."""
    if parsed.lengths is not None:
        body, headers = _encode_cut(parsed, parsed.lengths, outputs, metadata)
    elif parsed.v2 is None:
        body, headers = encode_v1(parsed.task, outputs, metadata), JSON
    else:
        body, headers = parsed.v2.encode(parsed.task, outputs, metadata)
    if parsed.takes and headers.startswith(JSON):  # raw tensors hardly become shorter
        return packed(body, headers, parsed.takes)
    return body, headers


def _encode_cut(
    parsed: ParsedQuery,
    lengths: Sequence[int],
    outputs: Sequence[Tensor],
    metadata: ReplyMetadata,
) -> tuple[bytes, bytes]:
    """The same where outputs are cut back to the rows' own lengths."""
    task = parsed.task
    if parsed.v2 is None:
        apart = cut_apart(task, outputs, lengths)
        return encode_v1_apart(task, apart, metadata, parsed.spans), JSON
    return parsed.v2.encode(task, cut(task, outputs, lengths[0]), metadata)


def _answered(_status: int, _body: bytes, _headers: bytes) -> None:
    raise AssertionError("a query was answered twice")
