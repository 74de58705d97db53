"""Demand assignment where workers, or the gateways that ask, are in several zones."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from planner.reconcile.assigning.routes_of_devices import in_order
from planner.reconcile.demand_assignment import NOTHING, DemandAssignment, assign_demand
from planner.reconcile.kept.routes import (
    Parts,
    class_of_route,
    longest_of,
    meets,
    planned_qps,
    shares_of,
    slo_of,
    times_of,
)
from planner.reconcile.kept.worth import LEAST_SAVED, SAVES
from planner.residency.pinned_room import PinnedRoom
from planner.solver.problem import Planner, Power
from planner.types import Demand, DemandClass, Objective, Snapshot, WorkerReport, class_of
from planner.zone_demand import Zone, ZoneDemand
from planner.zones.division import asked_by_zone, divide, in_words, out_of_reach, reachable
from planner.zones.zone_parts import NEGLIGIBLE, Crossing, Solver, shortened
from variants.types import DeviceKind, DeviceKindName, Route, WorkerId

Able = Callable[[Sequence[WorkerReport], Demand], bool]
"""Whether one of some workers, idle, could answer a class in time."""


class _Way(NamedTuple):
    """A part of a class that is asked for in one zone and served in one."""

    key: DemandClass
    asked: Zone
    served: Zone
    qps: float
    away_ms: float


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
        pinned: PinnedRoom | None = None,
        there: Sequence[Route] = (),
    ) -> DemandAssignment:
        """As ``assign_demand``, each zone by itself."""

        def assigned(zone: Zone, part: Sequence[Demand]) -> DemandAssignment:
            if not part:
                return NOTHING
            workers = self.workers[zone]
            return assign_demand(
                snapshot,
                workers,
                part,
                known,
                planner,
                objective,
                interference,
                pinned=pinned,
                there=there,
            )

        solver = Solver(assigned, _served, self._able)
        parts, crossings = divide(demand, self.zones, self.workers, solver)
        made = _joined([part for part in parts.values() if part.routes], demand)
        return replace(made, crossings=in_words(crossings, self.zones))

    def nearer(
        self, new: Iterable[Route], there: Iterable[Route], demand: Sequence[Demand]
    ) -> bool:
        """Whether other routes save enough of the round trips to replace those that are there."""
        return self._shorter(self._way_ms(new, demand), there, demand)

    def may_be_nearer(self, there: Iterable[Route], demand: Sequence[Demand]) -> bool:
        """Whether any could, if the nearest workers served all of it."""
        asked = asked_by_zone(demand, self.zones, self.workers, self._able)
        least_ms = sum(
            each.qps * min(self.zones.away_ms(zone, home) for home in self.workers)
            for zone, own in asked.items()
            for each in own.values()
        )
        return self._shorter(least_ms, there, demand)

    def _shorter(self, then_ms: float, there: Iterable[Route], demand: Sequence[Demand]) -> bool:
        longest_ms = max(self.zones.round_trips_ms.values(), default=0.0)
        asked = sum(each.qps for each in demand)
        now_ms = self._way_ms(there, demand)
        return now_ms - then_ms > max(SAVES * now_ms, LEAST_SAVED * asked * longest_ms)

    def _way_ms(self, routes: Iterable[Route], demand: Sequence[Demand]) -> float:
        """What all that is asked for in a second is on the way, in ms."""
        return sum(each.qps * each.away_ms for each in self._ways(routes, demand))

    def in_time(
        self, routes: Sequence[Route], demand: Sequence[Demand], snapshot: Snapshot, longer: Parts
    ) -> bool:
        """Whether what routes serve is within its SLO with the way that it has to go."""
        away_ms: dict[tuple[DemandClass, Zone], float] = {}
        for way in self._ways(routes, demand):
            at = (way.key, way.served)
            away_ms[at] = max(away_ms.get(at, 0.0), way.away_ms)
        homes, asked = self._homes(), {class_of(each): each for each in demand}
        times = times_of(shares_of(routes, snapshot) or {}, snapshot, longer)
        slo_ms = {
            (key, home): slo_of(shortened(asked[key], away), snapshot)
            for (key, home), away in away_ms.items()
        }
        longest_ms = longest_of(routes, times, snapshot)
        return all(
            meets(route, longest_ms[route.worker], times[route.worker], snapshot, slo_ms[at])
            for route in routes
            if (at := (class_of_route(route), homes[route.worker])) in slo_ms
        )

    def crossings(self, routes: Iterable[Route], demand: Sequence[Demand]) -> tuple[str, ...]:
        """What routes serve in another zone than asked for, in words."""
        crossed: dict[tuple[Zone, Zone], float] = {}
        for way in self._ways(routes, demand):
            if way.asked != way.served:
                crossed[way.asked, way.served] = crossed.get((way.asked, way.served), 0.0) + way.qps
        least = NEGLIGIBLE * sum(each.qps for each in demand)
        found = (Crossing(*way, qps) for way, qps in crossed.items() if qps > least)
        return in_words(found, self.zones)

    def _ways(self, routes: Iterable[Route], demand: Sequence[Demand]) -> Iterator[_Way]:
        """Which zone serves what is asked for in which, if each is served at home as far as routes
        there reach, and else as near as they do."""
        homes = self._homes()
        served: dict[DemandClass, dict[Zone, float]] = {}
        for route in routes:
            at = served.setdefault(class_of_route(route), {})
            at[homes[route.worker]] = at.get(homes[route.worker], 0.0) + route.qps
        asked = asked_by_zone(demand, self.zones, self.workers, self._able)
        ways = sorted(
            (zone != home, self.zones.away_ms(zone, home), zone, home)
            for zone in asked
            for home in self.workers
        )
        left = {zone: {key: each.qps for key, each in own.items()} for zone, own in asked.items()}
        for _, away_ms, zone, home in ways:
            for key, qps in left[zone].items():
                going = min(qps, served.get(key, {}).get(home, 0.0))
                if going > 0.0:
                    left[zone][key] -= going
                    served[key][home] -= going
                    yield _Way(key, zone, home, going, away_ms)

    def _homes(self) -> dict[WorkerId, Zone]:
        return {each.id: zone for zone, those in self.workers.items() for each in those}

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
