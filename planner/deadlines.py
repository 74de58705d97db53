"""Deadlines of what waits, for queues that run in another order."""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from planner.lanes import Lane

SPARE = 64
"""Deadlines of queries that left are kept until they outnumber those that wait, and this."""

Waiting = tuple[float, int, Lane]
"""Deadline in ms, order of arrival, lane."""


class Deadlines:
    """A heap of deadlines that forgets what left otherwise than by its deadline, in good time.

    Adding costs O(log n) on average, whatever leaves.
    """

    __slots__ = ("_heap", "_waits")

    def __init__(self, waits: Callable[[Lane, int], bool]) -> None:
        """``waits`` says whether the query of a lane with an order of arrival is there still."""
        self._heap: list[Waiting] = []
        self._waits = waits

    def add(self, deadline_ms: float, order: int, lane: Lane, count: int) -> None:
        """Note a query; ``count`` wait, this one included."""
        heappush(self._heap, (deadline_ms, order, lane))
        if len(self._heap) > 2 * max(count, SPARE):
            self._heap = [entry for entry in self._heap if self._waits(entry[2], entry[1])]
            heapify(self._heap)

    def __len__(self) -> int:
        """Deadlines that are kept, of those that left too."""
        return len(self._heap)

    def passed(self, now_ms: float) -> Iterator[tuple[Lane, int]]:
        """Lane and order of those that wait with a deadline in the past, earliest first.

        The caller takes each out before it asks for the next one.
        """
        while self._heap and self._heap[0][0] < now_ms:
            _, order, lane = heappop(self._heap)
            if self._waits(lane, order):
                yield lane, order
