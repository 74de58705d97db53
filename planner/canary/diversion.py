"""The answer of a canary version to a query, by the same rule and SLO as of any other version.

It is what ``planner.selection.select`` finds in a snapshot in which the variants of the version are
all that there is of its task (``planner.canary.some_versions``).
"""

from planner.selection.select import select
from planner.types import Choice, Query, Reason, RefusalCode, Snapshot

NOT_READY, OVERLOADED, INFEASIBLE = "not_ready", "overloaded", "infeasible"
"""Why a query that was drawn is not diverted."""
_NOT_READY = frozenset(
    {
        RefusalCode.COLD,
        RefusalCode.NO_WORKERS,
        RefusalCode.ARTIFACT_INVALID,
        RefusalCode.TASK_NOT_FOUND,
    }
)
_CANARY = Reason.CANARY


def divert(snapshot: Snapshot, query: Query, now_ms: float) -> Choice | str:
    """The canary's variant and worker for a query, or why it is not diverted.

    It is only where a variant is ready and predicted to meet the SLO: nothing is loaded for it, and
    best effort is not made.

    Args:
        snapshot: as ``of_version`` makes it for the canary.
    """
    found = select(snapshot, query._replace(best_effort=False), now_ms)
    if isinstance(found, Choice):
        if found.cold:
            return NOT_READY
        return found._replace(reason=_CANARY) if found.meets_slo else INFEASIBLE
    loaded = any(one.ready for one in snapshot.tasks[query.task].by_cost)
    if found.code is RefusalCode.OVERLOADED or (found.code is RefusalCode.COLD and loaded):
        return OVERLOADED  # it could be loaded elsewhere, too
    return NOT_READY if found.code in _NOT_READY else INFEASIBLE
