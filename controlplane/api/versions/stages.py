"""Routes of stages: a version is promoted, retired, or made a canary."""

import asyncio
from collections.abc import Iterable, Sequence

from fastapi import APIRouter

from controlplane.api.context import ApiContext, happened
from controlplane.api.path_parameters import ModelPath, TaskPath, VersionPath
from controlplane.views.catalog.model_schemas import (
    PromotionAsked,
    StageChange,
    StageSchema,
    VersionSchema,
)
from controlplane.views.catalog.models import is_last_live, model_rows
from controlplane.views.catalog.tasks import named_tasks
from variants.catalog.validity.absent import no_version_of
from variants.catalog.validity.spaces import WHY, is_own_space, standing_back
from variants.errors import Conflict
from variants.types import CatalogSnapshot, ModelName, ModelVersion, Stage, TaskName

MOST_LOOKS = 10
"""So often a change that others have overtaken is decided anew."""


def stage_routes(context: ApiContext) -> APIRouter:
    """``POST`` of a version's stage, and of a model's promotion."""
    routes = APIRouter(prefix="/v1", tags=["registration"])

    @routes.post(
        "/models/{task}/{model}/versions/{version}/stage",
        summary="Promote or retire a version",
        description="The other versions of the task stay where they are, but of one judged by "
        "`nearest`: vectors of two versions cannot be compared, so there the others that were live "
        "become canaries, which answer queries that name them (`stood_back`). `CONFLICT` without "
        "`allow_gap`, where it is the only live version of its task.",
    )
    async def set_stage(
        task: TaskPath, model: ModelPath, version: VersionPath, change: StageChange
    ) -> StageSchema:
        return await _set_stage(context, task, model, version, change)

    @routes.post(
        "/models/{task}/{model}/promote",
        summary="Promote the newest version of a model",
        description="`CONFLICT` with `choices`, and nothing is changed, where another version may "
        "be meant: where the newest is retired beside others, has lost its share as a canary, or "
        "has none while another version has one. `version` names one, whatever it was.",
    )
    async def promote(
        task: TaskPath, model: ModelPath, asked: PromotionAsked | None = None
    ) -> StageSchema:
        snapshot = await context.snapshot()
        model_rows(snapshot, task, model)  # an error names the tasks and models that there are
        number = None if asked is None else asked.version
        if number is not None:
            _versions(snapshot, task, model, number)
        parts = named_tasks(snapshot, task, model, number)
        done = await asyncio.to_thread(context.catalog.promote, parts, ModelName(model), number)
        before = [VersionSchema.of(one, of_task=None, variants=[]) for one in done]
        moving = [one for one in before if one.stage is not Stage.LIVE]
        back = _standing_back(snapshot, moving, Stage.LIVE)
        if moving:
            await _tell(context, moving, Stage.LIVE, back)
        shown = _versions(await context.snapshot(), task, model, done[0].version)[0]
        return _staged(task, shown, Stage.LIVE, back)

    return routes


async def _set_stage(
    context: ApiContext, task: str, model: str, version: int, change: StageChange
) -> StageSchema:
    """Move a version to another stage, of a task for rows of several lengths in each bucket.

    Raises:
        TaskNotFound, NotFound: there is no such version.
        Conflict: it is the only live one of its task, or the catalog is changed all the time.
    """
    for _ in range(MOST_LOOKS):
        snapshot = await context.snapshot()
        found = _versions(snapshot, task, model, version)
        if change.stage is not Stage.LIVE and not change.allow_gap:
            _refuse_gap(snapshot, found)
        moving = [before for before in found if before.stage is not change.stage]
        back = _standing_back(snapshot, moving, change.stage)
        if not moving:
            break
        # One, or one of each bucket of the task; looked at again where others were quicker.
        tasks = [TaskName(one.task) for one in moving]
        if await asyncio.to_thread(
            context.catalog.set_stage, tasks, ModelName(model), version, change.stage,
            decided_at=snapshot.state,
        ):  # fmt: skip
            await _tell(context, moving, change.stage, back)
            break
    else:
        raise Conflict("the catalog is being changed all the time; ask again")
    return _staged(task, found[0], change.stage, back)


def _staged(
    task: str, of: VersionSchema, stage: Stage, back: Sequence[ModelVersion]
) -> StageSchema:
    """A version whose stage was set, by the name of the task that was asked."""
    said = of.model_copy(update={"stage": stage, "task": task})
    labels = [one.label for one in back]
    return StageSchema(**said.model_dump(), stood_back=list(dict.fromkeys(labels)))


def _versions(snapshot: CatalogSnapshot, task: str, model: str, number: int) -> list[VersionSchema]:
    """A version of a model, of a task for rows of several lengths that of each bucket.

    Raises:
        TaskNotFound, NotFound: there is none; the error names those that there are.
    """
    rows = model_rows(snapshot, task, model)
    found = [one for row in rows for one in row.versions if one.version == number]
    if not found:
        known = (one.version for row in rows for one in row.versions)
        raise no_version_of(f"model {model[:128]!r} of task {task[:128]!r}", number, known)
    return found


def _standing_back(
    snapshot: CatalogSnapshot, moving: Sequence[VersionSchema], stage: Stage
) -> list[ModelVersion]:
    """The versions that become canaries because another one becomes live."""
    apart = {task.name for task in snapshot.tasks if is_own_space(task.metric)}
    stages = {(TaskName(v.task), ModelName(v.model), v.version): stage for v in moving}
    return standing_back((v for v in snapshot.versions if v.task in apart), stages)


async def _tell(
    context: ApiContext,
    moving: Sequence[VersionSchema],
    stage: Stage,
    back: Sequence[ModelVersion],
) -> None:
    """Tell as events that the stage of a version was set, in each bucket.

    Args:
        moving: as it was before.
        back: the versions that became canaries by it.
    """
    live = f"{moving[0].model}-v{moving[0].version}"
    told = [(f"{one.task}/{one.model}-v{one.version}", one.stage, str(stage)) for one in moving]
    behind = f"{Stage.CANARY}: {WHY}, and {live} is live"
    told += [(f"{one.task}/{one.label}", one.stage, behind) for one in back]
    await context.tell(
        *(happened("stage_changed", subject, f"{was} -> {now}") for subject, was, now in told)
    )


def _refuse_gap(snapshot: CatalogSnapshot, versions: Iterable[VersionSchema]) -> None:
    """
    Raises:
        Conflict: one of them is the only live version of its task.
    """
    for one in versions:
        if is_last_live(snapshot, one):
            raise Conflict(
                f"{one.model}-v{one.version} is the only live version of {one.task}: without it,"
                " queries that name no variant are refused; `--yes` (`allow_gap`) accepts that"
            )
