"""What is taken out of a catalog: tasks and retired versions, and the artifacts of both."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from variants.errors import Conflict
from variants.types import Digest, ModelVersion, Peak, Stage, TaskName, Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What was taken out at once."""

    versions: tuple[ModelVersion, ...]
    variants: tuple[Variant, ...]
    peaks: tuple[Peak, ...] = ()
    """Peaks of demand that were declared for the task."""
    tasks: tuple[TaskName, ...] = ()
    """Those that are gone as a whole."""

    @property
    def artifacts(self) -> frozenset[Digest]:
        """Sources and artifacts; something else may use some of them."""
        return frozenset(v.source for v in self.versions) | {v.artifact for v in self.variants}

    def of(self, task: TaskName) -> "Removed":
        """That part of it that was of one task."""
        return Removed(
            versions=tuple(one for one in self.versions if one.task == task),
            variants=tuple(one for one in self.variants if one.task == task),
            peaks=tuple(one for one in self.peaks if one.task == task),
            tasks=tuple(one for one in self.tasks if one == task),
        )


def together(gone: Iterable[Removed]) -> Removed:
    """What was taken out of several tasks at once."""
    parts = tuple(gone)
    return Removed(
        versions=tuple(version for one in parts for version in one.versions),
        variants=tuple(variant for one in parts for variant in one.variants),
        peaks=tuple(peak for one in parts for peak in one.peaks),
        tasks=tuple(task for one in parts for task in one.tasks),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """What became of artifacts that were left over."""

    subjects: tuple[str, ...]
    """What they were of, each once."""
    deleted: tuple[Digest, ...]
    used: tuple[Digest, ...]
    """Those that something registered uses; they stay."""


def freed(leftovers: Mapping[Digest, str], used: Collection[Digest]) -> Freed:
    """What becomes of artifacts that are left over, of which some are used."""
    return Freed(
        subjects=tuple(dict.fromkeys(leftovers.values())),
        deleted=tuple(digest for digest in leftovers if digest not in used),
        used=tuple(digest for digest in leftovers if digest in used),
    )


def discarded(
    digests: Collection[Digest], used: Collection[Digest], delete: Callable[[Digest], None]
) -> tuple[Digest, ...]:
    """Have those deleted that are not used; which these were."""
    gone = tuple(sorted(set(digests) - set(used)))
    for digest in gone:
        delete(digest)
    return gone


def check_retired(version: ModelVersion) -> None:
    """
    Raises:
        Conflict: the version may still answer queries.
    """
    if version.stage is not Stage.RETIRED:
        stage = f"a {version.stage}" if version.stage in (Stage.CANDIDATE, Stage.CANARY) else "live"
        raise Conflict(
            f"{version.label} of task {version.task!r} is {stage}; only a retired version can be"
            f" removed: `modelless retire {version.task} {version.model} {version.version}`"
        )


def check_number(version: ModelVersion, removed: Mapping[int, Digest]) -> None:
    """Refuse the number of a version that was removed, unless the bytes are the same.

    Workers, clients and what was learned know variants by names that begin with it.

    Args:
        removed: the sources of the model's removed versions, by their numbers.

    Raises:
        Conflict: another model had this number.
    """
    source = removed.get(version.version)
    if source is not None and source != version.source:
        raise Conflict(
            f"version {version.label!r} of task {version.task!r} was another model, which was "
            "removed; give the new one a new number"
        )
