"""Loads one after the other: whose turn comes when, and what may leave for a load meanwhile."""

from typing import NamedTuple

from planner.eviction.rules import LEAST_LOAD_S

Order = tuple[int, float]
"""When the turn of a load comes: what is less comes first, and of equals what came first."""
CLOSING: Order = (0, 0.0)
"""What leaves comes before all loads: it takes little, and they need its memory."""
IN_LINE: Order = (2, 0.0)
"""After all that queries ask for, one after the other."""

AHEAD_S = 0.1
"""So many seconds of loading may be under way where something leaves for one more load. Many quick
loads overlap so, and where loads take seconds, the next one begins when nothing is loaded."""
SOON_S = 1.0
"""A load for queries to come waits for its turn where that comes so soon; later it is not
known whether they still come, and the next query asks again. Of several, that is next which brings
most by its turn (``planner.eviction.victims.turn_gain``)."""


def order_of(qps: float | None, load_s: float) -> Order:
    """When the turn of a load comes, of those that wait for each other.

    What queries ask for comes before what a plan has loaded and nobody has asked for yet, and of
    that what has most queries per second of loading: so the fewest queries find their variant
    missing until all are loaded (Smith, *Various optimizers for single-stage production*, 1956).

    Args:
        qps: queries per second that ask for it; None: none has, or others had to leave for it.
            Memory that was freed for a load serves nobody until its turn comes, so such a load
            keeps its place in line.
    """
    return IN_LINE if qps is None else (1, -qps / max(load_s, LEAST_LOAD_S))


class Turn(NamedTuple):
    """When the turn of a load comes that queries ask for, of those that are under way."""

    now: bool
    """Something may leave for it now."""
    waits: bool
    """A query waits for it, and can still be answered."""
    soon: bool
    """No query that is here needs it, but queries to come will still come when its turn does."""


def turn_of(busy_s: float, *, waiting: bool = False, patience_s: float = 0.0) -> Turn:
    """When the turn of a load comes that queries ask for.

    A worker loads one variant after the other. What leaves for a load whose turn comes later is
    missing until then, and its memory serves nobody. So nothing leaves where loads for longer than
    ``AHEAD_S`` are under way, unless a query waits that can still be answered after them.

    Args:
        busy_s: how long the loads that were begun before still take.
        waiting: a query waits for this load.
        patience_s: how much later than now the load may begin for that query.
    """
    waits = waiting and busy_s <= max(0.0, patience_s)
    now = busy_s < AHEAD_S or (waits and busy_s <= patience_s)
    return Turn(now=now, waits=waits, soon=not (now or waiting) and busy_s < SOON_S)
