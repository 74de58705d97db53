"""Placement: which variants each worker should hold, within its memory.

First comes what the demand was divided for (``planner.division``), then for each task so placed the
variant that takes least, so that a worker can give way in accuracy before it refuses. The rest is
filled greedily: while memory is free, everything stays loaded. When it is short, three rounds fill
what is left:

1. coverage: for each class of the demand, the most wanted first, the cheapest variant that meets
   it, on one worker; then for each task that has none yet, one that meets its default SLO;
2. what the demand needs, on every other worker as well;
3. what was used recently, then by popularity of the task and accuracy per MiB.

The plan before, filled up in the same way, stays unless a new one is better: a move costs a load
and gains nothing by itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.demand import meets
from planner.shares import planned_shares, shares
from planner.types import Candidate, Demand, ReplicaReport, Snapshot, TaskView, WorkerReport
from variants.types import (
    DeviceKindName,
    Placement,
    ReplicaState,
    TaskName,
    VariantName,
    WorkerId,
)

RECENT_S = 300.0
"""A replica idle for less than this is kept before variants that nobody asked for."""
WORTH_MOVING = 0.9
"""Demand that is met equally well has to become cheaper by this factor to justify moves."""

Key = tuple[TaskName, VariantName]


def place(
    snapshot: Snapshot,
    workers: Iterable[WorkerReport],
    demand: Sequence[Demand],
    before: Sequence[Placement] = (),
    planned: Mapping[WorkerId, Mapping[Key, float]] | None = None,
) -> tuple[Placement, ...]:
    """Placements with their shares, ordered by worker; on each, the most valuable first.

    The memory of the placements on a worker never exceeds it. Nothing is placed on a worker that
    drains, on a device kind without a profile, or where it is quarantined.

    Args:
        planned: what each worker is to hold for its part of the demand, with the part of its time
            that this takes.
    """
    rooms = [_Room.of(report) for report in sorted(workers, key=lambda r: r.id)]
    rooms = [room for room in rooms if not room.report.draining]
    market = _Market.of(snapshot, demand)
    if planned:
        return tuple(_around(market, rooms, before, planned))
    kept = [room.emptied() for room in rooms]
    _keep(market, kept, before)
    _fill(market, kept)
    fresh = [room.emptied() for room in rooms]
    _fill(market, fresh)
    chosen = fresh if _is_better(_merit(market, fresh), _merit(market, kept)) else kept
    return tuple(
        Placement(worker=room.report.id, task=key[0], variant=key[1], share=share)
        for room in chosen
        for key, share in shares(
            room.report.id, room.held, market.demand, before, snapshot.transport_ms
        )
    )


def _around(
    market: "_Market",
    rooms: Sequence["_Room"],
    before: Sequence[Placement],
    planned: Mapping[WorkerId, Mapping[Key, float]],
) -> Iterable[Placement]:
    """What was planned, the variants to fall back on, and whatever else there is room for."""
    for room in rooms:
        offers = market.offers.get(room.report.device_kind, {})
        work = planned.get(room.report.id, {})
        for key in sorted(work, key=lambda key: (-work[key], key)):
            if key in offers:
                room.take(key, offers[key])
        for task in sorted({key[0] for key in work}):
            for key, candidate in market.quickest(task, room.report.device_kind):
                if room.take(key, candidate):
                    break
    _keep(market, rooms, before)
    _fill(market, rooms)
    for room in rooms:
        id_ = room.report.id
        for key, share in planned_shares(room.held, planned.get(id_, {})):
            yield Placement(worker=id_, task=key[0], variant=key[1], share=share)


@dataclass(slots=True, kw_only=True)
class _Room:
    """A worker while a plan is made: what it holds so far and what is left of its memory."""

    report: WorkerReport
    left_mib: float
    replicas: Mapping[Key, ReplicaReport]
    held: dict[Key, Candidate] = field(default_factory=dict)

    @classmethod
    def of(cls, report: WorkerReport) -> "_Room":
        return cls(
            report=report,
            left_mib=report.memory_mib,
            replicas={(replica.task, replica.variant): replica for replica in report.replicas},
        )

    def emptied(self) -> "_Room":
        return _Room(report=self.report, left_mib=self.report.memory_mib, replicas=self.replicas)

    def size_mib(self, key: Key, candidate: Candidate) -> float:
        """What it takes here: the larger of its profile and what the worker reports."""
        replica = self.replicas.get(key)
        return max(candidate.memory_mib, replica.memory_mib if replica else 0.0)

    def take(self, key: Key, candidate: Candidate) -> bool:
        """Hold it, if that is allowed and there is room; True when it is held now."""
        if key in self.held:
            return True
        replica = self.replicas.get(key)
        if replica is not None and replica.state is ReplicaState.QUARANTINED:
            return False
        size_mib = self.size_mib(key, candidate)
        if size_mib > self.left_mib:
            return False
        self.held[key] = candidate
        self.left_mib -= size_mib
        return True

    def recent(self) -> list[Key]:
        """What is loaded or being loaded here and was used recently, the latest first."""
        used = [
            (replica.in_flight == 0, replica.idle_s, key)
            for key, replica in self.replicas.items()
            if replica.state in (ReplicaState.READY, ReplicaState.LOADING)
            and (replica.in_flight > 0 or replica.idle_s < RECENT_S)
        ]
        return [key for _, _, key in sorted(used)]


@dataclass(slots=True, kw_only=True)
class _Market:
    """What is offered and what is wanted, by device kind."""

    views: Mapping[TaskName, TaskView]
    transport_ms: float
    demand: tuple[Demand, ...]
    """The classes of the demand, the most wanted first."""
    defaults: tuple[Demand, ...]
    """The default SLO of each task, the most popular first, as a class without a rate."""
    offers: Mapping[DeviceKindName, Mapping[Key, Candidate]]
    """All that a kind could hold, the most popular task first, then by accuracy per MiB."""

    @classmethod
    def of(cls, snapshot: Snapshot, demand: Iterable[Demand]) -> "_Market":
        wanted = [entry for entry in demand if entry.task in snapshot.tasks and entry.qps > 0]
        popularity = dict.fromkeys(snapshot.tasks, 0.0)
        for entry in wanted:
            popularity[entry.task] += entry.qps
        ranked = sorted(snapshot.tasks, key=lambda name: (-popularity[name], name))
        offers: dict[DeviceKindName, dict[Key, Candidate]] = {}
        for name in ranked:
            for candidate in sorted(snapshot.tasks[name].by_cost, key=_density):
                held = offers.setdefault(candidate.device_kind, {})
                held[(candidate.task, candidate.variant)] = candidate
        return cls(
            views=snapshot.tasks,
            transport_ms=snapshot.transport_ms,
            demand=tuple(sorted(wanted, key=_urgency)),
            defaults=tuple(_default_class(snapshot.tasks[name]) for name in ranked),
            offers=offers,
        )

    def suitable(self, wanted: Demand) -> list[Candidate]:
        """The candidates that meet a class, the cheapest first."""
        by_cost = self.views[wanted.task].by_cost
        return [c for c in by_cost if meets(c, wanted, self.transport_ms)]

    def quickest(self, task: TaskName, kind: DeviceKindName) -> list[tuple[Key, Candidate]]:
        """The variants of a task on a kind, the one that takes least per row first."""
        found = [
            ((c.task, c.variant), c)
            for c in self.views[task].by_cost
            if c.device_kind == kind and not c.canary
        ]
        return sorted(found, key=lambda entry: (entry[1].table.row_ms, entry[1].variant))

    def needed(self, kind: DeviceKindName) -> list[tuple[Key, Candidate]]:
        """The cheapest variant on a kind for each class of the demand that it can meet."""
        found = []
        for wanted in self.demand:
            on_kind = [c for c in self.suitable(wanted) if c.device_kind == kind]
            if on_kind:
                found.append(((on_kind[0].task, on_kind[0].variant), on_kind[0]))
        return found


def _density(candidate: Candidate) -> tuple[float, VariantName]:
    return (-candidate.accuracy / max(candidate.memory_mib, 1.0), candidate.variant)


def _urgency(demand: Demand) -> tuple[float, TaskName, float, float]:
    floor = -1.0 if demand.accuracy is None else demand.accuracy
    return (-demand.qps, demand.task, demand.latency_ms, floor)


def _default_class(view: TaskView) -> Demand:
    slo = view.task.slo
    return Demand(task=view.task.name, latency_ms=slo.latency_ms, accuracy=slo.accuracy, qps=0.0)


def _keep(market: _Market, rooms: Sequence[_Room], before: Iterable[Placement]) -> None:
    """Fill rooms with what of an earlier plan is still possible."""
    by_id = {room.report.id: room for room in rooms}
    for placement in before:
        room = by_id.get(placement.worker)
        if room is not None:
            key = (placement.task, placement.variant)
            candidate = market.offers.get(room.report.device_kind, {}).get(key)
            if candidate is not None:
                room.take(key, candidate)


def _fill(market: _Market, rooms: Sequence[_Room]) -> None:
    """Fill what is left of the rooms, in the three rounds."""
    short = []
    for room in rooms:
        offers = market.offers.get(room.report.device_kind, {})
        if sum(room.size_mib(key, c) for key, c in offers.items()) > room.report.memory_mib:
            short.append(room)
        else:
            for key, candidate in offers.items():
                room.take(key, candidate)
    for wanted in (*market.demand, *market.defaults):
        _cover(wanted, market, rooms, short)
    needed = {kind: market.needed(kind) for kind in {room.report.device_kind for room in short}}
    for room in short:
        kind = room.report.device_kind
        offers = market.offers.get(kind, {})
        recent = [(key, offers[key]) for key in room.recent() if key in offers]
        for key, candidate in (*needed[kind], *recent, *offers.items()):
            room.take(key, candidate)


def _cover(wanted: Demand, market: _Market, rooms: Sequence[_Room], short: Sequence[_Room]) -> None:
    """Place one variant that meets a class, unless one is placed already.

    A task none of whose variants meets its own default gets its smallest one.
    """
    suitable = market.suitable(wanted)
    if not suitable and wanted.qps == 0.0:
        answering = [c for c in market.views[wanted.task].by_cost if not c.canary]
        suitable = sorted(answering, key=lambda c: (c.memory_mib, c.variant))
    if _holder(suitable, rooms) is not None:
        return
    for candidate in suitable:
        key = (candidate.task, candidate.variant)
        hosts = [room for room in short if room.report.device_kind == candidate.device_kind]
        hosts.sort(key=lambda room: (key not in room.replicas, -room.left_mib, room.report.id))
        if any(room.take(key, candidate) for room in hosts):
            return


def _holder(suitable: Iterable[Candidate], rooms: Iterable[_Room]) -> Candidate | None:
    """The first of the candidates that some room holds."""
    by_kind: dict[DeviceKindName, list[Mapping[Key, Candidate]]] = {}
    for room in rooms:
        by_kind.setdefault(room.report.device_kind, []).append(room.held)
    for candidate in suitable:
        key = (candidate.task, candidate.variant)
        if any(key in held for held in by_kind.get(candidate.device_kind, ())):
            return candidate
    return None


class _Merit(NamedTuple):
    """How good a plan is; the fields count in this order."""

    answered_qps: float
    tasks: int
    """With at least one variant for their default SLO."""
    usd_per_1k: float
    """Mean price of what is answered, each class by its cheapest variant."""
    recent: int
    """Recently used replicas that stay."""
    cells: int


def _merit(market: _Market, rooms: Sequence[_Room]) -> _Merit:
    answered_qps = 0.0
    spent = 0.0
    for wanted in market.demand:
        holder = _holder(market.suitable(wanted), rooms)
        if holder is not None:
            answered_qps += wanted.qps
            spent += wanted.qps * holder.price_usd_per_1k
    return _Merit(
        answered_qps=answered_qps,
        tasks=sum(_holder(market.suitable(d), rooms) is not None for d in market.defaults),
        usd_per_1k=spent / answered_qps if answered_qps else 0.0,
        recent=sum(key in room.held for room in rooms for key in room.recent()),
        cells=sum(len(room.held) for room in rooms),
    )


def _is_better(new: _Merit, old: _Merit) -> bool:
    if (new.answered_qps, new.tasks) != (old.answered_qps, old.tasks):
        return (new.answered_qps, new.tasks) > (old.answered_qps, old.tasks)
    if new.usd_per_1k < old.usd_per_1k * WORTH_MOVING:
        return True
    if old.usd_per_1k < new.usd_per_1k * WORTH_MOVING:
        return False
    return (new.recent, new.cells) > (old.recent, old.cells)
