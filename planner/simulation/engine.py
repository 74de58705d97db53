"""The simulator's engine: arrivals, batches, ticks, failures, one after the other.

It plays the hardware and the thin shell around it; every decision is the policy's or its queue's.

* A device runs one batch at a time.
* A query that waits for a load is offered to the queue when the load is done.
* When a device fails, its queries are offered to the policy once more, whatever the policy.

Devices that come and go are ``planner.simulation.devices``', loads ``planner.simulation.loads``'.
All times are ms since the beginning.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf, isfinite
from typing import Any, cast

from planner.batching.protocol import Batch, Queue, Verdict
from planner.batching.variant_queues import Item
from planner.simulation.devices import Devices
from planner.simulation.energy_meter import meter_of
from planner.simulation.fleet import Fleet, Replica, Ticket, Worker
from planner.simulation.loads import Loads
from planner.simulation.memory import ToldLadder, memories_of
from planner.simulation.played_latencies import played_latencies
from planner.simulation.policy import Judged, Learning, Policy, Refusable, Replied, Targeting
from planner.simulation.queries import drawn_again, queries_of
from planner.simulation.setting import Setting
from planner.simulation.shared_cores import on_shared_cores
from planner.simulation.tally import Tally
from planner.simulation.trace import Trace
from planner.types import Action, Candidate, Choice, Load, Query, Refusal, Scale, Unload
from variants.types import ReplicaState, WorkerId

# Looking a member up in its enumeration takes ten times as long as a name.
LOADING, READY, UNLOADING = ReplicaState.LOADING, ReplicaState.READY, ReplicaState.UNLOADING
ADMITTED = Verdict.ADMITTED


class Engine:
    """One simulation. ``run`` may be called once."""

    def __init__(
        self,
        setting: Setting,
        trace: Trace,
        fleet: Fleet,
        policy: Callable[[Fleet], Policy],
        clock_s: Callable[[], float],
        tally: Tally | None = None,
    ) -> None:
        """``tally`` counts the outcomes; None: all of them."""
        import numpy as np

        self._setting = setting
        self._trace = trace
        self.fleet = fleet
        self._clock_s = clock_s
        self._prefer = setting.planning.prefer
        self._random = np.random.default_rng(setting.seed)
        self.tally = tally or Tally(trace.arrival_s)
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self._now_ms = 0.0
        self._end_ms = trace.arrival_s[-1] * 1_000 if len(trace) else 0.0
        self._outstanding = 0
        """Queries accepted and not done."""
        self._arriving = len(trace) > 0
        """Whether queries are still to come."""
        self._looked = 0
        """Intervals of the timeline whose end was seen."""
        self._next_tick_ms = 0.0
        self.policy = policy(fleet)
        self._refused = self.policy.refused if isinstance(self.policy, Refusable) else None
        self._begun = self.policy.begun if isinstance(self.policy, Targeting) else None
        self._ran = self.policy.ran if isinstance(self.policy, Learning) else None
        self._judged = self.policy.came_to if isinstance(self.policy, Judged) else None
        self._hears = self.policy if isinstance(self.policy, Replied) else None
        self._memories = memories_of(setting, self.policy, fleet.asked)
        self.devices = Devices(
            setting, fleet, self.policy, self._at,
            lambda worker: ToldLadder(worker, self._memories, lambda: self._now_ms),
        )  # fmt: skip
        self._loads = Loads(
            setting, fleet, self.policy, self._memories, self.tally,
            at=self._at, clock_ms=lambda: self._now_ms, ready=self._admit_waiting,
        )  # fmt: skip
        self._played = on_shared_cores(setting, fleet, played_latencies(setting))
        self.energy = meter_of(setting.catalog)

    # -- time -------------------------------------------------------------------------------------

    def run(self, progress: Callable[[float], None] | None = None) -> float:
        """Simulate to the end and return it, in ms."""
        self._open()
        arrive = self._arrive_instantly if self._setting.instant else self._arrive
        events = self._events
        queries = queries_of(self._trace, self._prefer, self._random)
        total = len(self._trace)
        step = max(1, total // 200)
        for index, query in enumerate(queries, 1):
            arrival_ms = query.received_ms
            while events and events[0][0] <= arrival_ms:
                self._now_ms, _, act, what = heappop(events)
                act(*what)
            self._now_ms = arrival_ms
            if index == total:
                self._arriving = False
            arrive(query)
            if progress is not None and index % step == 0:
                progress(index / total)
        while self._outstanding:
            if not events:
                raise AssertionError("queries are outstanding and nothing will happen any more")
            self._now_ms, _, act, what = heappop(events)
            act(*what)
        self._end_ms = max(self._end_ms, self._now_ms)
        while self._looked < len(self.tally.arrived):
            self._look()
        if progress is not None:
            progress(1.0)
        return self._end_ms

    def _at(self, when_ms: float, act: Callable[..., None], *what: Any) -> None:
        self._order += 1
        heappush(self._events, (when_ms, self._order, act, what))

    def _open(self) -> None:
        """What there is at the beginning, and the first of what comes round."""
        setting = self._setting
        if setting.split is not None:
            self.devices.open(setting.split.layouts[0])
        elif setting.instant or not setting.fleet_is_elastic:
            self.devices.open()
        self._at(self.tally.width_ms, self._look_again)
        if setting.instant:
            return
        self._at(0.0, self._tick, 0)
        if setting.failures_every_s:
            self._at(setting.failures_every_s * 1_000, self._fail)

    def _look(self) -> None:
        billed = [w for w in self.devices.billed if w.released_ms is None]
        self.tally.look(self._looked, self.fleet.workers.values(), billed)
        self._looked += 1

    def _look_again(self) -> None:
        self._look()
        next_ms = (self._looked + 1) * self.tally.width_ms
        heard = self._next_tick_ms <= next_ms
        self._memories.report(self.fleet.workers.values(), self._now_ms, heard=heard)
        if self._looked < len(self.tally.arrived):
            self._at(next_ms, self._look_again)

    def _tick(self, number: int) -> None:
        if self._judged is not None:
            tally = self.tally
            self._judged(sum(tally.punctual), sum(tally.late) + sum(tally.rejected))
        began_s = self._clock_s()
        actions = list(self.policy.tick(self._now_ms / 1_000))
        self.tally.plans_s.append(self._clock_s() - began_s)
        for action in actions:
            self._apply(action)
        if self._arriving:
            self._next_tick_ms = (number + 1) * self.policy.tick_s * 1_000
            self._at(self._next_tick_ms, self._tick, number + 1)

    def _apply(self, action: Action) -> None:
        if isinstance(action, Scale):
            self.devices.scale(action.device_kind, action.count, self._now_ms)
            return
        worker = self.fleet.workers.get(action.worker)
        if worker is None or worker.draining:
            return
        key = (action.task, action.variant)
        if isinstance(action, Load):
            if key not in worker.replicas:
                replica = self._loads.begin(worker, key)
                if replica is not None and self._begun is not None:
                    self._begun(replica)
        elif isinstance(action, Unload):
            replica = worker.replicas.get(key)
            if replica is not None and replica.state is READY:
                self._loads.unload(replica)

    # -- queries ----------------------------------------------------------------------------------

    def _arrive(self, query: Query) -> None:
        now_ms, clock_s = self._now_ms, self._clock_s
        began_s = clock_s()
        found = self.policy.choose(query, now_ms)
        if isinstance(found, Choice):
            taken = self._hand_over(found, query, 1) or self._again(query, found.worker.id, now_ms)
            self.tally.decisions_s.append(clock_s() - began_s)
        else:
            taken = False
            self.tally.decisions_s.append(clock_s() - began_s)
            self._warm(found)
        if not taken:
            self.tally.rejects(now_ms)

    def _again(self, query: Query, avoid: WorkerId, now_ms: float) -> bool:
        """Try once elsewhere."""
        second = query._replace(avoid=avoid)
        found = self.policy.again(second, now_ms)
        return isinstance(found, Choice) and self._hand_over(found, second, 2)

    def _warm(self, refusal: Refusal) -> None:
        """Begin the load that a refusal asks for, so that the next one finds it."""
        if refusal.load is None:
            return
        candidate, view = refusal.load
        worker = self.fleet.workers.get(view.id)
        key = (candidate.task, candidate.variant)
        if worker is None or worker.draining:
            return
        replica = worker.replicas.get(key)
        if replica is None:
            self._loads.begin(worker, key, waiting=False)
        elif replica.state is LOADING:
            self._memories.missed(key, waits=False)
            self._loads.asked(replica)
        else:
            self._memories.asked(key)

    def _hand_over(self, choice: Choice, query: Query, tries: int) -> bool:
        """Give a query to a worker; False when it does not take it."""
        candidate = choice.candidate
        worker = self.fleet.workers.get(choice.worker.id)
        if worker is None or worker.draining:
            return False
        key = (candidate.task, candidate.variant)
        replica = worker.replicas.get(key)
        if replica is None:
            patience_ms = self._patience_ms(query, candidate)
            replica = self._loads.begin(worker, key, waiting=True, patience_ms=patience_ms)
            if replica is None:
                return False
        elif replica.state is UNLOADING:
            return False
        elif replica.state is LOADING:
            self._memories.urgency.missed(key, waits=True)
            self._loads.asked(replica)
        now_ms, queue = self._now_ms, worker.queue
        ticket = Ticket(replica, query, tries)
        if replica.state is LOADING:
            replica.waiting.append(ticket)
        elif not self._admits(queue, ticket):
            return False
        replica.in_flight += 1
        self._outstanding += 1
        self._memories.asked(replica.key)
        replica.use(now_ms)
        if worker.batch is None and queue.count:
            self._start(worker)
        else:
            worker.view.busy_until_ms = now_ms + queue.backlog_ms(now_ms)
        return True

    def _patience_ms(self, query: Query, candidate: Candidate) -> float:
        """How much later than now a load may begin for a query to be answered in time."""
        left_ms = query.received_ms + query.latency_ms - self._now_ms
        return left_ms - candidate.load_ms - candidate.table.ms[query.rows]

    def _admits(self, queue: Queue, ticket: Ticket) -> bool:
        """Whether a worker takes a query into its queue; the policy hears of it if not."""
        if queue.admit(ticket, self._now_ms) is ADMITTED:
            return True
        if self._refused is not None:
            self._refused(ticket.query, ticket.replica.worker.id, self._now_ms)
        return False

    def _arrive_instantly(self, query: Query) -> None:
        """Without time: a query is answered at once by what is loaded, or loaded now."""
        now_ms = self._now_ms
        query = query._replace(latency_ms=1e15)
        began_s = self._clock_s()
        found = self.policy.choose(query, now_ms)
        replica = None
        if isinstance(found, Choice):
            key = (found.candidate.task, found.candidate.variant)
            worker = self.fleet.workers[found.worker.id]
            self._memories.asked(key)
            replica = worker.replicas.get(key) or self._loads.begin(worker, key)
        self.tally.decisions_s.append(self._clock_s() - began_s)
        if replica is None:
            self.tally.rejects(now_ms)
            return
        replica.use(now_ms)
        self.tally.answered(now_ms, replica.candidate.accuracy)

    def _admit_waiting(self, replica: Replica) -> None:
        """Offer the queries that wait for a load to the queue."""
        worker = replica.worker
        waiting, replica.waiting = replica.waiting, []
        for ticket in waiting:
            if self._hears is not None:
                self._hears.sent(ticket, self._now_ms)
            if not self._admits(worker.queue, ticket):
                replica.in_flight -= 1
                self._outstanding -= 1
                self.tally.rejects(ticket.arrived_ms)
        if worker.batch is None and worker.queue.count:
            self._start(worker)
        else:
            worker.view.busy_until_ms = self._now_ms + worker.queue.backlog_ms(self._now_ms)
        if worker.draining:
            self.devices.release_if_idle(worker, self._now_ms)

    # -- batches ----------------------------------------------------------------------------------

    def _start(self, worker: Worker) -> None:
        """Start the next batch on a device that is free."""
        now_ms = self._now_ms
        queue = worker.queue
        for item in queue.pop_expired(now_ms):
            self._lose(item)
        batch = queue.next_batch(now_ms)
        if batch is None:
            wake_ms = queue.wake_ms(now_ms) if queue.count else inf
            if isfinite(wake_ms):
                self._at(max(wake_ms, now_ms), self._wake, worker)
        else:
            ticket = cast(Ticket, batch.items[0])
            run_ms = ticket.replica.candidate.table.ms[batch.rows]
            if self._played is not None:
                worker.idle_ms = now_ms - worker.ended_ms
                run_ms = self._played(ticket.replica, run_ms)
            worker.batch = batch.items
            self._at(now_ms + run_ms, self._finish, worker, batch, run_ms)
        worker.view.busy_until_ms = now_ms + queue.backlog_ms(now_ms)

    def _wake(self, worker: Worker) -> None:
        if worker.batch is None and worker.queue.count and worker.id in self.fleet.workers:
            self._start(worker)
            if worker.draining:
                self.devices.release_if_idle(worker, self._now_ms)

    def _finish(self, worker: Worker, batch: Batch, run_ms: float) -> None:
        if worker.batch is not batch.items:
            return  # the device failed meanwhile
        now_ms = self._now_ms
        tickets = cast("list[Ticket]", batch.items)
        replica = tickets[0].replica
        worker.batch = None
        worker.ended_ms = now_ms
        worker.busy_ms += run_ms
        self.tally.ran(tickets, now_ms, run_ms, replica.candidate.accuracy)
        done_ms = replica.done_ms
        for ticket in tickets:
            done_ms += now_ms - ticket.arrived_ms
        replica.done_ms = done_ms
        if self.energy is not None:
            self.energy.ran(replica, batch.rows, now_ms, run_ms)
        count = len(tickets)
        replica.done += count
        replica.in_flight -= count
        self._outstanding -= count
        worker.queue.finished(batch.queue, now_ms, run_ms)
        if self._hears is not None:
            self._hears.replied(worker, tickets, now_ms)
        if self._played is not None and self._ran is not None:
            late = sum([not self.tally.in_time(ticket, now_ms) for ticket in tickets])
            self._ran(replica, batch.rows, run_ms, now_ms, count, late)
        if replica.state is UNLOADING and not replica.in_flight:
            self._loads.gone(replica)
        if worker.queue.count:
            self._start(worker)
        else:
            worker.view.busy_until_ms = now_ms
        if worker.draining:
            self.devices.release_if_idle(worker, self._now_ms)

    def _lose(self, item: Item) -> None:
        """Give up a query that was accepted."""
        assert isinstance(item, Ticket)
        item.replica.in_flight -= 1
        self._outstanding -= 1
        self.tally.never(item.arrived_ms)
        if self._hears is not None:
            self._hears.replied(item.replica.worker, (item,), self._now_ms)
        if item.replica.state is UNLOADING and not item.replica.in_flight:
            self._loads.gone(item.replica)

    # -- failures ---------------------------------------------------------------------------------

    def _fail(self) -> None:
        every_s = self._setting.failures_every_s
        assert every_s is not None
        if self._arriving:
            self._at(self._now_ms + every_s * 1_000, self._fail)
        if not self.fleet.workers:
            return
        worker, lost = self.devices.fail(lambda n: int(self._random.integers(n)), self._now_ms)
        self._outstanding -= len(lost)
        for ticket in lost:
            self._retry(ticket, worker)

    def _retry(self, ticket: Ticket, lost_on: WorkerId) -> None:
        """Offer a query whose device failed once more; one tried twice already is late for good."""
        draw = drawn_again(ticket.query.draw, int(self._random.integers(2**62)), self._setting)
        query = ticket.query._replace(draw=draw)
        left = ticket.tries < 2 and ticket.deadline_ms > self._now_ms
        if not (left and self._again(query, lost_on, self._now_ms)):
            self.tally.never(ticket.arrived_ms)
