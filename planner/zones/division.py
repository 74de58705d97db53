"""Division: the demand of each zone over the workers of that zone, and the rest over others.

First the workers of each zone get what is asked for there. What they cannot serve in time, or have
no room for, is offered to the other zones, the nearest first, with the round trip taken off its
SLO: what is late by the way alone is no demand there. What others could serve leaves a full zone
before what they could not (``planner.zones.leaving``). A class that no zone has room for then gets
a part of the nearest that could serve it, where all becomes less.

Each step is a planning problem of one zone, which the caller solves, so the whole is not the best
division that there is: a zone keeps what it can serve, though another one could serve it at less
cost.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from planner.types import Demand, DemandClass, class_of
from planner.zone_demand import (
    ASKED_IN,
    CROSSES,
    ShareKey,
    Zone,
    ZoneDemand,
    named,
    share_key,
)
from planner.zones.leaving import send_away
from planner.zones.zone_parts import NEGLIGIBLE, Crossing, Solver, ZoneParts, shortened
from variants.figures import figure, ms, some_of

T = TypeVar("T")

NAMED = 3
"""Classes that a sentence names at most."""


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


def asked_by_zone(
    demand: Iterable[Demand],
    zones: ZoneDemand,
    homes: Collection[Zone],
    able: Callable[[Zone, Demand], bool],
) -> dict[Zone, dict[DemandClass, Demand]]:
    """What is asked for in each zone, of a demand that is ``reachable``."""
    asked: dict[Zone, dict[DemandClass, Demand]] = {}
    for each in demand:
        parts_of = _in_reach(each, zones, homes, able)
        for zone, part in parts_of.items():
            share = part / sum(parts_of.values())
            if share > NEGLIGIBLE:
                asked.setdefault(zone, {})[class_of(each)] = replace(each, qps=each.qps * share)
    return asked


def divide(
    demand: Iterable[Demand], zones: ZoneDemand, homes: Collection[Zone], solver: Solver[T]
) -> tuple[Mapping[Zone, T], tuple[Crossing, ...]]:
    """The assignment of each zone that has workers, and what is served in another zone than asked.

    Args:
        demand: what is ``reachable``, which is all asked for in zones that can reach a worker.
        homes: zones that have workers.
    """
    asked = asked_by_zone(demand, zones, homes, solver.able)
    parts = ZoneParts(zones, homes, solver)
    left = {home: parts.keep(home, asked.get(home, {})) for home in sorted(homes)}
    for zone, own in sorted(asked.items()):
        if zone not in left:
            left[zone] = parts.offer(zone, own)
        elif left[zone]:
            left[zone] = dict(send_away(parts, zone, own, left[zone]))
    for zone, rest in sorted(left.items()):
        parts.squeeze_in(zone, rest)
    return parts.made, parts.crossings()


def in_words(crossings: Iterable[Crossing], zones: ZoneDemand) -> tuple[str, ...]:
    """A sentence for each zone that asks and each that serves."""
    return tuple(
        f"{ASKED_IN}{named(one.asked)}: {figure(one.qps, 0)} rows per second {CROSSES} "
        f"{named(one.served)}, {ms(zones.away_ms(one.asked, one.served))} away, because there is "
        "no room for them, or no variant in time, where they are asked for."
        for one in crossings
    )


def out_of_reach(
    demand: Iterable[Demand],
    zones: ZoneDemand,
    homes: Collection[Zone],
    able: Callable[[Zone, Demand], bool],
) -> tuple[str, ...]:
    """A sentence for each zone that asks for what only the way makes late, from all workers.

    It names classes and no rates, so that it stays as long as that is so.
    """
    found: dict[Zone, list[str]] = {}
    for each in demand:
        if not any(able(home, each) for home in homes):
            continue
        reached = _in_reach(each, zones, homes, able)
        for zone, part in zones.of(_share_key(each)).items():
            if part > NEGLIGIBLE and zone not in reached:
                late = found.setdefault(zone, [])
                words = f"{each.task} within {ms(each.latency_ms)}"
                late += [words] if words not in late else []
    sentences = []
    for zone, late in sorted(found.items()):
        nearest = min(homes, key=lambda home: (zones.away_ms(zone, home), home))
        sentences.append(
            f"{ASKED_IN}{named(zone)}: no worker is near enough to answer "
            f"{some_of(late, NAMED)} in time; the nearest are in {named(nearest)}, "
            f"{ms(zones.away_ms(zone, nearest))} away."
        )
    return tuple(sentences)


def _share_key(demand: Demand) -> ShareKey:
    return share_key(*class_of(demand))
