"""Open batches: those that this gateway's queries wait for, and that have not begun to run.

A query that joins one adds only what a larger batch takes longer, so on devices that gain by
batching it pays to know them. Workers do not report them. But a gateway knows what it has sent, and
until when the worker was busy then: before that moment, what it sent still waits.
"""

from bisect import bisect_right

from planner.selection.eligibility import answers
from planner.types import Candidate, Snapshot, WorkerView
from variants.types import TaskName

MOST_OPEN = 8
"""Open batches of a task that are remembered, the latest. In a trial with 4 instead of 8 of each
kind, ``mixed`` violated 2.1 instead of 0.6 % (docs/decisions/0007-planning.md)."""


class OpenBatch:
    """Queries for one variant on one worker that are expected to run together."""

    __slots__ = ("candidate", "largest", "rows", "starts_ms", "worker")

    def __init__(
        self, candidate: Candidate, worker: WorkerView, starts_ms: float, rows: int, largest: int
    ) -> None:
        self.candidate = candidate
        self.worker = worker
        self.starts_ms = starts_ms
        """When the worker was expected to be free, as the batch was opened."""
        self.rows = rows
        self.largest = largest
        """Most rows that it may grow to."""


class OpenBatches:
    """The open batches of all tasks, as far as one gateway knows. Written by who sends queries."""

    __slots__ = ("_by_task", "_snapshot")

    def __init__(self) -> None:
        self._by_task: dict[TaskName, list[OpenBatch]] = {}
        self._snapshot: Snapshot | None = None

    def keep(self, snapshot: Snapshot) -> None:
        """Forget the batches on workers that are gone, and of variants that are not ready there or
        that only pinned queries may choose."""
        if snapshot is self._snapshot:
            return
        self._snapshot = snapshot
        kept = {}
        for task, batches in self._by_task.items():
            view = snapshot.tasks.get(task)
            known = {} if view is None else view.by_variant
            found = [
                batch
                for batch in batches
                if any(
                    batch.worker is worker
                    for candidate in known.get(batch.candidate.variant, ())
                    if answers(candidate, None)
                    for worker in candidate.ready
                )
            ]
            if found:
                kept[task] = found
        self._by_task = kept

    def of(self, task: TaskName, now_ms: float) -> list[OpenBatch]:
        """The open batches of a task with room left, the oldest first."""
        found = self._by_task.get(task)
        if not found:
            return []
        for batch in found:
            if batch.starts_ms <= now_ms or batch.rows >= batch.largest:
                found = self._by_task[task] = [
                    b for b in found if b.starts_ms > now_ms and b.rows < b.largest
                ]
                break
        return found

    def sent(
        self,
        candidate: Candidate,
        worker: WorkerView,
        rows: int,
        now_ms: float,
        longest_ms: float,
    ) -> float:
        """Note that rows are sent to a worker, before its ``busy_until_ms`` is raised by them.

        Args:
            longest_ms: how long a batch may take there.

        Returns:
            By how many ms its work grows.
        """
        ms = candidate.table.ms
        found = self.of(candidate.task, now_ms)
        for batch in found:
            if batch.worker is worker and batch.candidate.variant == candidate.variant:
                together = batch.rows + rows
                if together <= batch.largest:
                    added_ms = ms[together] - ms[batch.rows]
                    batch.rows = together
                    return added_ms
        starts_ms = worker.busy_until_ms
        if starts_ms > now_ms:
            largest = max(rows, bisect_right(ms, longest_ms) - 1)
            if largest > rows:
                found = self._by_task.setdefault(candidate.task, found)
                found.append(OpenBatch(candidate, worker, starts_ms, rows, largest))
                if len(found) > MOST_OPEN:
                    del found[0]
        return ms[rows]
