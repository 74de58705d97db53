"""Urgency: which share of a variant's queries cannot wait for its load.

It is learned from the queries that find the variant missing: each of them either waits for the
load or is refused. So nothing is counted while a variant is loaded, and what was learned stays
when it leaves.
"""

from collections.abc import Hashable
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

    def missed(self, key: KeyT, *, waits: bool) -> None:
        """A query found it missing, and waits for its load or cannot."""
        refused, queries = self._counts.pop(key, (0.0, 0.0))
        kept = min(1.0, (_MOST - 1.0) / max(1.0, queries))
        if len(self._counts) >= MAX_KEYS:
            del self._counts[next(iter(self._counts))]
        new = 0.0 if waits else 1.0
        self._counts[key] = (kept * refused + new, kept * queries + 1.0)
        self._all = (self._all[0] + new, self._all[1] + 1.0)

    def share(self, key: KeyT) -> float:
        """Share of its queries that cannot wait, in [0, 1]; 0 before any query found anything
        missing."""
        refused, queries = self._counts.get(key, (0.0, 0.0))
        usual = self._all[0] / max(1.0, self._all[1])
        return (refused + _PRIOR * usual) / (queries + _PRIOR)
