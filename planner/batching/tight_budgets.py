"""How tight the budgets of the queries are that ask a slice: the least of the last seconds."""

from math import inf

TIGHT_MS = 2_000.0
"""How long a tight budget is remembered, and up to twice as long."""
TIGHTEST = 0.25
"""Of the mean budget: tighter ones do not shorten batches further, for the sake of the others."""


class TightBudgets:
    """The tightest budget seen lately. A budget is the time from admission to the deadline."""

    __slots__ = ("_before_ms", "_least_ms", "_mean_ms", "_since_ms")

    def __init__(self) -> None:
        self._least_ms = self._before_ms = inf
        self._since_ms = -inf
        self._mean_ms = 0.0

    def saw(self, budget_ms: float, now_ms: float) -> None:
        """Take in the budget of a query that asks now, whether or not it is admitted."""
        if now_ms - self._since_ms > TIGHT_MS:
            # Two windows, one behind the other: the least of the older counts until it is over.
            fresh = now_ms - self._since_ms <= 2 * TIGHT_MS
            self._before_ms = self._least_ms if fresh else inf
            self._least_ms = inf
            self._since_ms = now_ms
        least_ms = self._least_ms
        self._least_ms = budget_ms if budget_ms < least_ms else least_ms
        mean_ms = self._mean_ms
        self._mean_ms = mean_ms + (budget_ms - mean_ms) * 0.02 if mean_ms else budget_ms

    @property
    def tight_ms(self) -> float:
        """The least budget of the last seconds, and at least ``TIGHTEST`` of the mean budget."""
        return max(min(self._least_ms, self._before_ms), TIGHTEST * self._mean_ms)
