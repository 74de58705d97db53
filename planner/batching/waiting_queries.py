"""What waits on one slice: the queries of its variants, how much work they are, and their schedule.

Queries come and go one by one, several are taken out together, and what their batches count for
changes while they wait. Whatever happens, the totals and the schedule stay true; which query comes
in and which batch runs next is decided in ``planner.batching.deadline_queue``.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, nsmallest
from math import inf

from planner.batching.feasible_schedule import FeasibleSchedule
from planner.batching.protocol import Forming
from planner.batching.queue_room import LeavableQueue
from planner.batching.variant_queues import Entry, Item, TaskShare, VariantQueue, head_of
from planner.latency_table import LatencyTable
from variants.slots import tuple_of

MOST_FORMING = 8
"""Batches of one slice that are told of."""


class WaitingQueries(LeavableQueue):
    """The queries that wait, by variant, with totals that cost no look through all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.busy_until_ms = 0.0
        """When the running batch is predicted to be done; in the past when none runs."""
        self.count = 0
        """Queries that wait."""
        self.work_ms = 0.0
        """At most this long to run all that waits."""
        self._floor_ms = 0.0
        """At least this long, however what waits is batched."""
        self._active: list[VariantQueue] = []
        """The variants that queries wait for."""
        self._shares: dict[str, TaskShare] = {}
        self._earliest_ms = inf
        self._latest_ms = -inf
        self._schedule: FeasibleSchedule | None = None
        """Holds all that waits, while slack is short."""
        self._varies = False
        """Whether any variant's batches were ever said to vary."""

    def add_variant(self, task: str, table: LatencyTable, share: float = 0.0) -> VariantQueue:
        """A queue for a variant that was loaded.

        Args:
            task: the variant's task.
            table: predicted latency of its batches.
            share: planned share of the slice's time for the task, in [0, 1]; 0 if none is planned.
        """
        task_share = self._shares.setdefault(task, TaskShare())
        task_share.share = max(task_share.share, share) if task_share.queues else share
        queue = VariantQueue(task, task_share, table)
        task_share.queues.append(queue)
        return queue

    def remove_variant(self, queue: VariantQueue) -> None:
        """Forget a variant's queue, which must be empty.

        Its task keeps the time that it used for as long as another variant of it is here."""
        queue.task_share.queues.remove(queue)
        if not queue.task_share.queues:
            self._shares.pop(queue.task, None)

    def replan(self, queue: VariantQueue, table: LatencyTable, share: float) -> None:
        """Take over a new latency table and share; what waits stays admitted if it still fits.

        Where the table ends at smaller batches than were planned, the schedule is given up: its
        batches cannot run any more, and in smaller ones a query may become late. A table that ends
        before a query which waits is left for later. A share of 0 says that nothing was planned,
        and keeps the one there is.
        """
        self._floor_ms -= queue.rows * queue.unit_ms * queue.correction
        if not queue.heap or table.max_batch >= max([entry[2].rows for entry in queue.heap]):
            limit = queue.limit
            queue.set_table(table)
            if self._schedule is not None and queue.limit < limit:
                self._schedule = None
            elif self._schedule is not None:
                self._schedule.recost(queue, anew=True)
        self._floor_ms += queue.rows * queue.unit_ms * queue.correction
        queue.task_share.share = share or queue.task_share.share
        self._resize(queue, 0, 0)

    def correct(self, queue: VariantQueue, correction: float, spread: float = 0.0) -> None:
        """Set what a variant's batches count for (``planner.batching.live_costs``)."""
        queue.spread = spread
        self._varies = self._varies or spread > 0.0
        self._floor_ms += queue.rows * queue.unit_ms * (correction - queue.correction)
        queue.correction = correction
        if self._schedule is not None:
            self._schedule.recost(queue)
        if queue.rows:
            self._resize(queue, 0, 0)

    def backlog_ms(self, now_ms: float) -> float:
        """At most this long until all admitted work is done."""
        running_ms = self.busy_until_ms - now_ms
        return running_ms + self.work_ms if running_ms > 0.0 else self.work_ms

    def forming(self, now_ms: float) -> list[Forming]:
        """The batches that queries may still join, the first to run first, ``MOST_FORMING`` at
        most: earliest deadline first, the variant of the first query in the largest batches.

        What runs next on a free slice is taken to run already.
        """
        if not self.count:
            return []
        begins = self.busy_until_ms <= now_ms
        at_ms = 0.0 if begins else self.busy_until_ms - now_ms
        found: list[Forming] = []
        for queue in nsmallest(MOST_FORMING, self._active, key=head_of):
            rows, limit = queue.rows, queue.limit
            if begins:
                begins, next_rows = False, min(rows, limit)
                at_ms += queue.latency_ms(next_rows)
                rows -= next_rows
            full, rest = divmod(rows, limit)
            at_ms += full * queue.latency_ms(limit)
            if rest:
                found.append(tuple_of(Forming, (queue.heap[0][2], rest, limit, at_ms)))
                at_ms += queue.latency_ms(rest)
        return found

    def finished(self, queue: VariantQueue, now_ms: float, busy_ms: float) -> None:
        """Account for a batch that is done; the slice is free again."""
        share = queue.task_share
        share.busy_ms, share.stamp_ms = share.decayed_ms(now_ms) + busy_ms, now_ms
        self.busy_until_ms = now_ms

    def take(self, queue: VariantQueue) -> list[Item]:
        """Take out all queries that wait for a variant, earliest deadline first."""
        items = [entry[2] for entry in sorted(queue.heap)]
        queue.heap.clear()
        self._leave(queue, len(items))
        self._resize(queue, -len(items), -queue.rows)
        return items

    def _take_out(self, left: Sequence[Item], now_ms: float) -> None:
        gone = set(left)
        for queue in {each.queue for each in left}:
            kept = [entry for entry in queue.heap if entry[2] not in gone]
            out = [each for each in left if each.queue is queue]
            queue.heap[:] = kept
            heapify(queue.heap)
            self._resize(queue, -len(out), -sum(each.rows for each in out))
        if left and self._schedule is not None:
            self._schedule = self._schedule.without(gone)

    def recount(self) -> None:
        """Make totals and schedule anew of what waits, after a mistake that left them untrue."""
        queues = [queue for share in self._shares.values() for queue in share.queues]
        self._schedule = None
        self._active = [queue for queue in queues if queue.heap]
        self.count = sum([len(queue.heap) for queue in queues])
        self._floor_ms = 0.0
        for queue in queues:
            queue.rows = sum([entry[2].rows for entry in queue.heap])
            queue.work_ms = queue.bound_ms(len(queue.heap), queue.rows)
            self._floor_ms += queue.rows * queue.unit_ms * queue.correction
        self.work_ms = sum([queue.work_ms for queue in queues])
        deadlines_ms = [entry[0] for queue in self._active for entry in queue.heap]
        self._earliest_ms = min(deadlines_ms, default=inf)
        self._latest_ms = max(deadlines_ms, default=-inf)

    def pop_expired(self, now_ms: float) -> list[Item]:
        """Take out the queries whose deadline has passed."""
        if self._earliest_ms >= now_ms:
            return []
        late: list[Item] = []
        for queue in tuple(self._active):
            count, rows = 0, 0
            while queue.heap and queue.heap[0][0] < now_ms:
                item = heappop(queue.heap)[2]
                late.append(item)
                count, rows = count + 1, rows + item.rows
            if count:
                self._leave(queue, count)
                self._resize(queue, -count, -rows)
        return late

    def _items(self) -> list[Item]:
        return [entry[2] for queue in self._active for entry in queue.heap]

    def _ordered(self) -> list[Entry]:
        order: list[Entry] = []
        for queue in self._active:
            order += queue.heap
        order.sort()
        return order

    def _push(self, entry: Entry, added_ms: float) -> None:
        deadline_ms, _, item = entry
        queue = item.queue
        if not queue.heap:
            self._active.append(queue)
        heappush(queue.heap, entry)
        queue.rows += item.rows
        queue.work_ms += added_ms
        self.work_ms += added_ms
        self._floor_ms += item.rows * queue.unit_ms * queue.correction
        self.count += 1
        earliest_ms, latest_ms = self._earliest_ms, self._latest_ms
        self._earliest_ms = deadline_ms if deadline_ms < earliest_ms else earliest_ms
        self._latest_ms = deadline_ms if deadline_ms > latest_ms else latest_ms

    def _leave(self, queue: VariantQueue, count: int) -> None:
        """Take queries that left a variant's queue without running out of the schedule."""
        if self._schedule is not None and count:
            self._schedule.take(queue, count)

    def _resize(self, queue: VariantQueue, count: int, rows: int) -> None:
        """Bring the totals in line after queries left, or a prediction changed."""
        self.count += count
        queue.rows += rows
        if not self.count:
            self.work_ms = self._floor_ms = queue.work_ms = 0.0
            self._earliest_ms, self._latest_ms = inf, -inf
            self._active.clear()
            self._schedule = None
            return
        self._floor_ms += rows * queue.unit_ms * queue.correction
        work_ms = queue.bound_ms(len(queue.heap), queue.rows)
        self.work_ms += work_ms - queue.work_ms
        queue.work_ms = work_ms
        if not queue.heap and queue in self._active:
            self._active.remove(queue)
        self._earliest_ms = min([active.heap[0][0] for active in self._active])
