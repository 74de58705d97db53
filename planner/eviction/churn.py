"""Churn: how fast a memory turns over, and what it costs that a newcomer will not stay long.

What is loaded where much comes and goes leaves with one of the next loads, however little it
displaces now. A worker counts what it evicts; whoever looks for a host counts the reload to come.
"""

from math import exp

from planner.eviction.rules import absence_s

MEMORY_S = 300.0
"""Time constant over which evictions are counted. From 100 to 3,000 s loading differs by 0.5 % on
the bench of eviction; on two days of a measured rate 3,000 s loads 1 to 2 % more, and a short one
notices sooner that a memory has come to rest (docs/decisions/0005-eviction.md)."""
_HEAD_START_S = 1.0
"""Added to the age of the account: one eviction in no time is no infinite churn."""


class Churn:
    """The share of one memory that is evicted per second, decayed over ``MEMORY_S``.

    Times do not go back.
    """

    __slots__ = ("_began_s", "_counted_s", "_evicted_mib", "_memory_mib")

    def __init__(self, memory_mib: float) -> None:
        self._memory_mib = memory_mib
        self._evicted_mib = 0.0
        """Decayed, as of ``_counted_s``."""
        self._began_s: float | None = None
        self._counted_s = 0.0

    def evicted(self, mib: float, now_s: float) -> None:
        """So much was evicted, to make room."""
        self._evicted_mib = self._decayed_mib(now_s) + mib
        self._counted_s = now_s

    def per_s(self, now_s: float) -> float:
        """The share of the memory that leaves per second.

        A young account has not seen as long as it could, so it is divided by what it has seen. It
        begins when it is first asked or told.
        """
        left_mib = self._decayed_mib(now_s)
        if left_mib <= 0.0 or self._began_s is None:
            return 0.0
        age_s = now_s - self._began_s + _HEAD_START_S
        return left_mib / (self._memory_mib * MEMORY_S * (1.0 - exp(-age_s / MEMORY_S)))

    def _decayed_mib(self, now_s: float) -> float:
        if self._began_s is None:
            self._began_s = self._counted_s = now_s
        return self._evicted_mib * exp(-max(0.0, now_s - self._counted_s) / MEMORY_S)


def short_stay_s(qps: float, load_s: float, churn_per_s: float, urgent: float = 0.0) -> float:
    """What a newcomer's stay on a host costs, in seconds of loading per second.

    It is what its absence costs times the probability that it is evicted before its next query,
    were both to come at random at their rates.

    Args:
        qps: queries per second to expect for it.
        load_s: what loading it takes.
        churn_per_s: of the host.
        urgent: share of the queries that cannot wait for the load.
    """
    if churn_per_s <= 0.0 or qps <= 0.0:
        return 0.0
    return absence_s(qps, load_s, urgent) * churn_per_s / (qps + churn_per_s)


QUERIES_PER_LOAD = 4.0
"""So many queries have to be expected while a variant loads before a plan loads it where its next
query would. Planned rates are of a few seconds, and chance has those of what is asked for seldom
ten times too high; who knew them would gain at most 2 % by such loads. With 1, 6 % fewer queries
are in time where loads take seconds; with 4 as many as without any (docs/decisions/
0005-eviction.md)."""


def pays_ahead(
    qps: float, load_s: float, urgent: float, churn_per_s: float, *, loads_itself: bool = False
) -> bool:
    """Whether it pays to load something before a query asks for it.

    The load is for sure. What it saves, a reload and a query that is refused or waits, is saved
    only where the variant is still there when its next query comes. Where that query would load it
    itself, only those are helped that come during the load, so there have to be some.

    Args:
        qps: queries per second to expect for it.
        load_s: what loading it takes.
        urgent: share of the queries that cannot wait for that.
        churn_per_s: of the host.
        loads_itself: its next query has it loaded, because nothing is there that could answer.
    """
    if churn_per_s <= 0.0:
        return True
    if loads_itself and qps * load_s < QUERIES_PER_LOAD:
        return False
    stays = qps / (qps + churn_per_s)
    return stays * absence_s(1.0, load_s, urgent) >= load_s
