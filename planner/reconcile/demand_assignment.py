"""Demand assignment: how the demand is divided over the workers that are there.

A solver decides what abstract devices do; here they become concrete workers. A worker that the
solution leaves without work becomes a copy of the busiest device of its kind: it is paid for
anyway, and so it adds headroom.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from math import inf, sqrt
from typing import NamedTuple

from planner.reconcile.kept.worth import FULL_COST, FULL_POWER
from planner.reconcile.matching import able, kept_out_everywhere, match
from planner.reconcile.problem_builder import (
    MOST_LOAD,
    TAIL,
    BuiltProblem,
    ProblemBuilder,
    largest_batch,
)
from planner.residency.pinned_room import PinnedRoom
from planner.selection.eligibility import kept_out
from planner.solver.problem import Assignment, AvailableKind, Planner, Power, Solution
from planner.types import (
    Candidate,
    Demand,
    Objective,
    Snapshot,
    WorkerReport,
)
from variants.types import (
    DeviceKind,
    DeviceKindName,
    Route,
    TaskName,
    VariantKey,
    VariantName,
    WorkerId,
)

TAILS = (TAIL, TAIL / 3)
"""Headroom to plan with; the next one is tried when the demand does not fit."""
SCALES = 5
"""How often a demand is made smaller until it fits."""
SMALLER = 0.97
"""Factor on what was served at last, for the next attempt."""
SHARED = 0.06
"""By what part batches count as longer, at least, on a worker that is planned to serve several
variants: each of them has fewer queries there, which fill smaller batches than the plan's, and
waits for the others' (docs/decisions/0007-planning.md has the sweep)."""
EVENED = 4
"""How often a larger part of the demand is tried, or more than all of it, once a part fits: the
more fits at once, the more evenly are the workers full when it is scaled back."""
EVENED_WORKERS = 256
"""So many workers, divided by theirs, are the tries that a larger fleet gets."""
NEARLY = 0.96
"""Part of what would fit if all workers were equally full that is tried first."""
ALIKE = 1.003
"""Two parts of the demand that are this near to each other are one."""
EVEN_LOADS = (0.2, 0.35, 0.5, 0.65, 0.8)
"""Loads to plan for when all can be served at one of them, ascending, to find the best."""
HALF = 0.5
"""Devices of which none is busier have time for more. What they leave out does not fit into their
memory, whatever its rate."""
SERVED = 1.0 - 1e-6
"""Part of the demand from which on all of it counts as served."""

_Real = Mapping[DeviceKindName, DeviceKindName]
"""The kind that each name of a kind stands for (``planner.reconcile.matching.able``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandAssignment:
    """Which worker serves which part of the demand."""

    routes: tuple[Route, ...] = ()
    """Ordered by task, class, variant and worker."""
    served_qps: float = 0.0
    asked_qps: float = 0.0
    accuracy: float = 0.0
    tail: float = TAIL
    """The headroom that it was planned with, as in ``planner.reconcile.problem_builder``."""
    load: float | None = None
    """The even load that it was planned for, one of ``EVEN_LOADS``; None where it is not even."""
    notes: tuple[str, ...] = ()
    """How it was found."""
    power: Power | None = None
    """What its work takes, where plans are for the least."""
    crossings: tuple[str, ...] = ()
    """A sentence for each part of the demand that is served in another zone than asked for."""
    out_of_reach: tuple[str, ...] = ()
    """A sentence for each zone for whose demand no worker is near enough."""


NOTHING = DemandAssignment()


def assign_demand(
    snapshot: Snapshot,
    workers: Sequence[WorkerReport],
    demand: Sequence[Demand],
    known: Mapping[DeviceKindName, DeviceKind],
    planner: Planner,
    objective: Objective,
    interference: Mapping[DeviceKindName, float] | None = None,
    likely_load: float | None = None,
    pinned: PinnedRoom | None = None,
) -> DemandAssignment:
    """A new assignment of the demand to the workers.

    Workers of which all is kept out that the demand could use have no part in it.

    Args:
        workers: those that may be used: none that drain.
        known: the device kinds of the catalog.
        interference: by what part batches take longer on a worker that serves with several
            variants; kinds where that was not seen are missing.
        likely_load: the even load of an earlier assignment, which is tried first.
        pinned: what operators have workers hold, which is there whatever is assigned.
    """
    workers, real = able(snapshot, workers, demand)
    seen = interference or {}
    least = SHARED if objective is Objective.COST else 0.0
    kinds = tuple(
        replace(kind, interference=max(least, seen.get(real[kind.name], 0.0)))
        for kind in _kinds(workers, real, known, pinned)
    )
    resident = None if pinned is None else pinned.everywhere(workers)
    forbidden = kept_out_everywhere(workers)

    def builder(part: Sequence[Demand]) -> ProblemBuilder:
        return ProblemBuilder(
            snapshot, kinds, part, real=real, forbidden=forbidden, resident=resident
        )

    planned = _planned(builder, demand, len(workers), planner, objective, likely_load)
    if planned is None:
        return NOTHING
    made, found = planned.made, planned.found
    routes = _routes(made, found.assignments, found.devices, workers, real, planned.scale)
    return DemandAssignment(
        routes=routes,
        # Not what the solution serves: what is kept out of a worker is not served there.
        served_qps=sum([route.qps for route in routes]) * min(1.0, planned.scale),
        asked_qps=sum(d.qps for d in demand),
        accuracy=found.accuracy,
        tail=planned.tail,
        load=planned.even_load,
        notes=found.notes,
        power=found.power,
    )


class _Planned(NamedTuple):
    """What a solver made of the demand, and what it was asked."""

    made: BuiltProblem
    found: Solution
    tail: float
    scale: float
    """The part of the demand that was planned for, or how many times as much."""
    even_load: float | None


def _planned(
    builder: Callable[[Sequence[Demand]], ProblemBuilder],
    demand: Sequence[Demand],
    workers: int,
    planner: Planner,
    objective: Objective,
    likely_load: float | None,
) -> _Planned | None:
    """A plan for all of the demand, or for as much of every class as can be served; None where
    there is nothing to plan.

    Less headroom comes first; then less of every class rather than nothing of some.
    """
    build = builder(demand)
    scale = smaller = 1.0
    above = inf
    tails = iter(TAILS)
    tail = next(tails)
    found: Solution | None = None
    even_load: float | None = None
    for _ in range(len(TAILS) + SCALES):
        if smaller < scale:
            scale = smaller
            build = builder([replace(d, qps=d.qps * scale) for d in demand])
        made = build.problem(tail=tail)
        if not made.problem.demand:
            return None
        if scale == 1.0 and objective is Objective.ACCURACY:
            evened = _evened(build, planner, tail, before=found, likely_load=likely_load)
            if evened is not None:
                made, found = evened
                even_load = made.problem.load
                break
        found = planner(made.problem, objective)
        if found.feasible or _has_time(found, workers):
            break
        asked_qps = sum(d.qps for d in made.problem.demand)
        following = next(tails, None)
        if following is None:
            above = scale
            smaller = scale * SMALLER * found.served_qps / asked_qps
        else:
            tail = following
    assert found is not None
    build.forget()
    planned = _Planned(made, found, tail, scale, even_load)
    if objective is not Objective.COST or not found.feasible:
        return planned
    return _widest(planned, above, builder, demand, workers, planner)


def _widest(
    planned: _Planned,
    too_much: float,
    builder: Callable[[Sequence[Demand]], ProblemBuilder],
    demand: Sequence[Demand],
    workers: int,
    planner: Planner,
) -> _Planned:
    """The plan for the largest part of the demand, or multiple of it, that is found to fit.

    To a solver, all plans that serve a demand on as many workers are equal: some workers are full,
    and the last ones have next to nothing. Workers are there and paid for whatever they do, and
    fleets are sized so that most are nearly full. So what a plan is worth is how much would have to
    come until its fullest worker is full.

    Args:
        too_much: the least part of the demand that did not fit, or infinity.
    """
    fits = planned.scale
    busy = sum(one.share for one in planned.found.assignments)
    # If all were as full as may be, and each row took what it takes now.
    too_much = min(too_much, fits * MOST_LOAD * workers / max(busy, 1e-9) * ALIKE)
    scale = max(too_much * NEARLY, sqrt(fits * too_much))
    for _ in range(min(EVENED, EVENED_WORKERS // workers)):
        if too_much < fits * ALIKE:
            break
        build = builder([replace(each, qps=each.qps * scale) for each in demand])
        made = build.problem(tail=planned.tail)
        found = planner(made.problem, Objective.COST)
        build.forget()
        if found.feasible:
            planned, fits = _Planned(made, found, planned.tail, scale, None), scale
        else:
            too_much = scale
        scale = sqrt(fits * too_much)
    return planned


def _has_time(found: Solution, workers: int) -> bool:
    """Whether memory is what limits: all devices are there, and none is more than half busy.

    Then neither less headroom nor less of every class would have more of them served.
    """
    if len(found.devices) < workers:
        return False
    busy = [0.0] * len(found.devices)
    for one in found.assignments:
        busy[one.device] += one.share
    return max(busy, default=1.0) <= HALF


def _evened(
    build: ProblemBuilder,
    planner: Planner,
    tail: float,
    before: Solution | None,
    likely_load: float | None,
) -> tuple[BuiltProblem, Solution] | None:
    """The plan with the load on every device at which most accuracy is left.

    To a solver, all loads up to the limit are equal, so it fills some devices and leaves others
    idle. But the fuller a device is, the more often a query finds no room there and takes a less
    accurate variant. What full devices gain grows ever less with the load and what they cost ever
    more, so the load goes up from the least at which all is served for as long as that is worth it;
    or up from a likely one, and down from it where up is not worth it.

    Once one load was planned in full and is not enough, the highest is asked next: where that is
    not enough either, none is. So an overload costs two such plans, and one with less headroom.

    Args:
        before: what was found with more headroom, which did not serve all. Where that ran into the
            time limit, no even load is tried.
        likely_load: the one of ``EVEN_LOADS`` to begin with; None for the least.

    None where not all is served at any of ``EVEN_LOADS``.
    """
    if before is not None and before.timed_out:
        return None

    def planned(load: float, least_accuracy: float) -> tuple[BuiltProblem, Solution]:
        made = build.problem(tail=tail, load=load, least_accuracy=least_accuracy)
        return made, planner(made.problem, Objective.ACCURACY)

    first = EVEN_LOADS.index(likely_load) if likely_load in EVEN_LOADS else 0
    highest = max(EVEN_LOADS, default=MOST_LOAD)
    fullest = None if before is None else planned(highest, -inf)
    best: tuple[BuiltProblem, Solution] | None = None
    most = -inf
    for load in (*EVEN_LOADS[first:], MOST_LOAD):
        hopeless = load == MOST_LOAD or (fullest is not None and not fullest[1].feasible)
        if best is None and hopeless:
            break
        cost = FULL_COST * load**FULL_POWER
        known = fullest if load == highest else None
        made, found = known or planned(load, most + cost)
        if found.feasible and found.accuracy - cost >= most:
            best, most = (made, found), found.accuracy - cost
        elif best is not None:
            break
        elif load < highest and (found.devices or found.timed_out):
            fullest = fullest or planned(highest, -inf)
            if found.timed_out:
                return fullest if fullest[1].feasible else None
    if best is None or best[0].problem.load != EVEN_LOADS[first]:
        return best
    for load in reversed(EVEN_LOADS[:first]):
        cost = FULL_COST * load**FULL_POWER
        made, found = planned(load, most + cost)
        if not found.feasible or found.accuracy - cost <= most:
            break
        best, most = (made, found), found.accuracy - cost
    return best


def in_order(routes: Iterable[Route]) -> tuple[Route, ...]:
    """Routes as plans list them."""
    return tuple(sorted(routes, key=_order))


def _order(route: Route) -> tuple[object, ...]:
    floor = -inf if route.accuracy is None else route.accuracy
    return (
        route.task, route.latency_ms, floor, route.variant, route.worker, route.batch_size,
        route.pinned,
    )  # fmt: skip


def _kinds(
    workers: Iterable[WorkerReport],
    real: _Real,
    known: Mapping[DeviceKindName, DeviceKind],
    pinned: PinnedRoom | None,
) -> tuple[AvailableKind, ...]:
    found: dict[DeviceKindName, list[float]] = {}
    for worker in workers:
        room_mib = worker.memory_mib
        if pinned is not None:
            room_mib = pinned.left_mib(replace(worker, device_kind=real[worker.device_kind]))
        found.setdefault(worker.device_kind, []).append(room_mib)
    return tuple(
        _present(name, memories, known.get(real[name])) for name, memories in sorted(found.items())
    )


def _present(
    name: DeviceKindName, memories: Sequence[float], kind: DeviceKind | None
) -> AvailableKind:
    """The workers of a kind, which are there and draw their idle power whatever they do."""
    return AvailableKind(
        name=name,
        count=len(memories),
        memory_mib=min(memories),
        usd_per_hour=0.0 if kind is None else kind.usd_per_hour,
        idle_w=None if kind is None else kind.idle_w,
        carbon_g_per_kwh=() if kind is None else kind.carbon_g_per_kwh,
        powered=True,
    )


@dataclass(slots=True)
class _Device:
    """A device of the solution, with its work and the workers that become it."""

    kind: DeviceKindName
    work: list[Assignment]
    worker: WorkerId | None = None
    copies: list[WorkerId] | None = None


def _routes(
    made: BuiltProblem,
    assignments: Iterable[Assignment],
    kinds: Sequence[DeviceKindName],
    workers: Sequence[WorkerReport],
    real: _Real,
    scale: float,
) -> tuple[Route, ...]:
    """Routes over concrete workers.

    ``scale`` is the part of the demand that was planned for, or how many times as much; rates are
    those of the demand, and batches no larger than it fills.
    """
    left_ms = [each.latency_ms - made.problem.overhead_ms for each in made.problem.demand]
    largest = [
        largest_batch(each.qps / scale, ms) for each, ms in zip(made.asked, left_ms, strict=True)
    ]
    devices = [_Device(kind, []) for kind in kinds]
    for assignment in assignments:
        devices[assignment.device].work.append(assignment)
    bad = {worker.id: kept_out(worker) for worker in workers}
    wanted = [
        (d.kind, {_key(made.candidates[a.offer]): made.candidates[a.offer].load_ms / 1e3
                  for a in d.work})
        for d in devices
    ]  # fmt: skip
    for device, worker in zip(devices, match(wanted, workers), strict=True):
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
                qps = assignment.qps / made.factors[assignment.demand] / len(copies) / scale
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


def _copy_busiest(devices: Sequence[_Device], workers: Sequence[WorkerReport], real: _Real) -> None:
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
