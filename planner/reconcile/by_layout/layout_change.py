"""A change from one layout to another: which workers stay until others hold what they do."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from planner.types import Observation, Snapshot, WorkerReport
from variants.types import (
    DeviceKindName,
    Placement,
    Plan,
    ReplicaState,
    Route,
    TaskName,
    VariantKey,
)


def until_changed(
    wanted: Mapping[DeviceKindName, int],
    plan: Plan,
    observation: Observation,
    snapshot: Snapshot,
) -> Mapping[DeviceKindName, int]:
    """The worker counts for now: while a layout changes no worker goes before others can take over.

    Others can once all workers that come are there, what a part of the demand is led to is loaded,
    and each task that the going ones have ready is ready there too, where queries ask for
    it or it was placed. A task of which nothing fits them keeps no worker, and no more stay of a
    kind than an operator asks for.
    """
    working = [one for one in observation.workers if not one.draining]
    there = Counter(one.device_kind for one in working)
    stay = [one for one in working if wanted.get(one.device_kind)]
    if all(there[kind] >= count for kind, count in wanted.items()) and not (
        _awaited(plan.routes, stay)
        or (set(_ready(working)) - set(_ready(stay)))
        & _needed(plan.placements, stay, observation)
        & _fitting(snapshot, stay)
    ):
        return wanted
    running, asked = observation.running, observation.inventory
    return {
        kind: max(wanted.get(kind, 0), min(running.get(kind, 0), asked.get(kind, 0)))
        for kind in {*wanted, *running}
    }


def _awaited(routes: Iterable[Route], stay: Iterable[WorkerReport]) -> bool:
    """Whether a part of the demand is led to something that is not loaded yet."""
    held = {one.id: dict(_states(one)) for one in stay}
    return any(
        held[one.worker].get((one.task, one.variant), ReplicaState.LOADING) is ReplicaState.LOADING
        for one in routes
        if one.worker in held
    )


def _needed(
    placements: Iterable[Placement], stay: Iterable[WorkerReport], observation: Observation
) -> set[TaskName]:
    """Tasks that queries ask for, or that workers which stay are to hold."""
    ids = {one.id for one in stay}
    asked = (*observation.demand, *(observation.expected or ()), *(observation.envelope or ()))
    placed = {one.task for one in placements if one.worker in ids}
    return placed | {one.task for one in asked if one.qps > 0}


def _fitting(snapshot: Snapshot, workers: Iterable[WorkerReport]) -> set[TaskName]:
    """Tasks of which a variant fits one of these workers, whether or not it can be loaded."""
    room_mib: dict[DeviceKindName, float] = {}
    for one in workers:
        room_mib[one.device_kind] = max(room_mib.get(one.device_kind, 0.0), one.memory_mib)
    return {
        task
        for task, view in snapshot.tasks.items()
        if any(c.memory_mib <= room_mib.get(c.device_kind, -1.0) for c in view.by_cost)
    }


def _ready(workers: Iterable[WorkerReport]) -> Iterator[TaskName]:
    for worker in workers:
        for (task, _), state in _states(worker):
            if state is ReplicaState.READY:
                yield task


def _states(worker: WorkerReport) -> Iterator[tuple[VariantKey, ReplicaState]]:
    for replica in worker.replicas:
        yield (replica.task, replica.variant), replica.state
