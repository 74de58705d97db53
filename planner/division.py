"""Division: how the demand is divided over the workers that are there.

A planner decides what abstract devices do; here they become concrete workers. Workers that the plan
left without work become copies of those with the most: what is paid for anyway is headroom.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from math import inf

from planner.instance import TAIL, Instance, instance
from planner.matching import match
from planner.problem import Assignment, Kind, Planner
from planner.types import Candidate, Demand, Objective, Snapshot, WorkerReport
from variants.types import (
    DeviceKindName,
    ReplicaState,
    Route,
    TaskName,
    VariantName,
    WorkerId,
)

Key = tuple[TaskName, VariantName]

TAILS = (TAIL, TAIL / 3)
"""Headroom to plan with: the next one when the demand does not fit."""
SCALES = 5
"""Times that a demand is made smaller until it fits."""
SMALLER = 0.97
DRIFT = 0.1
"""Demand may change by this part of its work before it is divided anew."""
SERVED = 1.0 - 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """Who serves what."""

    routes: tuple[Route, ...] = ()
    """Ordered by task, class, variant and worker."""
    served_qps: float = 0.0
    asked_qps: float = 0.0
    accuracy: float = 0.0
    tail: float = TAIL
    """The headroom that it was planned with."""
    notes: tuple[str, ...] = ()


NOTHING = Division()


def divide(
    snapshot: Snapshot,
    workers: Sequence[WorkerReport],
    demand: Sequence[Demand],
    prices: Mapping[DeviceKindName, float],
    planner: Planner,
    objective: Objective,
) -> Division:
    """A division of the demand, made anew.

    Args:
        workers: those that may be used: none that drain.
        prices: USD per hour of each device kind.
    """
    kinds = _kinds(workers, prices)
    quarantined = _quarantined_everywhere(workers)
    scale = 1.0
    tails = iter(TAILS)
    tail = next(tails)
    for _ in range(len(TAILS) + SCALES):
        part = demand if scale == 1.0 else [replace(d, qps=d.qps * scale) for d in demand]
        made = instance(snapshot, kinds, part, tail=tail, forbidden=quarantined)
        if not made.problem.demand:
            return NOTHING
        found = planner(made.problem, objective)
        if found.feasible:
            break
        # Less headroom first; then less of everybody rather than nothing of some.
        asked_qps = sum(d.qps for d in made.problem.demand)
        following = next(tails, None)
        if following is None:
            scale *= SMALLER * found.served_qps / asked_qps
        else:
            tail = following
    served = [0.0] * len(made.asked)
    for assignment in found.assignments:
        served[assignment.demand] += assignment.qps / made.factors[assignment.demand]
    return Division(
        routes=_settle(made, found.assignments, found.devices, workers, scale),
        served_qps=sum(served),
        asked_qps=sum(d.qps for d in demand),
        accuracy=found.accuracy,
        tail=tail,
    )


def drifted(
    routes: Iterable[Route], demand: Iterable[Demand], work_ms: Mapping[TaskName, float]
) -> bool:
    """Whether the demand has moved away from what the routes were made for.

    Changes are weighed by the work that a query brings, ``work_ms`` per task.
    """
    planned: dict[tuple[TaskName, float, float | None], float] = {}
    for route in routes:
        key = (route.task, route.latency_ms, route.accuracy)
        planned[key] = planned.get(key, 0.0) + route.qps
    wanted = {(d.task, d.latency_ms, d.accuracy): d.qps for d in demand}
    moved = total = 0.0
    for key in planned.keys() | wanted.keys():
        weight = work_ms.get(key[0], 1.0)
        moved += weight * abs(planned.get(key, 0.0) - wanted.get(key, 0.0))
        total += weight * wanted.get(key, 0.0)
    return moved > DRIFT * total


def shares_of(
    routes: Iterable[Route], snapshot: Snapshot
) -> dict[WorkerId, dict[Key, float]] | None:
    """The part of each worker's time that routes take, by variant: what it has to hold for them.

    None when a route leads nowhere: its worker is gone, or its variant does not answer there.
    """
    shares: dict[WorkerId, dict[Key, float]] = {}
    for route in routes:
        worker = snapshot.workers.get(route.worker)
        view = snapshot.tasks.get(route.task)
        if worker is None or worker.draining or view is None:
            return None
        for candidate in view.by_variant.get(route.variant, ()):
            if candidate.device_kind == worker.device_kind and not candidate.canary:
                break
        else:
            return None
        size = min(route.batch_size, candidate.table.max_batch)
        held = shares.setdefault(route.worker, {})
        key = _key(candidate)
        taken = route.qps * candidate.table.ms[size] / (1_000 * size)
        held[key] = held.get(key, 0.0) + taken
    return shares


def paces(routes: Iterable[Route], snapshot: Snapshot) -> dict[WorkerId, float]:
    """How long batches may be on each worker that has routes, in ms.

    Who just missed one waits for so long, and has to have time for one of his own: half of the
    tightest SLO that the plan gives to the worker, or what is planned, should that be longer. Less
    would gain nobody anything, and leave no way to grow when more comes than was planned for.
    """
    longest: dict[WorkerId, float] = {}
    halves: dict[WorkerId, float] = {}
    for route in routes:
        worker = snapshot.workers.get(route.worker)
        view = snapshot.tasks.get(route.task)
        for candidate in view.by_variant.get(route.variant, ()) if view and worker else ():
            if worker is not None and candidate.device_kind == worker.device_kind:
                size = min(route.batch_size, candidate.table.max_batch)
                longest[worker.id] = max(longest.get(worker.id, 0.0), candidate.table.ms[size])
                half_ms = (route.latency_ms - snapshot.transport_ms) / 2
                halves[worker.id] = min(halves.get(worker.id, inf), half_ms)
    return {worker: max(ms, halves[worker]) for worker, ms in longest.items()}


def _kinds(
    workers: Iterable[WorkerReport], prices: Mapping[DeviceKindName, float]
) -> tuple[Kind, ...]:
    found: dict[DeviceKindName, list[float]] = {}
    for worker in workers:
        found.setdefault(worker.device_kind, []).append(worker.memory_mib)
    return tuple(
        Kind(
            name=name,
            count=len(memories),
            memory_mib=min(memories),
            usd_per_hour=prices.get(name, 0.0),
        )
        for name, memories in sorted(found.items())
    )


def _quarantined(worker: WorkerReport) -> set[Key]:
    return {(r.task, r.variant) for r in worker.replicas if r.state is ReplicaState.QUARANTINED}


def _quarantined_everywhere(
    workers: Iterable[WorkerReport],
) -> dict[DeviceKindName, set[Key]]:
    found: dict[DeviceKindName, set[Key]] = {}
    for worker in workers:
        bad = _quarantined(worker)
        known = found.get(worker.device_kind)
        found[worker.device_kind] = bad if known is None else known & bad
    return found


@dataclass(slots=True)
class _Device:
    """A device of the plan: what it holds and does."""

    kind: DeviceKindName
    work: list[Assignment]
    worker: WorkerId | None = None
    copies: list[WorkerId] | None = None


def _settle(
    made: Instance,
    assignments: Iterable[Assignment],
    kinds: Sequence[DeviceKindName],
    workers: Sequence[WorkerReport],
    scale: float,
) -> tuple[Route, ...]:
    """Routes over concrete workers; rates are those of the whole demand again."""
    devices = [_Device(kind, []) for kind in kinds]
    for assignment in assignments:
        devices[assignment.device].work.append(assignment)
    bad = {worker.id: _quarantined(worker) for worker in workers}
    wanted = [
        (d.kind, {_key(made.candidates[a.offer]): made.candidates[a.offer].load_ms / 1e3
                  for a in d.work})
        for d in devices
    ]  # fmt: skip
    for device, worker in zip(devices, match(wanted, workers), strict=True):
        device.worker = worker
        device.copies = [] if worker is None else [worker]
    _copy(devices, workers)
    rates: dict[tuple[TaskName, float, float | None, VariantName, WorkerId, int], float] = {}
    for device in devices:
        for worker in device.copies or ():
            for assignment in device.work:
                candidate = made.candidates[assignment.offer]
                key = _key(candidate)
                if key in bad[worker]:
                    continue
                asked = made.asked[assignment.demand]
                copies = len(device.copies or (worker,))
                qps = assignment.qps / made.factors[assignment.demand] / copies / scale
                route = (
                    asked.task, asked.latency_ms, asked.accuracy, candidate.variant, worker,
                    assignment.batch_size,
                )  # fmt: skip
                rates[route] = rates.get(route, 0.0) + qps
    return tuple(
        Route(
            task=task, latency_ms=latency_ms, accuracy=floor, variant=variant, worker=worker,
            batch_size=batch_size, qps=qps,
        )
        for (task, latency_ms, floor, variant, worker, batch_size), qps in sorted(
            rates.items(), key=lambda entry: _order(entry[0])
        )
    )  # fmt: skip


def _copy(devices: Sequence[_Device], workers: Sequence[WorkerReport]) -> None:
    """Give workers without a device the work of the busiest one of their kind, to halve it."""
    used = {device.worker for device in devices}
    heaps: dict[DeviceKindName, list[tuple[float, int, float]]] = {}
    for index, device in enumerate(devices):
        if device.worker is not None:
            share = sum(a.share for a in device.work)
            heaps.setdefault(device.kind, []).append((-share, index, share))
    for heap in heaps.values():
        heapify(heap)
    for worker in sorted(workers, key=lambda w: w.id):
        heap = heaps.get(worker.device_kind, [])
        if worker.id in used or not heap:
            continue
        _, index, share = heap[0]
        copies = devices[index].copies
        assert copies is not None
        copies.append(worker.id)
        heapreplace(heap, (-share / (len(copies)), index, share))


def _order(
    route: tuple[TaskName, float, float | None, VariantName, WorkerId, int],
) -> tuple[object, ...]:
    task, latency_ms, floor, variant, worker, batch_size = route
    return (task, latency_ms, -inf if floor is None else floor, variant, worker, batch_size)


def _key(candidate: Candidate) -> Key:
    return (candidate.task, candidate.variant)
