"""How tight the budgets of the queries are that ask a slice: nearly the least of the last seconds.

A budget is what is left when a query arrives. Where its sender, the network or the machine stood
still for a moment, that is less than the client gave it, and says nothing of the queries to come:
batches that were cut short for its sake would have others refused for seconds. So the tightest two
of a hundred do not count.
"""

from math import frexp, inf

TIGHT_MS = 2_000.0
"""How long a tight budget is remembered, and up to twice as long."""
TIGHTEST = 0.25
"""Of the mean budget: tighter ones do not shorten batches further, for the sake of the others."""
FEW = 0.02
"""Part of the queries whose budgets do not count, the tightest."""
LOOK_AGAIN = 32
"""Queries after which the least budget that counts is sought again, if nothing else asks for it."""

Counts = dict[int, tuple[int, float]]
"""How many budgets there were within an eighth of a power of two, and the least of them in ms."""


class TightBudgets:
    """The tightest budgets seen lately. A budget is the time from admission to the deadline."""

    __slots__ = ("_before", "_least_ms", "_mean_ms", "_now", "_since_ms", "_stands")

    def __init__(self) -> None:
        self._now: Counts = {}
        self._before: Counts = {}
        self._since_ms = -inf
        self._mean_ms = 0.0
        self._least_ms = inf
        self._stands = 0
        """For how many more queries ``_least_ms`` stands."""

    def saw(self, budget_ms: float, now_ms: float) -> None:
        """Take in the budget of a query that asks now, whether or not it is admitted."""
        if now_ms - self._since_ms > TIGHT_MS:
            # Two windows, one behind the other: the older one counts until the newer is over.
            self._before = self._now if now_ms - self._since_ms <= 2 * TIGHT_MS else {}
            self._now, self._since_ms, self._stands = {}, now_ms, 0
        part, power = frexp(budget_ms)
        eighth = power * 8 + int(part * 16)
        count, least_ms = self._now.get(eighth, (0, inf))
        self._now[eighth] = (count + 1, budget_ms if budget_ms < least_ms else least_ms)
        self._stands = 0 if budget_ms < self._least_ms else self._stands - 1
        mean_ms = self._mean_ms
        self._mean_ms = mean_ms + (budget_ms - mean_ms) * 0.02 if mean_ms else budget_ms

    @property
    def tight_ms(self) -> float:
        """The least budget of the last seconds that counts, at least ``TIGHTEST`` of the mean."""
        if self._stands <= 0:
            self._least_ms, self._stands = self._least(), LOOK_AGAIN
        return max(self._least_ms, TIGHTEST * self._mean_ms)

    def _least(self) -> float:
        counts = sorted([*self._now.items(), *self._before.items()])
        left = FEW * sum([count for _, (count, _) in counts])
        for _, (count, budget_ms) in counts:
            left -= count
            if left < 0.0:
                return budget_ms
        return inf
