"""What a slice's queue counts with, learned from the batches that it runs.

A queue is in time if the sum of what its batches take is, so sureness is a matter of the sum: means
add up, and so do variances, not deviations. Ten batches of 10 ms, each within 15 ms at 99 %, take
100 ms in the mean and 107 at 99 %, not 150.

*Sums of costs alone.* The queue's schedules add up costs, which a root of a sum of variances is
not. It lies below each of its tangents: for n batches of variance v and any s > 0,
``sqrt(n v) <= n v / (2 s) + s / 2``. With s at the deviation of two batches, each batch costs its
mean and z/sqrt(8) deviations, and the whole queue z/sqrt(2) once: exact for two batches, 6 % of a
deviation too much for one or four, and never too little.

*How sure.* At most a share of the admitted is to be late. A bound on each query's own risk would
refuse many that would have been in time, only because they are close, although hardly any of the
others can be late. So the number z of deviations follows what comes of all: it rises with each late
query and falls a little with each that is in time, such that both are in balance at half of the
share (the same rule as in ``planner.live_model``). It begins, and stays, at what would leave each
query the share as its own risk: who asks for more refuses without end for what no queue can help,
such as a machine that stands still now and then. It ends at 0, where the mean decides.
"""

from math import sqrt
from statistics import NormalDist

from planner.batching.protocol import LiveQueue
from planner.batching.variant_queues import VariantQueue
from planner.live_model import (
    AFTER_IDLE,
    BACK_TO_BACK,
    BESIDE,
    MEMORY,
    PRIOR,
    Context,
    LiveModel,
)
from planner.planning_settings import DEFAULTS
from planner.rhythms.bounded import bounded

STEP, MOST_COUNTED = 0.5, 4
"""What a late query adds to the number of deviations, and the queries that a batch counts for at
most: those of a batch are late together."""
IDLE_MS = 1.0
"""A batch that begins so long after the last one ended comes after idling."""
MOST_BETWEEN = 5.0
"""Most that a time between two batches counts, in times of the second one: more was a stall."""
RELAX_EVERY_MS = 50.0
"""A variant whose queries are all refused has its slowness forgotten in steps of so much."""
TABLE_MS, NOTICED = 250.0, 0.03
"""A table is made anew after so long where means have changed by so much, sooner where by more: it
takes about as long as learning from 50 batches."""


class LiveCosts:
    """Of one slice. Deterministic; knows no clock."""

    def __init__(self, slice_queue: LiveQueue, late_share: float = DEFAULTS.late_share) -> None:
        """Take the queue that is told, and the share of admitted queries that may be late."""
        self._queue = slice_queue
        self._aim = late_share / 2
        self._most = NormalDist().inv_cdf(1.0 - late_share)
        self._deviations = self._most
        self._between_ms = 0.0
        """Mean time between two batches where queries wait."""
        self._gaps = PRIOR
        self._latest: VariantQueue | None = None
        self._ended_ms = -IDLE_MS

    def ran(
        self, queue: VariantQueue, model: LiveModel, rows: int, began_ms: float, took_ms: float,
        *, kept_waiting: bool = False, queries: int = 0, late: int = 0,
    ) -> bool:  # fmt: skip
        """Learn from a batch that ran cleanly.

        What passes between two batches, with answering and taking queries in, is time that the
        second one's queries wait for, if they did when the first one ended.

        Args:
            queue: whose batch it was.
            model: of the same variant.
            rows: of the batch.
            began_ms: when it began.
            took_ms: how long it took.
            kept_waiting: whether some queries waited when the batch before it ended.
            queries: that it answered.
            late: so many of them too late.

        Returns:
            Whether it took no longer than the 95th percentile that was predicted.
        """
        if kept_waiting:
            gap_ms = bounded(began_ms - self._ended_ms, 0.0, MOST_BETWEEN * took_ms)
            self._gaps = min(self._gaps + 1, MEMORY)
            self._between_ms += (gap_ms - self._between_ms) / self._gaps
        pause_ms = began_ms - self._ended_ms
        within = model.learn(rows, self.context(queue, began_ms), took_ms, pause_ms)
        self.passed(queue, began_ms + took_ms)
        if queries:
            self._count(queries, late)
        now_ms = self._ended_ms
        gap = abs(self._between_ms - queue.between_ms) / queue.ms[1]
        moved = gap if gap > model.change else model.change
        if (now_ms - model.told_ms) * moved >= TABLE_MS * NOTICED:
            model.told_ms = now_ms
            self._retable(queue, model)
        self._tell(queue, model)
        return within

    def context(self, queue: VariantQueue, began_ms: float) -> Context:
        """What a batch that begins now comes after."""
        if began_ms - self._ended_ms >= IDLE_MS:
            return AFTER_IDLE
        return BACK_TO_BACK if queue is self._latest else BESIDE

    def passed(self, queue: VariantQueue, ended_ms: float) -> None:
        """A batch has ended of which nothing can be learned."""
        self._latest, self._ended_ms = queue, ended_ms

    def gave_up(self, queries: int) -> None:
        """Count admitted queries that were late before they could run."""
        if queries:
            self._count(queries, queries)

    def relax(self, queue: VariantQueue, model: LiveModel, idle_ms: float) -> None:
        """Forget slowness of a variant that runs no batches, because its queries are refused."""
        model.relax(idle_ms)
        self._retable(queue, model)
        self._tell(queue, model)

    def _retable(self, queue: VariantQueue, model: LiveModel) -> None:
        between_ms = self._between_ms
        self._queue.replan(queue, model.table(between_ms), 0.0)
        # Nothing is between a batch and the one before it where the slice has idled.
        queue.between_ms, queue.first_ms = between_ms, model.first_ms - between_ms

    def _count(self, queries: int, late: int) -> None:
        """Some queries were late, of so many that ended together."""
        counted = queries if queries < MOST_COUNTED else MOST_COUNTED
        step = STEP * counted * (late / queries - self._aim)
        self._deviations = bounded(self._deviations + step, 0.0, self._most)

    def _tell(self, queue: VariantQueue, model: LiveModel) -> None:
        spread = model.spread
        deviation = self._deviations * spread
        each, once = deviation / sqrt(8.0), deviation / sqrt(2.0)
        self._queue.correct(queue, 1.0 + each, once)
        model.sure = 1.0 + each + once
        model.busy_sure = 1.0 + (each + once) * model.busy_spread / spread
