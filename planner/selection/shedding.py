"""Shedding: which queries are refused first where more is asked than can be served.

Every query in time counts the same, so that most are served where those are refused that take most
of the fleet's time. But workers refuse whatever comes when they are full. So for every query that
was refused on both its tries, ``EACH`` of those to come are refused at once, if their cheapest
answer costs clearly more than that of others. As long as second tries find room nothing is shed,
and what is shed is a multiple of what is refused in any case: when too much was, less is refused,
and so less is shed.

What a query takes comes last in the order of refusal (``planner.batching.refusal_order``): who
stands before one that was refused is not shed; nor, by ``plan_following``, whom a worker has room
for.

That helps only where time is short for all. While answers can still become quicker at the cost of
accuracy, who is refused twice had a tight SLO or lost its device, and others would be refused for
nothing: ``plan_following`` asks only once the congestion window has shrunk.
"""

from math import exp

EACH = 3.0
"""Queries that are shed for one that was refused twice (docs/decisions/0007-planning.md has the
sweep)."""
COSTLY = 1.1
"""Times the mean cost of all queries, from which on a query is shed."""
MEMORY_MS = 1_000.0
"""Time constant with which what is due is forgotten."""
MOST_DUE = 50.0
"""More is never due: a crowd ends as suddenly as it comes."""
AVERAGED = 500
"""Queries whose costs make the mean, the older ones fading."""


class Shedding:
    """How many queries are to be refused at once, as far as one gateway knows."""

    __slots__ = ("_at_ms", "_due", "_mean_usd", "_priority", "_seen")

    def __init__(self) -> None:
        self._due = 0.0
        self._at_ms = 0.0
        self._priority = 0
        """The lowest, the greatest number, of those that were refused while any was due."""
        self._mean_usd = 0.0
        """Of queries that came while any was due."""
        self._seen = 0

    def refused(self, priority: int, now_ms: float) -> None:
        """A query of a priority was refused by two workers."""
        left = self._left(now_ms)
        self._priority = max(self._priority, priority) if left >= 1.0 else priority
        self._due = min(MOST_DUE, left + EACH)
        self._at_ms = now_ms

    def sheds(self, usd: float, priority: int, now_ms: float) -> bool:
        """Whether a query of a priority whose cheapest answer costs so much is one of those that
        are to be refused; ``shed`` says that it was."""
        if self._due < 1.0:
            return False
        self._seen = min(self._seen + 1, AVERAGED)
        self._mean_usd += (usd - self._mean_usd) / self._seen
        if usd <= COSTLY * self._mean_usd:
            return False
        self._due, self._at_ms = self._left(now_ms), now_ms
        return self._due >= 1.0 and priority >= self._priority

    def shed(self) -> None:
        """A query was refused for what it costs."""
        self._due -= 1.0

    def _left(self, now_ms: float) -> float:
        """What is still due."""
        return self._due * exp(-max(0.0, now_ms - self._at_ms) / MEMORY_MS)
