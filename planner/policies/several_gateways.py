"""Our own policy with gateways each of which chooses by what it knows itself.

Most of what a gateway goes by all gateways know alike, and at once: the catalog, the plan, and what
workers announce whenever it changes (what they hold, load and have room for). But how long a
worker's queue is, a gateway knows only as ``controlplane.gateway.query.in_flight`` has it:

* What it sends makes the worker busy for longer, by what that adds to what it has sent itself.
* Each reply, an answer or a refusal, says how long the worker's queue is at that moment.
* Beside its replies a worker tells which batches form there, as ``open_batches.following`` has it.
* Of what others have sent since, it knows what they had sent until earlier replies, in the mean
  (``planner.selection.load_balancing.OthersQueries``).

Its congestion window, the open batches and what is usual on workers of a kind are its own, too.

A single gateway is played so where accuracy counts, or the setting says so
(``Setting.by_replies``); otherwise it knows the queues as they are, which is what ``Modelless``
plays.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, cast

from planner.batching.protocol import LiveQueue
from planner.policies.modelless import REPORTED_MS, Modelless, planner_of
from planner.selection.load_balancing import OthersQueries
from planner.selection.open_batches import following
from planner.selection.plan_following import CongestionWindow, choose
from planner.selection.routes import EMPTY, RouteTable
from planner.simulation.fleet import Fleet, Ticket, Worker
from planner.simulation.policy import Brief
from planner.simulation.queries import gateway_of
from planner.simulation.setting import MOST_GATEWAYS
from planner.solver.problem import Planner
from planner.types import (
    TOLD_AGAIN_MS,
    Candidate,
    Choice,
    FormingBatch,
    Query,
    QueueNews,
    Refusal,
    Snapshot,
    WorkerView,
)
from variants.types import Prefer, TaskName, WorkerId


def make(brief: Brief, fleet: Fleet) -> Modelless:
    several = brief.setting.replies_tell
    return (SeveralGateways if several else Modelless)(brief, fleet, planner_of(brief))


class SeenWorker(WorkerView):
    """A worker as one gateway knows it: until when it is busy is its own, the rest is what all are
    told."""

    __slots__ = ("known", "news_ms")

    def __init__(self, known: WorkerView, *, shared: bool) -> None:
        self.known = known
        """What all gateways are told."""
        self.shared = shared
        self.news_ms = -inf
        """When it told of its queue last."""
        self.id = known.id
        self.device_kind = known.device_kind
        self.busy_until_ms = self.own_until_ms = self.replied_ms = 0.0
        self.others_ms = self.silence_ms = 0.0
        self.given_ms = -inf
        self.replies = 0

    def __getattr__(self, name: str) -> Any:
        """What is not its own."""
        return getattr(self.known, name)


def news_of(worker: Worker, now_ms: float) -> QueueNews:
    """What a worker tells of its queue, as ``workers.execution.listening.server`` has it."""
    queue = cast(LiveQueue, worker.queue)
    forming = [
        FormingBatch(*cast(Ticket, item).replica.key, rows, most, in_ms)
        for item, rows, most, in_ms in queue.forming(now_ms)
    ]
    return QueueNews(queue.backlog_ms(now_ms), forming)


class Gateway:
    """What one gateway knows, and what it learned from its own queries."""

    def __init__(self, prefer: Prefer, *, shared: bool) -> None:
        """
        Args:
            prefer: what plans optimise.
            shared: whether there are others.
        """
        self.shared = shared
        self.following = following(prefer, shared=shared)
        self._look_ms = self.following.every_ms or inf
        """When it is looked next which workers have told nothing for long."""
        self.congestion = CongestionWindow()
        self.others = OthersQueries()
        self.routes: RouteTable = EMPTY
        self.snapshot: Snapshot | None = None
        self.before: Snapshot | None = None
        """The latest snapshot; it may be out of date."""
        self._seen: dict[WorkerId, SeenWorker] = {}

    def see(self, workers: Iterable[Worker]) -> Sequence[WorkerView]:
        """The workers that are there, in their order, with what is known of their queues."""
        before, self._seen = self._seen, {}
        for worker in workers:
            seen = before.get(worker.id)
            if seen is None or seen.known is not worker.view:
                seen = SeenWorker(worker.view, shared=self.shared)
            self._seen[worker.id] = seen
        return list(self._seen.values())

    def sends(self, candidate: Candidate, worker: WorkerId, query: Query, now_ms: float) -> None:
        """A query is sent: as ``InFlight._send`` counts what its worker has to do."""
        seen = self._seen.get(worker)
        if seen is not None:
            longest_ms = self.routes.longest_ms(worker, query.latency_ms)
            added_ms = self.congestion.batches.sent(candidate, seen, query.rows, now_ms, longest_ms)
            seen.given(added_ms, now_ms)

    def hears(self, worker: Worker, now_ms: float) -> None:
        """A reply says how long a worker's queue is: as in ``InFlight._replied``; and which batches
        form there, where that is wanted, as the worker's ``Peer.told``."""
        seen = self._seen.get(worker.id)
        if seen is None:
            return
        seen.told(worker.queue.backlog_ms(now_ms), now_ms)
        if self.following.replies and now_ms - seen.news_ms >= TOLD_AGAIN_MS:
            self.takes(worker, news_of(worker, now_ms), now_ms)

    def takes(self, worker: Worker, news: QueueNews, now_ms: float) -> None:
        """A worker tells of its queue: as ``QueryContext.told``."""
        seen = self._seen.get(worker.id)
        if seen is not None and self.before is not None:
            seen.news_ms = now_ms
            self.congestion.batches.told(seen, news, self.before, now_ms)

    def looks(self, workers: Mapping[WorkerId, Worker], now_ms: float) -> None:
        """Hear of those workers that have told nothing for long, as their timers would have it."""
        every_ms = self.following.every_ms
        if not every_ms or now_ms < self._look_ms:
            return
        self._look_ms = now_ms + every_ms / 10
        for id_, seen in self._seen.items():
            worker = workers.get(id_)
            if worker is not None and now_ms - seen.news_ms >= every_ms:
                self.takes(worker, news_of(worker, now_ms), now_ms)


class SeveralGateways(Modelless):
    """One control loop, which sees the sum of what all gateways count, and one or more gateways."""

    def __init__(self, brief: Brief, fleet: Fleet, planner: Planner) -> None:
        super().__init__(brief, fleet, planner)
        count = brief.setting.gateways
        if not 1 <= count <= MOST_GATEWAYS:
            raise ValueError(f"there may be 1 to {MOST_GATEWAYS} gateways, not {count}")
        prefer = self._planning.prefer
        self._gateways = [Gateway(prefer, shared=count > 1) for _ in range(count)]
        names = sorted(task.name for task in brief.setting.catalog.tasks)
        self._stay: dict[TaskName, Gateway] = {}
        """The gateway that all queries of a task come to, where they stay with one."""
        if brief.setting.tasks_stay:
            self._stay = {name: self._gateways[at % count] for at, name in enumerate(names)}

    def _gateway(self, query: Query) -> Gateway:
        """To which one a query comes, and comes back when its worker did not take it."""
        staying = self._stay.get(query.task)
        return staying or self._gateways[gateway_of(query, len(self._gateways))]

    def changed(self) -> None:
        for gateway in self._gateways:
            gateway.snapshot = None

    def refused(self, query: Query, worker: WorkerId, now_ms: float) -> None:
        gateway = self._gateway(query)
        there = self._fleet.workers.get(worker)
        if there is not None:
            gateway.hears(there, now_ms)
        twice = query if query.avoid is not None else None
        gateway.congestion.had_no_time(worker, query, now_ms)
        gateway.congestion.refused(now_ms, twice=twice)
        self._live.refused(query, worker, now_ms)

    def replied(self, worker: Worker, tickets: Iterable[Ticket], now_ms: float) -> None:
        for gateway in {id(g): g for g in [self._gateway(t.query) for t in tickets]}.values():
            gateway.hears(worker, now_ms)

    def sent(self, ticket: Ticket, now_ms: float) -> None:
        replica, query = ticket.replica, ticket.query
        self._gateway(query).sends(replica.candidate, replica.worker.id, query, now_ms)

    def _choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        if now_ms - self._heard_ms >= REPORTED_MS:
            self._hear(now_ms)
        gateway = self._gateway(query)
        snapshot = self._snapshot_for(query)
        gateway.looks(self._fleet.workers, now_ms)
        if now_ms >= gateway.others.due_ms:
            gateway.others.look(now_ms)
        found = choose(snapshot, gateway.routes, gateway.congestion, query, now_ms)
        if isinstance(found, Choice) and not found.cold:
            gateway.sends(found.candidate, found.worker.id, query, now_ms)
        return found

    def _snapshot_for(self, query: Query) -> Snapshot:
        gateway = self._gateway(query)
        return gateway.snapshot or self._renewed(gateway)

    def _renewed(self, gateway: Gateway) -> Snapshot:
        before, views = gateway.before, gateway.see(self._fleet.workers.values())
        snapshot = gateway.snapshot = gateway.before = self._snapshot_of(views, before)
        routes = self._resolved(snapshot, gateway.routes)
        same = before is not None and before.workers is snapshot.workers
        if not same or routes.prefer is not gateway.routes.prefer:
            gateway.others.follow(views, routes.prefer)  # as ``QueryContext.update``
        gateway.routes = routes
        return snapshot
