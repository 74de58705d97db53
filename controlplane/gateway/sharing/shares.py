"""Shares: what becomes of a query whose task shares answers.

It gets a kept answer, waits for the run of an equal query, or is run. The header ``Cache-Status``
(RFC 9211) says which: ``hit``, ``fwd=miss; collapsed``, or ``fwd=miss``.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial

from controlplane.gateway.counting.task_counters import CacheCounters
from controlplane.gateway.query.one_answer import encode
from controlplane.gateway.query.parsing import ParsedQuery
from controlplane.gateway.query.query_context import Respond
from controlplane.gateway.query.query_errors import expired_error
from controlplane.gateway.query.query_path import QueryPath
from controlplane.gateway.query.replies import ReplyMetadata
from controlplane.gateway.sharing.content import content_key, may_get
from controlplane.gateway.sharing.kept_answers import Kept, KeptAnswers, Source
from controlplane.gateway.sharing.shared_flight import SharedFlight, concerns_all
from controlplane.gateway.tracing.watched import Watched
from planner.selection.eligibility import stage_answers
from planner.types import Candidate, Choice, PlacedReason, Query, Reason
from variants.types import CatalogSnapshot, Prefer, TaskName, VariantName
from workers.channel.reply import Reply
from workers.runtimes.protocol import Tensor

AT_ONCE = 32
"""Waiting queries that are answered in one turn of the event loop."""
MOST_RUNS = 8
"""Runs of one content that others may join: who asks for the same in ever shorter time has to be
run again each time, and is not looked through."""

_HIT = b"cache-status: modelless; hit; ttl=%d\r\n"
_COLLAPSED = b"cache-status: modelless; fwd=miss; collapsed\r\n"
_MISS = b"cache-status: modelless; fwd=miss\r\n"


class Shares:
    """The shared answers of one gateway."""

    def __init__(self, path: QueryPath) -> None:
        self._path = path
        self._kept: dict[TaskName, KeptAnswers] = {}
        self._running: dict[tuple[TaskName, bytes], list[SharedFlight]] = {}
        self._due: deque[tuple[SharedFlight, SharedFlight, Reply | Exception]] = deque()
        """Who has waited, for which run, and how that has ended."""

    # -- what is known --------------------------------------------------------------------------

    def follow(self, catalog: CatalogSnapshot) -> None:
        """Take over what the catalog says now of tasks and of what their variants are made of."""
        kept: dict[TaskName, KeptAnswers] = {}
        for task in catalog.tasks:
            if task.sharing is not None:
                sources = _sources(catalog, task.name)
                known = self._kept.get(task.name)
                if known is None:
                    known = KeptAnswers(task.sharing, sources)
                else:
                    known.follow(task.sharing, sources)
                kept[task.name] = known
        gone = self._kept.keys() - kept.keys()
        self._kept = kept
        self._path.sharing = frozenset(kept)
        for name in gone:
            self._path.counters.task(name).cache = None
        self._tell()

    def sweep(self) -> None:
        """Forget what is too old, and say how much is kept."""
        now_ms = self._path.clock_ms()
        for kept in self._kept.values():
            kept.sweep(now_ms)
        self._tell()

    def _tell(self) -> None:
        for name, kept in self._kept.items():
            self._path.counters.task(name).cache = CacheCounters(
                answers=len(kept), size_bytes=kept.size_bytes, evicted=kept.evicted
            )

    # -- a query --------------------------------------------------------------------------------

    def take(self, parsed: ParsedQuery, respond: Respond, given_id: bytes | None) -> bool:
        """Take a query over, if answers of its task are shared; return whether it was."""
        path, query = self._path, parsed.query
        kept = self._kept.get(query.task)
        if kept is None:
            return False
        began_ms = path.clock_ms()
        key = content_key(parsed.all_tensors)
        found = self._suiting(kept.find(key, began_ms), query, began_ms)
        now_ms = path.clock_ms()
        if found is not None:
            kept.used(key, found[0])
            self._give_kept(parsed, respond, given_id, *found, now_ms - began_ms)
            return True
        flight = SharedFlight(path, parsed, respond, given_id, self, key, now_ms - began_ms)
        path.begin(flight, self._join_or_run)
        return True

    def _suiting(
        self, found: list[Kept], query: Query, now_ms: float
    ) -> tuple[Kept, Candidate] | None:
        """The most accurate of these answers, if the query may get it.

        Who prefers accuracy gets none that is less accurate than what a run would give now.
        """
        view = self._path.snapshot.tasks.get(query.task) if found else None
        if view is None:
            return None
        suiting = [
            (kept, candidates[0])
            for kept in found
            if (candidates := view.by_variant.get(kept.variant)) and may_get(query, candidates[0])
        ]
        if not suiting:
            return None
        best = max(suiting, key=lambda one: one[1].accuracy)
        return best if self._accurate_enough(best[1], query, now_ms) else None

    def _accurate_enough(self, candidate: Candidate, query: Query, now_ms: float) -> bool:
        if query.prefer is not Prefer.ACCURACY or query.variant is not None:
            return True
        path = self._path
        own = path.choose(query, now_ms)
        return not isinstance(own, Choice) or own.candidate.accuracy <= candidate.accuracy

    def _give_kept(
        self,
        parsed: ParsedQuery,
        respond: Respond,
        given_id: bytes | None,
        kept: Kept,
        candidate: Candidate,
        lookup_ms: float,
    ) -> None:
        path, query = self._path, parsed.query
        made = ReplyMetadata(
            kept.variant, kept.model_version, kept.worker, kept.batch_size,
            0.0, 0.0, candidate.accuracy, 0.0, True,
        )  # fmt: skip
        watched = None
        if isinstance(respond, Watched):
            watched, respond.task = respond, query.task
        answer = self._encoded(
            parsed, given_id, kept.outputs, made, lookup_ms, Reason.CACHED, watched
        )
        if answer is None:
            path.fail(expired_error(query), respond, query.task, given_id)
            return
        left_s = max(0, int((kept.expires_ms - path.clock_ms()) / 1_000))
        respond(200, answer[0], answer[1] + _HIT % left_s)

    def _encoded(
        self,
        parsed: ParsedQuery,
        given_id: bytes | None,
        outputs: Sequence[Tensor],
        made: ReplyMetadata,
        lookup_ms: float,
        reason: Reason | PlacedReason,
        watched: Watched | None,
    ) -> tuple[bytes, bytes] | None:
        """An answer that took no run of its own, counted; None where it is too late for one.

        Args:
            made: with ``slo_met`` for an answer in time.
            watched: where it passes, if it may be traced.
        """
        path, query = self._path, parsed.query
        began_ms = path.clock_ms()
        if parsed.read_as is not None:  # what the answer is of
            parsed = path.rows_for(parsed, made.model_version) or parsed
        body, headers = encode(parsed, outputs, made)
        now_ms = path.clock_ms()
        elapsed_ms = now_ms - query.received_ms
        if elapsed_ms > query.latency_ms:
            if not query.best_effort:
                return None
            made = made._replace(slo_met=False)
            body, headers = encode(parsed, outputs, made)
        if watched is not None:
            watched.made = made
        counters = path.counters.task(query.task)
        counters.chosen(reason)
        counters.reused(
            made.variant,
            elapsed_ms,
            query.rows,
            made.slo_met,
            now_ms=now_ms,
            lookup_ms=lookup_ms + now_ms - began_ms,
            kept=reason is Reason.CACHED,
        )
        id_line = path.answers.note(given_id, parsed.task, made.variant, outputs, None, now_ms)
        return body, headers + path.choice_lines(reason) + id_line

    # -- queries that share a run ---------------------------------------------------------------

    def _join_or_run(self, flight: SharedFlight) -> None:
        """Wait for a run of the same content that suits, or be one that others may wait for."""
        query = flight.parsed.query
        place = (query.task, flight.key)
        runs = self._running.get(place, [])
        now_ms = self._path.clock_ms()
        deadline_ms = flight.by_ms(at_most=False)
        for run in runs:
            candidate = run.candidate
            if (
                candidate is not None
                and run.by_ms(at_most=True) <= deadline_ms
                and may_get(query, candidate)
                and self._accurate_enough(candidate, query, now_ms)
            ):
                flight.join(run)
                return
        flight.waits_for = None
        if len(runs) < MOST_RUNS:
            self._running[place] = [*runs, flight]
        flight.respond = partial(_respond_missed, flight.respond)
        self._path.demand.count(query)
        flight.run(query)

    def answered(self, run: SharedFlight, reply: Reply, now_ms: float) -> None:
        """Keep the answer of a run, and give it to those who wait, in turns of the event loop."""
        candidate, worker = run.candidate, run.worker
        assert candidate is not None
        assert worker is not None
        query = run.parsed.query
        kept = self._kept.get(query.task)
        if kept is not None and run.state == self._path.snapshot.state:
            variant, version = candidate.variant, candidate.model_version
            size, outputs = reply.batch_size, reply.outputs
            kept.add(run.key, variant, version, worker.id, size, outputs, now_ms)
        lookup_ms = run.lookup_ms + self._path.clock_ms() - now_ms
        self._path.counters.task(query.task).cache_missed(candidate.variant, lookup_ms)
        self._end(run, reply)

    def failed(self, run: SharedFlight, error: Exception) -> None:
        """Let those who wait for a run go on without it."""
        self._end(run, error)

    def _end(self, run: SharedFlight, ending: Reply | Exception) -> None:
        place = (run.parsed.query.task, run.key)
        left = [other for other in self._running.get(place, ()) if other is not run]
        if left:
            self._running[place] = left
        else:
            self._running.pop(place, None)
        waiting, run.joined = run.joined, {}
        if waiting:
            idle = not self._due
            self._due.extend((flight, run, ending) for flight in waiting)
            if idle:
                asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        for _ in range(min(AT_ONCE, len(self._due))):
            flight, run, ending = self._due.popleft()
            if flight.done:
                continue
            try:
                self._after(flight, run, ending)
            except Exception as error:
                flight.fail(error)
        if self._due:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _after(self, flight: SharedFlight, run: SharedFlight, ending: Reply | Exception) -> None:
        candidate = run.candidate
        if isinstance(ending, Exception):
            if concerns_all(ending):
                flight.fail(ending)
            else:
                self._join_or_run(flight)
        elif candidate is not None and may_get(flight.parsed.query, candidate):
            self._give_joined(flight, run, ending)
        else:  # it was sent elsewhere meanwhile
            self._join_or_run(flight)

    def _give_joined(self, flight: SharedFlight, run: SharedFlight, reply: Reply) -> None:
        candidate, worker = run.candidate, run.worker
        assert candidate is not None
        assert worker is not None
        made = ReplyMetadata(
            candidate.variant, candidate.model_version, worker.id, reply.batch_size,
            reply.queue_us / 1000, reply.run_us / 1000, candidate.accuracy, 0.0, True,
        )  # fmt: skip
        answer = self._encoded(
            flight.parsed, flight.given_id, reply.outputs, made, flight.lookup_ms, run.reason,
            flight.watched,
        )  # fmt: skip
        if answer is None:
            flight.fail(expired_error(flight.parsed.query))
        else:
            flight.answer_joined(answer[0], answer[1] + _COLLAPSED)


def _respond_missed(respond: Respond, status: int, body: bytes, headers: bytes) -> None:
    respond(status, body, headers + _MISS if status == 200 else headers)


def _sources(catalog: CatalogSnapshot, task: TaskName) -> Mapping[VariantName, Source]:
    """What the variants of a task that may answer are made of."""
    answering = {
        (version.model, version.version)
        for version in catalog.versions
        if version.task == task and stage_answers(version.stage)
    }
    return {
        one.name: (one.artifact, one.accuracy)
        for one in catalog.variants
        if one.task == task and (one.model, one.version) in answering
    }
