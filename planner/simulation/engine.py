"""The simulator's engine: arrivals, batches, loads, ticks, failures, one after the other.

It plays the hardware and the thin shell around it; every decision is the policy's or its queue's.

* A device runs one batch at a time; loads run beside serving, one after the other unless
  ``Setting.loads_in_turn`` says otherwise. Memory is reserved from the moment of the decision to
  load a variant until it is gone.
* A query that waits for a load is offered to the queue when the load is done.
* When a device fails, its queries are offered to the policy once more, whatever the policy.

Devices that come and go are ``planner.simulation.devices``'. All times are ms since the beginning.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf, isfinite
from typing import Any, cast

from planner.batching.protocol import Batch, Queue, Verdict
from planner.batching.variant_queues import Item
from planner.eviction.turns import turn_of
from planner.simulation.devices import Devices
from planner.simulation.energy_meter import meter_of
from planner.simulation.fleet import Fleet, Replica, Ticket, Worker, load_order
from planner.simulation.memory import ToldLadder, memories_of
from planner.simulation.played_latencies import played_latencies
from planner.simulation.policy import Learning, Policy, Refusable, Targeting
from planner.simulation.queries import queries_of
from planner.simulation.setting import Setting
from planner.simulation.shared_cores import on_shared_cores
from planner.simulation.tally import Tally
from planner.simulation.trace import Trace
from planner.types import Action, Candidate, Choice, Load, Query, Refusal, Scale, Unload
from variants.types import ReplicaState, VariantKey, WorkerId

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
        self._memories = memories_of(setting, self.policy, fleet.asked)
        self.devices = Devices(
            setting, fleet, self.policy, self._at,
            lambda worker: ToldLadder(worker, self._memories, lambda: self._now_ms),
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
        total, index = len(self._trace), 0
        step = max(1, total // 200)
        query = next(queries, None)
        while query is not None or self._outstanding:
            if events and (query is None or events[0][0] <= query.received_ms):
                self._now_ms, _, act, what = heappop(events)
                act(*what)
            elif query is not None:
                self._now_ms = query.received_ms
                index += 1
                self._arriving = index < total
                arrive(query)
                query = next(queries, None)
                if progress is not None and index % step == 0:
                    progress(index / total)
            else:
                raise AssertionError("queries are outstanding and nothing will happen any more")
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
                replica = self._load(worker, key)
                if replica is not None and self._begun is not None:
                    self._begun(replica)
        elif isinstance(action, Unload):
            replica = worker.replicas.get(key)
            if replica is not None and replica.state is READY:
                self._unload(replica)

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
            self._load(worker, key, waiting=False)
        elif replica.state is LOADING:
            self._memories.missed(key, waits=False)
            self._asked(replica)
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
            replica = self._load(worker, key, waiting=True, patience_ms=patience_ms)
            if replica is None:
                return False
        elif replica.state is UNLOADING:
            return False
        elif replica.state is LOADING:
            self._memories.urgency.missed(key, waits=True)
            self._asked(replica)
        now_ms, queue = self._now_ms, worker.queue
        ticket = Ticket(replica, query, tries)
        if replica.state is LOADING:
            replica.waiting.append(ticket)
        elif not self._admits(queue, ticket):
            return False
        replica.in_flight += 1
        self._outstanding += 1
        self._memories.asked(key)
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
            replica = worker.replicas.get(key) or self._load(worker, key)
        self.tally.decisions_s.append(self._clock_s() - began_s)
        if replica is None:
            self.tally.rejects(now_ms)
            return
        replica.use(now_ms)
        self.tally.answered(now_ms, replica.candidate.accuracy)

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
        tickets = cast(list[Ticket], batch.items)
        replica = tickets[0].replica
        worker.batch = None
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
        if self._played is not None and self._ran is not None:
            late = sum([not self.tally.in_time(ticket, now_ms) for ticket in tickets])
            self._ran(replica, batch.rows, run_ms, now_ms, count, late)
        if replica.state is UNLOADING and not replica.in_flight:
            self._gone(replica)
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
        if item.replica.state is UNLOADING and not item.replica.in_flight:
            self._gone(item.replica)

    # -- loads ------------------------------------------------------------------------------------

    def _load(
        self,
        worker: Worker,
        key: VariantKey,
        *,
        waiting: bool | None = None,
        patience_ms: float = 0.0,
        counted: bool = False,
    ) -> Replica | None:
        """Begin a load, evicting what the rule says; None when there is no room, or none yet.

        Args:
            waiting: whether the query that asks for it waits; None: no query asks.
            patience_ms: how much later than now it may begin, for the query that waits.
            counted: that a query asks was counted before, and the load's turn did not come.
        """
        candidate = self.fleet.offers[worker.kind.name].get(key)
        if candidate is None:
            return None
        setting, now_ms = self._setting, self._now_ms
        turn = None
        if waiting is not None and candidate.memory_mib > worker.free_mib:
            busy_ms = worker.loading_ms(now_ms)
            turn = turn_of(busy_ms / 1_000, waiting=waiting, patience_s=patience_ms / 1_000)
            waiting = turn.waits
        if waiting is not None and not counted:
            self._memories.missed(key, waits=waiting)  # refused or not
        if turn is not None and not turn.now:
            if turn.soon and key not in worker.put_off:
                worker.put_off.add(key)
                self._at(now_ms + busy_ms, self._load_put_off, worker, key)
            return None
        leave = self._memories.to_evict(worker, candidate, now_ms, waiting=waiting)
        if leave is None:
            return None
        for other in leave:
            self._unload(worker.replicas[other])
        queue = worker.queue.add_variant(candidate.task, candidate.table)
        replica = Replica(key, candidate, worker, queue)
        worker.replicas[key] = replica
        worker.reserved_mib += candidate.memory_mib
        worker.view.free_mib = worker.free_mib
        replica.displaces = bool(leave)
        if waiting is None:
            worker.view.will_load(key, asked=False)
        else:
            self._asked(replica)
        self.tally.loaded(now_ms, candidate.load_ms / 1_000)
        if setting.instant:
            self._ready(replica)
        elif setting.loads_in_turn:
            worker.to_load.append(replica)
            self._load_next(worker)
        else:
            self._at(now_ms + candidate.load_ms, self._ready, replica)
        return replica

    def _asked(self, replica: Replica) -> None:
        """Queries ask for what is being loaded, or waits for its turn."""
        worker = replica.worker
        worker.view.will_load(replica.key, asked=True)
        if self._setting.loads_in_turn and worker.loads is not replica and not replica.displaces:
            replica.asked_qps = self._memories.learned_qps(replica.key, self._now_ms / 1_000)

    def _load_next(self, worker: Worker) -> None:
        """Begin the load whose turn it is."""
        if worker.loads is not None or not worker.to_load:
            return
        replica = min(worker.to_load, key=load_order)
        worker.to_load.remove(replica)
        worker.loads = replica
        worker.loads_until_ms = self._now_ms + replica.candidate.load_ms
        self._at(worker.loads_until_ms, self._loaded, replica)

    def _loaded(self, replica: Replica) -> None:
        worker = replica.worker
        if worker.loads is replica:  # the device has not failed meanwhile
            worker.loads = None
            self._load_next(worker)
            self._ready(replica)

    def _load_put_off(self, worker: Worker, key: VariantKey) -> None:
        """The turn of a load may have come that queries asked for while others were loaded."""
        worker.put_off.discard(key)
        there = self.fleet.workers.get(worker.id) is worker and not worker.draining
        if there and key not in worker.replicas:
            self._load(worker, key, waiting=False, counted=True)

    def _ready(self, replica: Replica) -> None:
        worker = replica.worker
        if worker.replicas.get(replica.key) is not replica:
            return  # the device failed meanwhile
        worker.view.loads_no_more(replica.key)
        replica.state = READY
        worker.holds(replica.key, ready=True)
        replica.loaded_ms = self._now_ms
        self.policy.changed()
        waiting, replica.waiting = replica.waiting, []
        for ticket in waiting:
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

    def _unload(self, replica: Replica) -> None:
        """Take a variant out of routing; it is gone once nothing of it is in flight."""
        replica.state = UNLOADING
        replica.worker.holds(replica.key, ready=False)
        self.tally.evicted(self._now_ms)
        self.policy.changed()
        if not replica.in_flight:
            self._gone(replica)

    def _gone(self, replica: Replica) -> None:
        worker = replica.worker
        del worker.replicas[replica.key]
        worker.queue.remove_variant(replica.queue)
        worker.reserved_mib -= replica.candidate.memory_mib
        if not worker.replicas:
            worker.reserved_mib = 0.0
        worker.view.free_mib = worker.free_mib

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
        query = ticket.query._replace(draw=int(self._random.integers(2**62)))
        left = ticket.tries < 2 and ticket.deadline_ms > self._now_ms
        if not (left and self._again(query, lost_on, self._now_ms)):
            self.tally.never(ticket.arrived_ms)
