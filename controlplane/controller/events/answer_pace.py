"""AnswerPace: how long the catalog, or the live state, takes to answer, look by look.

A database that answers slowly holds up plans, registrations and commands, and no query; a Redis
that does, what gateways learn of workers and plans of the demand: nobody would see where the time
goes.
"""

from collections import deque
from statistics import median

LOOKS = 5
"""So many looks in a row say that it is slow, or no more: one that was slow may have waited for a
processor."""
SLOW_MS = 250.0
"""What a look takes at least then: one in another part of a region answers within 10 ms."""


class AnswerPace:
    """Of the looks at one of them, each of which asks for one row, or one key."""

    def __init__(self) -> None:
        self._looks: deque[float] = deque(maxlen=LOOKS)
        self._slow = False

    def answered(self, took_ms: float) -> None:
        """One look has its answer."""
        self._looks.append(took_ms)
        if len(self._looks) == LOOKS and len({took >= SLOW_MS for took in self._looks}) == 1:
            self._slow = took_ms >= SLOW_MS

    def slow_ms(self) -> float:
        """What the slow ones of the last looks took, their median; 0 where it is not slow."""
        slow = [took for took in self._looks if took >= SLOW_MS]
        return median(slow) if self._slow else 0.0
