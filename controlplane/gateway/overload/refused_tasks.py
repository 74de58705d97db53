"""Refused tasks: who was refused for want of time lately, by task and so by worker.

Room that is kept free on a worker helps those only who may be sent there: somebody is held back by
refusals of tasks that the worker holds which he would be sent to, and by no others.
"""

from planner.batching.refusal_order import STAYS_MS, LatelyRefused, Standing
from planner.types import Snapshot
from variants.types import TaskName, WorkerId


class RefusedTasks:
    """Who was refused lately of each task, and which workers hold it. Knows no clock."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._lately: dict[TaskName, LatelyRefused] = {}
        """By the time of the last refusal, the oldest first."""
        self._at_ms: dict[TaskName, float] = {}
        """When that was."""
        self._tasks: dict[WorkerId, dict[TaskName, LatelyRefused]] | None = None
        """Of each worker, those of these tasks that it holds; None until somebody asks."""

    def follow(self, snapshot: Snapshot) -> None:
        """Take over which workers hold what."""
        self._snapshot = snapshot
        self._tasks = None
        for task in self._lately.keys() - snapshot.tasks.keys():
            self._forget(task)

    def add(self, task: TaskName, standing: Standing, now_ms: float) -> None:
        """A query was refused that would have been answered, had there been more room."""
        lately = self._lately.pop(task, None)
        if lately is None:
            lately = LatelyRefused()
            self._note(task, lately)
        lately.add(standing, now_ms)
        self._lately[task] = lately
        self._at_ms[task] = now_ms
        self._forget_old(now_ms)

    def is_before(self, standing: Standing, worker: WorkerId, now_ms: float) -> bool:
        """Whether somebody was refused lately who stands before such a query at a worker."""
        self._forget_old(now_ms)
        if self._tasks is None:
            self._tasks = {}
            for task, lately in self._lately.items():
                self._note(task, lately)
        held = self._tasks.get(worker)
        if not held:
            return False
        return any(lately.is_before(standing, now_ms) for lately in held.values())

    def _note(self, task: TaskName, lately: LatelyRefused) -> None:
        if self._tasks is not None:
            for worker in self._holding(task):
                self._tasks.setdefault(worker, {})[task] = lately

    def _forget_old(self, now_ms: float) -> None:
        """Forget the oldest task if it does not count any more; each call adds one at most."""
        oldest = next(iter(self._lately), None)
        if oldest is not None and now_ms - self._at_ms[oldest] > STAYS_MS:
            self._forget(oldest)

    def _forget(self, task: TaskName) -> None:
        del self._lately[task], self._at_ms[task]
        if self._tasks is not None:
            for worker in self._holding(task):
                self._tasks[worker].pop(task, None)

    def _holding(self, task: TaskName) -> frozenset[WorkerId]:
        view = self._snapshot.tasks.get(task)
        ready = {} if view is None else {id(each.ready): each.ready for each in view.by_cost}
        return frozenset([worker.id for each in ready.values() for worker in each])
