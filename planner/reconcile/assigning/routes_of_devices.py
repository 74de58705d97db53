"""Routes of a solution: the abstract devices of a solver become the workers that are there."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from math import inf

from planner.reconcile.matching import match
from planner.reconcile.problem_builder import BuiltProblem, largest_batch
from planner.selection.eligibility import kept_out
from planner.solver.problem import Assignment
from planner.types import Candidate, WorkerReport
from variants.types import DeviceKindName, Route, TaskName, VariantKey, VariantName, WorkerId

RealKinds = Mapping[DeviceKindName, DeviceKindName]
"""The kind that each name of a kind stands for (``planner.reconcile.matching.able``)."""


def in_order(routes: Iterable[Route]) -> tuple[Route, ...]:
    """Routes as plans list them."""
    return tuple(sorted(routes, key=_order))


def _order(route: Route) -> tuple[object, ...]:
    floor = -inf if route.accuracy is None else route.accuracy
    return (
        route.task, route.latency_ms, floor, route.variant, route.worker, route.batch_size,
        route.pinned,
    )  # fmt: skip


@dataclass(slots=True)
class _Device:
    """A device of the solution, with its work and the workers that become it."""

    kind: DeviceKindName
    work: list[Assignment]
    worker: WorkerId | None = None
    copies: list[WorkerId] | None = None


def routes_of(
    made: BuiltProblem,
    assignments: Iterable[Assignment],
    kinds: Sequence[DeviceKindName],
    workers: Sequence[WorkerReport],
    real: RealKinds,
    there: Iterable[Route] = (),
) -> tuple[Route, ...]:
    """Routes over concrete workers, with the rates that were asked for, and batches no larger than
    these fill. Of workers that hold the same, each goes on with what it has by the routes that are
    ``there``."""
    serving: dict[WorkerId, set[VariantKey]] = {}
    for each in there:
        serving.setdefault(each.worker, set()).add((each.task, each.variant))
    left_ms = [each.latency_ms - made.problem.overhead_ms for each in made.problem.demand]
    largest = [largest_batch(each.qps, ms) for each, ms in zip(made.asked, left_ms, strict=True)]
    devices = [_Device(kind, []) for kind in kinds]
    for assignment in assignments:
        devices[assignment.device].work.append(assignment)
    _level(devices)
    bad = {worker.id: kept_out(worker) for worker in workers}
    wanted = [
        (d.kind, {_key(made.candidates[a.offer]): made.candidates[a.offer].load_ms / 1e3
                  for a in d.work})
        for d in devices
    ]  # fmt: skip
    for device, worker in zip(devices, match(wanted, workers, serving), strict=True):
        device.worker = worker
        device.copies = [] if worker is None else [worker]
    _copy_busiest(devices, workers, real)
    rates: dict[_RouteKey, float] = {}
    for device in devices:
        for assignment in device.work:
            candidate = made.candidates[assignment.offer]
            key = _key(candidate)
            copies = [worker for worker in device.copies or () if key not in bad[worker]]
            asked = made.asked[assignment.demand]
            for worker in copies:
                qps = assignment.qps / made.factors[assignment.demand] / len(copies)
                route = (
                    asked.task, asked.latency_ms, asked.accuracy, candidate.variant, worker,
                    min(assignment.batch_size, largest[assignment.demand]),
                    asked.variant is not None,
                )  # fmt: skip
                rates[route] = rates.get(route, 0.0) + qps
    return in_order(
        Route(
            task=task, latency_ms=latency_ms, accuracy=floor, variant=variant, worker=worker,
            batch_size=batch_size, qps=qps, pinned=pinned,
        )
        for (task, latency_ms, floor, variant, worker, batch_size, pinned), qps in rates.items()
    )  # fmt: skip


def _level(devices: Iterable[_Device]) -> None:
    """Give the devices of a kind that do the same the same part of it: packing leaves the last one
    of them with what the others have no room for."""
    alike: dict[tuple[object, ...], list[_Device]] = {}
    for device in devices:
        device.work.sort(key=_what)
        alike.setdefault((device.kind, *map(_what, device.work)), []).append(device)
    for group in alike.values():
        for place in range(len(group[0].work)):
            parts = [device.work[place] for device in group]
            share = sum(part.share for part in parts) / len(parts)
            qps = sum(part.qps for part in parts) / len(parts)
            for device in group:
                device.work[place] = replace(device.work[place], share=share, qps=qps)


def _what(assignment: Assignment) -> tuple[int, int, int]:
    """What an assignment has done, whoever does it and however often."""
    return (assignment.offer, assignment.demand, assignment.batch_size)


def _copy_busiest(
    devices: Sequence[_Device], workers: Sequence[WorkerReport], real: RealKinds
) -> None:
    """Give workers without a device the work of the busiest one of their kind, to halve it.

    Where no device is of the part of a kind that was told apart, it is the busiest of the kind.
    """
    used = {device.worker for device in devices}
    heaps: dict[DeviceKindName, list[tuple[float, int, float]]] = {}
    wider = heaps.copy()
    for index, device in enumerate(devices):
        if device.worker is not None:
            share = sum(a.share for a in device.work)
            heaps.setdefault(device.kind, []).append((-share, index, share))
            wider.setdefault(real[device.kind], []).append((-share, index, share))
    for heap in (*heaps.values(), *wider.values()):
        heapify(heap)
    for worker in sorted(workers, key=lambda w: w.id):
        heap = heaps.get(worker.device_kind) or wider.get(real[worker.device_kind], [])
        if worker.id in used or not heap:
            continue
        _, index, share = heap[0]
        copies = devices[index].copies
        assert copies is not None
        copies.append(worker.id)
        heapreplace(heap, (-share / (len(copies)), index, share))


_RouteKey = tuple[TaskName, float, float | None, VariantName, WorkerId, int, bool]
"""All of a route but its rate, in the order of its fields."""


def _key(candidate: Candidate) -> VariantKey:
    return (candidate.task, candidate.variant)
