"""Matching: which concrete workers are alike, and which becomes which device of a plan.

Devices of a plan have no identity, but workers already hold variants. A good match keeps a new plan
from moving everything: a device goes to the worker of its kind that holds most of what the device
needs, weighed by the time that loading it again would take. Workers of a kind are alike but where
something is kept out of some of them: those are told apart, because a plan for devices that could
all hold the same would give them work that they cannot do.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from planner.selection.eligibility import kept_out, profile_rule
from planner.types import Demand, Snapshot, WorkerReport
from variants.types import DeviceKindName, ReplicaState, VariantKey, WorkerId

SERVES = 0.01
"""Of a variant's load time, what it counts more on a worker that serves with it by the plan that is
there: where several hold the same, each goes on with what it does."""
MOST_APART = 4
"""Kinds into which a kind is told apart, beside the one with its name: each is one more for the
solver."""


def match(
    devices: Sequence[tuple[DeviceKindName, Mapping[VariantKey, float]]],
    workers: Sequence[WorkerReport],
    serving: Mapping[WorkerId, Collection[VariantKey]] = MappingProxyType({}),
) -> list[WorkerId | None]:
    """A worker for each device; None for those that find none.

    Greedy by what is saved: the pair that spares most load time comes first, ties go by the names.
    Devices that share nothing with any worker get those that are left, first the one where the
    absence of what may leave costs least, then the emptiest. A device goes to a worker from which
    something of it is kept out only where there is no other.

    Args:
        devices: kind of each, and what it is to hold with the load time in s.
        workers: those that may be used.
        serving: what each serves with by the plan that is there.
    """
    held = {w.id: _held(w) for w in workers}
    bad = {w.id: kept for w in workers if (kept := kept_out(w))}
    needed: dict[DeviceKindName, set[VariantKey]] = {}
    for kind, wanted in devices:
        needed.setdefault(kind, set()).update(wanted)
    where: dict[tuple[DeviceKindName, VariantKey], list[WorkerId]] = {}
    for worker in workers:
        kind = worker.device_kind
        for key in held[worker.id] & needed.get(kind, set()):
            where.setdefault((kind, key), []).append(worker.id)
    saved: list[tuple[float, int, int, WorkerId]] = []
    for index, (kind, wanted) in enumerate(devices):
        gains: dict[WorkerId, float] = {}
        for key, load_s in wanted.items():
            for id_ in where.get((kind, key), ()):
                part = 1.0 + SERVES if key in serving.get(id_, ()) else 1.0
                gains[id_] = gains.get(id_, 0.0) + part * max(load_s, 1e-6)
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
) -> tuple[Sequence[WorkerReport], dict[DeviceKindName, DeviceKindName]]:
    """The workers but those of which all is kept out that some class may use, and the kind that
    each name of a kind stands for.

    Those of a kind of which different variants are kept out, among those that some class may use,
    are of kinds of their own: of ``MOST_APART`` at most, the most frequent. Beyond that they are
    one kind more, as if only that were kept out of them that is kept out of all.
    """
    bad = {worker.id: kept for worker in workers if (kept := kept_out(worker))}
    real = {worker.device_kind: worker.device_kind for worker in workers}
    if not bad:
        return workers, real
    usable = _usable(snapshot, demand)
    nothing: frozenset[VariantKey] = frozenset()
    without = {
        worker.id: bad.get(worker.id, nothing) & usable.get(worker.device_kind, nothing)
        for worker in workers
    }
    left = [
        worker
        for worker in workers
        if worker.id not in bad or without[worker.id] != usable.get(worker.device_kind, nothing)
    ]
    names: dict[tuple[DeviceKindName, frozenset[VariantKey]], DeviceKindName] = {}
    for kind in real.copy():
        alike = Counter(without[worker.id] for worker in left if worker.device_kind == kind)
        ranked = sorted(alike, key=lambda kept: (-alike[kept], sorted(kept)))
        for number, kept in enumerate(ranked):
            at = min(number, MOST_APART)
            name = DeviceKindName(f"{kind} but {at}") if at else kind
            names[kind, kept], real[name] = name, kind
    told_apart = [
        worker if name == worker.device_kind else replace(worker, device_kind=name)
        for worker in left
        if (name := names[worker.device_kind, without[worker.id]])
    ]
    return told_apart, real


def _usable(
    snapshot: Snapshot, demand: Iterable[Demand]
) -> dict[DeviceKindName, frozenset[VariantKey]]:
    """What some class may use, by kind."""
    found: dict[DeviceKindName, set[VariantKey]] = {}
    for wanted in demand:
        rule = profile_rule(replace(wanted, latency_ms=wanted.tightest_ms), snapshot.transport_ms)
        view = snapshot.tasks.get(wanted.task)
        for candidate in view.by_cost if view else ():
            if rule(candidate) is None:
                key = (candidate.task, candidate.variant)
                found.setdefault(candidate.device_kind, set()).add(key)
    return {kind: frozenset(keys) for kind, keys in found.items()}


def kept_out_everywhere(
    workers: Iterable[WorkerReport],
) -> dict[DeviceKindName, frozenset[VariantKey]]:
    """What no worker of a kind may be given, by kind."""
    found: dict[DeviceKindName, frozenset[VariantKey]] = {}
    for worker in workers:
        bad = kept_out(worker)
        known = found.get(worker.device_kind)
        found[worker.device_kind] = bad if known is None else known & bad
    return found
