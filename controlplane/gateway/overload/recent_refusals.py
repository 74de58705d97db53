"""Recent refusals: what a worker would say, by what it has just said.

A worker admits by the schedule of its whole queue, which a gateway does not know. But once it has
refused a query, it refuses the next one like it, until there is room for one more.
"""

from typing import NamedTuple

from planner.batching.refusal_order import Standing
from planner.types import DEFAULT_PRIORITY, Candidate, Query
from variants.types import WorkerId

FIRST: Standing = (False, False, DEFAULT_PRIORITY)
"""Of those who name no priority and are within all shares."""


class Refused(NamedTuple):
    """The last query that a worker refused to run with a variant for want of time."""

    at_ms: float
    due_ms: float
    """Its deadline."""
    rows: int
    why: str
    """What the worker said."""
    standing: Standing
    """Of that query in the order of refusal."""


class Said(NamedTuple):
    """What a worker would say to a query."""

    why: str
    until_ms: float
    """For so long, to queries with as many rows and as much time from when they came, ..."""
    before_ms: float
    """... that came before this."""


class RecentRefusals:
    """The last refusal of each worker and variant."""

    def __init__(self) -> None:
        self._last: dict[tuple[WorkerId, str, str], Refused] = {}

    def keep(self, workers: frozenset[WorkerId]) -> None:
        """Forget those of workers that are gone."""
        self._last = {key: found for key, found in self._last.items() if key[0] in workers}

    def add(
        self,
        worker: WorkerId,
        candidate: Candidate,
        query: Query,
        why: str,
        now_ms: float,
        standing: Standing = FIRST,
    ) -> None:
        """Take in that a worker has refused a query of this standing in the order of refusal."""
        due_ms = query.received_ms + query.latency_ms
        key = (worker, candidate.task, candidate.variant)
        self._last[key] = Refused(now_ms, due_ms, query.rows, why, standing)

    def expected(
        self,
        worker: WorkerId,
        candidate: Candidate,
        query: Query,
        now_ms: float,
        standing: Standing = FIRST,
    ) -> Said | None:
        """Why the worker would refuse a query, as it said of the last; ``None`` if it may not.

        In the time that one more query takes in a full batch, the schedule gets room for one more.
        Until then, what is due no later by more than that, has no fewer rows and stands no better
        in the order of refusal is refused as well.
        """
        last = self._last.get((worker, candidate.task, candidate.variant))
        if last is None or query.rows < last.rows or standing < last.standing:
            return None
        table = candidate.table
        one_more_ms = table.ms[-1] * query.rows / table.max_batch
        due_ms = query.received_ms + query.latency_ms
        if now_ms >= last.at_ms + one_more_ms or due_ms >= last.due_ms + one_more_ms:
            return None
        return Said(
            last.why, last.at_ms + one_more_ms, last.due_ms - query.latency_ms + one_more_ms
        )
