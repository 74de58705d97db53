"""What a batch after a pause pays on a device kind, by those of its variants that run.

Where little is asked, nearly all batches come after a pause: threads have to be woken, caches are
cold, and the core's clock is low. Profiles are measured back to back and know nothing of that, and
a single row of a small variant takes thirty times as long as its profile says. Only variants that
run show it. One that does not would look as many times cheaper and quicker than those that do,
until it is asked, and then the next one would.

So those that do not run are counted with what a pause costs those that do. That is an amount: it is
much for a small variant and nothing beside a large one's batch. Of a larger variant a smaller one
pays no more than in proportion, and no pause is believed to cost more than pauses usually do
(``planner.rhythms.busy_time``): what a variant takes beyond that says that its profile is wrong,
which is nobody else's.
"""

from collections.abc import Iterable
from math import log
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

    own_ms: float
    """What that one's batches take that follow on one another."""
    ms: float
    """What they take longer after a pause, at least ``LEAST_MS``."""

    def of(self, own_ms: float) -> float:
        """What a batch pays that takes so long by its profile; 0 where it does not matter."""
        paid = self.ms if own_ms >= self.own_ms else self.ms * own_ms / self.own_ms
        return paid if paid >= MATTERS * own_ms else 0.0

    def is_near(self, other: "Pause | None") -> bool:
        """Whether both say about the same."""
        if other is None:
            return False
        gaps = (log(self.ms / other.ms), log(self.own_ms / other.own_ms))
        return all(abs(gap) <= MOVED for gap in gaps)


def shared_pause(shown: Iterable[tuple[float, float]]) -> Pause | None:
    """What pauses cost on a kind; None where that is nothing, or where nothing ran.

    Args:
        shown: of each variant that runs what a batch takes that follows on another, and what one
            takes in the rhythm of now, both in ms.
    """
    paid = sorted(
        (min(now_ms - busy_ms, (USUAL - 1.0) * busy_ms + WAKING_MS), busy_ms)
        for busy_ms, now_ms in shown
        if busy_ms > 0.0
    )
    if not paid:
        return None
    ms, own_ms = paid[(len(paid) - 1) // 2]
    return Pause(own_ms, ms) if ms >= LEAST_MS else None
