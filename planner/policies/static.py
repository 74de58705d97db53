"""Policies that decide once: one variant for each task, the devices divided in advance.

* ``static-best`` takes the most accurate variant that meets the task's SLOs, ``static-cheapest``
  the one with the least device cost per query. No paper stands behind them, so they get what helps:
  batches up to the largest within half of the SLO, earliest deadline first, with early drop
  (``planner.policies.earliest``, nothing held back).
* ``clipper`` and ``clipper-cheapest`` hold the same variants and batch as Clipper does (Crankshaw
  et al., NSDI'17, section 4.3: AIMD per replica, ``planner.batching.aimd``). Clipper leaves the
  choice of models and of replicas to its operator; its bandits choose by feedback from
  answers, which a trace of arrivals does not have, and its cache needs inputs.

No paper says how the devices are divided: they are, by the trace's own mean rates, so that every
task has the same headroom (``planner.policies.allocation``); everything is loaded from the start
and stays; a query goes to the device of its task that is done first with what it has. Where one
variant cannot meet all SLO classes of a task, the one that meets most of the demand is taken. Under
the objective ``cost`` the devices are ordered at 0 and kept.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.batching.aimd import AdditiveQueue
from planner.batching.protocol import Queue
from planner.latency_table import LatencyTable
from planner.policies.allocation import Need, divide
from planner.policies.earliest import EarliestQueue
from planner.policies.offers import (
    INFEASIBLE,
    NOWHERE,
    UNKNOWN,
    Held,
    answering,
    chosen,
    cold,
    least_backlog,
    permits,
    roomiest,
    usable_batch,
)
from planner.selection.eligibility import meets
from planner.simulation.fleet import Fleet, Worker
from planner.simulation.policy import Brief
from planner.types import Action, Candidate, Choice, Demand, Load, Query, Refusal, Scale
from variants.types import DeviceKindName, TaskName, VariantName, WorkerId

Rank = Callable[["Pick"], tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A variant of a task on the device kinds where it meets at least one class of its demand."""

    variant: VariantName
    met_qps: float
    """Of the demand, those classes that it meets."""
    accuracy: float
    usd_per_1k: float
    """Device cost of 1,000 queries at the planned batch, on the kind where it is least."""
    latency_ms: float
    """The tightest SLO that it meets; the planned batch is for this one."""
    offers: Mapping[DeviceKindName, Candidate]


def most_accurate(pick: Pick) -> tuple[float, ...]:
    """More is better."""
    return (pick.accuracy, -pick.usd_per_1k)


def least_cost(pick: Pick) -> tuple[float, ...]:
    """More is better."""
    return (-pick.usd_per_1k, pick.accuracy)


def pick(candidates: Iterable[Candidate], demand: Sequence[Demand], rank: Rank) -> Pick | None:
    """The variant of a task for its whole demand; None when none meets any of it."""
    able = picks(candidates, demand)
    return max(able, key=lambda p: (p.met_qps, *rank(p), p.variant), default=None)


def picks(candidates: Iterable[Candidate], demand: Sequence[Demand]) -> list[Pick]:
    """Every variant of a task that meets some of its demand.

    A class is met within half of its SLO. Only where no variant does that, one row that alone meets
    the SLO will do.
    """
    offers = tuple(candidates)
    by_variant: dict[VariantName, list[Candidate]] = {}
    for candidate in offers:
        by_variant.setdefault(candidate.variant, []).append(candidate)
    limits_ms = {
        wanted: wanted.latency_ms / (2 if any(_meets(c, wanted, 2) for c in offers) else 1)
        for wanted in demand
    }
    made = [_pick(found, limits_ms) for found in by_variant.values()]
    return [found for found in made if found is not None]


def _meets(candidate: Candidate, wanted: Demand, times: int) -> bool:
    """Whether a row takes at most one of so many parts of the SLO, on a variant above the floor."""
    return meets(candidate, replace(wanted, latency_ms=wanted.latency_ms / times), 0.0)


def _pick(offers: Sequence[Candidate], limits_ms: Mapping[Demand, float]) -> Pick | None:
    """One variant, with the latency limit of a row for each class."""
    least_ms = min(offer.table.ms[1] for offer in offers)
    met = [
        wanted
        for wanted, limit_ms in limits_ms.items()
        if least_ms <= limit_ms
        and (wanted.accuracy is None or offers[0].accuracy >= wanted.accuracy)
    ]
    if not met:
        return None
    tightest = min(met, key=lambda wanted: limits_ms[wanted])
    latency_ms = min(wanted.latency_ms for wanted in met)
    able = {c.device_kind: c for c in offers if c.table.ms[1] <= limits_ms[tightest]}
    return Pick(
        variant=offers[0].variant,
        met_qps=sum(wanted.qps for wanted in met),
        accuracy=offers[0].accuracy,
        usd_per_1k=min(c.usd_per_hour * unit_ms(c, latency_ms) / 3_600 for c in able.values()),
        latency_ms=latency_ms,
        offers=able,
    )


def unit_ms(candidate: Candidate, latency_ms: float) -> float:
    """Device time per query at the planned batch."""
    batch = max(1, usable_batch(candidate.table, latency_ms))
    return candidate.table.ms[batch] / batch


class Static:
    """One variant per task and a fixed division of the fleet."""

    tick_s = 1.0

    def __init__(self, brief: Brief, fleet: Fleet, rank: Rank, adaptive: bool) -> None:
        self._setting = brief.setting
        self._fleet = fleet
        self._adaptive = adaptive
        self._held = Held(fleet)
        candidates = answering(fleet, brief.setting.kinds)
        self._tasks = frozenset(candidates)
        demand: dict[TaskName, list[Demand]] = {}
        for wanted in brief.average():
            demand.setdefault(wanted.task, []).append(wanted)
        found = {t: pick(candidates.get(t, ()), wanted, rank) for t, wanted in demand.items()}
        self._picks = {task: made for task, made in found.items() if made is not None}
        self._slots = divide(
            [_need(task, made) for task, made in self._picks.items()], brief.setting.kinds
        )
        self._slot_of: dict[WorkerId, int] = {}

    def queue(self) -> Queue:
        return AdditiveQueue() if self._adaptive else EarliestQueue(self._batch, waits=False)

    def _batch(self, task: str, table: LatencyTable) -> int:
        return usable_batch(table, self._picks[TaskName(task)].latency_ms)

    def changed(self) -> None:
        self._held.stale = True

    def choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        made = self._picks.get(query.task)
        if made is None:
            return INFEASIBLE if query.task in self._tasks else UNKNOWN
        if query.accuracy is not None and made.accuracy < query.accuracy:
            return INFEASIBLE
        key = (query.task, made.variant)
        ready = self._held.ready(key)
        if query.cost is not None:
            ready = [replica for replica in ready if permits(query, replica.candidate)]
        best = least_backlog(ready, query)
        if best is None:
            if self._setting.instant:
                return self._instantly(made, query)
            coming = (r for r in self._held.loading(key) if permits(query, r.candidate))
            best = least_backlog(coming, query)
            if best is None:
                return NOWHERE
        if best.candidate.table.ms[1] > query.latency_ms:
            return INFEASIBLE
        return chosen(best, query, now_ms)

    def _instantly(self, made: Pick, query: Query) -> Choice | Refusal:
        able = {kind: c for kind, c in made.offers.items() if permits(query, c)}
        host = roomiest(self._fleet, able)
        if host is None:
            return INFEASIBLE
        self._held.stale = True
        return cold(*host)

    def again(self, query: Query, now_ms: float) -> Choice | Refusal | None:
        return self.choose(query, now_ms)

    def tick(self, now_s: float) -> Iterable[Action]:
        """Order what the division needs and load what a device lacks of its part of it."""
        self._held.stale = True
        actions: list[Action] = []
        if self._setting.fleet_is_elastic:
            for kind in self._setting.kinds:
                count = sum(1 for slot in self._slots if slot.kind == kind.name)
                if self._fleet.count(kind.name) < count:
                    actions.append(Scale(device_kind=kind.name, count=count))
        workers = self._fleet.workers
        self._slot_of = {id_: slot for id_, slot in self._slot_of.items() if id_ in workers}
        for worker in workers.values():
            index = self._slot_of.get(worker.id)
            if index is None:
                index = self._free_slot(worker)
                if index is None:
                    continue
                self._slot_of[worker.id] = index
            for task in self._slots[index].shares:
                variant = self._picks[task].variant
                if (task, variant) not in worker.replicas:
                    actions.append(Load(worker=worker.id, task=task, variant=variant))
        return actions

    def _free_slot(self, worker: Worker) -> int | None:
        taken = set(self._slot_of.values())
        for index, slot in enumerate(self._slots):
            if slot.kind == worker.kind.name and index not in taken:
                return index
        return None


def _need(task: TaskName, made: Pick) -> Need:
    return Need(
        task=task,
        qps=made.met_qps,
        unit_ms={kind: unit_ms(c, made.latency_ms) for kind, c in made.offers.items()},
        memory_mib={kind: c.memory_mib for kind, c in made.offers.items()},
    )


def best(brief: Brief, fleet: Fleet) -> Static:
    return Static(brief, fleet, most_accurate, adaptive=False)


def cheapest(brief: Brief, fleet: Fleet) -> Static:
    return Static(brief, fleet, least_cost, adaptive=False)


def clipper(brief: Brief, fleet: Fleet) -> Static:
    return Static(brief, fleet, most_accurate, adaptive=True)


def clipper_cheapest(brief: Brief, fleet: Fleet) -> Static:
    return Static(brief, fleet, least_cost, adaptive=True)
