"""QueryRates: what queries ask for, and how urgently, by whoever looks for a host.

A gateway has one, and so has the simulator. Counting a query is one addition; the book of arrivals
is told when somebody asks it, and now and then.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from planner.eviction.popularity import Popularity
from planner.eviction.urgency import Urgency

KeyT = TypeVar("KeyT", bound=Hashable)


class QueryRates(Generic[KeyT]):
    """Counts queries by what they ask for, loaded or not."""

    __slots__ = ("_book", "_counts", "_told", "urgency")

    def __init__(self) -> None:
        self._book: Popularity[KeyT] = Popularity()
        self._counts: defaultdict[KeyT, int] = defaultdict(int)
        """Queries that the book was not told of yet."""
        self._told = 0
        self.urgency: Urgency[KeyT] = Urgency()
        """Of the queries that found missing what they ask for."""

    def __contains__(self, key: object) -> bool:
        """Whether a query has asked for it that the book was told of and remembers."""
        return key in self._book

    @property
    def told(self) -> int:
        """How often the book was told of queries: at one time, equal rates while it is equal."""
        return self._told + bool(self._counts)

    def query(self, key: KeyT) -> None:
        """A query asks for it."""
        self._counts[key] += 1

    def tell(self, now_s: float) -> None:
        """Tell the book what was asked for since: when it matters, and about once a second."""
        self._told += bool(self._counts)
        for key, count in self._counts.items():
            self._book.seen(key, now_s, count)
        self._counts.clear()

    def rates(self, keys: Iterable[KeyT], now_s: float, *, newcomers: bool = True) -> list[float]:
        """Queries per second to expect for each of ``keys``, in their order.

        What nobody has asked for gets what a newcomer is credited with, or 0 without ``newcomers``
        (``planner.eviction.popularity``).
        """
        self.tell(now_s)
        return self._book.rates(keys, now_s, newcomers=newcomers)
