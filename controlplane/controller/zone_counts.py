"""ZoneCounts: in which zones queries are asked for, and how far it is from there to the workers.

Gateways say their zone with what they count. Plans go by what was seen until something has moved:
shares that changed with every query would have the demand divided anew each second.
"""

from collections.abc import Iterable, Mapping
from math import exp, inf
from statistics import median_low
from typing import Any

from controlplane.demand_counters import accuracies_of, parse_counter_name
from controlplane.slices import Kind
from planner.forecasting.demand import slo_class
from planner.zone_demand import NOWHERE, ShareKey, Zone, ZoneDemand, share_key
from variants.types import CatalogSnapshot, DeviceKindName
from workers.types import ZONE_LABELS, WorkerStatus

MEMORY_S = 60.0
"""Time constant with which what was asked is forgotten."""
LEAST_ROWS = 0.05
"""A class of which less is remembered is forgotten."""
MOVED = 0.1
"""Part of the demand that has to be asked for elsewhere before plans go by it ..."""
REST_S = 10.0
"""... and for so long after it did they stay as they are, as they do for so long after the first
look. A way that is longer has to be so for as long before it counts."""
SETTLED_S = 30.0
"""For so long after the first look no worker goes by what is known of zones: gateways may have
started together with the control loop, and still measure."""
FORGET_S = 600.0
"""Workers of a kind that were last seen in a zone so long before others of it do not count."""
MOVED_WAY = 0.2
"""By this part a round trip has to change."""


class ZoneCounts:
    """What the gateways of all zones tell."""

    def __init__(self) -> None:
        self.known: ZoneDemand = NOWHERE
        """To plan by; the same object for as long as nothing has moved."""
        self.settled = False
        """Whether workers may go by it."""
        self._began_s = -inf
        self._counted: dict[str, Mapping[str, int]] = {}
        self._rows: dict[ShareKey, dict[Zone, float]] = {}
        self._counted_s = -inf
        self._told_s = -inf
        self._ways_ms: dict[tuple[Zone, Zone], float] = {}
        self._longer_s: dict[tuple[Zone, Zone], float] = {}
        """Since when each way that was told to be longer has been so."""

    def count(
        self, reports: Mapping[str, Mapping[str, Any]], catalog: CatalogSnapshot, now_s: float
    ) -> bool:
        """Take in what each gateway has counted since it started; whether plans are to go by
        something else now.

        What it had counted when it was first seen says nothing of what is asked now: one has run
        for weeks, another one for minutes.
        """
        if self._counted_s == -inf:
            self._told_s = self._began_s = now_s
        fade = exp((self._counted_s - now_s) / MEMORY_S)
        rows = {key: _faded(zones, fade) for key, zones in self._rows.items()}
        accuracies = accuracies_of(catalog)
        for id_, report in reports.items():
            before = self._counted.get(id_)
            for name, count in report.get("demand", {}).items() if before is not None else ():
                asked = parse_counter_name(name)
                new = count - (before or {}).get(name, 0)
                if asked is None or not new:
                    continue
                task, latency_ms, floor, variant = asked
                latency_ms, floor = slo_class(latency_ms, floor, accuracies.get(task, ()))
                zones = rows.setdefault(share_key(task, latency_ms, floor, variant), {})
                zone = _zone(report)
                zones[zone] = zones.get(zone, 0.0) + (new if new > 0 else count)
        self._rows = {key: zones for key, zones in rows.items() if zones}
        self._counted = {id_: report.get("demand", {}) for id_, report in reports.items()}
        self._counted_s = now_s
        self._measure(_round_trips_ms(reports.values()), now_s)
        told = self._tell(now_s)
        self.settled |= bool(self._rows) and now_s - self._began_s >= SETTLED_S
        return told

    def _measure(self, told_ms: Mapping[tuple[Zone, Zone], float], now_s: float) -> None:
        """A way that is shorter counts at once, a longer one when it has been so for long."""
        for way, away_ms in told_ms.items():
            if away_ms <= self._ways_ms.get(way, inf):
                self._longer_s.pop(way, None)
            elif now_s - self._longer_s.setdefault(way, now_s) < REST_S:
                continue
            else:
                del self._longer_s[way]
            self._ways_ms[way] = away_ms

    def _tell(self, now_s: float) -> bool:
        usual = _shares(self._rows.values())
        round_trips_ms = dict(self._ways_ms)
        shorter = _shorter(self.known.round_trips_ms, round_trips_ms)
        if not usual or (now_s - self._told_s < REST_S and not shorter):
            return False
        found = {key: _shares([zones]) for key, zones in self._rows.items()}
        known = self.known
        if known.usual and not self._moved() and not _differ(known.round_trips_ms, round_trips_ms):
            return False
        if known is NOWHERE and usual.keys() == {""} and not _named(round_trips_ms):
            return False  # there are no zones
        self.known = ZoneDemand(shares=found, usual=usual, round_trips_ms=round_trips_ms)
        self._told_s = now_s
        return True

    def _moved(self) -> bool:
        """Whether much of what is remembered was asked for elsewhere than plans go by."""
        moved = total = 0.0
        for key, zones in self._rows.items():
            before, rows = self.known.of(key), sum(zones.values())
            for zone in before.keys() | zones.keys():
                moved += abs(zones.get(zone, 0.0) - rows * before.get(zone, 0.0)) / 2
            total += rows
        return moved > MOVED * total


class KindZones:
    """In which zones the workers of each device kind stand, or would."""

    def __init__(self) -> None:
        self._seen_s: dict[DeviceKindName, dict[Zone, float]] = {}
        """When a worker of the kind was last there."""

    def of(
        self, kinds: Iterable[Kind], workers: Iterable[WorkerStatus], now_s: float
    ) -> Mapping[DeviceKindName, frozenset[Zone]]:
        """By the label of the nodes that a kind is bound to, else by the workers that it has, or
        had some minutes before the last of them was seen: one that is lost comes back. A kind of
        which nothing was seen since the control loop started is missing."""
        for worker in workers:
            kind_name = DeviceKindName(worker.device_kind)
            self._seen_s.setdefault(kind_name, {})[worker.zone] = now_s
        seen = {
            kind: frozenset(
                zone for zone, at_s in zones.items() if at_s >= max(zones.values()) - FORGET_S
            )
            for kind, zones in self._seen_s.items()
        }
        bound = {
            kind.name: frozenset(kind.nodes.values)
            for kind in kinds
            if kind.nodes is not None and kind.nodes.label in ZONE_LABELS
        }
        return seen | bound


def _zone(report: Mapping[str, Any]) -> Zone:
    return str(report.get("zone", ""))


def _faded(zones: Mapping[Zone, float], fade: float) -> dict[Zone, float]:
    return {zone: rows * fade for zone, rows in zones.items() if rows * fade >= LEAST_ROWS}


def _shares(counted: Iterable[Mapping[Zone, float]]) -> dict[Zone, float]:
    """The part of each zone, in the order of their names."""
    sums: dict[Zone, float] = {}
    for zones in counted:
        for zone, rows in zones.items():
            sums[zone] = sums.get(zone, 0.0) + rows
    total = sum(sums.values())
    return {zone: sums[zone] / total for zone in sorted(sums)} if total else {}


def _round_trips_ms(reports: Iterable[Mapping[str, Any]]) -> dict[tuple[Zone, Zone], float]:
    """What the one in the middle of a zone's gateways says of the workers of a zone."""
    found: dict[tuple[Zone, Zone], list[float]] = {}
    for report in reports:
        for to, away_ms in report.get("round_trips_ms", {}).items():
            found.setdefault((_zone(report), str(to)), []).append(float(away_ms))
    return {way: median_low(all_ms) for way, all_ms in found.items()}


def _differ(
    before: Mapping[tuple[Zone, Zone], float], now: Mapping[tuple[Zone, Zone], float]
) -> bool:
    """Whether a way is new, or clearly longer or shorter; one that nobody measures now stays."""
    return any(
        abs(away_ms - before.get(way, 0.0)) > MOVED_WAY * before.get(way, 0.0)
        for way, away_ms in now.items()
    )


def _named(ways_ms: Mapping[tuple[Zone, Zone], float]) -> bool:
    """Whether it is a way to a zone that has a name."""
    return any(to and away_ms for (_, to), away_ms in ways_ms.items())


def _shorter(
    before: Mapping[tuple[Zone, Zone], float], now: Mapping[tuple[Zone, Zone], float]
) -> bool:
    """Whether a way is clearly shorter."""
    return any(now.get(way, away_ms) < (1 - MOVED_WAY) * away_ms for way, away_ms in before.items())
