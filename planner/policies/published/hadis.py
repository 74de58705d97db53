"""HADIS (Yang et al., 2025): route first, escalate if needed, between a light and a heavy variant.

Each query is routed at once to the variant that suits it, instead of through the light one first;
it is escalated to the heavy one only if the light answer is not good enough. Which pair of variants
a class uses, which part of it goes to the heavy one and which devices hold which is chosen from a
table made offline (``hadis_table``) as the load moves.

A trace has no inputs, so neither the prompt router nor the discriminator has anything to look at.
What was assumed helps it: both are perfect, so that whoever would be escalated goes to the heavy
variant at once and no light run is wasted; who that is, is drawn, in the part that the
configuration says. What the system gains by knowing hard queries from easy ones cannot show:
accuracy counts as the variant's own. Escalation is left where it is seen here: a query that its
variant's devices refuse, or could answer only late, goes to the other one of the pair.

Where the paper is silent, and what was assumed:

* Demand is counted each second and smoothed as for Proteus; a configuration is chosen anew when the
  demand has moved by more than a tenth, no more often than the setting's tick, or at once when it
  exceeds what was planned for. At 0 the demand is the trace's mean.
* Devices are divided in proportion to the work (``planner.policies.allocation``), for ``HEADROOM``
  times the demand; a device keeps what it holds where it can.
* Batches and early drop are as for static policies: within half of the SLO, the earliest deadline
  first.
* It has no notion of cost: under the objective ``cost`` the whole fleet is ordered at 0 and kept.
"""

from collections.abc import Iterable
from math import inf

from planner.batching.protocol import Queue
from planner.latency_table import LatencyTable
from planner.policies.allocation import Need, Slot, divide, headroom
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
    is_in_time,
    least_backlog,
    permits,
    roomiest,
    usable_batch,
)
from planner.policies.published.demand_watch import count_in, has_moved, whole_fleet
from planner.policies.published.hadis_table import Configuration, best, table
from planner.policies.static import unit_ms
from planner.simulation.fleet import Fleet, Worker
from planner.simulation.policy import Brief
from planner.types import Action, Candidate, Choice, Load, Query, Refusal, Unload
from variants.types import ReplicaState, TaskName, VariantKey, VariantName, WorkerId

HEADROOM = 1.2
"""Times the demand that is planned for; 1.0 and 1.5 were tried
(docs/decisions/0019-other-policies.md)."""
FADED_QPS = 1e-2

ClassKey = tuple[TaskName, float]
"""Task and floor; minus infinity for none."""


class _Class:
    """Queries of a task with the same floor."""

    __slots__ = ("count", "latency_ms", "qps", "table")

    def __init__(self) -> None:
        self.count = 0
        self.qps = 0.0
        self.latency_ms = inf
        """The tightest SLO so far."""
        self.table: tuple[Configuration, ...] | None = None


def make(brief: Brief, fleet: Fleet) -> "Hadis":
    return Hadis(brief, fleet)


class Hadis:
    """A pair of variants for each class, and a coin for each query."""

    tick_s = 1.0

    def __init__(self, brief: Brief, fleet: Fleet) -> None:
        self._setting = brief.setting
        self._fleet = fleet
        self._held = Held(fleet)
        self._candidates = answering(fleet, brief.setting.kinds)
        self._classes: dict[ClassKey, _Class] = {}
        for wanted in brief.average():
            found = self._class(wanted.task, wanted.accuracy, wanted.latency_ms)
            found.qps += wanted.qps
        self._plan: dict[ClassKey, Configuration] = {}
        self._planned: dict[ClassKey, float] = {}
        self._planned_s = -inf
        self._slots: tuple[Slot, ...] = ()
        self._contents: dict[WorkerId, tuple[VariantKey, ...]] = {}

    def queue(self) -> Queue:
        return EarliestQueue(self._batch, waits=False)

    def _batch(self, task: str, table: LatencyTable) -> int:
        tightest_ms = min((c.latency_ms for key, c in self._classes.items() if key[0] == task))
        return usable_batch(table, tightest_ms)

    def changed(self) -> None:
        self._held.stale = True

    # -- queries ----------------------------------------------------------------------------------

    def _class(self, task: TaskName, floor: float | None, latency_ms: float) -> _Class:
        key = (task, -inf if floor is None else floor)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = _Class()
        if latency_ms < found.latency_ms:
            found.latency_ms, found.table = latency_ms, None
        return found

    def choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        if query.task not in self._candidates:
            return UNKNOWN
        self._class(query.task, query.accuracy, query.latency_ms).count += 1
        return self._routed(query, now_ms)

    def again(self, query: Query, now_ms: float) -> Choice | Refusal | None:
        return self._routed(query, now_ms)

    def _routed(self, query: Query, now_ms: float) -> Choice | Refusal:
        """By the coin, else the other one of the pair, else whatever the task has."""
        floor = -inf if query.accuracy is None else query.accuracy
        made = self._plan.get((query.task, floor))
        names: list[VariantName] = []
        if made is not None:
            heavy = (query.draw & 0xFFFF) / 0x10000 < made.part
            names = [made.heavy, made.light] if heavy else [made.light, made.heavy]
        others = [c.variant for c in self._candidates[query.task]]
        for name in dict.fromkeys((*names, *others)):
            held = self._held.ready((query.task, name))
            ready = (r for r in held if is_in_time(r, query, now_ms))
            replica = least_backlog((r for r in ready if permits(query, r.candidate)), query)
            if replica is not None:
                return chosen(replica, query, now_ms)
        return self._without(query, now_ms)

    def _without(self, query: Query, now_ms: float) -> Choice | Refusal:
        """Nothing that is ready would be in time."""
        able = [c for c in self._candidates[query.task] if permits(query, c)]
        able = [c for c in able if c.table.ms[1] <= query.latency_ms]
        if not able:
            return INFEASIBLE
        if self._setting.instant:
            top = max(c.accuracy for c in able)
            host = roomiest(self._fleet, {c.device_kind: c for c in able if c.accuracy == top})
            self._held.stale = True
            return NOWHERE if host is None else cold(*host)
        coming = (
            replica
            for candidate in able
            for replica in self._held.loading((candidate.task, candidate.variant))
            if replica.candidate is candidate and candidate.load_ms < query.latency_ms
        )
        replica = least_backlog(coming, query)
        return TOO_LATE if replica is None else chosen(replica, query, now_ms)

    # -- the plan ---------------------------------------------------------------------------------

    def tick(self, now_s: float) -> Iterable[Action]:
        """Count, choose configurations if the demand has moved, and bring devices to them."""
        if now_s > 0:
            count_in(self._classes.values(), self.tick_s)
        actions = whole_fleet(self._setting, self._fleet)
        if self._is_due(now_s):
            self._choose_configurations(now_s)
        self._assign()
        for worker in self._fleet.workers.values():
            actions += self._towards(worker)
        self._held.stale = True
        return actions

    def _is_due(self, now_s: float) -> bool:
        qps = {key: found.qps for key, found in self._classes.items()}
        if not has_moved(qps, self._planned):
            return False
        waited = now_s >= self._planned_s + self._setting.tick_s
        return waited or sum(qps.values()) > HEADROOM * sum(self._planned.values())

    def _choose_configurations(self, now_s: float) -> None:
        """The best configurations for which the devices suffice."""
        self._planned = {k: c.qps for k, c in self._classes.items() if c.qps > FADED_QPS}
        self._planned_s = now_s
        kinds = self._setting.kinds
        tables = {}
        for key in self._planned:
            found = self._classes[key]
            if found.table is None:
                offers = [c for c in self._candidates.get(key[0], ()) if c.accuracy >= key[1]]
                found.table = table(offers, found.latency_ms, kinds)
            tables[key] = found.table
        budget = 1.0 / HEADROOM
        while True:
            plan = best(tables, self._planned, budget)
            needs = self._needs(plan)
            slots = divide(needs, kinds)
            # The budget forgets memory and that devices are whole.
            if headroom(needs, slots) >= HEADROOM or budget < 0.1:
                break
            budget *= 0.9
        self._plan, self._slots = plan, slots

    def _needs(self, plan: dict[ClassKey, Configuration]) -> list[Need]:
        """What each variant of the plan asks for, both tiers of all classes together."""
        qps: dict[VariantKey, float] = {}
        latency_ms: dict[VariantKey, float] = {}
        for key, made in plan.items():
            rate = self._planned[key]
            for name, part in ((made.light, 1 - made.part), (made.heavy, made.part)):
                if part > 0.0:
                    tier = (key[0], name)
                    qps[tier] = qps.get(tier, 0.0) + part * rate
                    tightest_ms = self._classes[key].latency_ms
                    latency_ms[tier] = min(latency_ms.get(tier, inf), tightest_ms)
        return [
            _need(tier, rate, latency_ms[tier], self._offers(tier)) for tier, rate in qps.items()
        ]

    def _offers(self, tier: VariantKey) -> list[Candidate]:
        return [c for c in self._candidates[tier[0]] if c.variant == tier[1]]

    def _assign(self) -> None:
        """Give devices that are there their part of the plan, with the least to load."""
        left = [(slot.kind, tuple(map(_tier, slot.shares))) for slot in self._slots]
        found: dict[WorkerId, tuple[VariantKey, ...]] = {}
        workers = [w for w in self._fleet.workers.values() if not w.draining]
        pairs = sorted(
            (-sum(key in worker.replicas for key in keys), worker.id, at)
            for worker in workers
            for at, (kind, keys) in enumerate(left)
            if worker.kind.name == kind
        )
        taken: set[int] = set()
        for _, id_, at in pairs:
            if id_ not in found and at not in taken:
                found[id_] = left[at][1]
                taken.add(at)
        self._contents = found

    def _towards(self, worker: Worker) -> Iterable[Action]:
        """Load what is lacking; unload what is in the way of it, all else stays."""
        keys = self._contents.get(worker.id, ())
        lacking = [key for key in keys if key not in worker.replicas]
        need_mib = sum(self._fleet.offers[worker.kind.name][key].memory_mib for key in lacking)
        free_mib = worker.free_mib
        for key, replica in worker.replicas.items():
            if need_mib <= free_mib:
                break
            if key not in keys and replica.state is ReplicaState.READY:
                free_mib += replica.candidate.memory_mib
                yield Unload(worker=worker.id, task=key[0], variant=key[1])
        for key in lacking:
            yield Load(worker=worker.id, task=key[0], variant=key[1])


SEPARATOR = "\n"
"""Between the two names of a tier: no name has one."""


def _tier(name: TaskName) -> VariantKey:
    task, variant = name.split(SEPARATOR)
    return (TaskName(task), VariantName(variant))


def _need(tier: VariantKey, qps: float, latency_ms: float, offers: Iterable[Candidate]) -> Need:
    able = {c.device_kind: c for c in offers if c.table.ms[1] <= latency_ms}
    return Need(
        task=TaskName(f"{tier[0]}{SEPARATOR}{tier[1]}"),
        qps=qps,
        unit_ms={kind: unit_ms(c, latency_ms) for kind, c in able.items()},
        memory_mib={kind: c.memory_mib for kind, c in able.items()},
    )
