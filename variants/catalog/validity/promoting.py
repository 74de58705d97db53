"""Which version is live from now on where only its model is named: the newest, if that is clear.

Whoever promotes without a number means the version that came last and that has proved itself. A
version that was found worse, or was taken out of service, is not made live by guessing, and neither
is one that came after the canary that proves itself right now.
"""

from collections.abc import Collection, Iterable

from variants.catalog.validity.absent import no_model, no_version
from variants.catalog.validity.canaries import not_answering, why_ended
from variants.errors import SeveralMeant
from variants.types import Canary, ModelName, ModelVersion, Stage, TaskName

NAMED = 5
"""Versions that a refusal names at most."""


def to_promote(
    tasks: Collection[TaskName],
    model: ModelName,
    number: int | None,
    versions: Iterable[ModelVersion],
    canaries: Iterable[Canary],
) -> tuple[ModelVersion, ...]:
    """The version of each task that becomes live, as it is; of buckets only those that have it.

    Args:
        tasks: one, or all buckets of one.
        number: of the version; None: the newest, where that is clear.
        versions: at least all those of the model in these tasks.
        canaries: at least those of these tasks, also those whose share was ended.

    Raises:
        SeveralMeant: no version is named, and the newest was retired beside others, has lost its
            share as a canary, or has none while another version of the model has one.
        NotFound: none of the tasks has such a model or version.
    """
    known = [v for v in versions if v.model == model and v.task in tasks]
    if not known:
        raise no_model(next(iter(tasks)), model)
    wanted = max(v.version for v in known) if number is None else number
    found = {v.task: v for v in known if v.version == wanted}
    if not found:
        raise no_version(next(iter(tasks)), f"{model}-v{wanted}")
    if number is None:
        of_model = {one.task: one for one in canaries if one.model == model}
        for task, newest in found.items():
            others = [v for v in known if v.task == task and v is not newest]
            _check_meant(newest, others, of_model.get(task))
    return tuple(found[task] for task in tasks if task in found)


def _check_meant(
    newest: ModelVersion, others: Collection[ModelVersion], canary: Canary | None
) -> None:
    """Refuse to guess where another version than the newest may be meant.

    Args:
        others: all other versions of the model in this task.
        canary: of the model in this task.

    Raises:
        SeveralMeant: it may be.
    """
    if newest.stage is Stage.LIVE:  # nothing is changed
        return
    proving = canary is not None and canary.share and canary.version != newest.version
    taken_out = newest.stage is Stage.RETIRED and others
    if not (proving or taken_out or why_ended(newest, canary)):
        return
    of_task = f"of task {newest.task!r}"
    now = f"{newest.label}, the newest version, {_state(newest, canary)}"
    if proving and canary is not None:
        now += f", and {canary.label} has a share"
    chosen = sorted((newest, *others), key=lambda v: v.version, reverse=True)[:NAMED]
    raise SeveralMeant(
        f"nothing was changed: {now}{why_ended(newest, canary)}; name the version {of_task} that"
        f" is to be live, `modelless promote {newest.task} {newest.model} VERSION`, over REST"
        " `version`",
        choices={v.version: _words(v, canary) for v in chosen},
    )


def _words(version: ModelVersion, canary: Canary | None) -> str:
    """What naming a version does."""
    if version.stage is Stage.LIVE:
        return f"nothing: {version.label} is live"
    if canary is not None and canary.share and canary.version == version.version:
        return f"{version.label} becomes live, the canary that has a share of the queries"
    state = f"{_state(version, canary)}{why_ended(version, canary)}"
    return f"{version.label} becomes live, which {state}"


def _state(version: ModelVersion, canary: Canary | None) -> str:
    return not_answering(version, canary).removesuffix(" already")
