"""INFaaS (Romero et al., USENIX ATC'21): reactive selection and scaling, without deadlines.

The numbers are in ``infaas_rules``, what is counted in ``infaas_offers``, and the scaling of
workers in ``infaas_workers``; here is what is decided when. Each second overloaded replicas are
blacklisted, variants replicated, upgraded or stepped down, and workers added. Selection
(section 4): the last five picks, then a scan by accuracy from the floor upwards, as far as the
look-up budget goes; of the running variants the one with the least slack, else the one that starts
soonest.

Where the paper is silent, and what was assumed:

* Workers batch whatever waits, oldest first, up to the batch by which the variant is judged.
* Of the replicas of a variant, the one with the least queries per second is the one whose turn it
  is. Rates for scaling are smoothed (weight 0.5).
* If skipping fast variants for a loose SLO leaves none, they are not skipped; if no GPU variant
  meets the SLO at its batch, those that meet it with one row are taken.
* While a replica is blacklisted, it does not count as one for scaling.
* If a task runs but all of it is blacklisted, the query goes to the replica with the least
  outstanding, and what would have been picked cold is loaded within the second.
* A variant is loaded on the least utilised worker that has the memory, at random among equals, the
  one that holds least first. If none has, the simulator's eviction makes room where nothing runs.
* Upgrading looks at all variants of the task on all device kinds that meet the highest floor and
  the tightest latency of the last second's queries: the simulator's variants are an architecture
  each. The fastest is the one with the highest rate.
* A step down unloads one replica, where the fewest others are. A single replica gets no vote unless
  nothing arrives, so stepping down to the CPU would never differ from unloading.
* Under the objective ``cost``, workers follow the demand: besides the rule of the paper, what the
  rates need at the peak rates of their variants is ordered at once, and a worker for each replica
  that finds no device. A worker is released once it has held nothing for a minute, the least that
  is billed.
* Under ``instant`` nothing is counted and only selection is left.
"""

from collections.abc import Iterable, Sequence

from planner.batching.protocol import Queue
from planner.policies.fifo import FifoQueue
from planner.policies.offers import (
    INFEASIBLE,
    NOWHERE,
    UNKNOWN,
    Held,
    answering,
    chosen,
    cold,
    permits,
)
from planner.policies.published import infaas_rules as rules
from planner.policies.published.infaas_offers import Offer, Seen
from planner.policies.published.infaas_workers import WorkerScaling
from planner.simulation.fleet import Fleet, Replica, Worker
from planner.simulation.policy import Brief
from planner.types import Action, Choice, Load, Query, Refusal, Unload
from variants.types import DeviceKindName, TaskName, WorkerId

Asked = tuple[TaskName, float, float | None, float | None]


def make(brief: Brief, fleet: Fleet) -> "Infaas":
    return Infaas(brief, fleet)


class Infaas:
    """Picks a variant for every query; grows and shrinks what is loaded as queries come."""

    tick_s = 1.0

    def __init__(self, brief: Brief, fleet: Fleet) -> None:
        self._setting = brief.setting
        self._fleet = fleet
        self._held = Held(fleet)
        self._offers = {
            task: tuple(Offer(candidate) for candidate in found)
            for task, found in answering(fleet, brief.setting.kinds).items()
        }
        self._all = [offer for offers in self._offers.values() for offer in offers]
        self._batch = {offer.it.table: offer.batch for offer in self._all}
        self._suitable: dict[Asked, tuple[Offer, ...]] = {}
        self._recent: dict[TaskName, list[Offer]] = {}
        self._blacklist: set[Replica] = set()
        self._seen: dict[Replica, Seen] = {}
        self._wanted: dict[TaskName, Offer] = {}
        """What to load for a task all of whose replicas are blacklisted."""
        self._workers = WorkerScaling(fleet, brief.setting.kinds)

    def queue(self) -> Queue:
        return FifoQueue(lambda _, table: self._batch[table])

    def changed(self) -> None:
        self._held.stale = True

    # -- selection --------------------------------------------------------------------------------

    def choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        asked = (query.task, query.latency_ms, query.accuracy, query.cost)
        suitable = self._suitable.get(asked)
        if suitable is None:
            suitable = self._suitable[asked] = self._scan(query)
        if not suitable:
            return INFEASIBLE if query.task in self._offers else UNKNOWN
        recent = self._recent.setdefault(query.task, [])
        for offer in recent:
            if offer in suitable:
                replica = self._next(offer, query)
                if replica is not None:
                    return self._sent(offer, replica, query, now_ms)
        # The least slack first.
        for offer in suitable:
            replica = self._next(offer, query)
            if replica is not None:
                self._note(recent, offer)
                return self._sent(offer, replica, query, now_ms)
        return self._without(suitable, recent, query, now_ms)

    def again(self, query: Query, now_ms: float) -> Choice | Refusal | None:
        return self.choose(query, now_ms)

    def _scan(self, query: Query) -> tuple[Offer, ...]:
        """What may answer a query, the least slack first."""
        fitting = [offer for offer in self._offers.get(query.task, ()) if permits(query, offer.it)]
        fitting = fitting[: rules.scan_budget(query.latency_ms)]
        kept = [offer for offer in fitting if offer.fitted_ms <= query.latency_ms]
        if not kept:
            kept = [offer for offer in fitting if offer.it.table.ms[1] <= query.latency_ms]
        if query.latency_ms > rules.LOOSE_MS:
            kept = [offer for offer in kept if offer.fitted_ms >= rules.LOOSE_MS] or kept
        return tuple(sorted(kept, key=lambda offer: (-offer.fitted_ms, offer.it.variant)))

    def _note(self, recent: list[Offer], offer: Offer) -> None:
        if offer in recent:
            recent.remove(offer)
        recent.insert(0, offer)
        del recent[rules.RECENT :]

    def _next(self, offer: Offer, query: Query) -> Replica | None:
        """The replica with the least queries of late: each in turn, the blacklisted left out."""
        usable = offer.usable
        if self._held.stale or usable is None:
            running = self._running(offer)
            usable = offer.usable = [r for r in running if r not in self._blacklist]
        for _ in usable:
            offer.turn += 1
            replica = usable[offer.turn % len(usable)]
            if replica.worker.id != query.avoid:
                return replica
        return None

    def _running(self, offer: Offer) -> Sequence[Replica]:
        if self._held.stale:
            for other in self._all:
                other.running = other.usable = None
        if offer.running is None:
            ready = self._held.ready(offer.key)
            offer.running = [r for r in ready if r.candidate is offer.it]
        return offer.running

    def _sent(self, offer: Offer, replica: Replica, query: Query, now_ms: float) -> Choice:
        offer.count(query)
        return chosen(replica, query, now_ms)

    def _without(
        self, suitable: Sequence[Offer], recent: list[Offer], query: Query, now_ms: float
    ) -> Choice | Refusal:
        """Nothing suitable runs, or all of it is blacklisted."""
        soonest = min(suitable, key=lambda offer: offer.start_ms)
        busy = [r for o in suitable for r in self._running(o) if r.worker.id != query.avoid]
        if busy:
            self._wanted[query.task] = soonest
            replica = min(busy, key=lambda replica: replica.in_flight)
            return self._sent(self._offer(replica), replica, query, now_ms)
        for offer in suitable:
            for replica in self._held.loading(offer.key):
                if replica.candidate is offer.it and replica.worker.id != query.avoid:
                    return self._sent(offer, replica, query, now_ms)
        soonest.count(query)
        for offer in sorted(suitable, key=lambda offer: offer.start_ms):
            host = self._host(offer, query.draw, query.avoid)
            if host is not None:
                self._note(recent, offer)
                self._held.stale = True
                return cold(offer.it, host)
        return NOWHERE

    def _offer(self, replica: Replica) -> Offer:
        return next(o for o in self._offers[replica.key[0]] if o.it is replica.candidate)

    def _host(self, offer: Offer, draw: int, avoid: WorkerId | None = None) -> Worker | None:
        """Where to load a variant: where there is memory, else where eviction might make some."""
        able = [
            worker
            for worker in self._fleet.workers.values()
            if worker.kind.name == offer.it.device_kind
            and not worker.draining
            and worker.id != avoid
            and offer.key not in worker.replicas
        ]
        roomy = [worker for worker in able if worker.free_mib >= offer.it.memory_mib]
        if not roomy:
            return max(able, key=lambda w: (w.free_mib, w.id), default=None)
        least = min(self._workers.rank(worker) for worker in roomy)
        equal = [worker for worker in roomy if self._workers.rank(worker) == least]
        return equal[draw % len(equal)]

    # -- each second ------------------------------------------------------------------------------

    def tick(self, now_s: float) -> Iterable[Action]:
        """Blacklist, scale variants, step down, scale workers."""
        self._held.stale = True
        self._workers.measure(self.tick_s)
        self._judge()
        actions: list[Action] = []
        taken: dict[WorkerId, float] = {}
        short: dict[DeviceKindName, int] = {}
        for offer in self._all:
            offer.pass_second()
        for offer in self._wanted.values():
            if not self._held.loading(offer.key):
                actions += self._grow(offer, 1, taken, short)
        self._wanted.clear()
        for offer in self._all:
            replicas = [r for r in self._running(offer) if not r.worker.draining]
            loading = [r for r in self._held.loading(offer.key) if r.candidate is offer.it]
            if replicas or loading:
                actions += self._scale_variant(offer, replicas, len(loading), taken, short)
        if self._setting.fleet_is_elastic:
            actions += self._workers.scale(now_s, self._all, short)
        return actions

    def _judge(self) -> None:
        """Blacklist the overloaded, and forgive those that recovered."""
        blacklist: set[Replica] = set()
        seen: dict[Replica, Seen] = {}
        for offer in self._all:
            for replica in self._running(offer):
                load, seen[replica] = self._load(replica)
                judge = rules.recovered if replica in self._blacklist else rules.overloaded
                verdict = judge(load, offer.fitted_ms, offer.batch, 1, offer.gpu)
                if verdict is not (replica in self._blacklist):
                    blacklist.add(replica)
        self._blacklist, self._seen = blacklist, seen
        for offer in self._all:
            offer.usable = None

    def _load(self, replica: Replica) -> tuple[rules.Load, Seen]:
        before = self._seen.get(replica) or Seen()
        done = replica.done - before.done
        mean_ms = (replica.done_ms - before.done_ms) / done if done else 0.0
        after = Seen()
        after.arrived = replica.arrived
        after.done, after.done_ms = replica.done, replica.done_ms
        qps = (replica.arrived - before.arrived) / self.tick_s
        return rules.Load(mean_ms, qps, replica.in_flight), after

    def _scale_variant(
        self,
        offer: Offer,
        running: Sequence[Replica],
        loading: int,
        taken: dict[WorkerId, float],
        short: dict[DeviceKindName, int],
    ) -> list[Action]:
        """Replicate, upgrade or step down one variant."""
        replicas = len(running) + loading
        usable = replicas - sum(1 for replica in running if replica in self._blacklist)
        lacking = rules.lacking_qps(offer.qps, usable, offer.thr, offer.it.load_ms)
        count = rules.more_replicas(lacking, offer.thr)
        offer.votes = rules.votes(offer.votes, offer.qps, replicas, offer.thr)
        if count:
            best, need = offer, count
            replicate_ms = rules.scaling_cost_ms(count, offer.it.load_ms, self._room(offer))
            for other in self._faster(offer):
                more = rules.more_replicas(lacking, other.thr)
                upgrade_ms = rules.scaling_cost_ms(more, other.it.load_ms, self._room(other))
                if rules.upgrades(replicate_ms, upgrade_ms):
                    best, need = other, more
                    break
            return self._grow(best, need, taken, short)
        if rules.steps_down(offer.votes, offer.gpu) and running:
            offer.votes = 0
            leaves = min(running, key=lambda r: (len(r.worker.replicas), r.in_flight))
            return [Unload(worker=leaves.worker.id, task=offer.key[0], variant=offer.key[1])]
        return []

    def _room(self, offer: Offer) -> int:
        """How many more devices could hold a variant."""
        return sum(
            1
            for worker in self._fleet.workers.values()
            if worker.kind.name == offer.it.device_kind
            and not worker.draining
            and offer.key not in worker.replicas
            and worker.free_mib >= offer.it.memory_mib
        )

    def _faster(self, offer: Offer) -> list[Offer]:
        """What a variant can be upgraded to, the fastest first."""
        found = [
            other
            for other in self._offers[offer.key[0]]
            if other.thr > offer.thr
            and other.it.accuracy >= offer.floor
            and other.fitted_ms <= offer.tightest_ms
        ]
        return sorted(found, key=lambda other: -other.thr)

    def _grow(
        self,
        offer: Offer,
        count: int,
        taken: dict[WorkerId, float],
        short: dict[DeviceKindName, int],
    ) -> list[Action]:
        """Load a variant on more devices; what finds no device is noted in ``short``."""
        hosts = [
            worker
            for worker in self._fleet.workers.values()
            if worker.kind.name == offer.it.device_kind
            and not worker.draining
            and offer.key not in worker.replicas
            and worker.free_mib - taken.get(worker.id, 0.0) >= offer.it.memory_mib
        ]
        hosts.sort(
            key=lambda worker: (taken.get(worker.id, 0.0) > 0.0, *self._workers.rank(worker))
        )
        for worker in hosts[:count]:
            taken[worker.id] = taken.get(worker.id, 0.0) + offer.it.memory_mib
        kind = offer.it.device_kind
        short[kind] = short.get(kind, 0) + max(0, count - len(hosts))
        return [
            Load(worker=worker.id, task=offer.key[0], variant=offer.key[1])
            for worker in hosts[:count]
        ]
