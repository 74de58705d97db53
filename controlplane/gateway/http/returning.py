"""Who comes back sooner than told, and could have waited.

Who retries at once is held back by its connection (``EarlyRefusals.turn_away``). A connection may
also be one of a pool, whose next query has nothing to do with the last: then most of the pool's
connections have nothing to do, and holding this one only makes a refusal slow.
"""

from collections.abc import Collection
from typing import Protocol

KEPT_MS = 20.0
"""For so long it is not counted anew."""
MOST_COUNTED = 1_000
"""Connections that are looked at."""
MOST_ADDRESSES = 1_000
"""Addresses that are known at once."""


class Asking(Protocol):
    """A connection over which queries come."""

    address: str
    told_ms: float
    """When its client was told to come back; 0 where that says nothing of the next query."""

    def is_asking(self) -> bool:
        """Whether a query that came over it is still to be answered."""


class Returning:
    """Tells connections that retry from those of a pool, by what the others of an address do."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, bool]] = {}
        """By address, until when it counts and whether it has a pool."""

    def is_of_a_pool(self, address: str, others: Collection[Asking], now_ms: float) -> bool:
        """Whether at least half of an address's connections are at rest, and not as told.

        Those of clients that retry are busy all the time, and of those that wait as told, the time
        to come back lies ahead.
        """
        known = self._known.get(address)
        if known is not None and now_ms < known[0]:
            return known[1]
        count = resting = 0
        for looked_at, each in enumerate(others):
            if looked_at >= MOST_COUNTED:
                break
            if each.address == address:
                count += 1
                resting += not each.is_asking() and each.told_ms <= now_ms
        if len(self._known) >= MOST_ADDRESSES:
            self._known.clear()
        found = count > 0 and 2 * resting >= count
        self._known[address] = (now_ms + KEPT_MS, found)
        return found
