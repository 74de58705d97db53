"""ZoneParts: which part of the demand each zone serves, while it is divided.

What is asked for in a zone is its own, and what it serves for others are guests, which get what
room it has beside its own.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from planner.types import Demand, DemandClass, class_of
from planner.zone_demand import Zone, ZoneDemand

T = TypeVar("T")

Asked = Mapping[DemandClass, Demand]

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


class ZoneParts(Generic[T]):
    """The assignment of each zone that has workers, to begin with that of nothing."""

    def __init__(self, zones: ZoneDemand, homes: Collection[Zone], solver: Solver[T]) -> None:
        self.made: dict[Zone, T] = {}
        self._zones = zones
        self._homes = frozenset(homes)
        self._solver = solver
        self._own: dict[Zone, list[Demand]] = {}
        self._guests: dict[Zone, list[Demand]] = {home: [] for home in homes}
        self._crossed: dict[tuple[Zone, Zone], float] = {}

    def crossings(self) -> tuple[Crossing, ...]:
        """What is served in another zone than asked."""
        return tuple(Crossing(*way, qps) for way, qps in self._crossed.items())

    def try_own(self, zone: Zone, asked: Asked) -> tuple[T, dict[DemandClass, Demand]]:
        """An assignment of a zone's own demand besides its guests, and what of it has no room or no
        variant in time."""
        guests = {class_of(each): each.qps for each in self._guests[zone]}
        own = self._shortened(zone, zone, asked)
        part = self._solver.assign(zone, _merged(own, self._guests[zone]))
        planned = self._solver.planned(part)
        return part, less(
            asked, {key: planned.get(key, 0.0) - guests.get(key, 0.0) for key in asked}
        )

    def keep(self, zone: Zone, asked: Asked) -> dict[DemandClass, Demand]:
        """Have a zone serve so much of its own demand; what of it has no room or no variant."""
        self.made[zone], rest = self.try_own(zone, asked)
        self._own[zone] = self._shortened(zone, zone, asked)
        return rest

    def elsewhere(self, zone: Zone, asked: Demand) -> bool:
        """Whether an idle worker of another zone could answer a class of a zone in time."""
        return any(self._able(zone, other, asked) for other in self._homes - {zone})

    def offer(self, zone: Zone, asked: Asked) -> dict[DemandClass, Demand]:
        """Have other zones serve demand of one, the nearest first; what none has room for.

        What no zone farther away could serve comes first in each.
        """
        left = dict(asked)
        others = self._nearest(zone)
        for number, home in enumerate(others):
            here = {key: each for key, each in left.items() if self._able(zone, home, each)}
            later = {
                key
                for key, each in here.items()
                if any(self._able(zone, other, each) for other in others[number + 1 :])
            }
            for going in (here.keys() - later, later):
                taken = self._take(zone, home, {key: here[key] for key in here if key in going})
                left = less(left, taken)
        return left

    def squeeze_in(self, zone: Zone, asked: Asked) -> None:
        """Give the classes of a zone that no worker at all serves a part of the nearest that could,
        where all becomes less."""
        for home in self._nearest(zone):
            planned = {key for part in self.made.values() for key in self._solver.planned(part)}
            without = {
                key: each
                for key, each in asked.items()
                if key not in planned and self._able(zone, home, each)
            }
            if not without:
                continue
            guests = _merged(self._guests[home], self._shortened(zone, home, without))
            self._guests[home] = guests
            self.made[home] = self._solver.assign(home, _merged(self._own[home], guests))
            served = self._solver.planned(self.made[home])
            self._cross(zone, home, sum(served.get(key, 0.0) for key in without))

    def _take(self, zone: Zone, home: Zone, offered: Asked) -> dict[DemandClass, float]:
        """What a zone comes to serve for another besides what it serves, of which it gives up
        nothing."""
        going = self._shortened(zone, home, offered)
        before = self._solver.planned(self.made[home])
        served = sum(before.values())
        for _ in range(ATTEMPTS):
            wanted = sum(each.qps for each in going)
            if wanted <= 0.0:
                break
            guests = _merged(self._guests[home], going)
            tried = self._solver.assign(home, _merged(self._own[home], guests))
            planned = self._solver.planned(tried)
            gained = sum(planned.values()) - served
            if gained >= (1.0 - NEGLIGIBLE) * wanted:
                self.made[home], self._guests[home] = tried, guests
                self._cross(zone, home, gained)
                return {key: qps - before.get(key, 0.0) for key, qps in planned.items()}
            scale = LESS * max(0.0, gained) / wanted
            going = [replace(each, qps=each.qps * scale) for each in going]
        return {}

    def _cross(self, zone: Zone, home: Zone, qps: float) -> None:
        self._crossed[zone, home] = self._crossed.get((zone, home), 0.0) + qps

    def _nearest(self, zone: Zone) -> list[Zone]:
        """The other zones that have workers."""
        others = self._homes - {zone}
        return sorted(others, key=lambda home: (self._zones.away_ms(zone, home), home))

    def _able(self, zone: Zone, home: Zone, asked: Demand) -> bool:
        return self._solver.able(home, shortened(asked, self._zones.away_ms(zone, home)))

    def _shortened(self, zone: Zone, home: Zone, asked: Asked) -> list[Demand]:
        away_ms = self._zones.away_ms(zone, home)
        return [shortened(each, away_ms) for each in asked.values()]


def shortened(demand: Demand, away_ms: float) -> Demand:
    """A class as workers see it that are so far away."""
    if not away_ms:
        return demand
    return replace(demand, slo_ms=max(NO_TIME_MS, demand.tightest_ms - away_ms))


def less(asked: Asked, served: Mapping[DemandClass, float]) -> dict[DemandClass, Demand]:
    """What is left of a demand."""
    return dict(_left(asked, served))


def _left(
    asked: Asked, served: Mapping[DemandClass, float]
) -> Iterator[tuple[DemandClass, Demand]]:
    for key, each in asked.items():
        qps = each.qps - max(0.0, served.get(key, 0.0))
        if qps > NEGLIGIBLE * each.qps:
            yield key, replace(each, qps=qps)


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
