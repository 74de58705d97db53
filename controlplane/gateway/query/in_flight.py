"""InFlight: one query from its first byte to its one answer.

Selection picks a variant and a worker, the query is sent there, and the worker's reply is encoded
and handed to the client's socket. A worker that refuses or breaks is replaced once, within what is
left of the deadline; a variant that is not loaded is waited for where the deadline leaves the time.
"""

import asyncio

from controlplane.gateway.canaries.arms import failed, turned_back
from controlplane.gateway.lengths.named import at_other_lengths
from controlplane.gateway.query.deadline_guard import GRACE_MS, GUARD_MS
from controlplane.gateway.query.departures import Gone, failed_meanwhile, innermost
from controlplane.gateway.query.one_answer import OneAnswer
from controlplane.gateway.query.parsing import ParsedQuery
from controlplane.gateway.query.query_context import QueryContext, Respond
from controlplane.gateway.query.query_errors import (
    expired_error,
    lethal_error,
    refusal_error,
    silence,
    worker_error,
)
from controlplane.gateway.tracing.watched import Watched
from planner import sentences as explain
from planner.batching.protocol import Verdict
from planner.selection.eligibility import MAY_BE_IN_VAIN
from planner.types import (
    RETURN_MS,
    TRANSPORT_MS,
    Candidate,
    Choice,
    PlacedReason,
    Query,
    Reason,
    Refusal,
    RefusalCode,
    WorkerView,
)
from variants.errors import Cold, Conflict, Internal, Overloaded, ReplicaLost, VariantNotLoadable
from workers.channel.client import WorkerConnection
from workers.channel.reply import SILENT, Reply
from workers.channel.session import SILENCE_S
from workers.types import ReplyCode

STAYS_S = 5.0
"""When to ask again for a variant that found no room: what is loaded is asked for more."""
TRIES = 2
"""Workers that one query is sent to at most."""
MOST_LOADS = 2
"""Loads that one query waits for at most. What it waited for may leave again before it comes."""
WHILE_RUNNING = (
    "the worker was lost while it ran this query, which may have been the cause: it is not tried"
    " again elsewhere"
)
READ_BEFORE = "the task has got a model with another tokenizer since the query was read: ask again"
OTHERS_FIRST = "others come first, and the queues leave this query less than half of its slack"
OVER_SHARE = Verdict.OVER_SHARE.value
WHILE_STARTING = "no worker that could answer was there, and the one being started took longer"
WHILE_MEETING = "the gateway has just started and was still connecting to its workers"

# Looking a member up in its enumeration takes ten times as long as a name.
_OK, _OVERLOADED, _LOST = ReplyCode.OK, ReplyCode.OVERLOADED, ReplyCode.LOST
_PLANNED = Reason.PLANNED
_RETRY = frozenset({_OVERLOADED, ReplyCode.COLD, ReplyCode.DRAINING, ReplyCode.QUARANTINED, _LOST})


class InFlight(OneAnswer):
    """One query between its first byte and its answer."""

    __slots__ = (
        "awaits",
        "failed",
        "loads",
        "refusal",
        "refused",
        "sent_as",
        "sent_over",
        "slack_ms",
        "tries",
        "why",
    )

    def __init__(
        self, path: QueryContext, parsed: ParsedQuery, respond: Respond, given_id: bytes | None
    ) -> None:
        self.path = path
        self.parsed = parsed
        tensors = parsed.tensors if parsed.read_as is None else parsed.all_tensors
        self.nbytes = tensors[0].nbytes if len(tensors) == 1 else sum([t.nbytes for t in tensors])
        self.respond = respond
        self.given_id = given_id
        query = parsed.query
        grace_ms = GRACE_MS if query.best_effort else 0.0
        self.slot = int((query.received_ms + query.latency_ms + grace_ms) / GUARD_MS) + 1
        self.read_ms = path.clock_ms() - query.received_ms
        self.done = False
        self.sent_ms = 0.0
        self.slack_ms = 0.0
        """What was left when it was sent, behind all that its worker had to do."""
        self.sent_over: WorkerConnection | None = None
        """The connection that it was sent over last, ..."""
        self.sent_as = 0
        """... and its number there."""
        self.tries = 0
        self.awaits = False
        """Whether it has waited for a worker that is being started."""
        self.loads = 0
        """Loads that this query has waited for."""
        self.refusal: Refusal | None = None
        """Why it is refused, while a worker is asked whether it loads for queries to come."""
        self.refused = _OK
        self.why = ""
        """Why the first worker did not answer."""
        self.arm = None
        self.candidate: Candidate | None = None
        self.worker: WorkerView | None = None
        self.reason: Reason | PlacedReason = _PLANNED
        self.failed: frozenset[tuple[str, str]] = frozenset()
        """Variants that could not be loaded for this query, and where."""
        self.watched = None
        if respond.__class__ is Watched:
            respond.flight, self.watched = self, respond

    def dispatch(self, query: Query) -> None:
        """Select a variant and a worker and send the query there, or answer why not."""
        path = self.path
        now_ms = path.clock_ms()
        found: Choice | Refusal | None = None
        if path.canaries is not None and path.waiting is None:
            found = path.canaries.choose(self, query, now_ms)
        if found is None:
            found = path.choose(query, now_ms)
        if path.waiting is not None and path.waiting.hold(self, query, found):
            return
        if isinstance(found, Refusal):
            self._turned_down(found)
            return
        if not found.meets_slo and not self.tries:
            path.demand.out_of_reach(query)
        modest = path.leaving_room(query, found, now_ms)
        if modest is None:
            self.fail(Overloaded(OTHERS_FIRST))
            return
        found = modest
        self.tries += 1
        self.reason = found.reason
        if found.cold:
            self._load_first(found.candidate, found.worker, query)
            return
        self._send(found.candidate, found.worker, query, now_ms)

    def _send(self, candidate: Candidate, worker: WorkerView, query: Query, now_ms: float) -> None:
        path = self.path
        if self.parsed.task.text is not None:
            as_read = path.rows_for(self.parsed, candidate.model_version)
            if as_read is None:
                self.fail(Overloaded(READ_BEFORE))
                return
            self.parsed = as_read
        if path.lethal.suspected:
            task, variant = query.task, candidate.variant
            blocked_ms = path.lethal.blocked_ms(task, variant, self.parsed.tensors, now_ms)
            if blocked_ms:
                path.counters.task(task).blocked += 1
                self.fail(lethal_error(variant, blocked_ms))
                return
        self.candidate = candidate
        self.worker = worker
        connection = path.connections.get(worker.id)
        if connection is None:
            self._again(_LOST, f"worker {worker.id} is gone")
            return
        task, rows, received_ms, latency_ms = query[:4]
        due_ms = received_ms + latency_ms
        left_ms = due_ms - now_ms - worker.return_ms
        left_ms = left_ms if left_ms > 0.0 else 0.0
        if query.best_effort:
            left_ms += GRACE_MS
        # What it adds to what this gateway has sent; the reply brings the worker's own figure.
        free_ms = worker.busy_until_ms
        longest_ms = 0.0  # on an idle worker no batch is opened that others could join
        if free_ms > now_ms:
            longest_ms = path.routes.longest_ms(worker.id, latency_ms)
        else:
            free_ms = now_ms
        self.slack_ms = due_ms - free_ms
        added_ms = path.congestion.batches.sent(candidate, worker, rows, now_ms, longest_ms)
        worker.given(added_ms, now_ms)
        self.sent_ms = now_ms
        self.sent_over = connection
        self.sent_as = connection.infer(
            path.id_of(task, candidate.variant),
            rows,
            int(left_ms * 1000),
            self.parsed.tensors,
            self._replied,
            query.priority,
            query.client,
        )

    def _replied(self, reply: Reply) -> None:
        code = reply.code
        worker = self.worker
        assert worker is not None
        now_ms = self.path.clock_ms()
        if code is not _LOST and worker.told(reply.backlog_us / 1000, now_ms):
            self.path.repeated.outdate()  # there is room sooner than was thought
        if code is _OVERLOADED:
            query, why, path = self.parsed.query, reply.message, self.path
            # Whom a worker holds back for others does not stand where this gateway thinks he does.
            held_back = OVER_SHARE in (self.why, why)
            path.refused(query, worker.id, now_ms, twice=self.tries >= TRIES and not held_back)
            if self.candidate is not None and why != OVER_SHARE:
                path.congestion.had_no_time(worker.id, query, now_ms)
                standing = path.standing(query, now_ms)
                path.lately.add(query.task, standing, now_ms)
                path.refusals.add(
                    worker.id, self.candidate, query, why, now_ms, self.slack_ms, standing
                )
        if code is _LOST and reply.batch_size and self._was_lethal(reply, now_ms):
            if not self.done:
                failed(self)
                self.fail(ReplicaLost(WHILE_RUNNING))
            return
        if self.done:
            return
        try:
            if code is _OK:
                self._answer(reply, now_ms)
                path, query = self.path, self.parsed.query
                if path.under_pressure() and self.candidate is not None and not query.best_effort:
                    path.refusals.took(worker.id, self.candidate, query, self.slack_ms, now_ms)
            elif self.arm is not None and turned_back(self, code):
                self._as_always(code)
            elif code is ReplyCode.COLD and self._load_again(now_ms):
                pass
            elif code in _RETRY:
                self._again(code, reply.message)
            else:
                query, told = self.parsed.query, reply.for_client
                self.fail(worker_error(code, reply.message, query, self.candidate, for_client=told))
        except Exception as error:
            self.fail(error)

    def _was_lethal(self, reply: Reply, now_ms: float) -> bool:
        """Whether the worker may have been lost because of this query, which it was running."""
        candidate, parsed = self.candidate, self.parsed
        assert candidate is not None
        return self.path.lethal.lost(
            parsed.query.task,
            candidate.variant,
            parsed.tensors,
            reply.batch_size,
            reply.evidence,
            now_ms,
        )

    def _again(self, code: ReplyCode, message: str) -> None:
        """Try once more elsewhere, or answer with what the worker said."""
        query = self.parsed.query
        worker = self.worker
        assert worker is not None
        if self.tries >= TRIES:
            self.fail(worker_error(code, message, query, self.candidate))
            return
        self.refused, self.why = code, message
        self.path.counters.retried(code.name.lower())
        if code is _LOST:
            self.path.renew()  # perhaps no worker is there any more, and one is being started
        self.dispatch(query._replace(avoid=worker.id))

    def _as_always(self, code: ReplyCode) -> None:
        """Have a live version answer a query that its canary did not."""
        query, worker = self.parsed.query, self.worker
        assert worker is not None
        self.tries -= 1  # no live version was asked
        self.path.counters.retried(code.name.lower())
        gone = code is _LOST or code is ReplyCode.DRAINING
        self.dispatch(query._replace(avoid=worker.id) if gone else query)

    def _turned_down(self, refusal: Refusal) -> None:
        """Answer a query that selection has refused.

        After a first try elsewhere, the reply says why that try failed. Where a worker is being
        started, and comes while the query has time, it waits for that.
        """
        if refusal.awaited or (self.awaits and _worker_may_come(refusal)):
            self.awaits = True
            self.path.awaiting.keep(self, self.parsed.query)
            return
        if refusal.code in MAY_BE_IN_VAIN:
            self.path.demand.discount(self.parsed.query)
            if refusal.code is RefusalCode.VARIANT_NOT_FOUND:
                path, query = self.path, self.parsed.query
                if error := at_other_lengths(path.tasks, path.snapshot, query):
                    self.fail(error)
                    return
        short = refusal.code is RefusalCode.OVERLOADED and not refusal.shed
        if short and self.why != OVER_SHARE:
            path, query, now_ms = self.path, self.parsed.query, self.path.clock_ms()
            path.lately.add(query.task, path.standing(query, now_ms), now_ms)
        if self.refused is _LOST:
            what = "does not answer," if self.why == SILENT else "was lost"
            self.fail(ReplicaLost(f"the worker {what} and no other could answer in time"))
            return
        if refusal.load is not None:
            # For the queries to come; this one is answered as soon as the worker has said whether.
            candidate, worker = refusal.load
            self.path.asked.query((candidate.task, candidate.variant))
            self.refusal = refusal
            need = explain.asked(self.parsed.query)
            self.path.load(candidate, worker.id, None, need).add_done_callback(self._begun)
            return
        if self.refused is not _OK and refusal.code is RefusalCode.OVERLOADED:
            self.fail(worker_error(self.refused, self.why, self.parsed.query, self.candidate))
            return
        self.fail(refusal_error(refusal))

    def _begun(self, outcome: "asyncio.Future[None]") -> None:
        """Answer a query that no loaded variant fits, now that a load has begun or has not."""
        error = None if outcome.cancelled() else outcome.exception()
        refusal = self.refusal
        if self.done or refusal is None:
            return
        if outcome.cancelled():
            self.fail(ReplicaLost("the load was given up"))
        elif error is None:
            self.fail(refusal_error(refusal, "the load has begun"))
        elif isinstance(error, VariantNotLoadable) and refusal.load is not None:
            self._without(*refusal.load, error)
        elif isinstance(error, Conflict | Overloaded | ReplicaLost):
            why = f"it was not loaded: {str(error).rstrip('.')}"
            self.fail(Cold(f"{refusal.message}; {why}", retry_after_s=STAYS_S))
        else:
            self.fail(error if isinstance(error, Exception) else Internal(str(error)))

    def _load_again(self, now_ms: float) -> bool:
        """Have a variant loaded that has left its worker while the query was on its way there.

        Not where another worker holds it, nor without the time for it.
        """
        query, candidate, worker = self.parsed.query, self.candidate, self.worker
        if candidate is None or worker is None or len(candidate.ready) > 1:
            return False
        if self.loads >= MOST_LOADS or _load_slack_ms(candidate, worker, query, now_ms) < 0.0:
            return False
        self.path.counters.retried(ReplyCode.COLD.name.lower())
        self._load_first(candidate, worker, query)
        return True

    def _load_first(self, candidate: Candidate, worker: WorkerView, query: Query) -> None:
        self.loads += 1
        slack_ms = max(0.0, _load_slack_ms(candidate, worker, query, self.path.clock_ms()))
        loading = self.path.load(candidate, worker.id, slack_ms, explain.asked(query))

        def loaded(outcome: "asyncio.Future[None]") -> None:
            error = None if outcome.cancelled() else outcome.exception()
            if self.done:
                return
            try:
                if outcome.cancelled():
                    self.fail(ReplicaLost("the load was given up"))
                elif error is None:
                    self._send(candidate, worker, query, self.path.clock_ms())
                elif isinstance(error, VariantNotLoadable):
                    self.tries -= 1  # no worker was asked
                    self._without(candidate, worker, error)
                elif isinstance(error, Conflict | Overloaded | ReplicaLost):
                    self.worker, self.candidate = worker, candidate
                    self._again(ReplyCode.COLD, str(error))
                else:
                    self.fail(error if isinstance(error, Exception) else Internal(str(error)))
            except Exception as unexpected:
                self.fail(unexpected)

        loading.add_done_callback(loaded)

    def _without(self, candidate: Candidate, worker: WorkerView, error: VariantNotLoadable) -> None:
        """Select again: the snapshot knows by now what could not be loaded, and where."""
        pair = (str(candidate.variant), str(worker.id))
        if pair in self.failed:
            self.fail(error)
            return
        self.failed |= {pair}
        self.refusal = None
        try:
            self.dispatch(self.parsed.query)
        except Exception as unexpected:
            self.fail(unexpected)

    def left_by(self, gone: Gone) -> None:
        """End a query whose client has gone."""
        if not self.done and (left_ms := gone.get(innermost(self.respond))) is not None:
            self.let_go(left_ms)

    def let_go(self, left_ms: float) -> None:
        """End a query whose client went at that time, and have its worker let go of it."""
        path, parsed = self.path, self.parsed
        self.done = True
        path.counters.in_flight -= 1
        if self.arm is not None and not failed_meanwhile(self.respond):
            # Whoever is slow has more of them.
            self.arm.ended(expired_error(parsed.query), sent=self.sent_ms > 0.0)
        if path.waiting is not None:
            path.waiting.give_up(self)
        path.awaiting.give_up(self)
        respond = self._release()
        # Over the connection that it was sent over: another one of the same worker has its number
        # for another query.
        if self.sent_over is None or not self.sent_over.withdraw(self.sent_as):
            # A load that it waited for keeps it until then, and so do those that wait for it.
            self.parsed = parsed._replace(tensors=[], read_as=None)
        path.gave_up(respond, left_ms, parsed.query)

    def expire(self) -> None:
        """Answer because the deadline has passed.

        The worker that has not replied is expected to take as long again, so that the next queries
        go elsewhere. Its next reply brings its own estimate. One that has said nothing at all since
        may hang, which its connection alone would notice much later.
        """
        query, worker = self.parsed.query, self.worker
        waiting = self.path.waiting
        if waiting is not None and waiting.give_up(self):
            self.fail(expired_error(query, WHILE_MEETING))
            return
        if self.path.awaiting.give_up(self):
            self.fail(expired_error(query, WHILE_STARTING))
            return
        why = ""
        if worker is not None:
            now_ms = self.path.clock_ms()
            expected_ms = now_ms + min(query.latency_ms, SILENCE_S * 1000)
            worker.busy_until_ms = max(worker.busy_until_ms, expected_ms)
            connection = self.path.connections.get(worker.id)
            if connection is not None and 1_000 * connection.heard_s < self.sent_ms:
                why = silence(now_ms - 1_000 * connection.heard_s)
                self.path.unheard(worker.id)
        error = expired_error(query, why) if self.refusal is None else refusal_error(self.refusal)
        self.fail(error)


def _worker_may_come(refusal: Refusal) -> bool:
    return refusal.code is RefusalCode.NO_WORKERS and refusal.retry_after_s is not None


def _load_slack_ms(candidate: Candidate, worker: WorkerView, query: Query, now_ms: float) -> float:
    """How much later than now a load may begin for a query to be answered in time."""
    needs_ms = candidate.load_ms + candidate.table.ms[query.rows] + TRANSPORT_MS + RETURN_MS
    needs_ms += worker.round_trip_ms
    return query.received_ms + query.latency_ms - now_ms - needs_ms
