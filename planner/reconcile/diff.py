"""The difference between a plan and the workers, as actions.

The difference is level-triggered: it compares with what is there, not with what was asked for
before. What cannot be done now (a replica is still in use, memory is not free yet) is left out and
found again at the next tick.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from planner.eviction.rules import absence_s, per_mib
from planner.types import Action, Load, ReplicaKey, ReplicaReport, Unload, WorkerReport
from variants.types import (
    DeviceKindName,
    Placement,
    ReplicaState,
    TaskName,
    VariantKey,
    VariantName,
    WorkerId,
)

MemoryMib = Mapping[tuple[DeviceKindName, TaskName, VariantName], float]
"""What a variant takes on a device kind."""


FILLS_S = 5.0
"""So many seconds of loading may be under way before nothing more begins in memory that is free. A
load takes its memory when it begins, and others keep their place in line before what queries ask
for displaces anything: were all loads that fit begun at once, a worker of a large memory would
refuse for minutes what it has not begun. Each turn of the control loop begins more, so that loading
never pauses (docs/decisions/0005-eviction.md)."""


class Pace(NamedTuple):
    """How quickly a worker may load what is planned."""

    swaps_s: float
    """So many seconds of loading may be under way before nothing more leaves for a load."""
    fills_s: float
    """So many before nothing more is begun, in free memory either."""
    load_s: Callable[[VariantKey, DeviceKindName], float]
    """What a load takes on a device kind, in seconds; 0 where that is not known."""
    forbidden: Callable[[VariantKey, DeviceKindName], bool]
    """What must not run, and leaves at once."""


_key = attrgetter("task", "variant")


def diff(
    placements: Iterable[Placement],
    workers: Iterable[WorkerReport],
    memory_mib: MemoryMib,
    pinned: Collection[ReplicaKey] = (),
    pace: Pace | None = None,
) -> tuple[Action, ...]:
    """What brings the workers nearer to the placements, safe to apply in this order.

    A worker's unloads come before its loads, and loads count on the memory that unloads of idle
    replicas give back, because a worker does one after the other. If the memory is not free by
    then, the worker refuses the load, and the next tick finds it again. Loads come in the order of
    the placements. One that has no room yet lets the others pass; as all placements of a worker fit
    together, its turn comes.

    Draining workers and replicas that are kept out are left alone, and so are placements on workers
    that are not there and variants without a known size.

    What is ``pinned`` by an operator does not wait until others are idle: for its load those that
    are in use leave as well, as soon as their queries are answered.

    A worker loads one variant after the other. With a ``pace``, what is there serves until its
    successor's turn comes: only so much leaves as the loads need that begin soon. Free memory is
    taken little by little, too, so that some is left for what queries ask for meanwhile. What loads
    take is what profiles say, corrected by how long those of the worker took so far: profiles that
    were measured beside other work would else leave it idle between loads.
    """
    wanted: dict[WorkerId, list[Placement]] = {}
    last: WorkerId | None = None
    for placement in placements:
        if placement.worker is not last:  # plans list them worker by worker
            last = placement.worker
            on_worker = wanted.setdefault(last, [])
        on_worker.append(placement)
    unloads: list[Action] = []
    loads: list[Action] = []
    for worker in sorted(workers, key=lambda report: report.id):
        if not worker.draining:
            placed = wanted.get(worker.id, [])
            if set(map(_key, placed)) == set(map(_key, worker.replicas)):
                continue  # as mostly: there is nothing to load, and nothing else to leave
            leaving = _unloads(worker, placed)
            if pinned:
                leaving += _making_room(worker, placed, memory_mib, pinned, leaving)
            coming = _loads(worker, placed, memory_mib, {(u.task, u.variant) for u in leaving})
            if pace is not None and coming:
                leaving, coming = _paced(worker, leaving, coming, memory_mib, pinned, pace)
            unloads += leaving
            loads += coming
    return (*unloads, *loads)


def _paced(
    worker: WorkerReport,
    leaving: Sequence[Unload],
    coming: Sequence[Load],
    memory_mib: MemoryMib,
    pinned: Collection[ReplicaKey],
    pace: Pace,
) -> tuple[list[Unload], list[Load]]:
    """Of a worker's unloads and loads, those whose turn has come.

    Where a load has to wait for its turn, what is worth most and need not leave yet stays.
    """
    kind = worker.device_kind
    held = {(replica.task, replica.variant): replica for replica in worker.replicas}
    under_way_s = sum(
        pace.load_s(key, kind)
        for key, replica in held.items()
        if replica.state is ReplicaState.LOADING
    )

    def may_stay(unload: Unload) -> bool:
        key = (unload.task, unload.variant)
        return (kind, *key) in memory_mib and not pace.forbidden(key, kind)

    def worth(unload: Unload) -> float:
        replica = held[unload.task, unload.variant]
        reload_s = pace.load_s((unload.task, unload.variant), kind)
        return per_mib(absence_s(replica.rate_qps, reload_s, replica.urgent), replica.memory_mib)

    gone = [unload for unload in leaving if not may_stay(unload)]
    free_mib = free(worker) + _size_mib(gone, held)
    staying = sorted(filter(may_stay, leaving), key=worth)
    begun: list[Load] = []
    for load in coming:
        need_mib = memory_mib[kind, load.task, load.variant]
        replaces = need_mib > free_mib
        in_turn = under_way_s < pace.swaps_s or (load.worker, load.task, load.variant) in pinned
        if not in_turn and (replaces or under_way_s >= pace.fills_s):
            continue
        while need_mib > free_mib and staying:
            gone.append(staying.pop(0))
            free_mib += _size_mib(gone[-1:], held)
        begun.append(load)
        free_mib -= need_mib
        under_way_s += pace.load_s((load.task, load.variant), kind)
    if len(begun) == len(coming):
        return list(leaving), list(coming)
    going = set(map(id, gone))
    return [unload for unload in leaving if id(unload) in going], begun


def _size_mib(unloads: Iterable[Unload], held: Mapping[VariantKey, ReplicaReport]) -> float:
    return sum(held[unload.task, unload.variant].memory_mib for unload in unloads)


def _making_room(
    worker: WorkerReport,
    placed: Collection[Placement],
    memory_mib: MemoryMib,
    pinned: Collection[ReplicaKey],
    leaving: Collection[Unload],
) -> list[Unload]:
    """What is in use and has to leave for pinned variants that are not there."""
    there = {(replica.task, replica.variant) for replica in worker.replicas}
    need_mib = sum(
        memory_mib.get((worker.device_kind, one.task, one.variant), 0.0)
        for one in placed
        if (worker.id, one.task, one.variant) in pinned and (one.task, one.variant) not in there
    )
    gone = {(one.task, one.variant) for one in leaving}
    going = [
        replica
        for replica in worker.replicas
        if replica.state is ReplicaState.UNLOADING or (replica.task, replica.variant) in gone
    ]
    need_mib -= free(worker) + sum(replica.memory_mib for replica in going)
    found: list[Unload] = []
    for one in _unloads(worker, placed, in_use=True):
        if need_mib <= 0.0:
            break
        found.append(one)
        need_mib -= sum(
            replica.memory_mib
            for replica in worker.replicas
            if (replica.task, replica.variant) == (one.task, one.variant)
        )
    return found


def _unloads(
    worker: WorkerReport, placed: Iterable[Placement], *, in_use: bool = False
) -> list[Unload]:
    keep = {(placement.task, placement.variant) for placement in placed}
    ready = ReplicaState.READY
    leaving = [
        replica
        for replica in worker.replicas
        if replica.state is ready
        and (replica.in_flight > 0) == in_use
        and (replica.task, replica.variant) not in keep
    ]
    return [
        Unload(
            worker=worker.id,
            task=replica.task,
            variant=replica.variant,
            why="not in the plan",
            seen=(replica.load_no, replica.asked),
        )
        for replica in sorted(leaving, key=lambda r: (r.task, r.variant))
    ]


def _loads(
    worker: WorkerReport,
    placed: Iterable[Placement],
    memory_mib: MemoryMib,
    leaving: Collection[tuple[TaskName, VariantName]],
) -> list[Load]:
    there = {(replica.task, replica.variant) for replica in worker.replicas}
    free_mib = free(worker) + sum(
        [
            replica.memory_mib
            for replica in worker.replicas
            if (replica.task, replica.variant) in leaving
        ]
    )
    loads = []
    for placement in placed:
        if (placement.task, placement.variant) in there:
            continue
        need_mib = memory_mib.get((worker.device_kind, placement.task, placement.variant))
        if need_mib is None or need_mib > free_mib:
            continue
        free_mib -= need_mib
        loads.append(
            Load(
                worker=worker.id, task=placement.task, variant=placement.variant, why="in the plan"
            )
        )
    return loads


def free(worker: WorkerReport) -> float:
    """Memory in MiB that nothing on a worker has reserved, in whatever state it is."""
    held_mib = sum([replica.memory_mib for replica in worker.replicas])
    return worker.memory_mib - max(worker.reserved_mib, held_mib)
