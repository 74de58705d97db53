"""Canaries and the way back: which shares a catalog takes, and which version was live before."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from variants.errors import Conflict, InvalidInput, NotFound
from variants.types import Canary, ModelName, ModelVersion, Stage, TaskName

MOST_AFTER = 1_000_000_000

VersionKey = tuple[TaskName, ModelName, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack:
    """What was taken back: a canary's share, or a live version for the one before it."""

    canary: Canary | None = None
    retired: ModelVersion | None = None
    """As it was before."""
    restored: ModelVersion | None = None
    """As it was before: it may have been live all the time."""


def check_canary(canary: Canary) -> None:
    """Refuse a share that is none.

    Raises:
        InvalidInput: the first thing found wrong, in one sentence.
    """
    if not 0.0 < canary.share <= 1.0:
        raise InvalidInput(
            f"a canary cannot have a share of {canary.share:g}: it must be above 0 and at most 1"
        )
    if not 1 <= canary.after <= MOST_AFTER:
        raise InvalidInput(
            f"a canary cannot be judged after {canary.after} queries: it must be between 1 and "
            f"{MOST_AFTER:,}"
        )


def check_may_share(canary: Canary, version: ModelVersion | None, known: Canary | None) -> None:
    """Refuse to give a version a share.

    Args:
        version: the one that is named, if it is there.
        known: what the task has of a canary now.

    Raises:
        Conflict: it is live, or another one has a share.
        NotFound: there is no such version.
    """
    if version is None:
        raise NotFound(f"task {canary.task!r} has no version {canary.label}")
    if version.stage is Stage.LIVE:
        raise Conflict(f"{canary.label} of task {canary.task!r} is live: it may answer any query")
    if known is not None and known.share and known.label != canary.label:
        raise Conflict(
            f"{known.label} of task {canary.task!r} has a share of its queries; a task has one "
            "canary at a time"
        )


def standing(canaries: Iterable[Canary], versions: Iterable[ModelVersion]) -> tuple[Canary, ...]:
    """Those whose version is a canary still: processes of an earlier release move versions and
    remove them without a look at what they share."""
    there = {(v.task, v.model, v.version) for v in versions if v.stage is Stage.CANARY}
    kept = (one for one in canaries if (one.task, one.model, one.version) in there)
    return tuple(sorted(kept, key=lambda one: one.task))


def none_to_end(task: TaskName, model: ModelName) -> NotFound:
    """The error where a share is to be ended that is not there."""
    return NotFound(f"no version of model {model!r} of task {task!r} has a share of its queries")


def versions_to_swap(
    task: TaskName,
    model: ModelName,
    versions: Iterable[ModelVersion],
    lived: Collection[VersionKey],
) -> tuple[ModelVersion, ModelVersion]:
    """The newest live version of a model, and the newest one below it that was ever live.

    Args:
        versions: at least all those of the model.
        lived: which are or were live.

    Raises:
        Conflict: there are no such two.
        NotFound: the model has no version.
    """
    own = sorted(
        (v for v in versions if (v.task, v.model) == (task, model)), key=lambda v: v.version
    )
    if not own:
        raise NotFound(f"task {task!r} has no model {model!r}")
    live = [v for v in own if v.stage is Stage.LIVE]
    if not live:
        raise Conflict(
            f"model {model!r} of task {task!r} has neither a canary with a share nor a live version"
        )
    newest = live[-1]
    before = [
        v
        for v in own
        if v.version < newest.version
        and (v.stage is Stage.LIVE or (v.task, v.model, v.version) in lived)
    ]
    if not before:
        raise Conflict(
            f"no version of model {model!r} of task {task!r} was live before {newest.label}"
        )
    return newest, before[-1]
