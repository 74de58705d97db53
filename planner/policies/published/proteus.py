"""Proteus (Ahmad et al., ASPLOS'24): accuracy scaling on a fixed fleet.

* *Allocation* (section 4): the program of ``proteus_plan`` says which variant each device holds and
  which share of each family goes to it.
* *Batching* (section 5): ``planner.policies.earliest``, not work-conserving, with early drop.

Where the paper is silent, and what was assumed:

* Demand is counted each second and smoothed; it rises faster than it falls. The program is solved
  again when families moved by more than 10 % of the whole demand since it was solved last: at once
  when the demand exceeds what was planned for, otherwise no more often than the setting's tick. At
  0 the demand is the trace's mean, so that the fleet is loaded from the start.
* Shares are kept by smooth weighted round robin, counting only devices that are ready. A family
  without a ready device of its own may use any device of its task that meets its SLO.
* Loads take time here. While its device has the memory for both, the old variant serves until the
  new one is ready, at its peak rate; else it leaves first. A query waits for a load if that ends
  before its deadline, otherwise it is dropped.
* It has no notion of cost: under the objective ``cost`` the whole fleet is ordered at 0 and kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from planner.batching.protocol import Queue
from planner.forecasting.demand import slo_class
from planner.latency_table import LatencyTable
from planner.policies.earliest import EarliestQueue
from planner.policies.offers import (
    INFEASIBLE,
    NOWHERE,
    TOO_LATE,
    UNKNOWN,
    Held,
    answering,
    chosen,
    cold,
    half_slo_batch,
    least_backlog,
    permits,
    roomiest,
    usable_batch,
)
from planner.policies.published.demand_watch import count_in, has_moved, whole_fleet
from planner.policies.published.proteus_plan import (
    Allocation,
    Family,
    Setup,
    allocate,
    assign,
    setups,
)
from planner.simulation.fleet import Fleet, Replica, Worker
from planner.simulation.policy import Brief
from planner.types import Action, Candidate, Choice, Load, Query, Refusal, Unload
from variants.types import DeviceKindName, ReplicaState, TaskName, VariantKey, VariantName, WorkerId

FADED_QPS = 1e-2

ClassKey = tuple[TaskName, float, float]
"""Task, latency class and floor; minus infinity for none."""


def make(brief: Brief, fleet: Fleet) -> "Proteus":
    return Proteus(brief, fleet)


class Proteus:
    """Re-plans the variants of a fleet as the demand moves."""

    tick_s = 1.0

    def __init__(self, brief: Brief, fleet: Fleet) -> None:
        self._setting = brief.setting
        self._fleet = fleet
        self._held = Held(fleet)
        self._candidates = answering(fleet, brief.setting.kinds)
        self._steps = {
            task: tuple(sorted({c.accuracy for c in offers}))
            for task, offers in self._candidates.items()
        }
        self._classes: dict[tuple[TaskName, float, float | None], SloClass] = {}
        self._by_key: dict[ClassKey, SloClass] = {}
        for wanted in brief.average():
            self._class(wanted.task, wanted.latency_ms, wanted.accuracy).qps = wanted.qps
        self._planned: dict[ClassKey, float] = {}
        self._planned_s = -inf
        self._plan: Allocation | None = None
        self._setups: dict[WorkerId, Setup] = {}
        self._ready_ms: dict[tuple[WorkerId, VariantKey], float] = {}

    def queue(self) -> Queue:
        return EarliestQueue(self._batch)

    def _batch(self, task: str, table: LatencyTable) -> int:
        tightest_ms = min(
            (c.latency_ms for c in self._by_key.values() if c.task == task), default=0
        )
        return half_slo_batch(table, tightest_ms)

    def changed(self) -> None:
        self._held.stale = True
        for found in self._by_key.values():
            found.stale = True

    # -- queries ----------------------------------------------------------------------------------

    def _class(self, task: TaskName, latency_ms: float, accuracy: float | None) -> "SloClass":
        asked = (task, latency_ms, accuracy)
        found = self._classes.get(asked)
        if found is None:
            step_ms, floor = slo_class(latency_ms, accuracy, self._steps.get(task, ()))
            key = (task, step_ms, -inf if floor is None else floor)
            found = self._by_key.get(key)
            if found is None:
                found = self._by_key[key] = SloClass(*key)
            found.tightest_ms = min(found.tightest_ms, latency_ms)
            self._classes[asked] = found
        return found

    def choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        found = self._class(query.task, query.latency_ms, query.accuracy)
        found.count += 1
        return self._routed(found, query, now_ms)

    def again(self, query: Query, now_ms: float) -> Choice | Refusal | None:
        found = self._class(query.task, query.latency_ms, query.accuracy)
        return self._routed(found, query, now_ms)

    def _routed(self, found: "SloClass", query: Query, now_ms: float) -> Choice | Refusal:
        if found.stale:
            self._find_routes(found)
        replica = found.next(query)
        if replica is None:
            replica = least_backlog((r for r in found.others if permits(query, r.candidate)), query)
        if replica is not None:
            return chosen(replica, query, now_ms)
        if self._setting.instant:
            return self._instantly(query)
        return self._waiting(query, now_ms)

    def _find_routes(self, found: "SloClass") -> None:
        """The ready devices of a class with its shares, and what else could serve it."""
        found.stale = False
        found.shares, found.others = [], []
        flows: dict[Setup, float] = {}
        for wanted, planned, flow in self._flows():
            if wanted == found.key:
                flows[planned] = flow
        whole = sum(c.qps for c in self._by_key.values() if c.task == found.task)
        part = found.qps / whole if whole else 1.0
        for candidate in self._candidates.get(found.task, ()):
            if candidate.accuracy < found.floor or candidate.table.ms[1] > found.tightest_ms:
                continue
            for replica in self._held.ready((candidate.task, candidate.variant)):
                if replica.candidate is not candidate:
                    continue
                setup = self._setups.get(replica.worker.id)
                if setup is not None and (setup.task, setup.variant) == replica.key:
                    flow = flows.get(setup, 0.0)
                elif setup is not None and not _is_ready(replica.worker, setup):
                    flow = part * _peak_qps(candidate, found.tightest_ms)
                else:
                    flow = 0.0
                if flow:
                    found.shares.append(Share(replica, flow))
                else:
                    found.others.append(replica)

    def _flows(self) -> Iterable[tuple[ClassKey, Setup, float]]:
        """Of the plan: class, setup and what of the class goes to each device of the setup."""
        if self._plan is None:
            return
        families = list(self._planned)
        for (setup, index), flow in self._plan.flows.items():
            yield families[index], setup, flow / self._plan.counts[setup]

    def _waiting(self, query: Query, now_ms: float) -> Choice | Refusal:
        """A load under way that ends in time."""
        offers = self._candidates.get(query.task)
        if not offers:
            return UNKNOWN
        able = [c for c in offers if permits(query, c) and c.table.ms[1] <= query.latency_ms]
        if not able:
            return INFEASIBLE
        coming = False
        for candidate in able:
            for replica in self._held.loading((candidate.task, candidate.variant)):
                if replica.candidate is not candidate or replica.worker.id == query.avoid:
                    continue
                coming = True
                ready_ms = self._ready_ms.get((replica.worker.id, replica.key), inf)
                if ready_ms + candidate.table.ms[1] <= query.received_ms + query.latency_ms:
                    return chosen(replica, query, now_ms)
        return TOO_LATE if coming else NOWHERE

    def _instantly(self, query: Query) -> Choice | Refusal:
        """Without time there is no plan: the most accurate variant that the query permits."""
        best: dict[str, Candidate] = {}
        for candidate in self._candidates.get(query.task, ()):
            if permits(query, candidate):
                best[candidate.device_kind] = candidate
        if not best:
            return INFEASIBLE
        top = max(candidate.accuracy for candidate in best.values())
        host = roomiest(self._fleet, {c.device_kind: c for c in best.values() if c.accuracy == top})
        if host is None:
            return NOWHERE
        self.changed()
        return cold(*host)

    # -- the plan ---------------------------------------------------------------------------------

    def tick(self, now_s: float) -> Iterable[Action]:
        """Count, plan again if the demand moved markedly, and bring devices to the plan."""
        if now_s > 0:
            count_in(self._by_key.values(), self.tick_s)
        actions = whole_fleet(self._setting, self._fleet)
        if self._is_due(now_s):
            self._solve(now_s)
        self._assign()
        for worker in self._fleet.workers.values():
            actions += self._towards(worker, now_s * 1_000)
        self.changed()
        return actions

    def _is_due(self, now_s: float) -> bool:
        qps = {key: found.qps for key, found in self._by_key.items()}
        if not has_moved(qps, self._planned):
            return False
        beta = self._plan.beta if self._plan is not None else 0.0
        return sum(qps.values()) > max(1.0, beta) * sum(self._planned.values()) or (
            now_s >= self._planned_s + self._setting.tick_s
        )

    def _solve(self, now_s: float) -> None:
        self._planned = {k: c.qps for k, c in self._by_key.items() if c.qps > FADED_QPS}
        self._planned_s = now_s
        families = [
            Family(task, self._by_key[task, latency_ms, floor].tightest_ms, floor, qps)
            for (task, latency_ms, floor), qps in self._planned.items()
        ]
        options: list[Setup] = []
        for task in dict.fromkeys(family.task for family in families):
            latencies_ms = [f.latency_ms for f in families if f.task == task]
            options += setups(self._candidates.get(task, ()), latencies_ms)
        self._plan = allocate(families, options, self._setting.kinds, self._held_now())

    def _held_now(self) -> dict[tuple[DeviceKindName, TaskName, VariantName], int]:
        """Devices by what they are set up for."""
        held: dict[tuple[DeviceKindName, TaskName, VariantName], int] = {}
        for id_, setup in self._setups.items():
            if id_ in self._fleet.workers:
                key = (setup.kind, setup.task, setup.variant)
                held[key] = held.get(key, 0) + 1
        return held

    def _wanted(self) -> Mapping[Setup, int] | None:
        """Devices by setup, as planned."""
        return None if self._plan is None else self._plan.counts

    def _assign(self) -> None:
        """Give devices that are there their setups; those on order or away count as well."""
        wanted = self._wanted()
        if wanted is None:
            return
        workers = self._fleet.workers
        self._setups = assign(
            wanted,
            {
                id_: (worker.kind.name, frozenset(worker.replicas))
                for id_, worker in workers.items()
                if not worker.draining
            },
            self._setups,
        )

    def _towards(self, worker: Worker, now_ms: float) -> Sequence[Action]:
        """What brings a device to its setup: at most one variant more than that at any time."""
        setup = self._setups.get(worker.id)
        if setup is None:
            return ()  # what it holds stays for those that no other device can serve
        key = (setup.task, setup.variant)
        actions: list[Action] = []
        there = worker.replicas.get(key)
        candidate = self._fleet.offers[worker.kind.name][key]
        room = there is not None or candidate.memory_mib <= worker.free_mib
        if there is not None and isinstance(worker.queue, EarliestQueue):
            worker.queue.set_limit(there.queue, setup.batch)
        if not room or (there is not None and there.state is ReplicaState.READY):
            actions += [
                Unload(worker=worker.id, task=other.key[0], variant=other.key[1])
                for other in worker.replicas.values()
                if other.key != key and other.state is ReplicaState.READY
            ]
        if there is None:
            # Refused while memory is not free yet, and then asked for again.
            actions.append(Load(worker=worker.id, task=key[0], variant=key[1]))
            self._ready_ms[worker.id, key] = now_ms + candidate.load_ms
        return actions


def _is_ready(worker: Worker, setup: Setup) -> bool:
    there = worker.replicas.get((setup.task, setup.variant))
    return there is not None and there.state is ReplicaState.READY


def _peak_qps(candidate: Candidate, latency_ms: float) -> float:
    batch = usable_batch(candidate.table, latency_ms)
    return batch * 1_000 / candidate.table.ms[batch] if batch else 0.0


class Share:
    """A replica with its share of a class, for smooth weighted round robin."""

    __slots__ = ("credit", "flow", "replica")

    def __init__(self, replica: Replica, flow: float) -> None:
        self.replica = replica
        self.flow = flow
        self.credit = 0.0


class SloClass:
    """An SLO class of a task: what arrives and where it is routed."""

    __slots__ = (
        "count",
        "floor",
        "latency_ms",
        "others",
        "qps",
        "shares",
        "stale",
        "task",
        "tightest_ms",
    )

    def __init__(self, task: TaskName, latency_ms: float, floor: float) -> None:
        self.task = task
        self.latency_ms = latency_ms
        """Of the class: rounded down."""
        self.tightest_ms = inf
        """The shortest deadline of its queries so far."""
        self.floor = floor
        self.qps = 0.0
        self.count = 0
        self.stale = True
        self.shares: list[Share] = []
        self.others: list[Replica] = []

    @property
    def key(self) -> ClassKey:
        return (self.task, self.latency_ms, self.floor)

    def next(self, query: Query) -> Replica | None:
        """Whose turn it is, of those that the query permits."""
        best: Share | None = None
        total = 0.0
        most = -inf
        for share in self.shares:
            replica = share.replica
            if query.avoid == replica.worker.id or (
                query.cost is not None and not permits(query, replica.candidate)
            ):
                continue
            total += share.flow
            share.credit += share.flow
            if share.credit > most:
                best, most = share, share.credit
        if best is None:
            return None
        best.credit -= total
        return best.replica
