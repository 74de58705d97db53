"""ZoneCounts: in which zones queries are asked for, and how far it is from there to the workers.

Gateways say their zone with what they count. Plans go by what was seen until something has moved:
shares that changed with every query would have the demand divided anew each second.
"""

from collections.abc import Iterable, Mapping
from math import exp, inf
from typing import Any

from controlplane.demand_counters import accuracies_of, parse_counter_name
from planner.forecasting.demand import slo_class
from planner.zone_demand import NOWHERE, ShareKey, Zone, ZoneDemand, share_key
from variants.types import CatalogSnapshot

MEMORY_S = 60.0
"""Time constant with which what was asked is forgotten."""
FIRST_ROWS = 100.0
"""What gateways have counted since they started is worth so much to a control loop that starts:
enough to plan by at once, and soon outweighed by what is asked then."""
LEAST_ROWS = 0.05
"""A class of which less is remembered is forgotten."""
MOVED = 0.1
"""Part of the demand that has to be asked for elsewhere before plans go by it ..."""
REST_S = 10.0
"""... and for so long after it did they stay as they are."""
MOVED_WAY = 0.2
"""By this part a round trip has to change."""


class ZoneCounts:
    """What the gateways of all zones tell."""

    def __init__(self) -> None:
        self.known: ZoneDemand = NOWHERE
        """To plan by; the same object for as long as nothing has moved."""
        self._counted: dict[str, Mapping[str, int]] = {}
        self._rows: dict[ShareKey, dict[Zone, float]] = {}
        self._counted_s = -inf
        self._told_s = -inf

    def count(
        self, reports: Mapping[str, Mapping[str, Any]], catalog: CatalogSnapshot, now_s: float
    ) -> bool:
        """Take in what each gateway has counted since it started; whether plans are to go by
        something else now."""
        first = self._counted_s == -inf
        fade = exp((self._counted_s - now_s) / MEMORY_S)
        rows = {key: _faded(zones, fade) for key, zones in self._rows.items()}
        accuracies = accuracies_of(catalog)
        for id_, report in reports.items():
            before = {} if first else self._counted.get(id_)
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
        scale = 1.0
        if first and rows:
            scale = FIRST_ROWS / sum(sum(zones.values()) for zones in rows.values())
        self._rows = {key: _faded(zones, scale) for key, zones in rows.items()}
        self._rows = {key: zones for key, zones in self._rows.items() if zones}
        self._counted = {id_: report.get("demand", {}) for id_, report in reports.items()}
        self._counted_s = now_s
        return self._tell(_round_trips_ms(reports.values()), now_s)

    def _tell(self, round_trips_ms: Mapping[tuple[Zone, Zone], float], now_s: float) -> bool:
        usual = _shares(self._rows.values())
        if not usual or now_s - self._told_s < REST_S:
            return False
        found = {key: _shares([zones]) for key, zones in self._rows.items()}
        known = self.known
        if known.usual and not self._moved() and not _differ(known.round_trips_ms, round_trips_ms):
            return False
        if known is NOWHERE and usual.keys() == {""} and not any(round_trips_ms.values()):
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
    """The longest that gateways of a zone say of the workers of a zone."""
    found: dict[tuple[Zone, Zone], float] = {}
    for report in reports:
        for to, away_ms in report.get("round_trips_ms", {}).items():
            key = (_zone(report), str(to))
            found[key] = max(found.get(key, 0.0), float(away_ms))
    return found


def _differ(
    before: Mapping[tuple[Zone, Zone], float], now: Mapping[tuple[Zone, Zone], float]
) -> bool:
    """Whether a way is new, or clearly longer or shorter; one that nobody measures now stays."""
    return any(
        abs(away_ms - before.get(way, 0.0)) > MOVED_WAY * before.get(way, 0.0)
        for way, away_ms in now.items()
    )
