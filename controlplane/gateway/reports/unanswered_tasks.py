"""Tasks that nothing can answer now, however much time there is: found without waiting for a query.

Asked is the same selection as for a query, so what is said here is what the next query would get.
"""

from collections.abc import Callable, Iterable

from planner.types import Choice, Query, Refusal, RefusalCode
from variants.types import TaskName

PATIENT_MS = 86_400_000.0
"""Enough time for any variant to be loaded, and for any queue."""
FOR_GOOD = (RefusalCode.SLO_INFEASIBLE, RefusalCode.NO_WORKERS, RefusalCode.ARTIFACT_INVALID)
"""What no time helps."""


def unanswered_tasks(
    tasks: Iterable[TaskName], foreseen: Callable[[Query, float], Choice | Refusal], now_ms: float
) -> dict[TaskName, Refusal]:
    """The tasks of which a query of one row that asks for nothing would be refused, and how.

    Args:
        foreseen: what would become of a query that came at ``now_ms``.
    """
    found = {}
    for task in tasks:
        query = Query(task=task, rows=1, received_ms=now_ms, latency_ms=PATIENT_MS)
        answer = foreseen(query, now_ms)
        if isinstance(answer, Refusal) and answer.code in FOR_GOOD:
            found[task] = answer
    return found
