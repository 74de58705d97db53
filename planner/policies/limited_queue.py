"""What queues have in common whose batches have a largest size that is fixed beforehand."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from planner.batching.protocol import MAX_QUEUE, Verdict
from planner.batching.variant_queues import Item, TaskShare, VariantQueue
from planner.latency_table import LatencyTable


class LimitedQueue(ABC):
    """The limits of the variants on one slice, and how much work waits for them."""

    def __init__(self, batch: Callable[[str, LatencyTable], int]) -> None:
        """``batch`` gives the largest batch of a new queue, from its task and table."""
        self.busy_until_ms = 0.0
        self.count = 0
        self._batch = batch
        self._limit: dict[VariantQueue, int] = {}
        self._order = 0
        self._work_ms = 0.0

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

    def backlog_ms(self, now_ms: float) -> float:
        """Predicted time until all that was admitted is done, in full batches and a rest each."""
        return max(0.0, self.busy_until_ms - now_ms) + self._work_ms

    def admit(self, item: Item, now_ms: float) -> Verdict:
        """Queue a query, unless it can never run or the queue is full."""
        if item.rows > item.queue.max_batch:
            return Verdict.TOO_MANY_ROWS
        if self.count >= MAX_QUEUE:
            return Verdict.QUEUE_FULL
        self._order += 1
        self._put(item, self._order)
        return Verdict.ADMITTED

    def finished(self, queue: VariantQueue, now_ms: float, busy_ms: float) -> None:
        """The slice is free again."""
        self.busy_until_ms = now_ms

    @abstractmethod
    def _put(self, item: Item, order: int) -> None:
        """Let a query wait, the one that came as the ``order``-th."""

    @abstractmethod
    def _emptied(self, queue: VariantQueue) -> None:
        """Nothing waits in a variant's queue."""

    def _resize(self, queue: VariantQueue, count: int, rows: int) -> None:
        """Bring the totals in line after queries came to a variant's queue or left it."""
        self.count += count
        queue.rows += rows
        limit = self._limit[queue]
        full, rest = divmod(queue.rows, limit)
        work_ms = full * queue.ms[limit] + (queue.ms[rest] if rest else 0.0)
        self._work_ms += work_ms - queue.work_ms
        queue.work_ms = work_ms
        if not queue.rows:
            self._emptied(queue)
        if not self.count:
            self._work_ms = 0.0
