"""The queue of one slice: what is admitted, and which batch runs next.

Three rules stand behind this protocol: ``planner.batching.Schedule``, by deadline from the profile;
``planner.aimd.AdditiveQueue``, which trusts no profile; and what published policies bring along.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from planner.aimd import AdditiveQueue
from planner.batching import Batch, Schedule, Verdict
from planner.lanes import Item, Lane
from planner.types import LatencyTable


class Queue(Protocol):
    """One per slice, which runs one batch at a time. Times in ms on the caller's clock."""

    busy_until_ms: float
    """When the running batch is predicted to be done; in the past when none runs."""
    count: int
    """Queries that wait."""

    def add_lane(self, task: str, table: LatencyTable, share: float = 0.0) -> Lane:
        """A lane for a variant that was loaded."""
        ...

    def remove_lane(self, lane: Lane) -> None:
        """Forget an empty lane."""
        ...

    def take(self, lane: Lane) -> list[Item]:
        """Take out all that waits in a lane, earliest deadline first."""
        ...

    def backlog_ms(self, now_ms: float) -> float:
        """Predicted time until all that was admitted is done."""
        ...

    def admit(self, item: Item, now_ms: float) -> Verdict:
        """Queue a query, or say why not."""
        ...

    def pop_expired(self, now_ms: float) -> list[Item]:
        """Take out what is given up because its deadline has passed."""
        ...

    def next_batch(self, now_ms: float) -> Batch | None:
        """Take out what runs now; None when nothing should. The slice must be free."""
        ...

    def wake_ms(self, now_ms: float) -> float:
        """When to ask ``next_batch`` again although nothing happens; infinite when never.

        Only a queue that may hold a batch back while the slice is free answers with a time.
        """
        ...

    def finished(self, lane: Lane, now_ms: float, busy_ms: float) -> None:
        """Account for a batch that is done; the slice is free again."""
        ...


class LiveQueue(Queue, Protocol):
    """A queue in a worker, where plans and latencies change under it. It never holds a batch back:
    ``wake_ms`` is not asked."""

    def pace(self, longest_ms: float | None) -> None:
        """Form batches of at most this length; None: as the queue sees fit."""
        ...

    def replan(self, lane: Lane, table: LatencyTable, share: float) -> None:
        """Take over a new latency table and planned share of a lane."""
        ...

    def correct(self, lane: Lane, correction: float) -> None:
        """Take over the factor observed / predicted of a lane."""
        ...


BATCHING: Mapping[str, Callable[[], LiveQueue]] = {"profile": Schedule, "aimd": AdditiveQueue}
"""How a worker may batch: by deadline from the profile, or by additive increase without one."""
