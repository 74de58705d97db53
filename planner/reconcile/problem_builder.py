"""The planning problem of a live fleet: from a snapshot and a demand to ``Problem``.

*Headroom.* Queries arrive at random; what a class absorbs of that depends on its slack. Let K be
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

from planner.latency_curve import Curve
from planner.selection.eligibility import answers, profile_rule
from planner.solver.problem import AvailableKind, Offer, Pool, Problem
from planner.types import Candidate, Demand, Snapshot
from variants.types import DeviceKindName, ModelName, TaskName, VariantKey, VariantName

MOST_LOAD = 0.95
"""Most of a device's time that is planned for, whatever the slack."""
TAIL = 4.6
"""``-log`` of the chance of a larger backlog: one in a hundred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltProblem:
    """A problem, and what its indices stand for."""

    problem: Problem
    candidates: tuple[Candidate, ...]
    """The candidate behind each offer."""
    asked: tuple[Demand, ...]
    """The class behind each demand of the problem, as it was asked."""
    factors: tuple[float, ...]
    """What each rate was multiplied by for headroom."""
    unanswerable: tuple[Demand, ...]
    """Classes that no device could serve, left out of the problem."""


def build_problem(
    snapshot: Snapshot,
    kinds: Iterable[AvailableKind],
    demand: Iterable[Demand],
    *,
    tail: float = TAIL,
    load: float = MOST_LOAD,
    forbidden: Mapping[DeviceKindName, Collection[VariantKey]] | None = None,
    pools: Iterable[Pool] = (),
) -> BuiltProblem:
    """The planning problem of a snapshot and a demand.

    A class that an idle device can serve in time, but not with another batch before it, is planned
    for all the same, at the smallest batch: its SLO is stretched to what two such batches take.
    Whether its queries are in time then depends on the queues.

    Args:
        tail: how unlikely a backlog beyond the slack is to be, as ``-log`` of its chance; 0 for
            no headroom.
        load: most of a device's time that is planned for.
        forbidden: what must not be placed on a kind: it is kept out everywhere there.
    """
    kinds = tuple(kind for kind in kinds if kind.count > 0)
    there = {kind.name: kind for kind in kinds}
    wanted = [d for d in demand if d.qps > 0.0 and d.task in snapshot.tasks]
    found = _placeable(snapshot, wanted, there, forbidden or {})
    overhead_ms = snapshot.transport_ms
    by_task: dict[TaskName, list[Candidate]] = {}
    for candidate in found:
        by_task.setdefault(candidate.task, []).append(candidate)
    planned, asked, unanswerable, factors, most = [], [], [], [], []
    offers = {id(candidate): _offer(candidate) for candidate in found}
    for entry in wanted:
        obstacle = profile_rule(replace(entry, latency_ms=entry.tightest_ms), overhead_ms)
        able = [c for c in by_task.get(entry.task, ()) if obstacle(c) is None]
        if not able:
            unanswerable.append(entry)
            continue
        slo_ms = _stretched_ms(entry.tightest_ms, able, overhead_ms)
        largest = max(1, int(entry.qps * (slo_ms - overhead_ms) / 2_000))
        curves = [offers[id(candidate)].curve for candidate in able]
        factor = _headroom(curves, slo_ms - overhead_ms, entry.qps, tail, largest, load)
        planned.append(replace(entry, latency_ms=slo_ms, qps=entry.qps * factor))
        asked.append(entry)
        factors.append(factor)
        most.append(largest)
    problem = Problem(
        offers=tuple(offers[id(candidate)] for candidate in found),
        kinds=kinds,
        demand=tuple(planned),
        pools=tuple(pools),
        load=load,
        overhead_ms=overhead_ms,
        most=tuple(most),
    )
    return BuiltProblem(
        problem=problem,
        candidates=tuple(found),
        asked=tuple(asked),
        factors=tuple(factors),
        unanswerable=tuple(unanswerable),
    )


def _placeable(
    snapshot: Snapshot,
    wanted: Iterable[Demand],
    kinds: Mapping[DeviceKindName, AvailableKind],
    forbidden: Mapping[DeviceKindName, Collection[VariantKey]],
) -> list[Candidate]:
    """The candidates that may answer some class and that some device could hold, by task."""
    pins: dict[TaskName, set[VariantName | None]] = {}
    for entry in wanted:
        pins.setdefault(entry.task, {None}).add(entry.variant)
    return [
        candidate
        for task in sorted(pins)
        for candidate in snapshot.tasks[task].by_cost
        if any(answers(candidate, pin) for pin in pins[task])
        and candidate.device_kind in kinds
        and candidate.memory_mib <= kinds[candidate.device_kind].memory_mib
        and (candidate.task, candidate.variant) not in forbidden.get(candidate.device_kind, ())
    ]


def _stretched_ms(slo_ms: float, able: Iterable[Candidate], overhead_ms: float) -> float:
    """The SLO in ms to plan for, such that the fastest batch of one row fits into it twice."""
    least_ms = min(c.table.ms[1] for c in able)
    return max(slo_ms, 2 * least_ms + overhead_ms)


def _headroom(
    curves: Iterable[Curve], slo_ms: float, qps: float, tail: float, most: int, load: float
) -> float:
    """The factor on a rate with which planning for ``load`` leaves the headroom it needs."""
    if tail <= 0.0:
        return 1.0
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
        curve=candidate.table.curve,
        memory_mib=candidate.memory_mib,
        load_s=candidate.load_ms / 1_000,
        canary=candidate.canary,
    )
