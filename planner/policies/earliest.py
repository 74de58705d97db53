"""Batching from the profile with early drop, as Proteus does it.

One ``EarliestQueue`` belongs to one slice. It is Proteus' batching (Ahmad et al., ASPLOS'24,
section 5), with the batch size b* of its plan as the limit of each queue:

* *Not work-conserving.* A batch below the limit is held back as long as the first query could
  still be in time in a batch of one more row: until its deadline less the latency of that batch.
* *Early drop.* A query that would be late even alone is given up. Once a full batch waits, so is
  one that would be late in it: running a smaller batch for its sake would leave the others
  further behind.

With one SLO per family, as in the paper, first in, first out is earliest deadline first; with
several the latter is kept. Where the paper is silent: of several queues, which a device has only
while its variant is being changed, the earliest deadline goes first.

With ``waits=False`` nothing is held back and the rest stays.

All times are milliseconds on one clock of the caller's choosing.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

from planner.batching.protocol import MAX_QUEUE, Batch, Verdict
from planner.batching.variant_queues import ROUNDING_MS, Item, TaskShare, VariantQueue
from planner.latency_table import LatencyTable


class EarliestQueue:
    """The queue of one slice, earliest deadline first. Deterministic; knows no clock."""

    def __init__(self, batch: Callable[[str, LatencyTable], int], *, waits: bool = True) -> None:
        """``batch`` gives the largest batch of a new queue, from its task and table."""
        self.busy_until_ms = 0.0
        self.count = 0
        self._batch = batch
        self._waits = waits
        self._limit: dict[VariantQueue, int] = {}
        self._active: list[VariantQueue] = []
        """Queues in which a query waits."""
        self._order = 0
        self._work_ms = 0.0

    # -- queues -----------------------------------------------------------------------------------

    def add_variant(self, task: str, table: LatencyTable, share: float = 0.0) -> VariantQueue:
        """A queue for a variant that was loaded; ``share`` plays no part."""
        queue = VariantQueue(task, TaskShare(), table)
        self.set_limit(queue, self._batch(task, table))
        return queue

    def set_limit(self, queue: VariantQueue, rows: int) -> None:
        """Set the largest batch of a variant's queue, in rows."""
        self._limit[queue] = min(max(1, rows), queue.max_batch)
        self._resize(queue, 0, 0)

    def remove_variant(self, queue: VariantQueue) -> None:
        """Forget an empty queue."""
        del self._limit[queue]

    def take(self, queue: VariantQueue) -> list[Item]:
        """Take out all that waits in a variant's queue, earliest deadline first."""
        items = [entry[2] for entry in sorted(queue.heap)]
        queue.heap.clear()
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
        if not queue.heap:
            self._active.append(queue)
        self._order += 1
        heappush(queue.heap, (item.deadline_ms, self._order, item))
        self._resize(queue, 1, item.rows)
        return Verdict.ADMITTED

    def pop_expired(self, now_ms: float) -> list[Item]:
        """Take out the queries that can be in time no more, by the two rules."""
        dropped: list[Item] = []
        for queue in tuple(self._active):
            heap, ms, limit = queue.heap, queue.ms, self._limit[queue]
            while heap:
                deadline_ms, _, item = heap[0]
                rows = max(item.rows, limit) if queue.rows >= limit else item.rows
                if now_ms + ms[rows] <= deadline_ms + ROUNDING_MS:
                    break
                heappop(heap)
                dropped.append(item)
                self._resize(queue, -1, -item.rows)
        return dropped

    # -- batches ----------------------------------------------------------------------------------

    def next_batch(self, now_ms: float) -> Batch | None:
        """Take out what runs now; None when nothing waits or is due. The slice must be free."""
        due = [queue for queue in self._active if self._due_ms(queue) <= now_ms]
        if not due:
            return None
        queue = due[0] if len(due) == 1 else min(due, key=lambda queue: queue.heap[0][:2])
        heap, ms, limit = queue.heap, queue.ms, self._limit[queue]
        deadline_ms, _, head = heappop(heap)
        items, rows = [head], head.rows
        if now_ms + ms[rows] > deadline_ms + ROUNDING_MS:
            deadline_ms = inf  # it is late anyway: the largest batch catches up fastest
        while heap:
            more = rows + heap[0][2].rows
            if more > limit or now_ms + ms[more] > deadline_ms + ROUNDING_MS:
                break
            items.append(heappop(heap)[2])
            rows = more
        self._resize(queue, -len(items), -rows)
        predicted_ms = ms[rows]
        self.busy_until_ms = now_ms + predicted_ms
        return Batch(queue, items, rows, predicted_ms)

    def wake_ms(self, now_ms: float) -> float:
        """When the first batch that is held back becomes due; infinite when nothing waits."""
        return max(now_ms, min((self._due_ms(queue) for queue in self._active), default=inf))

    def _due_ms(self, queue: VariantQueue) -> float:
        """Until when a variant's batch may be held back; in the past when it runs at once."""
        if not self._waits or queue.rows >= self._limit[queue]:
            return -inf
        return queue.heap[0][0] - queue.ms[queue.rows + 1]

    def finished(self, queue: VariantQueue, now_ms: float, busy_ms: float) -> None:
        """The slice is free again."""
        self.busy_until_ms = now_ms

    def _resize(self, queue: VariantQueue, count: int, rows: int) -> None:
        """Bring the totals in line after queries came to a variant's queue or left it."""
        self.count += count
        queue.rows += rows
        limit = self._limit[queue]
        full, rest = divmod(queue.rows, limit)
        work_ms = full * queue.ms[limit] + (queue.ms[rest] if rest else 0.0)
        self._work_ms += work_ms - queue.work_ms
        queue.work_ms = work_ms
        if not queue.rows and queue in self._active:
            self._active.remove(queue)
        if not self.count:
            self._work_ms = 0.0
