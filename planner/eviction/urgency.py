"""Urgency: which share of a variant's queries cannot wait for its load.

It is learned from the queries that find the variant missing: each of them either waits for the
load or is refused. So nothing is counted while a variant is loaded, and what was learned stays
when it leaves.
"""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)

MAX_KEYS = 10_000
_PRIOR = 1.0
"""Queries that a key is credited with, of which as many could wait as of all keys together."""
_MOST = 20.0
"""Queries that are remembered of a key: deadlines change."""


class Urgency(Generic[KeyT]):
    """Counts, for each key, the queries that found it missing."""

    __slots__ = ("_all", "_counts")

    def __init__(self) -> None:
        self._counts: dict[KeyT, tuple[float, float]] = {}
        """Queries that were refused, and all; the longest unseen comes first."""
        self._all = (0.0, 0.0)

    @property
    def counted(self) -> tuple[float, float]:
        """Queries that were refused, and all: equal shares while it is the same object."""
        return self._all

    def missed(self, key: KeyT, *, waits: bool, queries: int = 1) -> None:
        """Queries found it missing, and wait for its load or cannot.

        Each query counts, also where many wait for one load.
        """
        refused, known = self._counts.pop(key, (0.0, 0.0))
        new = min(float(queries), _MOST)
        kept = min(1.0, (_MOST - new) / max(1.0, known))
        if len(self._counts) >= MAX_KEYS:
            del self._counts[next(iter(self._counts))]
        cannot = 0.0 if waits else 1.0
        self._counts[key] = (kept * refused + cannot * new, kept * known + new)
        self._all = (self._all[0] + cannot * queries, self._all[1] + queries)

    def share(self, key: KeyT) -> float:
        """Share of its queries that cannot wait, in [0, 1]; 0 before any query found anything
        missing."""
        return self.shares((key,))[0]

    def shares(self, keys: Iterable[KeyT]) -> list[float]:
        """The share of each of ``keys``, in their order."""
        counts, none = self._counts, (0.0, 0.0)
        usual = _PRIOR * (self._all[0] / max(1.0, self._all[1]))
        return [
            (refused + usual) / (queries + _PRIOR)
            for refused, queries in [counts.get(key, none) for key in keys]
        ]
