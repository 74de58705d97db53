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

from planner.batching.protocol import Batch
from planner.batching.variant_queues import ROUNDING_MS, Item, VariantQueue
from planner.latency_table import LatencyTable
from planner.policies.limited_queue import LimitedQueue


class EarliestQueue(LimitedQueue):
    """The queue of one slice, earliest deadline first. Deterministic; knows no clock."""

    def __init__(self, batch: Callable[[str, LatencyTable], int], *, waits: bool = True) -> None:
        """``batch`` gives the largest batch of a new queue, from its task and table."""
        super().__init__(batch)
        self._waits = waits
        self._active: list[VariantQueue] = []
        """Queues in which a query waits."""

    def take(self, queue: VariantQueue) -> list[Item]:
        """Take out all that waits in a variant's queue, earliest deadline first."""
        items = [entry[2] for entry in sorted(queue.heap)]
        queue.heap.clear()
        self._resize(queue, -len(items), -queue.rows)
        return items

    def _put(self, item: Item, order: int) -> None:
        queue = item.queue
        if not queue.heap:
            self._active.append(queue)
        heappush(queue.heap, (item.deadline_ms, order, item))
        self._resize(queue, 1, item.rows)

    def _emptied(self, queue: VariantQueue) -> None:
        if queue in self._active:
            self._active.remove(queue)

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
