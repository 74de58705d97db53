"""Routes that are there already: what they serve and take, and the same routes for another demand.

A division of the demand is made anew where the demand has moved or latencies are others than was
known. While workers have time, several divisions are as good as each other, and which one comes out
best by a hair changes with every batch that is measured. Another one would have variants loaded
and unloaded for nothing, so routes stay, stretched to what is asked for now, until a new division
gains something (``planner.reconcile.kept.worth``).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from planner.reconcile.problem_builder import largest_batch, planned_slo_ms
from planner.selection.eligibility import able, answers
from planner.solver.capacity import SLACK
from planner.types import Demand, DemandClass, Objective, Snapshot, class_of
from variants.types import DeviceKindName, Route, TaskName, VariantKey, WorkerId

DRIFT = 0.1
"""Demand may change by this part of its work before it is assigned anew."""
FULL, FULL_DRIFT = 0.8, 0.05
"""And by this one under ``cost`` where a worker is so full: there, a task that gets less time than
it needs loses the difference (docs/decisions/0006-forecast.md)."""
LOOSER = 0.1
"""The SLO of a class may change by this part of it."""
ROOMY = {Objective.COST: 0.5, Objective.ENERGY: 0.5, Objective.ACCURACY: 0.8}
"""Part of its time up to which a worker has enough left that the division hardly matters. Under
``accuracy`` what full workers cost is a part of what a division is worth."""

Shares = Mapping[WorkerId, Mapping[VariantKey, float]]
"""The part of each worker's time that each variant takes."""
Parts = Mapping[DeviceKindName, float]
"""By what part batches take longer on a worker of a kind that serves with several variants."""


class RouteClasses(NamedTuple):
    """What routes were made for: of each class of the demand, the rate in rows per second and the
    SLO to plan for in ms."""

    qps: Mapping[DemandClass, float]
    slo_ms: Mapping[DemandClass, float]

    @classmethod
    def of(cls, routes: Collection[Route]) -> "RouteClasses":
        """Those of some routes."""
        return cls(planned_qps(routes), {class_of_route(r): r.tightest_ms for r in routes})


def drifted(
    routes: Collection[Route],
    demand: Iterable[Demand],
    work_ms: Mapping[TaskName, float],
    objective: Objective,
    drift: float = DRIFT,
    made_for: RouteClasses | None = None,
) -> bool:
    """Whether the demand has moved away from what the routes were made for, by the part ``drift``.

    Changes are weighed by the work that a query brings, ``work_ms`` per task. A class whose SLO
    (``kept_slo_ms``) is looser by ``LOOSER`` has changed as a whole; one that is tighter by as much
    has the demand be assigned anew however small it is, because workers run too long batches for
    it. What the routes were ``made_for`` is found out where it is not known.
    """
    demand = list(demand)
    planned, slo_ms = RouteClasses.of(routes) if made_for is None else made_for
    wanted = {class_of(d): d.qps for d in demand}
    looser = set()
    for each in demand:
        now_ms = kept_slo_ms(each, objective) or each.latency_ms
        was_ms = slo_ms.get(key := class_of(each), now_ms)
        if now_ms * (1.0 + LOOSER) < was_ms:
            return True
        if now_ms > was_ms * (1.0 + LOOSER):
            looser.add(key)
    moved = total = 0.0
    for key in planned.keys() | wanted.keys():
        weight, asked = work_ms.get(key[0], 1.0), wanted.get(key, 0.0)
        moved += weight * (asked if key in looser else abs(planned.get(key, 0.0) - asked))
        total += weight * asked
    return moved > drift * total


def drift_of(objective: Objective, shares: Shares | None) -> float:
    """By what part of its work the demand may change while workers are so full."""
    most = max((sum(held.values()) for held in (shares or {}).values()), default=0.0)
    return FULL_DRIFT if objective is Objective.COST and most > FULL else DRIFT


def kept_slo_ms(demand: Demand, objective: Objective) -> float | None:
    """The SLO by which workers go that serve a class: under ``accuracy`` the tightest in it; None
    for that of the class, which is at most that."""
    return demand.slo_ms if objective is Objective.ACCURACY else None


def with_slos(
    routes: Iterable[Route], demand: Iterable[Demand], objective: Objective
) -> tuple[Route, ...]:
    """Routes with the SLO by which their workers go."""
    slo_ms = {class_of(each): kept_slo_ms(each, objective) for each in demand}
    return tuple(replace(each, slo_ms=slo_ms.get(class_of_route(each))) for each in routes)


def class_of_route(route: Route) -> DemandClass:
    """The class of queries that go there."""
    pin = route.variant if route.pinned else None
    return (route.task, route.latency_ms, route.accuracy, pin)


def planned_qps(routes: Iterable[Route]) -> dict[DemandClass, float]:
    """What routes were planned to serve of each class, in rows per second."""
    planned: dict[DemandClass, float] = {}
    for route in routes:
        key = class_of_route(route)
        planned[key] = planned.get(key, 0.0) + route.qps
    return planned


def shares_of(
    routes: Iterable[Route], snapshot: Snapshot
) -> dict[WorkerId, dict[VariantKey, float]] | None:
    """The part of each worker's time that routes take, by variant: what it has to hold for them.

    None when a route leads nowhere: its worker is gone, or its variant does not answer there.
    """
    shares: dict[WorkerId, dict[VariantKey, float]] = {}
    for route in routes:
        worker = snapshot.workers.get(route.worker)
        view = snapshot.tasks.get(route.task)
        if worker is None or worker.draining or view is None:
            return None
        candidate = view.of(route.variant, worker.device_kind)
        if candidate is None or not answers(candidate, route.variant if route.pinned else None):
            return None
        size = min(route.batch_size, candidate.table.max_batch)
        held = shares.setdefault(route.worker, {})
        key = (candidate.task, candidate.variant)
        taken = route.qps * candidate.busy_table.ms[size] / (1_000 * size)
        held[key] = held.get(key, 0.0) + taken
    return shares


def unserved(planned: Mapping[DemandClass, float], demand: Iterable[Demand]) -> tuple[Demand, ...]:
    """The part of a demand that is not planned for, with what is planned of each class in rows per
    second."""
    left = [(d, d.qps - planned.get(class_of(d), 0.0)) for d in demand]
    return tuple([d.at_rate(qps) for d, qps in left if qps > 1e-6])


def stretched(
    routes: Sequence[Route],
    demand: Iterable[Demand],
    snapshot: Snapshot,
    longer: Parts,
    objective: Objective,
) -> tuple[Route, ...] | None:
    """The same routes with the rates of a demand, divided as before, and no larger batches than it
    fills.

    None where they do not serve all of it, where a worker would be more than ``ROOMY`` full, or
    where they do not meet the SLO by now (``meets``).
    """
    planned, asked = planned_qps(routes), {class_of(d): d for d in demand}
    if not all(planned.get(key, 0.0) > 0.0 for key in asked):
        return None
    slo_ms = {key: slo_of(each, snapshot) for key, each in asked.items()}
    largest = {
        key: largest_batch(each.qps, slo_ms[key] - snapshot.transport_ms)
        for key, each in asked.items()
    }
    found = tuple(
        replace(
            route,
            qps=route.qps * asked[key].qps / planned[key],
            batch_size=min(route.batch_size, largest[key]),
            slo_ms=kept_slo_ms(asked[key], objective),
        )
        for route in routes
        if (key := class_of_route(route)) in asked
    )
    shares = shares_of(found, snapshot)
    if shares is None:
        return None
    times = times_of(shares, snapshot, longer)
    most = ROOMY[objective]
    if any(sum(held.values()) * times[worker] > most for worker, held in shares.items()):
        return None
    longest_ms = longest_of(found, times, snapshot)
    in_time = all(
        meets(each, longest_ms[each.worker], times[each.worker], snapshot, slo_ms[key])
        for each in found
        if (key := class_of_route(each)) in slo_ms
    )
    return found if in_time else None


def slo_of(demand: Demand, snapshot: Snapshot) -> float:
    """The latency SLO in ms that plans keep for a class; 0 where nothing answers it in time."""
    slo_ms, transport_ms = demand.tightest_ms, snapshot.transport_ms
    found = able(snapshot.tasks[demand.task], demand, transport_ms, slo_ms)
    return planned_slo_ms(slo_ms, found, transport_ms) if found else 0.0


def times_of(shares: Shares, snapshot: Snapshot, longer: Parts) -> dict[WorkerId, float]:
    """How many times as long as by its profile a batch takes on each worker."""
    return {
        worker: 1.0 + longer.get(snapshot.workers[worker].device_kind, 0.0) * (len(held) > 1)
        for worker, held in shares.items()
    }


def longest_of(
    routes: Iterable[Route], times: Mapping[WorkerId, float], snapshot: Snapshot
) -> dict[WorkerId, float]:
    """How long the longest batch of any route takes on each worker, in ms.

    ``times`` is how many times as long as by its profile a batch takes there.
    """
    longest_ms: dict[WorkerId, float] = {}
    for route in routes:
        took_ms = times[route.worker] * _batch_ms(route, snapshot)
        longest_ms[route.worker] = max(longest_ms.get(route.worker, 0.0), took_ms)
    return longest_ms


def meets(route: Route, longest_ms: float, times: float, snapshot: Snapshot, slo_ms: float) -> bool:
    """Whether its batch, behind the longest one of its worker, is within an SLO, as is a row on an
    idle worker, and accurate enough.

    ``times`` is how many times as long as by its profile a batch takes there.
    """
    kind = snapshot.workers[route.worker].device_kind
    candidate = snapshot.tasks[route.task].of(route.variant, kind)
    if candidate is None or (route.accuracy is not None and candidate.accuracy < route.accuracy):
        return False
    took_ms = max(longest_ms + times * _batch_ms(route, snapshot), candidate.table.ms[1])
    return took_ms + snapshot.transport_ms <= slo_ms * (1 + SLACK)


def _batch_ms(route: Route, snapshot: Snapshot) -> float:
    """What its batch takes by its profile; without one nobody waits for it."""
    kind = snapshot.workers[route.worker].device_kind
    candidate = snapshot.tasks[route.task].of(route.variant, kind)
    if candidate is None:
        return 0.0
    return candidate.busy_table.ms[min(route.batch_size, candidate.table.max_batch)]
