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

from planner.batching.protocol import MAX_QUEUE, Batch, Verdict
from planner.batching.variant_queues import Item, TaskShare, VariantQueue
from planner.batching.waiting_deadlines import Deadlines
from planner.latency_table import LatencyTable


class FifoQueue:
    """The queue of one slice, in order of arrival. Deterministic; knows no clock."""

    def __init__(self, batch: Callable[[str, LatencyTable], int]) -> None:
        """``batch`` gives the largest batch of a variant's queue, from its task and table."""
        self.busy_until_ms = 0.0
        self.count = 0
        self._batch = batch
        self._limit: dict[VariantQueue, int] = {}
        self._waiting: dict[VariantQueue, OrderedDict[int, Item]] = {}
        """By queue, those that have any: order of arrival to query, oldest first."""
        self._deadlines = Deadlines(self._waits)
        self._order = 0
        self._work_ms = 0.0

    # -- queues -----------------------------------------------------------------------------------

    def add_variant(self, task: str, table: LatencyTable, share: float = 0.0) -> VariantQueue:
        """A queue for a variant that was loaded; ``share`` plays no part."""
        queue = VariantQueue(task, TaskShare(), table)
        self._limit[queue] = min(max(1, self._batch(task, table)), table.max_batch)
        return queue

    def remove_variant(self, queue: VariantQueue) -> None:
        """Forget an empty queue."""
        del self._limit[queue]

    def take(self, queue: VariantQueue) -> list[Item]:
        """Take out all that waits in a variant's queue, earliest deadline first."""
        items = sorted(self._waiting.pop(queue, {}).values(), key=lambda item: item.deadline_ms)
        self._resize(queue, -len(items), -queue.rows)
        return items

    def backlog_ms(self, now_ms: float) -> float:
        """Predicted time until all that was admitted is done, in full batches and a rest each."""
        return max(0.0, self.busy_until_ms - now_ms) + self._work_ms

    # -- admission --------------------------------------------------------------------------------

    def admit(self, item: Item, now_ms: float) -> Verdict:
        """Queue a query, unless it can never run or the queue is full."""
        queue = item.queue
        if item.rows > queue.max_batch:
            return Verdict.TOO_MANY_ROWS
        if self.count >= MAX_QUEUE:
            return Verdict.QUEUE_FULL
        waiting = self._waiting.get(queue)
        if waiting is None:
            waiting = self._waiting[queue] = OrderedDict()
        self._order += 1
        waiting[self._order] = item
        self._resize(queue, 1, item.rows)
        self._deadlines.add(item.deadline_ms, self._order, queue, self.count)
        return Verdict.ADMITTED

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

    def finished(self, queue: VariantQueue, now_ms: float, busy_ms: float) -> None:
        """The slice is free again."""
        self.busy_until_ms = now_ms

    def _resize(self, queue: VariantQueue, count: int, rows: int) -> None:
        """Bring the totals in line after queries came to a variant's queue or left it."""
        self.count += count
        queue.rows += rows
        full, rest = divmod(queue.rows, self._limit[queue])
        work_ms = full * queue.ms[self._limit[queue]] + (queue.ms[rest] if rest else 0.0)
        self._work_ms += work_ms - queue.work_ms
        queue.work_ms = work_ms
        if not queue.rows:
            self._waiting.pop(queue, None)
        if not self.count:
            self._work_ms = 0.0
