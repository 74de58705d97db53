"""What a variant's batches take on a busy worker, learned from batches of either rhythm.

A batch that begins after a pause takes longer than one that follows on another: caches are cold,
the core's clock is low, threads slept. At little load nearly all batches come after a pause, and
what they take says little of what the worker could serve. Profiles are measured back to back.

So two things are followed, as logarithms: how many times its profile a batch takes that follows on
another, and how many times as long as that one takes after a pause. A batch that follows on another
shows the first, one after a pause the sum of both. How sure either is and how they depend on each
other is followed as well (a Kalman filter of two states, R. E. Kalman 1960), and that tells what a
slow batch after a pause means. As long as nobody knows what a pause costs here, it may be either,
and what pauses usually cost is taken off. Once some batches have followed on others it is known,
and hardly changes, and so what takes longer after a pause than it did is a slower machine.

A lasting change is found by the sums of what batches take too long, or too short a time, in
standard deviations (CUSUM, E. S. Page 1954), some four batches after it; what was believed of the
machine is then forgotten, and what pauses cost is not.
"""

from bisect import bisect_right
from math import log, sqrt
from typing import NamedTuple

from planner.rhythms.bounded import bounded

PAUSES_MS = (10.0, 100.0)
"""Pauses are told apart by these lengths: the longer, the colder are caches and cores."""
USUAL, WAKING_MS, MOST_PAUSE_VARIANCE = 1.6, 0.3, 0.5**2
"""What a pause usually costs, while nothing is known of it: so many times, and an amount on top,
because threads have to be woken whatever they then do; and the variance of its logarithm."""
MOST_VARIANCE = 1.0
"""Of the machine's logarithm, where nothing ran: a profile may have been measured beside other
work."""
MEMORY, STEADY = 64.0, 1_000.0
"""Batches over which the machine's speed is averaged, and what a pause costs."""
_NEW, _NEW_PAUSE = MEMORY**-2, STEADY**-2
"""What of a batch's variance either may change by from one batch to the next: with it a steady
filter averages over so many."""
LEAST_VARIANCE = 0.02**2
FEW = 4.0
"""Batches that the profile counts for in how they vary."""
ALLOWED, ALARM, MOST_COUNTED = 1.0, 4.5, 3.0
"""Of sums: what each batch takes off, what a lasting change is, and the most that one batch counts,
all in standard deviations: two stalls are no change."""
FARTHEST = 1.5
"""Most that one batch's logarithm counts away from what was expected."""


class BusyBatch(NamedTuple):
    """What batches of up to ``rows`` rows take on a busy worker."""

    rows: int
    mean_ms: float
    error: float
    """Standard deviation of the logarithm: 0.1 is about 10 % either way."""


class _Pause:
    """What pauses of some length cost: the logarithm of how many times as long a batch takes."""

    __slots__ = ("cost", "shared", "variance")

    def __init__(self, cost: float) -> None:
        self.cost = cost
        self.variance = MOST_PAUSE_VARIANCE
        self.shared = 0.0
        """Covariance with what batches take that follow on others."""


class _Sum:
    """Of deviations to one side, since they began to be too many."""

    __slots__ = ("batches", "gaps", "height", "sign")

    def __init__(self, sign: float) -> None:
        self.sign = sign
        self.forget()

    def add(self, gap: float, deviation: float) -> bool:
        """Take a batch in; whether these were no chance."""
        over = self.sign * gap / deviation
        over = (over if over < MOST_COUNTED else MOST_COUNTED) - ALLOWED
        if self.height + over <= 0.0:
            self.forget()
            return False
        self.height += over
        self.gaps += gap
        self.batches += 1
        return self.height > ALARM

    def forget(self) -> None:
        self.height = self.gaps = 0.0
        self.batches = 0


class BusyTime:
    """Of one variant on one worker, in batches of one size. Learning takes some microseconds."""

    __slots__ = (
        "_calm", "_latest", "_pauses", "_ratio", "_sides", "_usual", "_variance", "followed",
        "spread",
    )  # fmt: skip

    def __init__(self, profiled_ms: float, spread: float = 0.01) -> None:
        """Take what the profile says of such a batch: the median, and the variance of the
        logarithm."""
        self.spread = spread
        """Variance of the logarithm of batches that follow on others."""
        self._ratio = 0.0
        self._variance = MOST_VARIANCE
        self._usual = log(USUAL + WAKING_MS / profiled_ms)
        self._pauses: dict[int, _Pause] = {}
        self._latest: _Pause | None = None
        """Before the last batch that came after a pause."""
        self._sides = (_Sum(1.0), _Sum(-1.0))
        self._calm = True
        """Neither side has any."""
        self.followed = 0
        """Batches that followed on others."""

    def learn(self, longer: float, pause_ms: float | None, variance: float) -> None:
        """Take in a batch.

        Args:
            longer: the logarithm of taken over profiled time.
            pause_ms: for how long nothing ran before it; None where it followed on another.
            variance: of the logarithms of such batches.
        """
        own = self._variance + variance * _NEW
        own = self._variance = own if own < MOST_VARIANCE else MOST_VARIANCE
        pause, expected, known = None, self._ratio, own
        if pause_ms is None:
            self.followed += 1
        else:
            pause = self._latest = self._pause(pause_ms)
            theirs = pause.variance + variance * _NEW_PAUSE
            pause.variance = theirs if theirs < MOST_PAUSE_VARIANCE else MOST_PAUSE_VARIANCE
            expected += pause.cost
            known += 2.0 * pause.shared + pause.variance
            known = known if known > 0.0 else 0.0
        gap, deviation = longer - expected, sqrt(known + variance)
        if not (self._calm and -ALLOWED <= gap / deviation <= ALLOWED):
            gap, variance = self._summed(gap, deviation, known, variance)
        if pause is None:
            self._followed(gap, variance)
        else:
            self._paused(pause, gap, variance)

    def _summed(
        self, gap: float, deviation: float, known: float, variance: float
    ) -> tuple[float, float]:
        """What is believed of a gap that may be part of a lasting change: the mean of those since
        it began, or at most so much of one batch; and its variance."""
        changed = [side for side in self._sides if side.add(gap, deviation)]
        self._calm = not any(side.batches for side in self._sides)
        if not changed:
            most = max(FARTHEST, MOST_COUNTED * sqrt(known))
            return bounded(gap, -most, most), variance
        [side] = changed
        gap, variance = side.gaps / side.batches, variance / side.batches
        self._variance, self._calm = MOST_VARIANCE, True
        for each in self._sides:
            each.forget()
        return gap, variance

    def _followed(self, gap: float, variance: float) -> None:
        """Correct what is believed by a batch that followed on another."""
        own = self._variance
        part = own / (own + variance)
        seen = FEW + self.followed
        new = 1.0 / (seen if seen < MEMORY else MEMORY)
        # Of what was not expected a part is that of what was believed.
        self.spread = (1.0 - new) * (self.spread + new * (1.0 - part) * gap * gap)
        for each in self._pauses.values():
            if each.shared:
                moved = each.shared / (own + variance)
                each.cost += moved * gap
                each.variance = max(each.variance - moved * each.shared, LEAST_VARIANCE)
                each.shared *= 1.0 - part
                if -LEAST_VARIANCE < each.shared * MEMORY < LEAST_VARIANCE:
                    each.shared = 0.0
        self._ratio += part * gap
        left = (1.0 - part) * own
        self._variance = left if left > LEAST_VARIANCE else LEAST_VARIANCE

    def _paused(self, pause: _Pause, gap: float, variance: float) -> None:
        """The same by one after a pause."""
        own, theirs = self._variance + pause.shared, pause.shared + pause.variance
        whole = own + theirs + variance
        part = own / whole
        self._ratio += part * gap
        pause.cost += theirs / whole * gap
        left = self._variance - part * own
        self._variance = left if left > LEAST_VARIANCE else LEAST_VARIANCE
        left = pause.variance - theirs / whole * theirs
        pause.variance = left if left > LEAST_VARIANCE else LEAST_VARIANCE
        for each in self._pauses.values():
            # What pauses of two lengths cost is taken to depend on each other by this alone.
            each.shared -= part * (theirs if each is pause else each.shared)

    def _pause(self, pause_ms: float) -> _Pause:
        length = bisect_right(PAUSES_MS, pause_ms)
        pause = self._pauses.get(length)
        if pause is None:
            near = min(self._pauses, key=lambda k: abs(k - length), default=None)
            cost = self._usual if near is None else self._pauses[near].cost
            pause = self._pauses[length] = _Pause(cost)
        return pause

    @property
    def ratio(self) -> float:
        """The logarithm of taken over profiled time, of batches that follow on others.

        Where none has, it lies between the profile and what was seen: a pause costs something, and
        that a batch after one takes as long as profiled does not show how much.
        """
        if self.followed or self._latest is None:
            return self._ratio
        seen = self._ratio + self._latest.cost
        return min(max(self._ratio, min(0.0, seen)), seen)

    @property
    def error(self) -> float:
        """Its standard deviation."""
        return sqrt(self._variance)

    def relax(self, keep: float) -> None:
        """Forget a part of slowness, because nothing is observed."""
        if self._ratio > 0.0:
            self._ratio *= keep
        self._variance = min(self._variance + (1.0 - keep) * MOST_VARIANCE, MOST_VARIANCE)
