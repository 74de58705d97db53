"""Demand assignment where workers, or the gateways that ask, are in several zones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.reconcile.demand_assignment import (
    NOTHING,
    DemandAssignment,
    assign_demand,
    in_order,
)
from planner.reconcile.kept_routes import class_of_route, planned_qps
from planner.solver.problem import Planner, Power
from planner.types import Demand, DemandClass, Objective, Snapshot, WorkerReport, class_of
from planner.zone_demand import Zone, ZoneDemand
from planner.zones.division import divide, in_words, out_of_reach, reachable
from planner.zones.zone_parts import Solver
from variants.types import DeviceKind, DeviceKindName

Able = Callable[[Sequence[WorkerReport], Demand], bool]
"""Whether one of some workers, idle, could answer a class in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonedFleet:
    """The workers that may be used, by zone, and where the demand is asked for."""

    workers: Mapping[Zone, Sequence[WorkerReport]]
    zones: ZoneDemand
    able: Able

    def reachable(self, demand: Sequence[Demand]) -> list[Demand]:
        """What some worker could answer in time, the round trip counted."""
        return reachable(demand, self.zones, self.workers, self._able)

    def out_of_reach(self, demand: Sequence[Demand]) -> tuple[str, ...]:
        """What only the way makes late, from all workers, in words."""
        return out_of_reach(demand, self.zones, self.workers, self._able)

    def assign(
        self,
        snapshot: Snapshot,
        demand: Sequence[Demand],
        known: Mapping[DeviceKindName, DeviceKind],
        planner: Planner,
        objective: Objective,
        interference: Mapping[DeviceKindName, float] | None = None,
    ) -> DemandAssignment:
        """As ``assign_demand``, each zone by itself."""

        def assigned(zone: Zone, part: Sequence[Demand]) -> DemandAssignment:
            if not part:
                return NOTHING
            workers = self.workers[zone]
            return assign_demand(snapshot, workers, part, known, planner, objective, interference)

        solver = Solver(assigned, _served, self._able)
        parts, crossings = divide(demand, self.zones, self.workers, solver)
        made = _joined([part for part in parts.values() if part.routes], demand)
        return replace(made, crossings=in_words(crossings, self.zones))

    def _able(self, zone: Zone, demand: Demand) -> bool:
        return self.able(self.workers[zone], demand)


def zoned(workers: Sequence[WorkerReport], zones: ZoneDemand, able: Able) -> ZonedFleet | None:
    """The fleet by zone; None where that makes no difference."""
    by_zone: dict[Zone, list[WorkerReport]] = {}
    for worker in workers:
        by_zone.setdefault(worker.zone, []).append(worker)
    if not zones.matters(by_zone):
        return None
    return ZonedFleet(workers=by_zone, zones=zones, able=able)


def _served(part: DemandAssignment) -> dict[DemandClass, float]:
    """What is served of each class: routes have the rates of all that was asked for."""
    planned = planned_qps(part.routes)
    scale = part.served_qps / max(sum(planned.values()), 1e-9)
    return {key: qps * scale for key, qps in planned.items()}


def _joined(parts: Sequence[DemandAssignment], demand: Sequence[Demand]) -> DemandAssignment:
    """One assignment of several that have no worker in common.

    The rates are those of all that is asked for, as where there is one zone.
    """
    if not parts:
        return NOTHING
    served: dict[DemandClass, float] = {}
    scales = []
    for part in parts:
        found = _served(part)
        for key, qps in found.items():
            served[key] = served.get(key, 0.0) + qps
        scales.append(part.served_qps / max(sum(route.qps for route in part.routes), 1e-9))
    asked = {class_of(each): each.qps for each in demand}
    total = sum(part.served_qps for part in parts)
    more = {key: asked[key] / max(qps, 1e-9) for key, qps in served.items()}
    routes = [
        replace(route, qps=route.qps * scale * more[class_of_route(route)])
        for part, scale in zip(parts, scales, strict=True)
        for route in part.routes
    ]
    return DemandAssignment(
        routes=in_order(routes),
        served_qps=total,
        asked_qps=sum(asked.values()),
        accuracy=sum(part.served_qps * part.accuracy for part in parts) / max(total, 1e-9),
        tail=min(part.tail for part in parts),
        notes=tuple(note for part in parts for note in part.notes),
        power=_together([part.power for part in parts]),
    )


def _together(powers: Sequence[Power | None]) -> Power | None:
    known = [power for power in powers if power is not None]
    if len(known) < len(powers):
        return None
    grams = [power.carbon_g_per_hour for power in known if power.carbon_g_per_hour is not None]
    return Power(
        watts=sum(power.watts for power in known),
        idle_watts=sum(power.idle_watts for power in known),
        carbon_g_per_hour=sum(grams) if len(grams) == len(known) else None,
        unmeasured_qps=sum(power.unmeasured_qps for power in known),
    )
