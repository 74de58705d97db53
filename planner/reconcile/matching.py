"""Matching: which concrete worker becomes which device of a plan, with few loads.

Devices of a plan have no identity, but workers already hold variants. A good match keeps a new plan
from moving everything: a device goes to the worker of its kind that holds most of what the device
needs, weighed by the time that loading it again would take.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from planner.selection.eligibility import kept_out, profile_rule
from planner.types import Demand, Snapshot, WorkerReport
from variants.types import DeviceKindName, ReplicaState, VariantKey, WorkerId


def match(
    devices: Sequence[tuple[DeviceKindName, Mapping[VariantKey, float]]],
    workers: Sequence[WorkerReport],
) -> list[WorkerId | None]:
    """A worker for each device; None for those that find none.

    Greedy by what is saved: the pair that spares most load time comes first, ties go by the names.
    Devices that share nothing with any worker get those that are left, first the one where the
    absence of what may leave costs least, then the emptiest. A device goes to a worker from which
    something of it is kept out only where there is no other.

    Args:
        devices: kind of each, and what it is to hold with the load time in s.
        workers: those that may be used.
    """
    held = {w.id: _held(w) for w in workers}
    bad = {w.id: kept for w in workers if (kept := kept_out(w))}
    where: dict[tuple[DeviceKindName, VariantKey], list[WorkerId]] = {}
    for worker in workers:
        for key in held[worker.id]:
            where.setdefault((worker.device_kind, key), []).append(worker.id)
    saved: list[tuple[float, int, int, WorkerId]] = []
    for index, (kind, wanted) in enumerate(devices):
        gains: dict[WorkerId, float] = {}
        for key, load_s in wanted.items():
            for id_ in where.get((kind, key), ()):
                gains[id_] = gains.get(id_, 0.0) + max(load_s, 1e-6)
        saved += [
            (-gain, len(held[id_]), index, id_)
            for id_, gain in gains.items()
            if id_ not in bad or bad[id_].isdisjoint(wanted)
        ]
    saved.sort()
    found: list[WorkerId | None] = [None] * len(devices)
    free = {w.id for w in workers}
    for _, _, index, id_ in saved:
        if found[index] is None and id_ in free:
            found[index] = id_
            free.discard(id_)
    left: dict[DeviceKindName, list[WorkerId]] = {}
    worth_s = {w.id: sum(loss_s for _, loss_s in w.evictable) for w in workers}
    for worker in sorted(workers, key=lambda w: (-worth_s[w.id], -len(held[w.id]), w.id)):
        if worker.id in free:
            left.setdefault(worker.device_kind, []).append(worker.id)
    for index, (kind, wanted) in enumerate(devices):
        if found[index] is None and (waiting := left.get(kind)):
            able = (
                at
                for at in range(len(waiting) - 1, -1, -1)
                if waiting[at] not in bad or bad[waiting[at]].isdisjoint(wanted)
            )
            found[index] = waiting.pop(next(able, -1))
    return found


def _held(worker: WorkerReport) -> set[VariantKey]:
    ready, loading = ReplicaState.READY, ReplicaState.LOADING
    return {
        (replica.task, replica.variant)
        for replica in worker.replicas
        if replica.state is ready or replica.state is loading
    }


def able(
    snapshot: Snapshot, workers: Sequence[WorkerReport], demand: Iterable[Demand]
) -> Sequence[WorkerReport]:
    """The workers but those of which all is kept out that some class may use."""
    bad = {worker.id: kept for worker in workers if (kept := kept_out(worker))}
    if not bad:
        return workers
    usable: dict[DeviceKindName, set[VariantKey]] = {}
    for wanted in demand:
        rule = profile_rule(replace(wanted, latency_ms=wanted.tightest_ms), snapshot.transport_ms)
        view = snapshot.tasks.get(wanted.task)
        for candidate in view.by_cost if view else ():
            if rule(candidate) is None:
                usable.setdefault(candidate.device_kind, set()).add(
                    (candidate.task, candidate.variant)
                )
    return [
        worker
        for worker in workers
        if worker.id not in bad or not usable.get(worker.device_kind, set()) <= bad[worker.id]
    ]
