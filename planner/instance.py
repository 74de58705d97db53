"""The planning problem of a live fleet: from a snapshot and a demand to ``Problem``."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from planner.curve import Curve
from planner.problem import Kind, Offer, Pool, Problem
from planner.types import Candidate, Demand, Snapshot
from variants.types import DeviceKindName, ModelName, TaskName, VariantName

Key = tuple[TaskName, VariantName]


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A problem, and what its indices stand for."""

    problem: Problem
    candidates: tuple[Candidate, ...]
    """The candidate behind each offer."""
    asked: tuple[Demand, ...]
    """The class behind each demand of the problem, as it was asked."""
    hopeless: tuple[Demand, ...]
    """Classes that no device could serve, left out of the problem."""


def instance(
    snapshot: Snapshot,
    kinds: Iterable[Kind],
    demand: Iterable[Demand],
    *,
    load: float,
    forbidden: Mapping[DeviceKindName, Collection[Key]] | None = None,
    pools: Iterable[Pool] = (),
) -> Instance:
    """What there is to plan.

    A class that no batch can serve with somebody else's batch before it, but that an idle device
    can, is planned for all the same, at the smallest batch: its SLO is stretched to what that
    takes. Whether a query makes it is then up to the queues.

    Args:
        load: part of a device's time to plan for.
        forbidden: what must not be placed on a kind: it is quarantined everywhere there.
    """
    kinds = tuple(kind for kind in kinds if kind.count > 0)
    there = {kind.name: kind for kind in kinds}
    wanted = [d for d in demand if d.qps > 0.0 and d.task in snapshot.tasks]
    tasks = {d.task for d in wanted}
    found = [
        candidate
        for task in sorted(tasks)
        for candidate in snapshot.tasks[task].by_cost
        if not candidate.canary
        and candidate.device_kind in there
        and candidate.memory_mib <= there[candidate.device_kind].memory_mib
        and (candidate.task, candidate.variant)
        not in (forbidden or {}).get(candidate.device_kind, ())
    ]
    overhead_ms = snapshot.transport_ms
    fastest: dict[TaskName, list[Candidate]] = {}
    for candidate in found:
        fastest.setdefault(candidate.task, []).append(candidate)
    planned, asked, hopeless = [], [], []
    for entry in wanted:
        stretched = _stretched(entry, fastest.get(entry.task, ()), overhead_ms)
        if stretched is None:
            hopeless.append(entry)
        else:
            planned.append(stretched)
            asked.append(entry)
    problem = Problem(
        offers=tuple(_offer(candidate) for candidate in found),
        kinds=kinds,
        demand=tuple(planned),
        pools=tuple(pools),
        load=load,
        overhead_ms=overhead_ms,
    )
    return Instance(
        problem=problem,
        candidates=tuple(found),
        asked=tuple(asked),
        hopeless=tuple(hopeless),
    )


def _stretched(entry: Demand, candidates: Iterable[Candidate], overhead_ms: float) -> Demand | None:
    """The class, its SLO such that some batch of one row can be planned for; None if even an idle
    device is too slow."""
    floor = -inf if entry.accuracy is None else entry.accuracy
    least_ms = min((c.table.ms[1] for c in candidates if c.accuracy >= floor), default=inf)
    if least_ms + overhead_ms > entry.latency_ms:
        return None
    needed_ms = 2 * least_ms + overhead_ms
    return entry if needed_ms <= entry.latency_ms else replace(entry, latency_ms=needed_ms)


def _offer(candidate: Candidate) -> Offer:
    return Offer(
        task=candidate.task,
        model=ModelName(candidate.model_version),
        variant=candidate.variant,
        accuracy=candidate.accuracy,
        device_kind=candidate.device_kind,
        curve=Curve(candidate.table.points),
        memory_mib=candidate.memory_mib,
        load_s=candidate.load_ms / 1_000,
    )
