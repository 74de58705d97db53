"""Division: which worker serves which part of the demand, as before or anew.

The division that is there is kept while the demand, the workers and the catalog are those that it
was made for. Where the demand has moved or latencies are others than was known, it is kept as well,
stretched to what is asked for now, until a new one gains something (``planner.reconcile.kept``).
Where queries follow routes, classes of the demand that come anew get theirs beside those that are
there.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from planner.reconcile.assigning.routes_of_devices import in_order
from planner.reconcile.by_zone.zoned_assignment import ZonedFleet, zoned
from planner.reconcile.demand_assignment import (
    NOTHING,
    SERVED,
    DemandAssignment,
    assign_demand,
)
from planner.reconcile.kept.best import may_gain
from planner.reconcile.kept.routes import (
    Shares,
    class_of_route,
    drift_of,
    drifted,
    planned_qps,
    shares_of,
    stretched,
    with_slos,
)
from planner.reconcile.kept.worth import Worth
from planner.reconcile.replica_targets import RoutedWork
from planner.residency.pinned_room import PinnedRoom
from planner.selection.eligibility import able, kept_out
from planner.solver.problem import Planner
from planner.types import Demand, Objective, Observation, Snapshot, WorkerReport, class_of
from planner.zone_demand import ASKED_IN, CROSSES
from variants.types import (
    DeviceKindName,
    Plan,
    Route,
    TaskName,
    VariantKey,
    WorkerId,
)

WORTH_MOVING = 1.1
"""Where not all can be served, a plan has to serve so many times as much to replace another."""
VAIN_S = 10.0
"""After another plan was looked for in vain because not all can be served, none is looked for
within so long. That takes longest where it finds nothing: each try leaves less headroom, then
serves less of every class."""


class Division(NamedTuple):
    """An assignment, and the part of each worker's time that it takes, by variant."""

    assignment: DemandAssignment
    shares: Mapping[WorkerId, Mapping[VariantKey, float]]
    again: bool
    """Whether it is new, and not that of the plan."""
    vain_s: float = -inf
    """When another was last looked for in vain, because not all can be served."""
    put_off: bool = False
    """Whether there was reason to look for another one since then, which is still to be done."""


def divided(
    observation: Observation,
    snapshot: Snapshot,
    expected: Sequence[Demand],
    planner: Planner,
    likely_load: float | None,
    pinned: PinnedRoom | None = None,
    vain_s: float = -inf,
    put_off: bool = False,
    routed: RoutedWork | None = None,
) -> Division:
    """The division of the plan, or a new one where that no longer fits.

    Args:
        likely_load: as of ``assign_demand``, as ``pinned`` is.
        vain_s: when another was last looked for in vain, on the clock of the observation, if
            neither workers nor catalog have changed since.
        put_off: of the division before, as of ``Division``.
        routed: what the division before brings to each worker, where that is known.
    """
    at = _ground(observation, snapshot, expected)
    if not at.workers or not at.demand:
        return Division(replace(NOTHING, out_of_reach=at.far), {}, False)
    routes = observation.plan.routes if observation.plan else ()
    crossing: tuple[str, ...] = ()
    if at.by_zone is not None:
        crossing = tuple(said for said in of_zones(observation.plan) if CROSSES in said)
    kept = DemandAssignment(routes=routes, crossings=crossing, out_of_reach=at.far)
    shares: Shares | None
    if routed is not None and routed.shares and routed.are(routes, snapshot):
        shares, made_for = routed.shares, routed.classes
    else:
        shares, made_for = shares_of(routes, snapshot), None
    objective = observation.objective
    drift = drift_of(objective, shares)
    asked_else = drifted(routes, at.demand, _work_ms(snapshot), objective, drift, made_for)
    if shares is None or not (
        not _newcomer(observation.plan, shares, at.workers, snapshot)
        and not _leads_nowhere(routes, at.workers)
        and (pinned is None or pinned.leaves_room(routes, at.workers))
    ):
        made = at.assigned(observation, snapshot, planner, likely_load, pinned)
        return at.division(made, shares_of(made.routes, snapshot) or {}, objective)
    if not (observation.corrected or put_off or asked_else):
        return Division(kept, shares, False)
    stays = _staying(observation, snapshot, at, kept)
    if stays is None and looked_lately(observation, vain_s):
        return Division(kept, shares, False, vain_s, put_off=True)
    if stays is not None and not stays.may_be_beaten():
        return stays.division(snapshot) if asked_else else Division(kept, shares, False)
    made = at.assigned(observation, snapshot, planner, likely_load, pinned)
    asked, served = sum(d.qps for d in at.demand), _served(made.routes, at.demand)
    if served < SERVED * asked and served < WORTH_MOVING * _served(routes, at.demand):
        # The demand is too much, and which part is left out would differ with every tick.
        return Division(kept, shares, False, observation.now_s)
    joined: DemandAssignment | None = None
    if stays is None and objective is not Objective.ACCURACY:
        joined = _with_new_classes(kept, made.routes)
    if joined is not None:
        stays = _staying(observation, snapshot, at, joined)
    new = shares_of(made.routes, snapshot) or {}
    if stays is not None and new and not stays.beaten(made.routes):
        changes = asked_else or joined is not None
        return stays.division(snapshot) if changes else Division(kept, shares, False)
    return at.division(made, new, objective)


class _Ground(NamedTuple):
    """What is divided: the demand that some worker can answer, over the workers that stay."""

    workers: Sequence[WorkerReport]
    demand: Sequence[Demand]
    by_zone: ZonedFleet | None
    far: tuple[str, ...]
    """What is said of demand that no worker is near enough for."""

    def assigned(
        self,
        observation: Observation,
        snapshot: Snapshot,
        planner: Planner,
        likely_load: float | None,
        pinned: PinnedRoom | None,
    ) -> DemandAssignment:
        """The demand assigned anew."""
        kinds = {kind.name: kind for kind in observation.catalog.device_kinds}
        how = (self.demand, kinds, planner, observation.objective, observation.interference)
        there = observation.plan.routes if observation.plan else ()
        if self.by_zone is not None:
            return self.by_zone.assign(snapshot, *how, pinned=pinned, there=there)
        return assign_demand(
            snapshot, self.workers, *how, likely_load=likely_load, pinned=pinned, there=there
        )

    def division(self, made: DemandAssignment, shares: Shares, objective: Objective) -> Division:
        """What was assigned anew, as a division."""
        timed = with_slos(made.routes, self.demand, objective)
        return Division(replace(made, routes=timed, out_of_reach=self.far), shares, True)


def _ground(observation: Observation, snapshot: Snapshot, expected: Iterable[Demand]) -> _Ground:
    workers = sorted((w for w in observation.workers if not w.draining), key=lambda w: w.id)
    room_mib = _room_mib(workers)
    demand = sorted((d for d in expected if _answerable(snapshot, room_mib, d)), key=_order)
    by_zone = zoned(
        workers, observation.zones, lambda some, d: _answerable(snapshot, _room_mib(some), d)
    )
    if by_zone is None:
        return _Ground(workers, demand, None, ())
    return _Ground(workers, by_zone.reachable(demand), by_zone, by_zone.out_of_reach(demand))


def looked_lately(observation: Observation, vain_s: float) -> bool:
    """Whether it is too early to look for another division after that was in vain."""
    return 0.0 <= observation.now_s - vain_s < VAIN_S


class _Staying(NamedTuple):
    """The division that is there, stretched to the demand of now."""

    assignment: DemandAssignment
    worth: Worth
    by_zone: ZonedFleet | None
    demand: Sequence[Demand]

    def beaten(self, new: Sequence[Route]) -> bool:
        """Whether other routes, which serve all as well, gain enough to replace it."""
        there = self.assignment.routes
        if self.by_zone is not None and self.by_zone.nearer(new, there, self.demand):
            return True
        return self.worth.gains(new, there)

    def may_be_beaten(self) -> bool:
        """Whether any other routes might; quickly, without looking for them."""
        there = self.assignment.routes
        if self.by_zone is not None and self.by_zone.may_be_nearer(there, self.demand):
            return True
        return may_gain(self.worth, self.demand, there)

    def division(self, snapshot: Snapshot) -> Division:
        return Division(self.assignment, shares_of(self.assignment.routes, snapshot) or {}, False)


def _staying(
    observation: Observation, snapshot: Snapshot, at: _Ground, kept: DemandAssignment
) -> _Staying | None:
    """The division that is there for a demand; None where it does not serve that in time."""
    demand, by_zone = at.demand, at.by_zone
    longer, objective = observation.interference, observation.objective
    routes = stretched(kept.routes, demand, snapshot, longer, objective)
    if not routes:
        return None
    now = replace(kept, routes=routes)
    if by_zone is not None:
        if not by_zone.in_time(routes, demand, snapshot, longer):
            return None
        now = replace(now, crossings=by_zone.crossings(routes, demand))
    kinds = {kind.name: kind for kind in observation.catalog.device_kinds}
    return _Staying(now, Worth(snapshot, kinds, longer, objective), by_zone, demand)


def _with_new_classes(kept: DemandAssignment, made: Sequence[Route]) -> DemandAssignment | None:
    """The division that is there, with the routes of another one for classes that it has none for:
    those that come anew are no reason to divide the others anew. None where none comes, or where
    nothing that is asked for now was there before."""
    there = planned_qps(kept.routes)
    added = [route for route in made if class_of_route(route) not in there]
    if not added or len(added) == len(made):
        return None
    return replace(kept, routes=in_order((*kept.routes, *added)))


def of_zones(plan: Plan | None) -> list[str]:
    """What a plan says of the demand of zones."""
    return [] if plan is None else [s for s in plan.explanation if s.startswith(ASKED_IN)]


def _room_mib(workers: Iterable[WorkerReport]) -> dict[DeviceKindName, float]:
    """The memory of the smallest worker of each kind."""
    room_mib: dict[DeviceKindName, float] = {}
    for worker in workers:
        least_mib = room_mib.get(worker.device_kind, worker.memory_mib)
        room_mib[worker.device_kind] = min(least_mib, worker.memory_mib)
    return room_mib


def _newcomer(
    plan: Plan | None,
    working: Collection[WorkerId],
    workers: Iterable[WorkerReport],
    snapshot: Snapshot,
) -> bool:
    """Whether a worker is there that the plan did not know.

    One without any part of the demand is no newcomer if something was placed on it: other kinds
    may do all of the work. Nor is one that can hold nothing: no plan will ever name it, and as a
    newcomer it would have every tick divide the demand anew.
    """
    idle = [worker for worker in workers if worker.id not in working]
    if not idle:
        return False
    placed = {placement.worker for placement in plan.placements} if plan else set()
    unknown = {
        (worker.device_kind, worker.memory_mib, kept_out(worker))
        for worker in idle
        if worker.id not in placed
    }
    return any(_holds_any(*alike, snapshot) for alike in unknown)


def _holds_any(
    kind: DeviceKindName, memory_mib: float, bad: Collection[VariantKey], snapshot: Snapshot
) -> bool:
    """Whether some variant can be placed on a worker of a kind, but for what is kept out of it."""
    return any(
        each.device_kind == kind
        and each.memory_mib <= memory_mib
        and (each.task, each.variant) not in bad
        for view in snapshot.tasks.values()
        for each in view.by_cost
    )


def _leads_nowhere(routes: Iterable[Route], workers: Iterable[WorkerReport]) -> bool:
    """Whether a route names a replica that its worker cannot load."""
    without = {worker.id: out for worker in workers if (out := kept_out(worker))}
    if not without:
        return False
    return any((route.task, route.variant) in without.get(route.worker, ()) for route in routes)


def _served(routes: Iterable[Route], demand: Iterable[Demand]) -> float:
    """What routes serve of a demand, in rows per second."""
    planned = planned_qps(routes)
    return sum(min(d.qps, planned.get(class_of(d), 0.0)) for d in demand)


def _answerable(
    snapshot: Snapshot, room_mib: Mapping[DeviceKindName, float], wanted: Demand
) -> bool:
    """Whether an idle worker of some kind here could answer a class in time.

    A class that no worker can answer has no routes, and must not look like new demand.
    ``room_mib`` is the memory of the smallest worker of each kind that is here.
    """
    if wanted.qps <= 0.0 or wanted.task not in snapshot.tasks:
        return False
    view = snapshot.tasks[wanted.task]
    for candidate in able(view, wanted, snapshot.transport_ms, wanted.tightest_ms):
        if candidate.memory_mib <= room_mib.get(candidate.device_kind, -inf):
            return True
    return False


def _order(demand: Demand) -> tuple[TaskName, float, float, str]:
    floor = -inf if demand.accuracy is None else demand.accuracy
    return (demand.task, demand.latency_ms, floor, demand.variant or "")


def _work_ms(snapshot: Snapshot) -> dict[TaskName, float]:
    """The least latency in ms of a query of each task."""
    return {
        name: min((c.table.ms[1] for c in view.by_cost), default=1.0)
        for name, view in snapshot.tasks.items()
    }
