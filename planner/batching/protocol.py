"""The protocol of a slice's queue: which query is admitted, and which batch runs next.

``planner.batching.registry`` names the rules that a worker may follow behind it. Policies that the
simulator plays bring queues of their own.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, Protocol

from planner.batching.queue_room import one
from planner.batching.variant_queues import Item, VariantQueue
from planner.latency_table import LatencyTable

MAX_QUEUE = 8_192
"""Queries that one worker holds at most."""


class Verdict(StrEnum):
    """Whether a query was admitted, and if not, why."""

    ADMITTED = "admitted"
    TOO_MANY_ROWS = "it has more rows than the largest batch"
    QUEUE_FULL = "the queue is full"
    WOULD_BE_LATE = "this query, or one taken before it, would be late"
    NO_ROOM = "no batch that it could share would be in time"
    OVER_SHARE = "others come first, and the backlog takes half of its slack"


class Batch(NamedTuple):
    """What runs next: queries of one variant, earliest deadline first."""

    queue: VariantQueue
    items: list[Item]
    rows: int
    predicted_ms: float


class Forming(NamedTuple):
    """A batch that forms: what waits for a variant and does not fill a batch yet."""

    item: Item
    """A query of the variant."""
    rows: int
    most: int
    """Rows that it may grow to, more than it has."""
    in_ms: float
    """Until it is expected to begin."""


class Queue(Protocol):
    """One per slice, which runs one batch at a time. Times in ms on the caller's clock."""

    busy_until_ms: float
    """When the running batch is predicted to be done; in the past when none runs."""
    count: int
    """Queries that wait."""

    def add_variant(self, task: str, table: LatencyTable, share: float = 0.0) -> VariantQueue:
        """A queue for a variant that was loaded.

        Args:
            task: the variant's task.
            table: predicted latency of its batches.
            share: planned share of the slice's time for the task, in [0, 1]; 0 if none is planned.
        """
        ...

    def remove_variant(self, queue: VariantQueue) -> None:
        """Forget a variant's queue, which must be empty."""
        ...

    def take(self, queue: VariantQueue) -> list[Item]:
        """Take out all queries that wait for a variant, earliest deadline first."""
        ...

    def backlog_ms(self, now_ms: float) -> float:
        """Predicted time until all that was admitted is done."""
        ...

    def admit(self, item: Item, now_ms: float) -> Verdict:
        """Queue a query, or say why not."""
        ...

    def pop_expired(self, now_ms: float) -> list[Item]:
        """Take out the queries that are given up because their deadline has passed."""
        ...

    def next_batch(self, now_ms: float) -> Batch | None:
        """Take out what runs now; None when nothing should. The slice must be free."""
        ...

    def wake_ms(self, now_ms: float) -> float:
        """When to ask ``next_batch`` again although nothing happens; infinite when never.

        Only a queue that may hold a batch back while the slice is free answers with a time.
        """
        ...

    def finished(self, queue: VariantQueue, now_ms: float, busy_ms: float) -> None:
        """Account for a batch that is done; the slice is free again."""
        ...


class LiveQueue(Queue, Protocol):
    """A queue in a worker, where plans and latencies change under it.

    It never holds a batch back, so ``wake_ms`` is not asked.
    """

    def forming(self, now_ms: float) -> list[Forming]:
        """The batches that queries may still join, the first to run first; of many, those. None
        where the queue plans no batches."""
        ...

    def make_room(
        self, item: Item, now_ms: float, needed: int = 1, size_of: Callable[[Item], int] = one
    ) -> list[Item]:
        """Take out queries that are to be refused so that one can be queued.

        Args:
            item: it is not queued by this.
            needed: how much room it needs, in the unit of ``size_of``.
            size_of: what a query takes; by default queries are counted.

        Returns:
            Those that were taken out (``planner.batching.queue_room``); none where the query itself
            is the first to be refused.
        """
        ...

    def withdraw(self, gone: Callable[[Item], bool], now_ms: float) -> list[Item]:
        """Take out queries that nobody waits for any more, in any order. It goes through all that
        wait.

        Args:
            gone: says of each that waits whether it is one of these.
        """
        ...

    def set_longest_batch(self, longest_ms: float | None) -> None:
        """Form batches of at most this length; None: as the queue sees fit."""
        ...

    def replan(self, queue: VariantQueue, table: LatencyTable, share: float) -> None:
        """Take over a new latency table and planned share of a variant."""
        ...

    def recount(self) -> None:
        """Make all that is kept beside the queries themselves anew, after a mistake."""
        ...

    def correct(self, queue: VariantQueue, correction: float, spread: float = 0.0) -> None:
        """Take over what a variant's batches count for.

        Args:
            queue: of the variant.
            correction: multiplies the table where batches are added up.
            spread: part of a batch that a sum of batches is given once.
        """
        ...
