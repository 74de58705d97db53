"""Loads one after the other: whose turn comes when, and what may leave for a load meanwhile."""

from typing import Literal, NamedTuple

Rank = Literal[0, 1, 2, 3]
"""In which order loads begin that wait for each other; of equals, the first that came."""
CLOSING: Rank = 0
"""What leaves comes before all loads: it takes little, and they need its memory."""
AWAITED: Rank = 1
"""Queries wait for it."""
ASKED: Rank = 2
"""Queries to come ask for it."""
PLANNED: Rank = 3
"""A plan has it loaded, and no query has asked yet."""

AHEAD_S = 0.1
"""So many seconds of loading may be under way where something leaves for one more load. Many quick
loads overlap so, and where loads take seconds, the next one begins when nothing is loaded."""
SOON_S = 1.0
"""A load for queries to come waits for its turn where that comes so soon; later it is not
known whether they still come, and the next query asks again."""


def rank_of(*, asked: bool, awaited: bool) -> Rank:
    """In which order a load begins that waits for its turn."""
    return AWAITED if awaited else ASKED if asked else PLANNED


class Turn(NamedTuple):
    """When the turn of a load comes that queries ask for, of those that are under way."""

    now: bool
    """Something may leave for it now."""
    waits: bool
    """A query waits for it, and can still be answered."""
    soon: bool
    """It is for queries to come, and they still come when its turn does."""


def turn_of(busy_s: float, *, waiting: bool = False, patience_s: float = 0.0) -> Turn:
    """When the turn of a load comes that queries ask for.

    A worker loads one variant after the other. What leaves for a load whose turn comes later is
    missing until then, and its memory serves nobody. So nothing leaves where loads for longer than
    ``AHEAD_S`` are under way, unless a query waits that can still be answered after them.

    Args:
        busy_s: how long the loads still take that come before it.
        waiting: a query waits for this load.
        patience_s: how much later than now the load may begin for that query.
    """
    waits = waiting and busy_s <= max(0.0, patience_s)
    now = busy_s < AHEAD_S or (waits and busy_s <= patience_s)
    return Turn(now=now, waits=waits, soon=not (now or waiting) and busy_s < SOON_S)
