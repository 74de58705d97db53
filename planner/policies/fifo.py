"""A queue that knows no deadlines: first in, first out, up to a batch size fixed beforehand.

It serves the policies whose papers batch without looking at deadlines. The variant whose oldest
query came first runs next, with all that waits for it up to its batch size; nothing waits to fill a
batch, and no query is refused because of a deadline. A query whose deadline passed before it ran is
given up, as its client waits no longer: the papers are silent here, and without it none of them
would come back from a moment of overload.

All times are milliseconds on one clock of the caller's choosing.
"""

from collections import OrderedDict
from collections.abc import Callable
from math import inf

from planner.batching.protocol import Batch
from planner.batching.variant_queues import Item, VariantQueue
from planner.batching.waiting_deadlines import Deadlines
from planner.latency_table import LatencyTable
from planner.policies.limited_queue import LimitedQueue


class FifoQueue(LimitedQueue):
    """The queue of one slice, in order of arrival. Deterministic; knows no clock."""

    def __init__(self, batch: Callable[[str, LatencyTable], int]) -> None:
        """``batch`` gives the largest batch of a variant's queue, from its task and table."""
        super().__init__(batch)
        self._waiting: dict[VariantQueue, OrderedDict[int, Item]] = {}
        """By queue, those that have any: order of arrival to query, oldest first."""
        self._deadlines = Deadlines(self._waits)

    def take(self, queue: VariantQueue) -> list[Item]:
        """Take out all that waits in a variant's queue, earliest deadline first."""
        items = sorted(self._waiting.pop(queue, {}).values(), key=lambda item: item.deadline_ms)
        self._resize(queue, -len(items), -queue.rows)
        return items

    def _put(self, item: Item, order: int) -> None:
        queue = item.queue
        waiting = self._waiting.get(queue)
        if waiting is None:
            waiting = self._waiting[queue] = OrderedDict()
        waiting[order] = item
        self._resize(queue, 1, item.rows)
        self._deadlines.add(item.deadline_ms, order, queue, self.count)

    def _emptied(self, queue: VariantQueue) -> None:
        self._waiting.pop(queue, None)

    def pop_expired(self, now_ms: float) -> list[Item]:
        """Take out the queries whose deadline has passed, earliest deadline first."""
        late: list[Item] = []
        for queue, order in self._deadlines.passed(now_ms):
            item = self._waiting[queue].pop(order)
            self._resize(queue, -1, -item.rows)
            late.append(item)
        return late

    def _waits(self, queue: VariantQueue, order: int) -> bool:
        return order in self._waiting.get(queue, ())

    # -- batches ----------------------------------------------------------------------------------

    def next_batch(self, now_ms: float) -> Batch | None:
        """Take out what runs now, or None when nothing waits. The slice must be free."""
        if not self.count:
            return None
        queue = min(self._waiting, key=lambda queue: next(iter(self._waiting[queue])))
        waiting, limit = self._waiting[queue], self._limit[queue]
        items = [waiting.popitem(last=False)[1]]
        rows = items[0].rows
        while waiting:
            item = waiting[next(iter(waiting))]
            if rows + item.rows > limit:
                break
            waiting.popitem(last=False)
            items.append(item)
            rows += item.rows
        self._resize(queue, -len(items), -rows)
        predicted_ms = queue.ms[rows]
        self.busy_until_ms = now_ms + predicted_ms
        return Batch(queue, items, rows, predicted_ms)

    def wake_ms(self, now_ms: float) -> float:
        """Never: whatever waits runs as soon as the slice is free."""
        return inf
