"""Leaving: what a zone with too much to do sends away, so that the rest has room.

What only this zone can serve in time stays, and what others could serve leaves, by no more than
makes room: what others have no room for comes back, and then all that is left of the zone's demand
gets the same part of it.

Which part has to leave is searched for by solving the zone's own problem for some parts, because
how much room a row takes differs by class and variant.
"""

from dataclasses import replace
from typing import TypeVar

from planner.types import Demand, DemandClass
from planner.zone_demand import Zone
from planner.zones.zone_parts import LESS, NEGLIGIBLE, Asked, ZoneParts, less

T = TypeVar("T")

ROUNDS = 3
"""How often more is sent away because others had no room for a part of it."""
GUESSES = 4
"""How many parts are tried to find the one that has to leave."""


def send_away(parts: ZoneParts[T], zone: Zone, asked: Asked, rest: Asked) -> Asked:
    """Have other zones serve what one has no room or no variant for; what nobody serves.

    Args:
        zone: one that has workers.
        asked: what is asked for there, of which no other zone serves anything yet.
        rest: what of it the zone does not serve, at least something.
    """
    kept, going = asked, {key: each for key, each in rest.items() if _none_of(asked[key], each)}
    movable = {key for key in asked.keys() - going if parts.elsewhere(zone, asked[key])}
    for turn in range(ROUNDS):
        if turn:
            going = _has_to_leave(parts, zone, kept, movable)
            if not going:
                break
        back = parts.offer(zone, going)
        kept = less(kept, {key: each.qps - _qps(back.get(key)) for key, each in going.items()})
        movable -= back.keys()
    return parts.keep(zone, kept)


def _has_to_leave(
    parts: ZoneParts[T], zone: Zone, kept: Asked, movable: set[DemandClass]
) -> dict[DemandClass, Demand]:
    """What of the movable classes has to leave so that all that is kept has room."""
    _, rest = parts.try_own(zone, kept)
    short = {key: each for key, each in rest.items() if not _none_of(kept[key], each)}
    moving = {key: each for key, each in kept.items() if key in movable}
    if not short or not moving:
        return {}
    if movable.issuperset(short):
        return short
    staying = {key: each for key, each in kept.items() if key not in movable}
    part = _least_part(parts, zone, staying, moving, _sum(short))
    return {key: replace(each, qps=part * each.qps) for key, each in moving.items()}


def _least_part(
    parts: ZoneParts[T], zone: Zone, staying: Asked, moving: Asked, over: float
) -> float:
    """The least part of what could leave with which all else has room, of those that are tried.

    Args:
        over: what the zone does not serve of all together: as much has to leave if all rows are
            alike.
    """
    _, too_much = parts.try_own(zone, staying)
    total, most = _sum(moving), _sum(too_much) + NEGLIGIBLE * _sum(staying)
    low, high = 0.0, 1.0
    part = over / total / LESS
    for _ in range(GUESSES):
        if not low < part < high:
            part = (low + high) / 2
        some = {key: replace(each, qps=(1.0 - part) * each.qps) for key, each in moving.items()}
        _, rest = parts.try_own(zone, {**staying, **some})
        if _sum(rest) <= most:
            high = part
        else:
            low = part
        part = (low + high) / 2
    return high


def _none_of(asked: Demand, rest: Demand) -> bool:
    """Whether nothing of a class is served, as far as that counts."""
    return rest.qps >= (1.0 - NEGLIGIBLE) * asked.qps


def _qps(demand: Demand | None) -> float:
    return 0.0 if demand is None else demand.qps


def _sum(asked: Asked) -> float:
    return sum(each.qps for each in asked.values())
