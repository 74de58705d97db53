"""The planning problem of a live fleet: from a snapshot and a demand to ``Problem``.

*Headroom.* Queries come by chance; what a class absorbs of that depends on its slack. Let K be
the queries that its devices could work off within the slack of one, ``(SLO - batch) / time per
row`` for each device that it needs. In heavy traffic the chance that the backlog exceeds K falls
like ``exp(-2 K (1 - load) / load)`` (Kingman's bound for Poisson arrivals and constant service), so
a tail of ``exp(-t)`` takes a load of ``1 / (1 + t / 2K)``. A class with little slack is planned for
as if it asked for more, one with a lot of it is not.

*Batches.* Queries have to arrive before they can share a batch. In half of its SLO, the longest
that a class may wait, ``rate x SLO / 2`` of its queries come: larger batches are not planned for
(the duty cycles of Nexus, SOSP'19, section 6.1: batch = rate x cycle).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from planner.curve import Curve
from planner.problem import Kind, Offer, Pool, Problem
from planner.types import Candidate, Demand, Snapshot
from variants.types import DeviceKindName, ModelName, TaskName, VariantName

Key = tuple[TaskName, VariantName]

MOST_LOAD = 0.95
"""Most of a device's time that is planned for, whatever the slack."""
TAIL = 4.6
"""One in a hundred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A problem, and what its indices stand for."""

    problem: Problem
    candidates: tuple[Candidate, ...]
    """The candidate behind each offer."""
    asked: tuple[Demand, ...]
    """The class behind each demand of the problem, as it was asked."""
    factors: tuple[float, ...]
    """What each rate was multiplied by for headroom."""
    hopeless: tuple[Demand, ...]
    """Classes that no device could serve, left out of the problem."""


def instance(
    snapshot: Snapshot,
    kinds: Iterable[Kind],
    demand: Iterable[Demand],
    *,
    tail: float = TAIL,
    load: float = MOST_LOAD,
    forbidden: Mapping[DeviceKindName, Collection[Key]] | None = None,
    pools: Iterable[Pool] = (),
) -> Instance:
    """What there is to plan.

    A class that no batch can serve with somebody else's batch before it, but that an idle device
    can, is planned for all the same, at the smallest batch: its SLO is stretched to what that
    takes. Whether a query makes it is then up to the queues.

    Args:
        tail: how unlikely a backlog beyond the slack is to be, as ``-log`` of its chance; 0 for
            no headroom.
        load: most of a device's time that is planned for.
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
    planned, asked, hopeless, factors, most = [], [], [], [], []
    offers = {id(candidate): _offer(candidate) for candidate in found}
    for entry in wanted:
        floor = -inf if entry.accuracy is None else entry.accuracy
        able = [c for c in fastest.get(entry.task, ()) if c.accuracy >= floor]
        slo_ms = _stretched_ms(entry, able, overhead_ms)
        if slo_ms is None:
            hopeless.append(entry)
            continue
        most.append(max(1, int(entry.qps * (slo_ms - overhead_ms) / 2_000)))
        factor = 1.0
        if tail > 0.0:
            curves = [offers[id(candidate)].curve for candidate in able]
            factor = _headroom(curves, slo_ms - overhead_ms, entry.qps, tail, most[-1], load)
        planned.append(replace(entry, latency_ms=slo_ms, qps=entry.qps * factor))
        asked.append(entry)
        factors.append(factor)
    problem = Problem(
        offers=tuple(offers[id(candidate)] for candidate in found),
        kinds=kinds,
        demand=tuple(planned),
        pools=tuple(pools),
        load=load,
        overhead_ms=overhead_ms,
        most=tuple(most),
    )
    return Instance(
        problem=problem,
        candidates=tuple(found),
        asked=tuple(asked),
        factors=tuple(factors),
        hopeless=tuple(hopeless),
    )


def _stretched_ms(entry: Demand, able: Iterable[Candidate], overhead_ms: float) -> float | None:
    """The SLO to plan for, such that some batch of one row fits twice; None if even an idle device
    is too slow."""
    slo_ms = entry.slo_ms or entry.latency_ms
    least_ms = min((c.table.ms[1] for c in able), default=inf)
    if least_ms + overhead_ms > slo_ms:
        return None
    return max(slo_ms, 2 * least_ms + overhead_ms)


def _headroom(
    curves: Iterable[Curve], slo_ms: float, qps: float, tail: float, most: int, load: float
) -> float:
    """What to multiply a rate by, so that planning for ``load`` leaves the headroom it needs."""
    half_ms = slo_ms / 2 * (1 + 1e-9)
    batches = [batch for curve in curves if (batch := curve.cheapest(half_ms, most))]
    if not batches:
        return 1.0
    quickest = min(batches, key=lambda batch: batch.unit_ms)
    devices = max(1.0, qps * quickest.unit_ms / 1_000)
    slack = devices * (slo_ms - quickest.latency_ms) / max(quickest.unit_ms, 1e-6)
    return max(1.0, load * (1.0 + tail / (2.0 * max(slack, 0.5))))


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
