"""Routes that are there already: what they serve and take, and whether they are to stay.

A division of the demand is made anew where the demand has moved or latencies are others than was
known. While workers have time, several divisions are as good as each other, and which one comes out
cheapest by a hair changes with every batch that is measured. Another one would have variants loaded
and unloaded for nothing, so routes stay, stretched to what is asked for now, until a new division
saves something.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from planner.selection.eligibility import answers
from planner.types import Demand, DemandClass, Snapshot, class_of
from variants.types import DeviceKind, DeviceKindName, Route, TaskName, VariantKey, WorkerId

DRIFT = 0.1
"""Demand may change by this part of its work before it is assigned anew."""
ROOMY = 0.5
"""Part of its time up to which a worker has enough left that the division hardly matters."""
SAVES = 0.1
"""A new division has to save this part of the cost of the one that is there."""
LEAST_SAVED = 0.01
"""And at least this part of the cheapest worker."""


def drifted(
    routes: Iterable[Route], demand: Iterable[Demand], work_ms: Mapping[TaskName, float]
) -> bool:
    """Whether the demand has moved away from what the routes were made for.

    Changes are weighed by the work that a query brings, ``work_ms`` per task.
    """
    planned = planned_qps(routes)
    wanted = {class_of(d): d.qps for d in demand}
    moved = total = 0.0
    for key in planned.keys() | wanted.keys():
        weight = work_ms.get(key[0], 1.0)
        moved += weight * abs(planned.get(key, 0.0) - wanted.get(key, 0.0))
        total += weight * wanted.get(key, 0.0)
    return moved > DRIFT * total


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
        taken = route.qps * candidate.table.ms[size] / (1_000 * size)
        held[key] = held.get(key, 0.0) + taken
    return shares


def unserved(routes: Iterable[Route], demand: Iterable[Demand]) -> tuple[Demand, ...]:
    """The part of a demand that routes do not serve."""
    planned = planned_qps(routes)
    left = (replace(d, qps=d.qps - planned.get(class_of(d), 0.0)) for d in demand)
    return tuple(d for d in left if d.qps > 1e-6)


Shares = Mapping[WorkerId, Mapping[VariantKey, float]]
"""The part of each worker's time that each variant takes."""
Parts = Mapping[DeviceKindName, float]
"""By what part batches take longer on a worker of a kind that serves with several variants."""


def stretched(
    routes: Sequence[Route], demand: Iterable[Demand], snapshot: Snapshot, longer: Parts
) -> tuple[Route, ...] | None:
    """The same routes with the rates of a demand, divided as before.

    None where they do not serve all of it, where a worker would be more than ``ROOMY`` full, or
    where they do not meet the SLO by now: a batch and the one that it waits for take longer, or the
    variant is less accurate than was known.
    """
    planned, wanted = planned_qps(routes), {class_of(d): d.qps for d in demand}
    if not all(planned.get(key, 0.0) > 0.0 for key in wanted):
        return None
    found = tuple(
        replace(route, qps=route.qps * wanted[key] / planned[key])
        for route in routes
        if (key := class_of_route(route)) in wanted
    )
    shares = shares_of(found, snapshot)
    if shares is None:
        return None
    times = _times(shares, snapshot, longer)
    if any(sum(held.values()) * times[worker] > ROOMY for worker, held in shares.items()):
        return None
    return found if all(_meets(r, times[r.worker], snapshot) for r in found) else None


def saves(
    new: Shares,
    there: Shares,
    snapshot: Snapshot,
    kinds: Mapping[DeviceKindName, DeviceKind],
    longer: Parts,
) -> bool:
    """Whether other routes save enough of the workers' cost to replace those that are there.

    Where nothing has a price, what they save is time.
    """

    def usd(shares: Shares) -> float:
        times = _times(shares, snapshot, longer)
        return sum(
            times[worker] * sum(held.values()) * prices.get(snapshot.workers[worker].device_kind, 0)
            for worker, held in shares.items()
        )

    prices = {name: kind.usd_per_hour for name, kind in kinds.items()}
    if not any(prices.values()):
        prices = dict.fromkeys(prices, 1.0)
    here = {view.device_kind for view in snapshot.workers.values()}
    cheapest = min((price for name, price in prices.items() if name in here), default=inf)
    now_usd = usd(there)
    return now_usd - usd(new) > max(SAVES * now_usd, LEAST_SAVED * cheapest)


def _times(shares: Shares, snapshot: Snapshot, longer: Parts) -> dict[WorkerId, float]:
    """How many times as long as by its profile a batch takes on each worker."""
    return {
        worker: 1.0 + longer.get(snapshot.workers[worker].device_kind, 0.0) * (len(held) > 1)
        for worker, held in shares.items()
    }


def _meets(route: Route, times: float, snapshot: Snapshot) -> bool:
    """Whether its batch, behind another one of them, is within the SLO, and accurate enough."""
    kind = snapshot.workers[route.worker].device_kind
    candidate = snapshot.tasks[route.task].of(route.variant, kind)
    if candidate is None or (route.accuracy is not None and candidate.accuracy < route.accuracy):
        return False
    size = min(route.batch_size, candidate.table.max_batch)
    took_ms = 2 * times * candidate.table.ms[size] + snapshot.transport_ms
    return took_ms <= route.latency_ms
