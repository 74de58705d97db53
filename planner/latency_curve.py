"""The latency curve of a variant on a device kind, kept as its profiled points.

``LatencyTable`` tells by one look-up how long a batch of b rows takes, and needs memory for every
b. A curve keeps the points only, and answers what planning asks: which batch takes least time per
row, among those that take no longer than a limit.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from math import inf
from typing import NamedTuple

KEPT_LIMITS = 64
"""So many limits are kept with the largest batch within: plans ask for the same ones again."""


class SizedBatch(NamedTuple):
    """A batch size with its latency."""

    size: int
    latency_ms: float
    unit_ms: float
    """Latency per row, in ms."""


class Curve:
    """Latency of a whole batch by its size.

    Linear between profiled sizes; below the smallest it is the smallest's; above the largest the
    batch is forbidden; made non-decreasing.
    """

    __slots__ = ("_cheapest", "_largest", "_ms", "_sizes", "_up_to", "points")

    points: tuple[tuple[int, float], ...]
    """(batch size, latency in ms), ascending in both, at least one."""
    _sizes: tuple[int, ...]
    _ms: tuple[float, ...]
    _cheapest: tuple[SizedBatch, ...]
    """For each profiled size, the batch with the least latency per row among those up to it."""

    def __init__(self, points: Iterable[tuple[int, float]]) -> None:
        """Take (batch size, latency in ms) in any order, at least one, sizes from 1."""
        highest = 0.0
        made = []
        for size, ms in sorted(points):
            highest = max(highest, ms)
            made.append((size, highest))
        self.points = tuple(made)
        self._sizes = tuple([size for size, _ in made])
        self._ms = tuple([ms for _, ms in made])
        cheapest: list[SizedBatch] = []
        for size in self._sizes:
            ms = self.latency_ms(size)
            if cheapest and ms / size >= cheapest[-1].unit_ms:
                cheapest.append(cheapest[-1])
            else:
                cheapest.append(SizedBatch(size, ms, ms / size))
        self._cheapest = tuple(cheapest)
        self._largest: dict[float, int] = {}
        self._up_to: dict[int, SizedBatch] = {}

    @property
    def max_batch(self) -> int:
        """The largest batch size that may run."""
        return self.points[-1][0]

    def latency_ms(self, size: float) -> float:
        """Latency of a batch in ms, or of batches of so many rows in the mean; infinite above the
        largest."""
        points = self.points
        if size > points[-1][0]:
            return inf
        index = bisect_right(points, (size, inf))
        if index == 0:
            return points[0][1]
        low, low_ms = points[index - 1]
        if low == size:
            return low_ms
        high, high_ms = points[index]
        return low_ms + (high_ms - low_ms) * (size - low) / (high - low)

    def largest(self, limit_ms: float) -> int:
        """The largest batch that takes at most ``limit_ms``; 0 when none does."""
        points = self.points
        index = bisect_right(self._ms, limit_ms)
        if index == 0:
            return 0
        if index == len(points):
            return points[-1][0]
        low, low_ms = points[index - 1]
        high, high_ms = points[index]
        size = low + int((limit_ms - low_ms) * (high - low) / (high_ms - low_ms))
        # The division above rounds; what counts is the comparison with the interpolated latency.
        while size < high and self.latency_ms(size + 1) <= limit_ms:
            size += 1
        while size > low and self.latency_ms(size) > limit_ms:
            size -= 1
        return size

    def cheapest(self, limit_ms: float, most: int | None = None) -> SizedBatch | None:
        """The batch with the least latency per row, among those within a limit.

        On a linear piece latency per row is monotone, so only profiled sizes and the largest
        allowed one can be it. Ties go to the smaller batch.

        Args:
            limit_ms: longest latency of the batch.
            most: most rows, beside that; None for no limit.

        Returns:
            The batch; None when not even one row is within the limit.
        """
        largest = self._largest.get(limit_ms)
        if largest is None:
            if len(self._largest) >= KEPT_LIMITS:
                self._largest.clear()
            largest = self._largest[limit_ms] = self.largest(limit_ms)
        if largest == 0:
            return None
        if most is not None and most < largest:
            largest = most if most > 1 else 1
        found = self._up_to.get(largest)
        if found is None:
            found = self._up_to[largest] = self._cheapest_up_to(largest)
        return found

    def _cheapest_up_to(self, largest: int) -> SizedBatch:
        """The batch with the least latency per row among those of at most so many rows."""
        # Below the first profiled size, rows come free: the largest allowed is the cheapest.
        smaller = bisect_left(self._sizes, largest)
        best = self._cheapest[smaller - 1] if smaller else None
        ms = self.latency_ms(largest)
        if best is not None and best.unit_ms <= ms / largest:
            return best
        return SizedBatch(largest, ms, ms / largest)
