"""Refused tasks: who was refused for want of time lately, by task and so by worker.

Room that is kept free on a worker helps those only who may be sent there: somebody is held back by
refusals of tasks that the worker holds which he would be sent to, and by no others.
"""

from planner.batching.refusal_order import LatelyRefused, Standing
from planner.types import Snapshot
from variants.types import TaskName, WorkerId


class RefusedTasks:
    """Who was refused lately of each task, and which workers hold it. Knows no clock."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._lately: dict[TaskName, LatelyRefused] = {}
        self._workers: dict[TaskName, frozenset[WorkerId]] = {}
        """Of the tasks that were looked for since the snapshot came."""

    def follow(self, snapshot: Snapshot) -> None:
        """Take over which workers hold what."""
        self._snapshot = snapshot
        self._workers.clear()
        for task in self._lately.keys() - snapshot.tasks.keys():
            del self._lately[task]

    def add(self, task: TaskName, standing: Standing, now_ms: float) -> None:
        """A query was refused that would have been answered, had there been more room."""
        lately = self._lately.get(task)
        if lately is None:
            lately = self._lately[task] = LatelyRefused()
        lately.add(standing, now_ms)

    def is_before(self, standing: Standing, worker: WorkerId, now_ms: float) -> bool:
        """Whether somebody was refused lately who stands before such a query at a worker."""
        return any(
            lately.is_before(standing, now_ms) and worker in self._holding(task)
            for task, lately in self._lately.items()
        )

    def _holding(self, task: TaskName) -> frozenset[WorkerId]:
        found = self._workers.get(task)
        if found is None:
            view = self._snapshot.tasks.get(task)
            ready = {} if view is None else {id(each.ready): each.ready for each in view.by_cost}
            found = frozenset(worker.id for each in ready.values() for worker in each)
            self._workers[task] = found
        return found
