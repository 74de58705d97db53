"""How much arrivals vary beside those of a Poisson process.

The index of dispersion is the variance of how many rows come in a second, over their mean: 1 where
queries of one row come by chance, more where they come in bursts or have many rows. It is estimated
by how much one second differs from the one before, which a load that swings slowly does not
inflate.
"""

from collections.abc import Mapping

from variants.types import TaskName

WEIGHT = 1.0 / 120
"""Of the newest second: about two minutes count."""
SETTLED_S = 15.0
"""Before so much was seen nothing is said."""
MOST = 1_000.0
FORGOTTEN_QPS = 1e-6
"""A task that is not counted any more, as it was removed, is forgotten once its mean has fallen
below this: half an hour after the last row, of one a second."""


class Dispersion:
    """The indices of dispersion of tasks."""

    def __init__(self) -> None:
        self._mean: dict[TaskName, float] = {}
        self._half_squares: dict[TaskName, float] = {}
        """Halves of the squares of differences: of two seconds, the variance of one."""
        self._latest: dict[TaskName, float] = {}
        self._seen_s: dict[TaskName, float] = {}

    def count(self, rows: Mapping[TaskName, float], elapsed_s: float) -> None:
        """Take in how many rows of each task came in the time since the last count."""
        if elapsed_s <= 0.0:
            return
        weight = 1.0 - (1.0 - WEIGHT) ** elapsed_s
        for task in self._mean.keys() | rows.keys():
            # Of a longer or shorter time, what a second had in the mean, and varied then.
            rate = rows.get(task, 0.0) / elapsed_s
            if task in self._latest:
                half = elapsed_s * (rate - self._latest[task]) ** 2 / 2
                mean, squares = self._mean[task], self._half_squares[task]
                self._mean[task] = mean + weight * (rate - mean)
                self._half_squares[task] = squares + weight * (half - squares)
                self._seen_s[task] += elapsed_s
            else:
                self._mean[task], self._half_squares[task] = rate, rate
                self._seen_s[task] = 0.0
            self._latest[task] = rate
            if task not in rows and self._mean[task] < FORGOTTEN_QPS:
                for known in (self._mean, self._half_squares, self._latest, self._seen_s):
                    del known[task]

    def __len__(self) -> int:
        """Tasks that are remembered."""
        return len(self._mean)

    def of_tasks(self) -> dict[TaskName, float]:
        """At least 1; of tasks that were watched for long enough."""
        return {
            task: min(MOST, max(1.0, self._half_squares[task] / mean))
            for task, mean in self._mean.items()
            if mean > 0.0 and self._seen_s[task] >= SETTLED_S
        }
