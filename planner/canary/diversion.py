"""A snapshot in which the variants of a canary version are all that there is of its task.

What ``planner.selection.select`` finds in it is the answer of the canary to a query, by the same
rule and under the same SLO as of any other version.
"""

from dataclasses import replace

from planner.selection.frontier_index import task_view
from planner.selection.select import select
from planner.types import Choice, Query, Reason, RefusalCode, Snapshot
from variants.types import TaskName

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


def of_version(snapshot: Snapshot, task: TaskName, label: str) -> Snapshot | None:
    """The snapshot for one version, named as ``cnn-small-v2``; None where it cannot answer."""
    view = snapshot.tasks.get(task)
    if view is None:
        return None
    own = [
        replace(candidate, canary=False)
        for candidate in view.by_cost
        if candidate.model_version == label
    ]
    if not own:
        return None
    return replace(
        snapshot, tasks={task: task_view(view.task, own, {}, view.unmeasured)}, parts=None
    )


def divert(snapshot: Snapshot, query: Query, now_ms: float) -> Choice | str:
    """The canary's variant and worker for a query, or why it is not diverted.

    It is only where a variant is ready and predicted to meet the SLO: nothing is loaded for it, and
    best effort is not made.

    Args:
        snapshot: as ``of_version`` makes it.
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
