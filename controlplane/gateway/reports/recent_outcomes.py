"""RecentOutcomes: how the queries of the last minute ended, of counts that only grow."""

from collections import deque
from collections.abc import Mapping
from typing import NotRequired, TypedDict

LATELY_S = 60.0
"""How far back "lately" goes."""


class Counted(TypedDict):
    """How queries of a task ended: answered as asked, answered otherwise, and errors by code."""

    met: int
    missed: int
    infeasible_answered: NotRequired[int]
    """By best effort, where no variant could do what was asked; not among those missed."""
    errors: dict[str, int]
    gave_up_ms: NotRequired[float]
    """How long clients waited, in all, that went before their answers, ..."""
    gave_up_of_ms: NotRequired[float]
    """... and how much time their queries had."""


class RecentOutcomes:
    """Takes in the counts of all tasks now and then, and says by how much they grew lately."""

    def __init__(self, now_s: float) -> None:
        """``now_s``: when nothing was counted yet."""
        self._seen: deque[tuple[float, Mapping[str, Counted]]] = deque([(now_s, {})])

    def grown(
        self, now_s: float, counts: Mapping[str, Counted]
    ) -> tuple[float, dict[str, Counted]]:
        """Take in the counts of now.

        Returns:
            How many seconds back the growth begins, at least ``LATELY_S`` where counts were taken
            in for so long, and the growth of each task of which something ended since then.
        """
        self._seen.append((now_s, counts))
        while len(self._seen) > 2 and now_s - self._seen[1][0] >= LATELY_S:
            self._seen.popleft()
        return self.growth(now_s, counts)

    def growth(
        self, now_s: float, counts: Mapping[str, Counted]
    ) -> tuple[float, dict[str, Counted]]:
        """The same without taking them in."""
        since_s, before = self._seen[0]
        grown = {task: difference(now, before.get(task)) for task, now in counts.items()}
        return now_s - since_s, {
            task: more
            for task, more in grown.items()
            if more["met"] or more["missed"] or more["errors"] or more.get("infeasible_answered")
        }


def difference(now: Counted, before: Counted | None) -> Counted:
    """What ended between two moments; ``before`` is None where nothing had."""
    if before is None:
        return now
    errors = before["errors"]
    return {
        "met": now["met"] - before["met"],
        "missed": now["missed"] - before["missed"],
        "infeasible_answered": now.get("infeasible_answered", 0)
        - before.get("infeasible_answered", 0),
        "errors": {
            code: more
            for code, count in now["errors"].items()
            if (more := count - errors.get(code, 0))
        },
        "gave_up_ms": now.get("gave_up_ms", 0.0) - before.get("gave_up_ms", 0.0),
        "gave_up_of_ms": now.get("gave_up_of_ms", 0.0) - before.get("gave_up_of_ms", 0.0),
    }
