"""The part of a snapshot that may answer a query which only some versions of its task can."""

from collections.abc import Mapping
from dataclasses import replace

from planner import sentences
from planner.selection.frontier_index import task_view
from planner.types import Candidate, Refusal, RefusalCode, Snapshot, TaskView
from variants.types import TaskName


def without_versions(snapshot: Snapshot, task: TaskName, why: Mapping[str, str]) -> Snapshot:
    """A snapshot for queries that some versions of their task cannot answer, whatever the SLO.

    Args:
        why: what stands in the way of each, by its label: ``makes 9 tokens of text 0``.
    """
    view = snapshot.tasks.get(task)
    if view is None:
        return snapshot
    return _part(snapshot, view, [one for one in view.by_cost if one.model_version not in why], why)


def for_version(snapshot: Snapshot, task: TaskName, label: str) -> Snapshot:
    """A snapshot for queries that name the version of their task which may answer; it may be a
    canary.

    Args:
        label: of the version: ``cnn-small-v2``.
    """
    view = snapshot.tasks.get(task)
    if view is None:
        return snapshot
    others = {one.model_version for one in view.by_cost} - {label}
    why = dict.fromkeys(others, f"the query names {label}")
    return _part(snapshot, view, _of(view, label), why)


def of_version(snapshot: Snapshot, task: TaskName, label: str) -> Snapshot | None:
    """A snapshot of one task, of which one version is all that there is, whether it is a canary or
    not; None where it has no variant that could answer."""
    view = snapshot.tasks.get(task)
    own = [] if view is None else _of(view, label)
    if view is None or not own:
        return None
    return replace(
        snapshot, tasks={task: task_view(view.task, own, {}, view.unmeasured)}, parts=None
    )


def _of(view: TaskView, label: str) -> list[Candidate]:
    return [replace(one, canary=False) for one in view.by_cost if one.model_version == label]


def _part(
    snapshot: Snapshot, view: TaskView, kept: list[Candidate], why: Mapping[str, str]
) -> Snapshot:
    out = {one.variant: why[one.model_version] for one in view.by_cost if one.model_version in why}
    unmeasured = {name: kinds for name, kinds in view.unmeasured.items() if name not in out}
    made = task_view(view.task, kept, {**view.excluded, **out}, unmeasured)
    return replace(snapshot, tasks={**snapshot.tasks, view.task.name: made}, parts=None)


def version_not_found(snapshot: Snapshot, task: TaskName, label: str) -> Refusal | None:
    """The refusal of a query that names a version which has no variant that could answer; None
    where it has one, or there is no such task.

    Args:
        label: the name of a version, as a client gives it.
    """
    view = snapshot.tasks.get(task)
    if view is None:
        return None
    if any(one.model_version == label for one in view.by_cost):  # as for each query that is right
        return None
    own = {str(name): why for name, why in view.excluded.items() if name.startswith(f"{label}-")}
    if own:
        name, why = next(iter(own.items()))
        message = f"no variant of {label!r} of task {task!r} answers, such as {name!r}: {why}"
    else:
        there = {one.model_version for one in view.by_cost}
        known = sentences.there_are(there, label)
        message = f"task {task!r} has no model version {label!r} that answers{known}"
    return Refusal(code=RefusalCode.VARIANT_NOT_FOUND, message=message, reasons=own)
