"""Retry advice: when whom the queues have no room for should come back."""

from math import ceil, exp
from random import Random

WINDOW_MS = 1_000.0
"""What was asked and answered longer ago counts less than a third."""
LEAST_MS = 5.0
"""About the time of a batch; sooner nothing can have changed."""
MOST_MS = 1_000.0
"""Demand may be another one by then; and ``Retry-After`` cannot say less."""
STEP_MS = 1.0
"""The counts fade in steps of at least so much: thousands may be refused in a second."""
SPREAD = 0.5
"""By this part a wait is longer at most: those refused together do not come back together."""


class RetryAdvice:
    """Says how long to wait, by the queues and by how much more is asked than answered.

    When the least queue is worked off, there is room for as many as were answered in that time; if
    four are refused for each that is answered, five such times pass until everybody had a turn.
    """

    def __init__(self, random: Random) -> None:
        """``random``: of this process, so that two gateways do not say the same."""
        self._random = random
        self._answered = self._refused = self._at_ms = 0.0

    def answered(self, now_ms: float) -> None:
        """A query was answered."""
        if now_ms - self._at_ms >= STEP_MS:
            self._fade(now_ms)
        self._answered += 1.0

    def wait_ms(self, queue_ms: float, now_ms: float) -> int:
        """How long a query that is refused now should wait; ``queue_ms`` is the least queue.

        In whole ms: to write a fraction with all its digits takes as long as a tenth of a refusal.
        """
        if now_ms - self._at_ms >= STEP_MS:
            self._fade(now_ms)
        self._refused += 1.0
        answered = self._answered
        turns = 1.0 + self._refused / (answered if answered > 1.0 else 1.0)
        wait_ms = (queue_ms if queue_ms > LEAST_MS else LEAST_MS) * turns
        wait_ms = wait_ms if wait_ms < MOST_MS else MOST_MS
        return ceil(wait_ms * (1.0 + SPREAD * self._random.random()))

    def _fade(self, now_ms: float) -> None:
        kept = exp((self._at_ms - now_ms) / WINDOW_MS)
        self._answered *= kept
        self._refused *= kept
        self._at_ms = now_ms
