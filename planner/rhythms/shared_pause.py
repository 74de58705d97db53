"""What a batch after a pause pays on a device kind, by those of its variants that run.

Where little is asked, nearly all batches come after a pause: threads have to be woken, caches are
cold, and the core's clock is low. Profiles are measured back to back and know nothing of that, and
a single row of a small variant takes thirty times as long as its profile says. Only variants that
run show it. One that does not would look as many times cheaper and quicker than those that do,
until it is asked, and then the next one would.

So those that do not run are counted with what a pause costs those that do. That is an amount: it is
much for a small variant and nothing beside a large one's batch. Neither of those that show it nor
of those that do not is a pause believed to cost more than pauses usually do
(``planner.rhythms.busy_time``): what a variant takes beyond that says that its profile is wrong,
which is nobody else's.
"""

from collections.abc import Iterable
from math import log
from statistics import median_low
from typing import NamedTuple

from planner.rhythms.busy_time import USUAL, WAKING_MS

LEAST_MS = 0.02
"""Less is not shared: batches vary by as much."""
MATTERS = 0.1
"""Part of a variant's own time from which on it counts."""
MOVED = log(1.25)
"""Least change of its logarithm that is taken over."""


class Pause(NamedTuple):
    """What a batch after a pause pays, by the variant in the middle of those that run."""

    ms: float
    """At least ``LEAST_MS``."""

    def of(self, own_ms: float) -> float:
        """What a batch pays that takes so long by its profile; 0 where it does not matter."""
        paid = min(self.ms, _usual_ms(own_ms))
        return paid if paid >= MATTERS * own_ms else 0.0

    def is_near(self, other: "Pause | None") -> bool:
        """Whether both say about the same."""
        return other is not None and abs(log(self.ms / other.ms)) <= MOVED


def shared_pause(shown: Iterable[tuple[float, float]]) -> Pause | None:
    """What pauses cost on a kind; None where that is nothing, or where nothing ran.

    Args:
        shown: of each variant that runs what a batch takes that follows on another, and what one
            takes in the rhythm of now, both in ms.
    """
    paid = [min(now_ms - busy_ms, _usual_ms(busy_ms)) for busy_ms, now_ms in shown]
    if not paid:
        return None
    ms = median_low(paid)
    return Pause(ms) if ms >= LEAST_MS else None


def _usual_ms(busy_ms: float) -> float:
    """What a pause usually costs a batch that takes so long where it follows on another."""
    return (USUAL - 1.0) * busy_ms + WAKING_MS
