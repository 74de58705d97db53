"""Shedding: which queries are refused first where more is asked than can be served.

Every query in time counts the same, so that most are served where those are refused that take most
of the fleet's time. But workers refuse whatever comes when they are full. So a query is refused at
once where its cheapest answer costs more than a limit, and clearly more than that of others. The
limit is the lower the fuller workers are: ``capacity / fill ** STEEPNESS``. Refusals alone come
seconds after too much was accepted: going by them, all costly queries would be refused in one
second and none in the next. They set the capacity, slowly: each query that was refused on both its
tries lowers it, and time raises it. Who finds a worker with room is never shed, so that refusals by
some workers take nothing from the others.

That helps only where time is short for all. While answers can still become quicker at the cost of
accuracy, who is refused twice had a tight SLO or lost its device, and others would be refused for
nothing: ``plan_following`` asks only once the congestion window has shrunk.
"""

from math import inf

STEEPNESS = 4.0
"""Power of the fill. Limits for what costs alike are close to each other, and a fill is not
(docs/decisions/0007-planning.md has the sweep)."""
FIRST = 1.5
"""Times the dearest query, that much is accepted at the beginning."""
LOST = 0.01
"""Part of the capacity that a query takes away that was refused twice."""
LEAST = 0.25
"""Of the capacity at which all that is costly would be shed: less would only take longer to come
back when others than these are refused."""
REGAINED_PER_S = 0.04
"""Part of the capacity that comes back."""
SETTLING_MS = 2_000.0
"""For so long refusals only say that there are some: how full workers usually are is then known."""
QUIET_MS = 10_000.0
"""After so long without a second refusal nothing is known any more."""
COSTLY = 1.1
"""Times the mean cost of all queries, below which none is shed."""
AVERAGED = 500
"""Queries whose costs make the mean, the older ones fading."""


class Shedding:
    """What a query may cost, as far as one gateway knows."""

    __slots__ = (
        "_at_ms",
        "_capacity",
        "_dearest_usd",
        "_mean_usd",
        "_raised_ms",
        "_seen",
        "_since_ms",
    )

    def __init__(self) -> None:
        self._capacity: float | None = None
        self._since_ms = 0.0
        """When the first of these refusals was."""
        self._at_ms = -inf
        """When the last one was."""
        self._raised_ms = 0.0
        self._mean_usd = 0.0
        """Of queries that came while time was short, as the next."""
        self._dearest_usd = 0.0
        self._seen = 0

    def refused(self, fill: float, now_ms: float) -> None:
        """A query was refused by two workers.

        Args:
            fill: how full workers usually are.
        """
        if now_ms - self._at_ms > QUIET_MS:
            self._since_ms, self._capacity = now_ms, None
        self._at_ms = now_ms
        if self._capacity is not None:
            least = LEAST * COSTLY * self._mean_usd * fill**STEEPNESS
            self._capacity = max(self._capacity * (1.0 - LOST), least)
        elif now_ms - self._since_ms >= SETTLING_MS and self._seen:
            self._capacity = FIRST * self._dearest_usd * fill**STEEPNESS
            self._raised_ms = now_ms

    def sheds(self, usd: float, fill: float, now_ms: float) -> bool:
        """Whether a query is refused at once whose cheapest answer costs so much; each is asked
        about once."""
        self._seen = min(self._seen + 1, AVERAGED)
        self._mean_usd += (usd - self._mean_usd) / self._seen
        self._dearest_usd = max(usd, self._dearest_usd * (1.0 - 1.0 / AVERAGED))
        if self._capacity is None or now_ms - self._at_ms > QUIET_MS:
            return False
        self._capacity *= 1.0 + REGAINED_PER_S * max(0.0, now_ms - self._raised_ms) / 1_000
        self._raised_ms = now_ms
        return usd > COSTLY * self._mean_usd and usd * fill**STEEPNESS > self._capacity
