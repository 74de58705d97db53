"""Division: the demand of each zone over the workers of that zone, and the rest over others.

First the workers of each zone get what is asked for there. What they have no room for, or cannot
serve in time, is offered to the other zones, the nearest first, with the round trip taken off its
SLO: what is late by the way alone is no demand there. A class that no
zone has room for then gets a part of the nearest that could serve it, where all becomes less.

Each step is a planning problem of one zone, which the caller solves, so the whole is not the best
division that there is: a zone keeps what it can serve, though another one could serve it at less
cost.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from planner.types import Demand, DemandClass, class_of
from planner.zone_demand import ShareKey, Zone, ZoneDemand, share_key
from variants.figures import figure, ms

T = TypeVar("T")

NEGLIGIBLE = 1e-3
"""Part of a demand, or of what was offered, that counts as none."""
NO_TIME_MS = 1e-3
"""An SLO that no variant meets; 0 would stand for one that is not known."""
LESS = 0.97
"""Factor on what a zone had room for, for the next attempt."""
ATTEMPTS = 3
"""How often a zone is offered less of what it has no room for."""


@dataclass(frozen=True, slots=True)
class Solver(Generic[T]):
    """How the demand of one zone is assigned to its workers."""

    assign: Callable[[Zone, Sequence[Demand]], T]
    planned: Callable[[T], Mapping[DemandClass, float]]
    """What an assignment serves of each class, in rows per second."""
    able: Callable[[Zone, Demand], bool]
    """Whether an idle worker of a zone could answer a class in time."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """Demand of one zone that is served in another one."""

    asked: Zone
    served: Zone
    qps: float


def reachable(
    demand: Iterable[Demand],
    zones: ZoneDemand,
    homes: Collection[Zone],
    able: Callable[[Zone, Demand], bool],
) -> list[Demand]:
    """What some worker could answer in time, the round trip counted, of each class.

    Args:
        homes: zones that have workers.
    """
    found = []
    for each in demand:
        part = sum(_in_reach(each, zones, homes, able).values())
        if part > NEGLIGIBLE:
            found.append(replace(each, qps=each.qps * min(1.0, part)))
    return found


def _in_reach(
    demand: Demand,
    zones: ZoneDemand,
    homes: Collection[Zone],
    able: Callable[[Zone, Demand], bool],
) -> dict[Zone, float]:
    """The part of a class that is asked for in each zone from which a worker can be in time."""
    return {
        zone: share
        for zone, share in zones.of(_share_key(demand)).items()
        if any(able(home, shortened(demand, zones.away_ms(zone, home))) for home in homes)
    }


def divide(
    demand: Iterable[Demand], zones: ZoneDemand, homes: Collection[Zone], solver: Solver[T]
) -> tuple[Mapping[Zone, T], tuple[Crossing, ...]]:
    """The assignment of each zone that has workers, and what is served in another zone than asked.

    Args:
        demand: what is ``reachable``, which is all asked for in zones that can reach a worker.
        homes: zones that have workers.
    """
    left: dict[Zone, dict[DemandClass, Demand]] = {}
    for each in demand:
        parts_of = _in_reach(each, zones, homes, solver.able)
        for zone, part in parts_of.items():
            share = part / sum(parts_of.values())
            if share > NEGLIGIBLE:
                left.setdefault(zone, {})[class_of(each)] = replace(each, qps=each.qps * share)
    taken: dict[Zone, list[Demand]] = {}
    parts: dict[Zone, T] = {}
    for home in sorted(homes):
        away_ms = zones.away_ms(home, home)
        taken[home] = [shortened(each, away_ms) for each in left.get(home, {}).values()]
        parts[home] = solver.assign(home, taken[home])
        left[home] = _rest(left.get(home, {}), solver.planned(parts[home]))
    crossings: list[Crossing] = []
    for zone in sorted(left):
        others = sorted(set(homes) - {zone}, key=lambda home: (zones.away_ms(zone, home), home))
        for home in others:
            away_ms = zones.away_ms(zone, home)
            offered = [shortened(each, away_ms) for each in left[zone].values()]
            offered = [each for each in offered if solver.able(home, each)]
            found = _taking(solver, home, taken[home], parts[home], offered)
            if found is None:
                continue
            before = solver.planned(parts[home])
            taken[home], parts[home] = found
            gained = {
                key: qps - before.get(key, 0.0) for key, qps in solver.planned(parts[home]).items()
            }
            rest = _rest(left[zone], gained)
            qps = sum(each.qps for each in left[zone].values()) - sum(
                each.qps for each in rest.values()
            )
            crossings.append(Crossing(zone, home, qps))
            left[zone] = rest
    for zone in sorted(left):
        for home in sorted(homes, key=lambda home: (zones.away_ms(zone, home), home)):
            planned = {key for part in parts.values() for key in solver.planned(part)}
            away_ms = zones.away_ms(zone, home)
            without = [
                shortened(each, away_ms) for key, each in left[zone].items() if key not in planned
            ]
            without = [each for each in without if solver.able(home, each)]
            if home == zone or not without:
                continue
            taken[home] = _merged(taken[home], without)
            parts[home] = solver.assign(home, taken[home])
            served = solver.planned(parts[home])
            qps = sum(served.get(class_of(each), 0.0) for each in without)
            crossings.append(Crossing(zone, home, qps))
    return parts, tuple(crossings)


def shortened(demand: Demand, away_ms: float) -> Demand:
    """A class as workers see it that are so far away."""
    if not away_ms:
        return demand
    return replace(demand, slo_ms=max(NO_TIME_MS, demand.tightest_ms - away_ms))


def in_words(crossings: Iterable[Crossing], zones: ZoneDemand) -> tuple[str, ...]:
    """A sentence for each zone that asks and each that serves."""
    return tuple(
        f"{figure(one.qps, 0)} rows per second that are asked for in {_name(one.asked)} are served "
        f"in {_name(one.served)}, {ms(zones.away_ms(one.asked, one.served))} away: "
        "there is no room for them, or no variant in time, where they are asked for."
        for one in crossings
    )


def _name(zone: Zone) -> str:
    return f"zone {zone}" if zone else "no zone"


def _taking(
    solver: Solver[T],
    home: Zone,
    taken: Sequence[Demand],
    part: T,
    offered: Sequence[Demand],
) -> tuple[list[Demand], T] | None:
    """What a zone serves besides its own demand, of which it gives up nothing; None if nothing."""
    before = sum(solver.planned(part).values())
    for _ in range(ATTEMPTS):
        wanted = sum(each.qps for each in offered)
        if wanted <= 0.0:
            return None
        both = _merged(taken, offered)
        tried = solver.assign(home, both)
        gained = sum(solver.planned(tried).values()) - before
        if gained >= (1.0 - NEGLIGIBLE) * wanted:
            return both, tried
        scale = LESS * max(0.0, gained) / wanted
        offered = [replace(each, qps=each.qps * scale) for each in offered]
    return None


def _merged(own: Iterable[Demand], others: Iterable[Demand]) -> list[Demand]:
    """Classes that both have are one, as urgent as the more urgent of the two."""
    found = {class_of(each): each for each in own}
    for each in others:
        known = found.get(class_of(each))
        if known is not None:
            tightest_ms = min(known.tightest_ms, each.tightest_ms)
            each = replace(each, qps=known.qps + each.qps, slo_ms=tightest_ms)  # noqa: PLW2901
        found[class_of(each)] = each
    return list(found.values())


def _rest(
    asked: Mapping[DemandClass, Demand], served: Mapping[DemandClass, float]
) -> dict[DemandClass, Demand]:
    found = {}
    for key, each in asked.items():
        qps = each.qps - max(0.0, served.get(key, 0.0))
        if qps > NEGLIGIBLE * each.qps:
            found[key] = replace(each, qps=qps)
    return found


def _share_key(demand: Demand) -> ShareKey:
    return share_key(*class_of(demand))
