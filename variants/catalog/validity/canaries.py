"""Canaries and the way back: which shares a catalog takes, and which version was live before."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from variants.catalog.validity.absent import no_model, no_version
from variants.errors import Conflict, InvalidInput, NotFound, SeveralMeant
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

    @property
    def moves(self) -> tuple[tuple[ModelVersion, Stage], ...]:
        """The versions that changed places, as they were before, and what each is now."""
        if self.retired is None or self.restored is None:
            return ()
        return (self.retired, Stage.RETIRED), (self.restored, Stage.LIVE)


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
        raise no_version(canary.task, canary.label)
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
    there = {key_of(v) for v in versions if v.stage is Stage.CANARY}
    kept = (one for one in canaries if (one.task, one.model, one.version) in there)
    return tuple(sorted(kept, key=lambda one: one.task))


def none_to_end(tasks: Iterable[TaskName], model: ModelName) -> NotFound:
    """The error where a share is to be ended that is not there."""
    named = ", ".join(map(repr, tasks))
    return NotFound(f"no version of model {model!r} of task {named} has a share of its queries")


def taken_back(
    tasks: Collection[TaskName],
    model: ModelName,
    number: int | None,
    versions: Iterable[ModelVersion],
    canaries: Collection[Canary],
    lived: Collection[VersionKey],
) -> tuple[RolledBack, ...]:
    """What rolling a model back takes back: the shares of its canaries; where it has none, its
    newest live version, for the newest live one below it, or else the newest that was live and was
    not taken back itself.

    Args:
        tasks: one, or all buckets of one. Where a canary has a share in some of them, only these
            shares end; else the versions change places in all of them.
        number: of the version that is to be taken back; None: the newest, where that is clear.
        versions: at least all those of the model in these tasks.
        canaries: at least those of these tasks, also those whose share was ended.
        lived: which versions are or were live, but for those that were taken back.

    Raises:
        SeveralMeant: no share stands, no version is named, and the newest live version is not the
            newest: a later one is a canary without a share or is retired, or the share of any was
            ended. Whoever means that one must not lose the live one.
        Conflict: there is no version to go back to, or the one that is named cannot be taken back.
        NotFound: one of the tasks has no such model, or no such version.
    """
    known = _by_task(tasks, model, number, versions)
    of_model = {one.task: one for one in canaries if one.model == model and one.task in known}
    shares = [of_model[task] for task in known if task in of_model and of_model[task].share]
    if ending := [one for one in shares if number in (None, one.version)]:
        return tuple(RolledBack(canary=one) for one in ending)
    swaps = []
    for task, own in known.items():
        if number is not None:
            _check_newest_live(own, number, of_model.get(task))
        swap = versions_to_swap(task, model, own, lived, of_model.get(task))
        if number is None:
            _check_meant(swap, own, of_model.get(task))
        swaps.append(swap)
    return tuple(RolledBack(retired=newest, restored=before) for newest, before in swaps)


def _by_task(
    tasks: Collection[TaskName],
    model: ModelName,
    number: int | None,
    versions: Iterable[ModelVersion],
) -> dict[TaskName, list[ModelVersion]]:
    """The versions of a model in each task, by their numbers.

    Raises:
        NotFound: one of the tasks has no such model, or no such version where one is named.
    """
    of_model = [v for v in versions if v.model == model and v.task in tasks]
    known = {
        task: sorted((v for v in of_model if v.task == task), key=lambda v: v.version)
        for task in tasks
    }
    for task, own in known.items():
        if not own:
            raise no_model(task, model)
        if number is not None and all(v.version != number for v in own):
            raise no_version(task, f"{model}-v{number}")
    return known


def _check_newest_live(own: Sequence[ModelVersion], number: int, canary: Canary | None) -> None:
    """Refuse to take a version back that is not the newest live one.

    Raises:
        Conflict: it is not, in one sentence that says what it is.
    """
    named = next(v for v in own if v.version == number)
    live = [v for v in own if v.stage is Stage.LIVE]
    if live and live[-1] is named:
        return
    name = f"{named.label} of task {named.task!r}"
    if named.stage is Stage.LIVE:
        raise Conflict(
            f"nothing was changed: {name} is live, and so is {live[-1].label}, which is taken back"
            f" before it; `modelless retire` takes {named.label} alone out of service"
        )
    now = f"live is {live[-1].label}" if live else "no version is live"
    which = (
        "; the version to name is the one that is taken back"
        if named.stage is Stage.RETIRED
        else ""
    )
    what = f"{not_answering(named, canary)}{why_ended(named, canary)}"
    raise Conflict(f"nothing was changed: {now}{which}; {name} {what}")


def _check_meant(
    swap: tuple[ModelVersion, ModelVersion],
    own: Sequence[ModelVersion],
    canary: Canary | None,
) -> None:
    """Refuse to guess where another version than the newest live one may be meant.

    Raises:
        SeveralMeant: one that is newer is no candidate, or one has lost its share.
    """
    newest, before = swap
    others = [
        v
        for v in own
        if (canary is not None and v.version == canary.version)
        or (v.version > newest.version and v.stage is not Stage.CANDIDATE)
    ]
    if not others:
        return
    first = others[-1]
    again = "stays live" if before.stage is Stage.LIVE else "is live again"
    raise SeveralMeant(
        f"nothing was changed: {newest.label} of task {newest.task!r} is live, and {first.label}"
        f" {not_answering(first, canary)}; name the version that is to be taken back (`--version"
        f" {newest.version}`, over REST `version`)",
        choices={
            newest.version: f"{newest.label} is retired, and {before.label} {again}",
            **{
                v.version: f"nothing: {v.label} {not_answering(v, canary)}{why_ended(v, canary)}"
                for v in reversed(others)
            },
        },
    )


def not_answering(version: ModelVersion, canary: Canary | None) -> str:
    """What a version is that answers no query which names no variant."""
    if version.stage is not Stage.CANARY:
        return f"is {'retired already' if version.stage is Stage.RETIRED else 'a candidate'}"
    more = " any more" if why_ended(version, canary) else ""
    return f"is a canary without a share of the queries{more}"


def why_ended(version: ModelVersion, canary: Canary | None) -> str:
    """Why the control loop has ended the share of a version; empty where it has not."""
    ended = canary.ended if canary is not None and canary.version == version.version else ""
    return f": {ended}" if ended else ""


def key_of(version: ModelVersion) -> VersionKey:
    """By what a catalog knows a version."""
    return version.task, version.model, version.version


def versions_to_swap(
    task: TaskName,
    model: ModelName,
    own: Sequence[ModelVersion],
    lived: Collection[VersionKey],
    canary: Canary | None = None,
) -> tuple[ModelVersion, ModelVersion]:
    """The newest live version of a model, and the newest live one below it; where none is live, the
    newest that was.

    Args:
        own: all versions of the model, by their numbers.
        lived: which are or were live, but for those that were taken back.
        canary: of the model, as an error tells why its share was ended.

    Raises:
        Conflict: there are no such two.
    """
    live = [v for v in own if v.stage is Stage.LIVE]
    if not live:
        raise Conflict(
            f"model {model!r} of task {task!r} has neither a canary with a share nor a live version"
        )
    newest = live[-1]
    before = live[:-1] or [v for v in own if v.version < newest.version and key_of(v) in lived]
    if not before:
        ended = (
            f"; {canary.label} lost its share: {canary.ended}" if canary and canary.ended else ""
        )
        raise Conflict(
            f"nothing was changed: {newest.label} is live, and no version of model {model!r} of"
            f" task {task!r} was live before {newest.label}{ended}"
        )
    return newest, before[-1]
