"""QueryContext: what all queries in flight share, and how the gateway says what has changed."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from math import inf
from random import Random
from typing import Protocol, cast

import orjson

from controlplane.gateway.canaries.diversions import Diversions
from controlplane.gateway.canaries.recent_answers import RecentAnswers
from controlplane.gateway.counting.client_counters import ByOldKey, ClientCounters
from controlplane.gateway.counting.counters import Counters
from controlplane.gateway.overload.held_answers import HeldAnswers
from controlplane.gateway.overload.recent_refusals import RecentRefusals
from controlplane.gateway.overload.refused_tasks import RefusedTasks
from controlplane.gateway.overload.repeated_refusals import RepeatedRefusals, Wording
from controlplane.gateway.overload.retry_advice import RetryAdvice
from controlplane.gateway.protection.body_reader import BodyReader
from controlplane.gateway.protection.lethal_queries import LethalQueries
from controlplane.gateway.protection.text_reader import TextReader
from controlplane.gateway.query.deadline_guard import DeadlineGuard
from controlplane.gateway.query.demand import Demand
from controlplane.gateway.query.departures import (
    GONE_BODY,
    Counting,
    Departures,
    Leaving,
    failed_meanwhile,
)
from controlplane.gateway.query.parsing import ParsedQuery
from controlplane.gateway.query.query_errors import expired_error, header_lines
from controlplane.gateway.query.replies import JSON, lines_from, placed_lines, reason_line
from controlplane.gateway.query.waiting import STARTING, Waiting
from controlplane.gateway.texts.holding import HoldingVersions
from controlplane.gateway.tracing.watched import Traces, Watched
from controlplane.http_errors import (
    CLIENT_GONE,
    CLIENT_GONE_STATUS,
    error_body,
    request_id,
    status_of,
)
from planner.batching.deadline_queue import GREEDY_SLACK
from planner.batching.refusal_order import ClientShares, Standing
from planner.eviction.query_rates import QueryRates
from planner.selection.load_balancing import OthersQueries
from planner.selection.plan_following import CongestionWindow, choose
from planner.selection.refusal import is_infeasible
from planner.selection.routes import EMPTY, RouteTable
from planner.types import (
    Candidate,
    Choice,
    Client,
    PlacedReason,
    Query,
    QueueNews,
    Reason,
    Refusal,
    Snapshot,
    WorkerView,
)
from planner.zones.rings import Rings
from variants.buckets import TaskTable
from variants.errors import DeadlineExceeded, Internal, ModellessError, Overloaded
from variants.types import Prefer, Task, TaskName, VariantKey, WorkerId
from workers.channel.client import WorkerConnection
from workers.process.sparing_log import SparingLog
from workers.types import variant_id

log = logging.getLogger(__name__)
sparing = SparingLog(log)

Respond = Callable[[int, bytes, bytes], None]
"""Status, body, and header lines (each ending in CRLF) but the length, to the client's socket."""

PRESSED_MS = 1_000.0
"""How long after a query that could not be answered in time others are looked at before their
bodies are read. Where none is refused, the look would be in vain."""
VAIN_LOOKS = 64
"""So many in a row that found no refusal end that sooner. A look takes as long as all else that is
done for a short query, and what it spares where it finds one is about ten times that."""
FREE_MS = 20.0
"""For so long it is not looked anew which worker is free first: there may be a thousand."""


class Loader(Protocol):
    """Loads a variant on a worker when a query asks for it."""

    def __call__(
        self, candidate: Candidate, worker: WorkerId, slack_ms: float | None, need: str = ""
    ) -> "asyncio.Future[None]":
        """Start the load, or join the one under way.

        Args:
            slack_ms: how much later than now the load may begin, in ms, for the query that waits
                for it; None for queries to come.
            need: what the query asks for, to be told.

        Returns:
            A future that ends when the variant is ready, for queries to come as soon as the load
            has begun; or with the ``ModellessError`` that prevented it.
        """


class QueryContext:
    """What is known of tasks, variants and workers, what is counted, and the guard of deadlines.

    ``snapshot``, ``routes``, ``tasks`` and ``connections`` belong together: only ``update``
    replaces them, all at once.
    """

    def __init__(self, loader: Loader, clock_ms: Callable[[], float]) -> None:
        self.asked: QueryRates[VariantKey] = QueryRates()
        """What queries ask for, for the choice of a host; every snapshot has it."""
        self.snapshot = Snapshot(revision=0, tasks={}, workers={}, asked=self.asked)
        self.routes: RouteTable = EMPTY
        self.tasks: Mapping[TaskName, Task] = {}
        self.holding = HoldingVersions()
        self.connections: Mapping[WorkerId, WorkerConnection] = {}
        self._rings: Rings | None = None
        """The workers by how far away they are, where that differs."""
        self._ways: Rings | None = None
        """The rings even where all workers are equally far away; None where there are no zones."""
        self._comes_later: Callable[[Query, Choice, float], bool] = self._waits_long
        """Whether a query would wait for so long that others come first."""
        self._own_congestion = self.congestion = CongestionWindow()
        self.others = OthersQueries()
        self.refusals = RecentRefusals()
        self.repeated = RepeatedRefusals(expired_error)
        self.clients = ClientShares()
        """Who asks by which key, and what of the workers' time each uses through this gateway."""
        self.lately = RefusedTasks(self.snapshot)
        """Who was refused lately for want of room."""
        self.counts_clients = False
        """Whether there are keys, so that it is counted by key what is asked."""
        self.compresses = False
        """Whether answers are compressed for those who take them so."""
        self.choice_lines: Callable[[Reason | PlacedReason], bytes] = reason_line
        """The header lines that say why an answer is what it is."""
        self.held_answers = HeldAnswers(clock_ms)
        self.traces: Traces | None = None
        """Says which queries are traced; None where none is."""
        self.advice = RetryAdvice(Random())
        self.counters = Counters()
        self.lethal = LethalQueries()
        """Contents that may have ended workers."""
        self.reader: BodyReader | None = None
        """Reads long bodies elsewhere; None: they are read here."""
        self.text_reader: TextReader | None = None
        """Reads texts."""
        self.held: dict[TaskName, int] = {}
        """Queries in flight, by task."""
        self.held_bytes = 0
        """Of the tensors of all queries in flight."""
        self.waiting: Waiting | None = None
        """Holds queries while more workers may become known; None once all are."""
        self.awaiting = Waiting(what=STARTING)
        """Holds queries that have time for a worker that is being started."""
        self.unheard: Callable[[WorkerId], None] = lambda _: None
        """Told of a worker that has said nothing from when a query was sent to its deadline."""
        self.renew: Callable[[], bool] = lambda: False
        """Has ``update`` called at once if anything has changed; whether it had."""
        self.variant_of: Callable[[TaskName, str], str] = lambda _, version: version
        """The variant that a version of the Open Inference Protocol names."""
        self.sharing: frozenset[TaskName] = frozenset()
        """Tasks whose answers are shared: a query that would have to wait may be answered."""
        self.canaries: Diversions | None = None
        """Which queries go to a new version; None while none has a share."""
        self.answers = RecentAnswers()
        """Which classes answers named lately, for clients to say whether they were right."""
        self.load = loader
        self.clock_ms = clock_ms
        self.guard = DeadlineGuard(clock_ms, self.catch_up)
        self.departures = Departures(clock_ms, lambda: cast(Iterable[Leaving], self.guard))
        self._ids: dict[tuple[str, str], int] = {}
        self.demand = Demand(self.snapshot_for)
        self._pressed_until_ms = -inf
        self._vain_looks = 0
        """In a row, since a query could not be answered in time."""
        self._short_until_ms = -inf
        """The same as for pressure, but of queries that were refused for want of room alone."""
        self._free_ms: dict[str, tuple[float, float]] = {}
        """By task, when it was found and when the first of its workers is expected to be free."""

    # -- what has changed -----------------------------------------------------------------------

    def update(
        self,
        *,
        snapshot: Snapshot,
        routes: RouteTable,
        tasks: Mapping[TaskName, Task],
        connections: Mapping[WorkerId, WorkerConnection],
        rings: Rings | None = None,
    ) -> None:
        """Take in what the gateway knows now; the next query is chosen from it.

        Args:
            snapshot: the variants and workers that can be chosen.
            routes: where the plan wants queries to go, made of the same snapshot.
            tasks: the tasks of the catalog.
            connections: open connections, by worker; may change while they are used here.
            rings: the workers by how far away they are, where that differs.
        """
        self._rings = rings if rings else None
        self.congestion = rings.congestion if rings else self._own_congestion
        only = None if rings is None else rings.only
        self._ways = rings
        self._comes_later = self._waits_long_there if rings or only else self._waits_long
        self.choice_lines = (
            placed_lines if rings else lines_from(*only) if only is not None else reason_line
        )
        if snapshot.workers is not self.snapshot.workers or routes.prefer is not self.routes.prefer:
            self.others.follow(snapshot.workers.values(), routes.prefer)
        self.snapshot = snapshot
        self.lately.follow(snapshot)
        self.routes = routes
        if tasks is not self.tasks:
            self._forget_others(tasks)
            self.holding.follow(tasks.own_texts if isinstance(tasks, TaskTable) else {})
        self.tasks = tasks
        self.connections = connections
        self.refusals.keep(frozenset(snapshot.workers))
        self.repeated.forget()

    def _forget_others(self, tasks: Mapping[TaskName, Task]) -> None:
        """Forget what is kept of tasks and variants that may have left the catalog."""
        self._ids.clear()
        self._free_ms.clear()
        self.held = {name: count for name, count in self.held.items() if count or name in tasks}

    def rows_for(self, parsed: ParsedQuery, version: str) -> ParsedQuery | None:
        """The query with the rows that a version of its task takes, which may have its own
        tokenizer; None where it was read before that was known.

        Args:
            version: its label.
        """
        if parsed.read_as is None and self.holding.same_numbers(parsed.task, version):
            return parsed
        return parsed.rows_for(self.holding.way_of(parsed.task.name, version))

    def hold(self) -> None:
        """From now on, hold queries whose decision may be another one once more is known."""
        self.waiting = Waiting()

    def release(self) -> bool:
        """Hold nothing any more. Returns whether queries were held until now.

        Those that are held are tried again in a later turn of the event loop.
        """
        waiting, self.waiting = self.waiting, None
        if waiting is None:
            return False
        waiting.try_again()
        return True

    def choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        """The variant and worker that answer a query, or why none does."""
        if now_ms >= self.others.due_ms:
            self.others.look(now_ms)
        rings = self._rings
        if query.version is not None or query.unread:
            if (missing := self.holding.none_named(self.snapshot, query)) is not None:
                return missing
            among = self.holding.among(query)
            if rings is None:
                snapshot = among(self.snapshot)
                found = choose(snapshot, EMPTY, self.congestion, query, now_ms)
            else:
                found = rings.choose(query, now_ms, among)
        elif rings is None:
            found = choose(self.snapshot, self.routes, self.congestion, query, now_ms)
        else:
            found = rings.choose(query, now_ms)
        if (
            isinstance(found, Choice)
            and found.worker.id not in self.connections
            and self.renew()  # it has just left
        ):
            return self.choose(query, now_ms)
        return found

    def told(self, worker: WorkerView, news: QueueNews) -> None:
        """A worker tells of its queue."""
        if self.congestion.batches.told(worker, news, self.snapshot, self.clock_ms()):
            self.repeated.outdate()  # there is room sooner than was thought

    def snapshot_for(self, query: Query) -> Snapshot:
        """What can be chosen for a query."""
        return self.holding.among(query)(self.snapshot) if query.of_some_versions else self.snapshot

    def snapshots(self) -> list[Snapshot]:
        """What can be chosen, the nearest workers first."""
        return [self.snapshot] if self._rings is None else self._rings.snapshots()

    def is_infeasible(self, query: Query, now_ms: float) -> bool:
        """Whether no variant could meet the SLO of a query, on an idle worker."""
        snapshot = self.snapshot_for(query)
        return query.task in snapshot.tasks and is_infeasible(snapshot, query, now_ms)

    # -- the order of refusal -------------------------------------------------------------------

    def enter(self, client: Client, respond: Respond) -> Respond:
        """A client asks; where its answer is to go, so that it is counted."""
        if client is not self.clients.only:
            self.clients.saw(client, self.clock_ms())
        if not self.counts_clients:
            return respond
        counters = self._counted(client)

        if isinstance(respond, Watched):
            respond.respond = Counting(counters, respond.respond)
            return respond
        return Counting(counters, respond)

    def gave_up(self, respond: Respond, left_ms: float, query: Query | None) -> None:
        """A query has ended because its client has gone, or its request has failed.

        Args:
            respond: where its answer was to go, as ``enter`` gave it.
            left_ms: when the client went, by ``clock_ms``.
            query: what it asked for; None where that is not known.
        """
        counters = self.counters.task("" if query is None else query.task)
        if failed_by := failed_meanwhile(respond):
            counters.failed(failed_by)
        elif query is None:
            counters.failed(CLIENT_GONE)
        else:
            counters.gave_up(left_ms - query.received_ms, query.latency_ms)
            if isinstance(respond, Watched):
                respond.task = query.task
        respond(CLIENT_GONE_STATUS, GONE_BODY, b"")

    def refused_unread(self, client: Client) -> None:
        """A client's query was refused before ``enter``: its body is too long, or wrong."""
        if self.counts_clients:
            self._counted(client).ended(answered=False)

    def _counted(self, client: Client) -> ClientCounters:
        counters = self.counters.client(client.name)
        if isinstance(client, ByOldKey):
            counters.old_keys.came(client.digest)
        return counters

    def standing(self, query: Query, now_ms: float) -> Standing:
        """Where a query stands in the order of refusal; what tasks use, workers know."""
        clients = self.clients
        over = clients.only is None and clients.is_over(query.client, now_ms)
        return (over, False, query.priority)

    def refused(self, query: Query, by: WorkerId, now_ms: float, *, twice: bool) -> None:
        """A worker refused a query, or would; ``twice``: its second one, for want of room.

        Nobody is refused in favour of a client that takes more than its share.
        """
        if twice:
            twice = not self.standing(query, now_ms)[0]
        self.congestion.refused(now_ms, by, twice=query if twice else None)

    def leaving_room(self, query: Query, found: Choice, now_ms: float) -> Choice | None:
        """A choice that leaves the room to others, who were refused and stand before a query.

        It is the one that was found, or the quickest where that one does not; ``None`` where
        neither does.
        """
        if not self._comes_later(query, found, now_ms):
            return found
        quickest = self.choose(query._replace(prefer=Prefer.LATENCY), now_ms)
        if isinstance(quickest, Choice) and not quickest.cold:
            return None if self._comes_later(query, quickest, now_ms) else quickest
        return None

    def _waits_long_there(self, query: Query, found: Choice, now_ms: float) -> bool:
        """The same where workers are far away: the way there and back is no waiting."""
        assert self._ways is not None
        return self._waits_long(*self._ways.as_there(query, found), now_ms)

    def _waits_long(self, query: Query, found: Choice, now_ms: float) -> bool:
        """Whether a query would wait for more than the first half of its slack, as in a worker's
        queue, where others come first."""
        if query.best_effort or found.cold or found.worker.busy_until_ms <= now_ms:
            return False
        run_ms = found.candidate.table.ms[query.rows]
        slack_ms = query.received_ms + query.latency_ms - now_ms - run_ms
        return found.predicted_ms - run_ms > GREEDY_SLACK * slack_ms and self.lately.is_before(
            self.standing(query, now_ms), found.worker.id, now_ms
        )

    # -- for each query -------------------------------------------------------------------------

    def fail(
        self,
        error: Exception,
        respond: Respond,
        task: str = "",
        given_id: bytes | None = None,
        of: str = "",
    ) -> None:
        """Answer with an error; one that is not ours is logged and shown as an id only.

        Args:
            task: name of the task to count the error at; empty: the one that the error names.
            given_id: the caller's ``X-Request-Id``.
            of: the variant, by which failures are told apart in the log.
        """
        if not task and isinstance(error, ModellessError):
            task = error.asked_task
        if respond.__class__ is Watched:
            respond.task = task
        id_ = request_id(given_id)
        if not isinstance(error, ModellessError) or isinstance(error, Internal):
            sparing.error(of or task, error, "request %s failed", id_)
        code = error.code if isinstance(error, ModellessError) else "INTERNAL"
        if isinstance(error, Overloaded | DeadlineExceeded):
            now_ms = self.clock_ms()
            self._pressed_until_ms, self._vain_looks = now_ms + PRESSED_MS, 0
            if isinstance(error, Overloaded):
                self._short_until_ms = self._pressed_until_ms
                error.retry_after_s = (
                    self.advice.wait_ms(self._least_queue_ms(task, now_ms), now_ms) / 1e3
                )
        self.counters.task(task).failed(code)
        body = orjson.dumps(error_body(error, id_))
        headers = b"%sx-request-id: %s\r\n%s" % (JSON, id_.encode(), header_lines(error))
        respond(status_of(error), body, headers)

    def refuse(
        self,
        wording: Wording,
        respond: Respond,
        task: str,
        given_id: bytes | None = None,
        now_ms: float | None = None,
    ) -> None:
        """Answer with a refusal for want of time that was worded before; else as ``fail``."""
        if respond.__class__ is Watched:
            respond.task = task
        id_ = request_id(given_id).encode()
        if now_ms is None:
            now_ms = self.clock_ms()
        self._pressed_until_ms, self._vain_looks = now_ms + PRESSED_MS, 0
        wait_ms = 0
        if wording.waits:
            self._short_until_ms = self._pressed_until_ms
            wait_ms = self.advice.wait_ms(self._least_queue_ms(task, now_ms), now_ms)
        self.counters.task(task).failed(wording.code)
        body, headers = wording.written(id_, wait_ms)
        respond(wording.status, body, JSON + headers)

    def _least_queue_ms(self, task: str, now_ms: float) -> float:
        """When the first worker that can serve a task is expected to have done all it was given."""
        known = self._free_ms.get(task)
        if known is None or now_ms >= known[0] + FREE_MS:
            view = self.snapshot.tasks.get(TaskName(task))
            workers = {
                worker.id: worker
                for candidate in (view.by_accuracy if view is not None else ())
                for worker in candidate.ready
                if not worker.draining
            }
            free_ms = min((worker.busy_until_ms for worker in workers.values()), default=now_ms)
            known = self._free_ms[task] = (now_ms, free_ms)
        left_ms = known[1] - now_ms
        return left_ms if left_ms > 0.0 else 0.0

    def catch_up(self) -> None:
        """Send to workers what waits for the end of this turn, and take in what they answered.

        It costs a system call for each worker that has queries of this gateway.
        """
        for connection in tuple(self.connections.values()):
            connection.catch_up()

    def under_pressure(self) -> bool:
        """Whether a query could not be answered in time a moment ago."""
        if self._pressed_until_ms == -inf:  # as nearly always, and the clock need not be asked
            return False
        if self.clock_ms() < self._pressed_until_ms:
            return True
        self._pressed_until_ms = -inf
        return False

    def looked_in_vain(self) -> None:
        """A query was looked at before it was read, and would not be refused."""
        self._vain_looks += 1
        if self._vain_looks >= VAIN_LOOKS:
            self._pressed_until_ms = -inf

    def id_of(self, task: str, variant: str) -> int:
        """The number by which the channel names a variant of a task."""
        key = (task, variant)
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = variant_id(task, variant)
        return found
