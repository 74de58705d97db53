"""A rate trace: how many queries of each class come in each second."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from variants.types import TaskName

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class RateTrace:
    """Expected queries per second and class; all columns have the shape ``(rows,)``.

    Rows ascend by second. A second may have several rows of a class, or none.
    """

    tasks: tuple[TaskName, ...]
    """The names that ``task`` refers to."""
    second: Indices
    task: Indices
    requests: Floats
    """Expected number of queries in that second."""
    latency_ms: Floats
    """Latency SLO."""
    min_accuracy: Floats
    """Floor; minus infinity when none is asked for."""

    @property
    def duration_s(self) -> int:
        """Until the end of the last second."""
        return int(self.second[-1]) + 1 if len(self.second) else 0

    @property
    def total(self) -> float:
        """Expected queries in all."""
        return float(self.requests.sum())

    @cached_property
    def _until(self) -> Indices:
        """The first row of each second and, at last, the number of rows."""
        return np.searchsorted(self.second, np.arange(self.duration_s + 1))

    def rows(self, begin_s: int, end_s: int) -> slice:
        """The rows of the seconds from ``begin_s`` to just before ``end_s``."""
        last = self.duration_s
        return slice(int(self._until[min(begin_s, last)]), int(self._until[min(end_s, last)]))

    @cached_property
    def classes(self) -> tuple[tuple[tuple[TaskName, float, float | None], ...], Indices]:
        """The distinct classes (task, latency SLO in ms, floor), and the class of each row."""
        columns = np.stack([self.task.astype(float), self.latency_ms, self.min_accuracy])
        found, which = np.unique(columns, axis=1, return_inverse=True)
        names = tuple(
            (self.tasks[int(task)], float(ms), None if floor == -np.inf else float(floor))
            for task, ms, floor in found.T
        )
        return names, which.reshape(-1)
