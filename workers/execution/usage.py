"""Usage: how often each variant is asked for on this worker, and how urgently.

Variants that have left are remembered as well. The executor counts each batch, and the loader each
query that asks for a variant that is not loaded. Rates are read when a variant has to leave, and
for the status.
"""

from collections.abc import Iterable

from planner.eviction.expected import learned_qps
from planner.eviction.popularity import Popularity
from planner.eviction.urgency import Urgency


class Usage(Popularity[int]):
    """The popularity of variants, by their 8-byte ids."""

    __slots__ = ("load_pace", "urgency")

    def __init__(self) -> None:
        super().__init__()
        self.urgency: Urgency[int] = Urgency()
        self.load_pace = 1.0
        """How long loads take here, in parts of what profiles say."""

    def missed(self, key: int, now_s: float, *, waits: bool) -> None:
        """A query found a variant missing, and waits for its load or cannot."""
        self.seen(key, now_s)
        self.urgency.missed(key, waits=waits)

    def learned_qps(self, keys: Iterable[int], now_s: float) -> list[float]:
        """Queries per second of each variant, in their order, from those that came."""
        return learned_qps(self, keys, now_s)
