"""The waiting queries of each loaded variant: how long they take, and the share of their task."""

from bisect import bisect_right
from heapq import heappop
from math import exp, inf

from planner.latency_table import LatencyTable
from planner.types import ANYBODY, DEFAULT_PRIORITY, Client

DECAY_MS = 5_000.0
"""Time constant with which busy time is forgotten."""
ROUNDING_MS = 1e-6
"""Sums of latencies may miss a deadline by so much."""

Entry = tuple[float, int, "Item"]
"""Deadline in ms, order of arrival, query: sorts earliest deadline first."""


class TaskShare:
    """A task on one slice: its planned share of the time, and the time that it used."""

    __slots__ = ("busy_ms", "queues", "seen_ms", "share", "stamp_ms")

    def __init__(self) -> None:
        self.share = 0.0
        """Planned part of the slice's time, in [0, 1]; 0 when nothing was planned."""
        self.busy_ms = 0.0
        """Decayed busy time as of ``stamp_ms``."""
        self.stamp_ms = 0.0
        self.seen_ms = -inf
        """When a query of it last asked."""
        self.queues: list[VariantQueue] = []

    def used_ms(self, now_ms: float) -> float:
        """Decayed busy time and the work that is queued."""
        return self.decayed_ms(now_ms) + sum([queue.work_ms for queue in self.queues])

    def decayed_ms(self, now_ms: float) -> float:
        """Busy time of the last seconds, older time counting less."""
        since_ms = self.stamp_ms - now_ms
        return self.busy_ms * exp(since_ms / DECAY_MS) if since_ms < 0.0 else self.busy_ms


class VariantQueue:
    """The waiting queries of one loaded variant."""

    __slots__ = (
        "between_ms",
        "correction",
        "first_ms",
        "gains",
        "heap",
        "limit",
        "max_batch",
        "ms",
        "rows",
        "saving",
        "spread",
        "task",
        "task_share",
        "unit_ms",
        "work_ms",
    )  # fmt: skip

    def __init__(self, task: str, task_share: TaskShare, table: LatencyTable) -> None:
        self.task = task
        self.task_share = task_share
        self.correction = 1.0
        """Multiplies the table: what a batch counts for in a sum that is to be kept, over what it
        takes in the mean (``planner.batching.live_costs``)."""
        self.spread = 0.0
        """Part of a batch that the sum of all is given once, for what they may take longer."""
        self.first_ms = 0.0
        """What a batch takes longer if the slice has idled before; less than 0: shorter."""
        self.between_ms = 0.0
        """What the table has for the time between a batch and the one before it."""
        self.heap: list[Entry] = []
        """What waits, as a heap: the earliest deadline comes first."""
        self.rows = 0
        """Rows of all queries that wait."""
        self.work_ms = 0.0
        """At most this long to run all that waits, merged."""
        self.limit = 0
        """Rows of the largest batch that is formed for now; at most ``max_batch``."""
        self.set_table(table)

    @classmethod
    def detached(cls, task: str, table: LatencyTable) -> "VariantQueue":
        """A queue of no slice, for a variant that takes no queries."""
        return cls(task, TaskShare(), table)

    def set_table(self, table: LatencyTable) -> None:
        """Take over a table, and what larger batches save by it."""
        self.ms = table.ms
        self.max_batch = table.max_batch
        # What waits was admitted counting on the old limit: it does not shrink under it.
        held = self.limit if self.heap else self.max_batch
        self.limit = min(held, self.max_batch)
        # If a row costs no less in a larger batch, two batches never cost more than one of both:
        # ms[a] <= a / (a + b) * ms[a + b], and the same for b.
        self.unit_ms, self.saving, self.gains = table.economy

    def keep_within(self, batch_ms: float) -> None:
        """Form no batches that take longer than this or a single row. The queue must be empty.

        By the mean: how long batches are is a choice, not a promise.
        """
        self.limit = bisect_right(self.ms, max(batch_ms, self.ms[1])) - 1

    def pop_batch(
        self, now_ms: float, spare_ms: float = 0.0, least: int = 1
    ) -> tuple[list[Entry], int]:
        """Pop the earliest queries, as many as fit the largest batch and keep the first in time.

        If even the first one alone is late, the batch is as large as it can be, because that
        catches up fastest. The queue must not be empty; ``rows`` and the totals are left as they
        are.

        Args:
            now_ms: when the batch begins.
            spare_ms: it grows only where so much is left until the first deadline.
            least: it takes so many queries in any case, if they fit the largest batch.

        Returns:
            The queries, and their rows together.
        """
        heap, ms, correction, largest = self.heap, self.ms, self.correction, self.limit
        entries = [heappop(heap)]
        deadline_ms, _, head = entries[0]
        rows = head.rows
        if now_ms + ms[rows] * correction > deadline_ms + ROUNDING_MS:
            deadline_ms = inf
        limit_ms = deadline_ms - now_ms - spare_ms
        while heap:
            more = rows + heap[0][2].rows
            if more > largest or (ms[more] * correction > limit_ms and len(entries) >= least):
                break
            entries.append(heappop(heap))
            rows = more
        return entries, rows

    def latency_ms(self, rows: int) -> float:
        """Predicted latency of a batch."""
        return self.ms[rows] * self.correction

    def bound_ms(self, count: int, rows: int) -> float:
        """At most this long for ``count`` queries of ``rows`` rows in all, merged in any order.

        Filled one after the other, two neighbouring batches together exceed the largest batch, so
        rows R in batches of at most B make at most 2R/B + 1 batches; single rows fill them all.
        """
        largest = self.limit
        if rows <= largest:
            return self.ms[rows] * self.correction if rows else 0.0
        if count == rows:
            full, rest = divmod(rows, largest)
            whole = full * self.ms[largest]
            return (whole + self.ms[rest] if rest else whole) * self.correction
        return (2 * rows // largest + 1) * self.ms[largest] * self.correction


def head_of(queue: VariantQueue) -> tuple[float, int]:
    """The earliest deadline of what waits, in ms, and its order of arrival; something waits."""
    return queue.heap[0][:2]


class Item:
    """One query in a variant's queue. A subclass adds what its caller needs to know of it."""

    __slots__ = ("client", "deadline_ms", "priority", "queue", "rows")

    def __init__(
        self,
        queue: VariantQueue,
        deadline_ms: float,
        rows: int,
        priority: int = DEFAULT_PRIORITY,
        client: Client = ANYBODY,
    ) -> None:
        self.queue = queue
        self.deadline_ms = deadline_ms
        self.rows = rows
        self.priority = priority
        """1 is the highest (``planner.batching.refusal_order``)."""
        self.client = client
