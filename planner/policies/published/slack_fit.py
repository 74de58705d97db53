"""SlackFit's queue: when a device is free, the slack of the most urgent query decides.

After Khare et al., NSDI'25, section 5. All devices share one queue for each task, earliest deadline
first; ``Waiting`` is that queue, apart for queries with another floor or cost ceiling. A control
tuple is a variant and a batch size. Offline, tuples are put into buckets of equal width by their
latency. When a device is free, the bucket nearest below the slack of the most urgent query is
taken, and of its tuples the one with the largest batch, of these the most accurate: at low load
slack is ample, so that slow and accurate tuples are chosen; in a burst it shrinks, and small
latencies with large batches follow by themselves.

Where the paper is silent, with what helps it: a batch is no larger than what waits, so that a lone
query gets the most accurate variant that its slack allows; a query that the fastest variant of any
device would finish late is dropped; a device leaves what it cannot finish in time to faster ones.

All times are milliseconds on one clock of the caller's choosing.
"""

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple, cast

from planner.batching.protocol import MAX_QUEUE, Batch, Verdict
from planner.batching.variant_queues import ROUNDING_MS, Item, TaskShare, VariantQueue
from planner.latency_table import LatencyTable
from planner.policies.offers import permits
from planner.simulation.fleet import Replica, Ticket, Worker
from planner.types import Candidate, Query
from variants.types import ReplicaState

BUCKETS = 32
"""Of equal width; the paper does not say how many. With 8, 16 and 32 the accuracy on a drawn
workload is 0.9910, 0.9918 and 0.9931 (docs/decisions/0019-other-policies.md)."""
SKIPPED = 16
"""Queries that a slow device leaves to faster ones before it gives up on a task."""

Entry = tuple[float, int, Ticket]


class ControlTuple(NamedTuple):
    """A variant at a batch size, on one device."""

    bucket: int
    batch: int
    accuracy: float
    latency_ms: float
    replica: Replica


def control_tuples(replicas: Sequence[Replica]) -> list[ControlTuple]:
    """All tuples of a task's variants on a device, in the order in which SlackFit prefers them."""
    tables = [(replica, replica.candidate.table) for replica in replicas]
    least_ms = min(table.ms[1] for _, table in tables)
    width_ms = (max(table.ms[-1] for _, table in tables) - least_ms) / BUCKETS
    found = [
        ControlTuple(
            bucket=int((ms - least_ms) / width_ms) if width_ms else 0,
            batch=batch,
            accuracy=replica.candidate.accuracy,
            latency_ms=ms,
            replica=replica,
        )
        for replica, table in tables
        for batch, ms in enumerate(table.ms)
        if batch
    ]
    return sorted(found, key=lambda t: (-t.bucket, -t.batch, -t.accuracy, t.latency_ms))


def slack_fit(tuples: Iterable[ControlTuple], slack_ms: float, waiting: int) -> ControlTuple | None:
    """The tuple for a slack, with so many queries waiting; None when none ends in time."""
    for each in tuples:
        if each.latency_ms <= slack_ms + ROUNDING_MS and each.batch <= waiting:
            return each
    return None


Asked = tuple[str, float | None, float | None]
"""Task, floor and cost ceiling: what may answer is the same for all queries that ask for these."""


class Waiting:
    """What waits for any device, by what is asked."""

    def __init__(self, able: Callable[[Query], Sequence[Candidate]]) -> None:
        """``able`` says what may answer a query, on whatever device."""
        self.heaps: dict[Asked, list[Entry]] = {}
        self.of_task: dict[str, list[Asked]] = {}
        self._able = able
        self._least_ms: dict[Asked, float] = {}
        self._order = 0

    def add(self, ticket: Ticket) -> None:
        self._order += 1
        query = ticket.query
        asked = (query.task, query.accuracy, query.cost)
        heap = self.heaps.get(asked)
        if heap is None:
            heap = self.heaps[asked] = []
            self.of_task.setdefault(query.task, []).append(asked)
            self._least_ms[asked] = min(c.table.ms[1] for c in self._able(query))
        heappush(heap, (ticket.deadline_ms, self._order, ticket))

    def asked(self, tasks: Iterable[str]) -> list[Asked]:
        """What waits of some tasks, the most urgent first."""
        found = [asked for task in tasks for asked in self.of_task.get(task, ())]
        return sorted((a for a in found if self.heaps[a]), key=lambda a: self.heaps[a][0][:2])

    def count(self, tasks: Iterable[str]) -> int:
        return sum(len(self.heaps[asked]) for t in tasks for asked in self.of_task.get(t, ()))

    def expired(self, tasks: Iterable[str], now_ms: float) -> list[Item]:
        """Take out the queries of some tasks that no device can answer in time any more."""
        dropped: list[Item] = []
        for asked in self.asked(tasks):
            heap = self.heaps[asked]
            limit_ms = now_ms + self._least_ms[asked] - ROUNDING_MS
            # What is due now is given up however quick a device is: ``wake_ms`` is no later.
            while heap and (heap[0][0] < limit_ms or heap[0][0] <= now_ms):
                dropped.append(heappop(heap)[2])
        return dropped

    def take(self, queue: VariantQueue) -> list[Item]:
        """Take out what was handed over to one device's variant, earliest deadline first."""
        found: list[Entry] = []
        for asked in self.of_task.get(queue.task, ()):
            heap = self.heaps[asked]
            found += [entry for entry in heap if entry[2].queue is queue]
            heap[:] = [entry for entry in heap if entry[2].queue is not queue]
            heapify(heap)
        return [entry[2] for entry in sorted(found, key=lambda entry: entry[:2])]


class SlackFitQueue:
    """One device's view of what waits. Deterministic; knows no clock."""

    def __init__(self, waiting: Waiting) -> None:
        self.busy_until_ms = 0.0
        self._waiting = waiting
        self._queues: dict[str, list[VariantQueue]] = {}
        self._worker: Worker | None = None
        self._tuples: dict[Asked, list[ControlTuple]] = {}

    @property
    def count(self) -> int:
        """Queries that this device could take."""
        return self._waiting.count(self._queues)

    @count.setter
    def count(self, value: int) -> None:
        raise AttributeError("it is counted")

    def add_variant(self, task: str, table: LatencyTable, share: float = 0.0) -> VariantQueue:
        """A queue for a variant that was loaded; ``share`` plays no part."""
        queue = VariantQueue(task, TaskShare(), table)
        self._queues.setdefault(task, []).append(queue)
        return queue

    def remove_variant(self, queue: VariantQueue) -> None:
        """Forget a variant."""
        queues = self._queues[queue.task]
        queues.remove(queue)
        if not queues:
            del self._queues[queue.task]
        self._tuples.clear()

    def take(self, queue: VariantQueue) -> list[Item]:
        return self._waiting.take(queue)

    def backlog_ms(self, now_ms: float) -> float:
        """Until the running batch is done: what waits waits for all devices."""
        return max(0.0, self.busy_until_ms - now_ms)

    def admit(self, item: Item, now_ms: float) -> Verdict:
        """Queue a query for all devices."""
        if self._waiting.count((item.queue.task,)) >= MAX_QUEUE:
            return Verdict.QUEUE_FULL
        self._waiting.add(cast(Ticket, item))
        return Verdict.ADMITTED

    def pop_expired(self, now_ms: float) -> list[Item]:
        return self._waiting.expired(self._queues, now_ms)

    def next_batch(self, now_ms: float) -> Batch | None:
        """The most urgent queries that this device can answer in time, on the tuple they allow."""
        for asked in self._waiting.asked(self._queues):
            batch = self._fit(asked, now_ms)
            if batch is not None:
                return batch
        return None

    def _fit(self, asked: Asked, now_ms: float) -> Batch | None:
        heap = self._waiting.heaps[asked]
        tuples = self._tuples_of(asked, heap[0][2].query)
        skipped: list[Entry] = []
        chosen = None
        while tuples and heap and len(skipped) <= SKIPPED:
            chosen = slack_fit(tuples, heap[0][0] - now_ms, len(heap))
            if chosen is not None:
                break
            skipped.append(heappop(heap))
        items: list[Item] = []
        if chosen is not None:
            items = [_moved(heappop(heap)[2], chosen.replica) for _ in range(chosen.batch)]
        for entry in skipped:
            heappush(heap, entry)
        if chosen is None:
            return None
        self.busy_until_ms = now_ms + chosen.latency_ms
        return Batch(chosen.replica.queue, items, len(items), chosen.latency_ms)

    def _tuples_of(self, asked: Asked, query: Query) -> list[ControlTuple]:
        """What is ready here for a query, as control tuples."""
        found = self._tuples.get(asked)
        if found is None:
            held = () if self._worker is None else self._worker.replicas.values()
            able = [
                replica
                for replica in held
                if replica.key[0] == asked[0]
                and replica.state is ReplicaState.READY
                and permits(query, replica.candidate)
            ]
            found = self._tuples[asked] = control_tuples(able) if able else []
        return found

    def wake_ms(self, now_ms: float) -> float:
        """When the first query that was left to others is given up."""
        heaps = self._waiting.heaps
        return min((heaps[a][0][0] for a in self._waiting.asked(self._queues)), default=inf)

    def finished(self, queue: VariantQueue, now_ms: float, busy_ms: float) -> None:
        """The device is free again."""
        self.busy_until_ms = now_ms

    def belongs_to(self, worker: Worker) -> None:
        """Be told the device, and that what is ready there has changed."""
        self._worker = worker
        self._tuples.clear()


def _moved(ticket: Ticket, replica: Replica) -> Item:
    """Hand a query over from the device that it was counted on to the one that runs it."""
    ticket.replica.in_flight -= 1
    replica.in_flight += 1
    ticket.replica, ticket.queue = replica, replica.queue
    return ticket
