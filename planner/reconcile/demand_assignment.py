"""Demand assignment: how the demand is divided over the workers that are there.

A solver decides what abstract devices do; here they become concrete workers. A worker that the
solution leaves without work becomes a copy of the busiest device of its kind: it is paid for
anyway, and so it adds headroom.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from planner.reconcile.assigning.filled import filled
from planner.reconcile.assigning.routes_of_devices import RealKinds, routes_of
from planner.reconcile.assigning.widest import widest
from planner.reconcile.kept.worth import FULL_COST, FULL_POWER
from planner.reconcile.matching import able, kept_out_everywhere
from planner.reconcile.problem_builder import MOST_LOAD, TAIL, BuiltProblem, ProblemBuilder
from planner.residency.pinned_room import PinnedRoom
from planner.solver.problem import AvailableKind, Planner, Power, Solution
from planner.types import (
    Demand,
    Objective,
    Snapshot,
    WorkerReport,
)
from variants.types import (
    DeviceKind,
    DeviceKindName,
    Route,
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
EVEN_LOADS = (0.2, 0.35, 0.5, 0.65, 0.8)
"""Loads to plan for when all can be served at one of them, ascending, to find the best."""
HALF = 0.5
"""Devices of which none is busier have time for more. What they leave out does not fit into their
memory, whatever its rate."""
SERVED = 1.0 - 1e-6
"""Part of the demand from which on all of it counts as served."""


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
    there: Sequence[Route] = (),
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
        there: routes that are there: of workers that hold the same, each goes on with its own.
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

    def builder(some: Iterable[AvailableKind], scale: float) -> ProblemBuilder:
        part = [each.at_rate(each.qps * scale) for each in demand]
        return ProblemBuilder(
            snapshot, some, part, real=real, forbidden=forbidden, resident=resident
        )

    planned = _planned(builder(kinds, 1.0), len(workers), planner, objective, likely_load)
    if planned is None:
        return NOTHING
    made, found = planned.made, planned.found
    if objective is Objective.COST and found.feasible:
        used = [kind for kind in kinds if kind.name in set(found.devices)]
        made, found = widest(made, found, used, builder, planner)
    routes = routes_of(made, found.assignments, found.devices, workers, real, there)
    return DemandAssignment(
        routes=routes,
        # Not what the solution serves: what is kept out of a worker is not served there.
        served_qps=sum([route.qps for route in routes]) * planned.scale,
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
    """The part of the demand that was planned for."""
    even_load: float | None


def _planned(
    build: ProblemBuilder,
    workers: int,
    planner: Planner,
    objective: Objective,
    likely_load: float | None,
) -> _Planned | None:
    """A plan for all of the demand, or for as much of every class as can be served; None where
    there is nothing to plan.

    Less headroom comes first; then less of every class rather than nothing of some.
    """
    scale = smaller = 1.0
    tails = iter(TAILS)
    tail = next(tails)
    found: Solution | None = None
    even_load: float | None = None
    for _ in range(len(TAILS) + SCALES):
        scale = smaller
        made = build.problem(tail=tail, scale=scale)
        if scale == 0.0 or not made.problem.demand:
            return None
        if scale == 1.0 and objective is Objective.ACCURACY:
            evened = _evened(build, planner, tail, before=found, likely_load=likely_load)
            if evened is not None:
                made, found = evened
                even_load = made.problem.load
                break
        found = planner(made.problem, objective)
        if objective is Objective.COST:
            found = filled(made.problem, found, planner)
        if found.feasible or _has_time(found, workers):
            break
        asked_qps = sum(d.qps for d in made.problem.demand)
        following = next(tails, None)
        if following is None:
            smaller = scale * SMALLER * found.served_qps / asked_qps
        else:
            tail = following
    assert found is not None
    build.forget()
    return _Planned(made, found, tail, scale, even_load)


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


def _kinds(
    workers: Iterable[WorkerReport],
    real: RealKinds,
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
