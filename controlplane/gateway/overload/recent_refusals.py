"""Recent refusals: what a worker would say, by what it has just said.

A worker admits by the schedule of its whole queue, which a gateway does not know. But once it has
refused a query, it refuses the next one like it, until there is room for one more. How much time a
query has to have left behind the queue is learned: each refusal asks for more than the refused one
had, each query that was taken though it had hardly more for a little less.
"""

from bisect import bisect_right
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from planner.batching.refusal_order import Standing
from planner.types import DEFAULT_PRIORITY, Candidate, Choice, Query
from variants.types import WorkerId

FIRST: Standing = (False, False, DEFAULT_PRIORITY)
"""Of those who name no priority and are within all shares."""
LONGEST_PART = 0.5
"""Workers form batches that take at most this part of the time that queries have."""
MOST_MS = 50.0
"""So long after it was last heard of this, a worker's queue says at most what it would refuse."""
EASED = 0.1
"""By this part of what one more query takes, less is asked for with each that was taken: where that
many refusals and answers come, one in eleven that are sent is refused. It is the price for finding
out that there is more room."""
NEAR = 2.0
"""A query that had more to spare than so many more would take says nothing of the limit."""


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
    slack_ms: float
    """From when the worker was expected to be done with its queue to that query's deadline, less
    what was eased since."""
    heard_ms: float
    """When it was last heard what leaves room and what does not."""


class Said(NamedTuple):
    """What a worker would say to a query."""

    why: str
    until_ms: float
    """For so long, to queries with as many rows and as much time from when they came, ..."""
    before_ms: float
    """... that came before this."""


class RecentRefusals:
    """The last refusal of each worker and variant, and what was learned since."""

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
        slack_ms: float,
        standing: Standing = FIRST,
    ) -> None:
        """Take in that a worker has refused a query of this standing in the order of refusal.

        ``slack_ms``: from when it was expected to be done with its queue, when the query was sent
        there, to its deadline. What it says with the refusal may be of many ms later, where this
        gateway or the worker waits for a processor; so does the next query that is sent.
        """
        due_ms = query.received_ms + query.latency_ms
        key = (worker, candidate.task, candidate.variant)
        self._last[key] = Refused(now_ms, due_ms, query.rows, why, standing, slack_ms, now_ms)

    def took(
        self, worker: WorkerId, candidate: Candidate, query: Query, slack_ms: float, now_ms: float
    ) -> None:
        """Take in that a worker answered a query.

        ``slack_ms``: from when the worker was expected to be done with its queue, when the query
        was sent there, to its deadline.
        """
        key = (worker, candidate.task, candidate.variant)
        last = self._last.get(key)
        if last is None:
            return
        longest_ms = LONGEST_PART * query.latency_ms
        one_more_ms = _one_more_ms(candidate.table.ms, query.rows, longest_ms)
        if now_ms >= last.heard_ms + min(longest_ms, MOST_MS):
            return
        if slack_ms <= last.slack_ms + NEAR * one_more_ms:
            eased_ms = last.slack_ms - EASED * one_more_ms
            self._last[key] = last._replace(slack_ms=eased_ms, heard_ms=now_ms)

    def expected(
        self,
        worker: WorkerId,
        candidate: Candidate,
        query: Query,
        now_ms: float,
        busy_until_ms: float,
        standing: Standing = FIRST,
    ) -> Said | None:
        """Why the worker would refuse a query, as it said of the last; ``None`` if it may not.

        In the time that one more query takes in a full batch, the schedule gets room for one more.
        Until then, what is due no later by more than that, has no fewer rows and stands no better
        in the order of refusal is refused as well. The room goes to the next that is sent there:
        whose deadline leaves no more time behind the queue than that of the last refused is refused
        too, with ``busy_until_ms`` for the queue as it is now. That holds for as long as a batch
        may take, and again from every answer to a query that had hardly more.
        """
        last = self._last.get((worker, candidate.task, candidate.variant))
        if last is None or query.rows < last.rows or standing < last.standing:
            return None
        longest_ms = LONGEST_PART * query.latency_ms
        one_more_ms = _one_more_ms(candidate.table.ms, query.rows, longest_ms)
        due_ms = query.received_ms + query.latency_ms
        until_ms, before_ms = last.at_ms + one_more_ms, last.due_ms + one_more_ms
        if now_ms >= until_ms or due_ms >= before_ms:
            known_until_ms = last.heard_ms + min(longest_ms, MOST_MS)
            before_ms = busy_until_ms + last.slack_ms + one_more_ms
            if not now_ms < min(busy_until_ms, known_until_ms) or due_ms >= before_ms:
                return None
            until_ms = min(now_ms + one_more_ms, known_until_ms)
        return Said(last.why, until_ms, before_ms - query.latency_ms)

    def expected_of_all(
        self, asked: Sequence[Choice], query: Query, now_ms: float, standing: Standing
    ) -> Said | None:
        """What the last of these would say, where all of them would refuse a query.

        Args:
            asked: variants at workers, at least one.
        """
        until_ms, before_ms, why = inf, inf, ""
        for choice in asked:
            worker = choice.worker
            said = self.expected(
                worker.id, choice.candidate, query, now_ms, worker.busy_until_ms, standing
            )
            if said is None:
                return None
            why = said.why
            until_ms = said.until_ms if said.until_ms < until_ms else until_ms
            before_ms = said.before_ms if said.before_ms < before_ms else before_ms
        return Said(why, until_ms, before_ms)


def _one_more_ms(ms: Sequence[float], rows: int, longest_ms: float) -> float:
    """What a query adds to the longest batch that takes no more than ``longest_ms``."""
    most = max(rows, bisect_right(ms, longest_ms) - 1)
    most = min(most, len(ms) - 1)
    return ms[most] * rows / most
