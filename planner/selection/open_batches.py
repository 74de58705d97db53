"""Open batches: those that form on workers, and have not begun to run.

A query that joins one adds only what a larger batch takes longer, so on devices that gain by
batching it pays to know them. A gateway knows what it has sent, and until when the worker was busy
then: before that moment, what it sent still waits. What others have sent it does not know, until
the worker tells which batches form there: that replaces all that was known of the worker.
"""

from bisect import bisect_right
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from planner.selection.eligibility import answers
from planner.selection.snapshot import changed_tasks
from planner.types import Candidate, QueueNews, Snapshot, TaskView, WorkerView
from variants.types import Prefer, TaskName, WorkerId

MOST_OPEN = 8
"""Open batches of a task that are remembered, the latest. In a trial with 4 instead of 8 of each
kind, ``mixed`` violated 2.1 instead of 0.6 % (docs/decisions/0007-planning.md)."""
MOST_HOLDERS = 1_024
"""Sets of workers that hold variants which are remembered."""
TOLD_EVERY_MS = 250.0
"""So often a worker tells gateways of its queue which have not heard of it otherwise."""


class Following(NamedTuple):
    """When a gateway wants workers to tell of their queues, beside how long they are."""

    replies: bool
    """With each reply to its queries."""
    every_ms: float
    """So long after it has heard of one, without having asked; 0: never."""


def following(prefer: Prefer, *, shared: bool) -> Following:
    """What helps a gateway (docs/decisions/0042-several-gateways.md).

    Args:
        prefer: what plans optimise. Open batches are looked at where prices decide.
        shared: whether other gateways send to the same workers. Replies tell one that is alone all
            that it wants to know.
    """
    return Following(prefer is Prefer.ACCURACY, TOLD_EVERY_MS if shared else 0.0)


class OpenBatch:
    """Queries for one variant on one worker that are expected to run together."""

    __slots__ = (
        "accuracy", "answers", "candidate", "largest", "ms", "next_ms", "rows", "starts_ms",
        "worker",
    )  # fmt: skip

    def __init__(
        self, candidate: Candidate, worker: WorkerView, starts_ms: float, rows: int, largest: int
    ) -> None:
        self.candidate = candidate
        self.accuracy = candidate.accuracy
        self.ms = candidate.table.ms
        self.answers = answers(candidate, None)
        """Whether queries that name no variant may join."""
        self.worker = worker
        self.starts_ms = starts_ms
        """When the worker was expected to be free, as the batch was opened."""
        self.rows = rows
        self.next_ms = self.ms[rows + 1] - self.ms[rows]
        """By how much one row more makes it longer."""
        self.largest = largest
        """Most rows that it may grow to."""


class _OfTask:
    """The open batches of a task, all with room left."""

    __slots__ = ("first_ms", "open")

    def __init__(self) -> None:
        self.open: list[OpenBatch] = []
        """The oldest first."""
        self.first_ms = inf
        """When the first of them begins."""

    def keep(self, kept: list[OpenBatch]) -> None:
        self.open = kept
        self.first_ms = min([batch.starts_ms for batch in kept], default=inf)

    def add(self, batch: OpenBatch) -> None:
        self.open.append(batch)
        if len(self.open) > MOST_OPEN:
            self.keep(self.open[1:])
        elif batch.starts_ms < self.first_ms:
            self.first_ms = batch.starts_ms


class OpenBatches:
    """The open batches of all tasks, as far as one gateway knows. Written by who sends queries."""

    __slots__ = ("_by_task", "_holders", "_on", "snapshot")

    def __init__(self) -> None:
        self._by_task: dict[TaskName, _OfTask] = {}
        self._on: dict[WorkerId, set[TaskName]] = {}
        """The tasks that each worker may have open batches of."""
        self._holders: dict[int, tuple[tuple[WorkerView, ...], frozenset[int]]] = {}
        """Sets of workers that hold variants, by identity."""
        self.snapshot: Snapshot | None = None
        """Of which it was last told."""

    def keep(self, snapshot: Snapshot, now_ms: float) -> None:
        """Forget the batches on workers that are gone, and of variants that are not ready there or
        that only pinned queries may choose. Only tasks that changed are looked at."""
        before = self.snapshot
        if snapshot is before:
            return
        self.snapshot = snapshot
        holders: dict[int, frozenset[int]] = {}
        """By set of workers; equal sets are the same tuple, often for many variants."""
        changed = changed_tasks(before, snapshot)
        for task in list(self._by_task) if changed is None else changed:
            known = self._by_task.get(task)
            if known is None:
                continue
            view = snapshot.tasks.get(task)
            if view is None or not known.open:
                del self._by_task[task]
            elif before is None or view is not before.tasks.get(task):
                found = [b for b in self.of(task, now_ms) if _is_ready(b, view, holders)]
                self._by_task[task].keep(found)

    def of(self, task: TaskName, now_ms: float) -> Sequence[OpenBatch]:
        """The open batches of a task with room left, the oldest first."""
        known = self._by_task.get(task)
        if known is None:
            return ()
        if known.first_ms <= now_ms:
            known.keep([batch for batch in known.open if batch.starts_ms > now_ms])
        return known.open

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
            longest_ms: how long a batch may take there; plays no part where it is idle.

        Returns:
            By how many ms its work grows.
        """
        task, ms = candidate.task, candidate.table.ms
        for batch in self.of(task, now_ms) if task in self._by_task else ():
            if batch.worker is worker and batch.candidate.variant == candidate.variant:
                together = batch.rows + rows
                # The table may be another one than when the batch was opened.
                largest = min(batch.largest, len(ms) - 1)
                if together <= largest:
                    added_ms = ms[together] - ms[batch.rows]
                    batch.rows = together
                    if together < largest:
                        batch.next_ms = ms[together + 1] - ms[together]
                    else:
                        self._close(batch)
                    return added_ms
        starts_ms = worker.busy_until_ms
        if starts_ms > now_ms:
            largest = max(rows, bisect_right(ms, longest_ms) - 1)
            if largest > rows:
                self._open(OpenBatch(candidate, worker, starts_ms, rows, largest))
        return ms[rows]

    def told(self, worker: WorkerView, news: QueueNews, snapshot: Snapshot, now_ms: float) -> bool:
        """Take in what a worker tells of its queue: how long it is, and which batches form there.

        Batches that this gateway's queries may not join are left out: of variants that it does not
        know, or that are not ready there for queries that name none.

        Args:
            snapshot: what is chosen from now.

        Returns:
            Whether the worker is free sooner than was thought.
        """
        id_ = worker.id
        if len(self._on) > 2 * len(snapshot.workers) + MOST_OPEN:  # many have come and gone
            self._on = {each: tasks for each, tasks in self._on.items() if each in snapshot.workers}
        for task in self._on.pop(id_, ()):
            known = self._by_task.get(task)
            if known is not None:
                known.keep([batch for batch in known.open if batch.worker.id != id_])
        for task, variant, rows, most, in_ms in news.forming:
            view = snapshot.tasks.get(task)
            candidate = None if view is None else view.of(variant, worker.device_kind)
            if candidate is None or not answers(candidate, None):
                continue
            largest = min(most, candidate.table.max_batch)
            if 0 < rows < largest and self._holds(worker, candidate.ready):
                self._open(OpenBatch(candidate, worker, now_ms + in_ms, rows, largest))
        return worker.told(news.backlog_ms, now_ms)

    def _holds(self, worker: WorkerView, ready: tuple[WorkerView, ...]) -> bool:
        """Whether a worker is one of those that hold a variant; equal sets of workers are the same
        tuple, often for many variants."""
        known = self._holders.get(id(ready))
        if known is None or known[0] is not ready:
            if len(self._holders) >= MOST_HOLDERS:
                self._holders.clear()
            known = self._holders[id(ready)] = (ready, frozenset(map(id, ready)))
        return id(worker) in known[1]

    def _open(self, batch: OpenBatch) -> None:
        task = batch.candidate.task
        if task not in self._by_task:
            self._by_task[task] = _OfTask()
        self._by_task[task].add(batch)
        self._on.setdefault(batch.worker.id, set()).add(task)

    def _close(self, full: OpenBatch) -> None:
        of_task = self._by_task[full.candidate.task]
        of_task.keep([batch for batch in of_task.open if batch is not full])


def _is_ready(batch: OpenBatch, view: TaskView, holders: dict[int, frozenset[int]]) -> bool:
    """Whether a batch's variant is still ready on its worker, for queries that name none.

    ``holders`` has the workers of each set that was looked at, all by identity.
    """
    sent = batch.candidate
    for candidate in view.by_variant.get(sent.variant, ()):
        if candidate.device_kind == sent.device_kind and answers(candidate, None):
            ready = candidate.ready
            held = holders.get(id(ready))
            if held is None:
                held = holders[id(ready)] = frozenset(map(id, ready))
            return id(batch.worker) in held
    return False
