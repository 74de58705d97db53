"""Deadlines of what waits, for queues that run in another order."""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from planner.batching.variant_queues import VariantQueue

SPARE = 64
"""Deadlines of queries that left are kept until they outnumber those that wait, and this."""

Waiting = tuple[float, int, VariantQueue]
"""Deadline in ms, order of arrival, queue."""


class Deadlines:
    """A heap of deadlines that forgets what left otherwise than by its deadline, in good time.

    Adding costs O(log n) on average, whatever leaves.
    """

    __slots__ = ("_heap", "_waits")

    def __init__(self, waits: Callable[[VariantQueue, int], bool]) -> None:
        """Begin with no deadlines.

        Args:
            waits: whether the query with this order of arrival still waits in this queue.
        """
        self._heap: list[Waiting] = []
        self._waits = waits

    def add(self, deadline_ms: float, order: int, queue: VariantQueue, count: int) -> None:
        """Note a query; ``count`` wait, this one included."""
        heappush(self._heap, (deadline_ms, order, queue))
        if len(self._heap) > 2 * max(count, SPARE):
            self._heap = [entry for entry in self._heap if self._waits(entry[2], entry[1])]
            heapify(self._heap)

    def __len__(self) -> int:
        """Deadlines that are kept, of those that left too."""
        return len(self._heap)

    def passed(self, now_ms: float) -> Iterator[tuple[VariantQueue, int]]:
        """VariantQueue and order of those that wait with a deadline in the past, earliest first.

        The caller takes each out before it asks for the next one.
        """
        while self._heap and self._heap[0][0] < now_ms:
            _, order, queue = heappop(self._heap)
            if self._waits(queue, order):
                yield queue, order
