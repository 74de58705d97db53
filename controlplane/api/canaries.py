"""Routes of canaries: a version gets a share of the queries, and a model is rolled back."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path

from controlplane.api.context import ApiContext
from controlplane.api.path_parameters import ModelPath, TaskPath
from controlplane.timestamps import timestamp
from controlplane.views import catalog_views
from controlplane.views.canary_schemas import Canaries, CanarySchema, CanaryShare, RollbackSchema
from variants.buckets import in_order
from variants.errors import NotFound, StateUnavailable
from variants.figures import percent
from variants.types import Canary, Event, ModelName, Stage, TaskName

VersionPath = Annotated[int, Path(ge=1, le=2**31 - 1, description="Number of a version.")]


def canary_routes(context: ApiContext) -> APIRouter:
    """``GET /v1/canaries``, and what changes them."""
    routes = APIRouter(prefix="/v1", tags=["registration"])

    @routes.get(
        "/canaries",
        summary="Canaries with a share of the queries, and what is known of them",
        description="Also the last one of a task where the control loop has taken its share away.",
    )
    async def canaries() -> Canaries:
        judged = await _judged(context)
        known = sorted((await context.snapshot()).canaries, key=lambda one: in_order(one.task))
        return Canaries(
            canaries=[CanarySchema.of(one, judged.get(str(one.number))) for one in known]
        )

    @routes.put(
        "/models/{task}/{model}/versions/{version}/canary",
        summary="Give a version a share of the queries",
        description="Of the task's queries that name no variant, that share goes to this version "
        "where it can meet their SLO. A candidate or a retired version becomes a canary by it. A "
        "task has one canary with a share at a time: else `CONFLICT`. Set anew, it is judged anew.",
    )
    async def share(
        task: TaskPath, model: ModelPath, version: VersionPath, change: CanaryShare
    ) -> CanarySchema:
        parts = catalog_views.named_tasks(await context.snapshot(), task, model)
        rows = [await _share(context, part, model, version, change) for part in parts]
        return rows[0].model_copy(update={"task": task})

    @routes.post(
        "/models/{task}/{model}/rollback",
        summary="Take back what was done last for a model",
        description="Ends the share of its canary. Where no version has one, the newest live "
        "version is retired, and the one that was live before is live again: at once, so that a "
        "version is live at all times. `CONFLICT` where there is none before.",
    )
    async def roll_back(task: TaskPath, model: ModelPath) -> RollbackSchema:
        parts = catalog_views.named_tasks(await context.snapshot(), task, model)
        rows = [await _roll_back(context, part, model) for part in parts]
        return rows[0].model_copy(update={"task": task})

    return routes


async def _share(
    context: ApiContext, task: TaskName, model: str, version: int, change: CanaryShare
) -> CanarySchema:
    """Give a version of one task its share, or end that.

    Raises:
        NotFound: it has none that could be ended.
    """
    asked = Canary(
        task=task, model=ModelName(model), version=version, share=change.share,
        after=change.after, promote=change.promote, set_at=timestamp(),
    )  # fmt: skip
    subject = f"{task}/{asked.label}"
    if not change.share:
        known = next((c for c in (await context.snapshot()).canaries if c.task == task), None)
        if known is None or known.label != asked.label or not known.share:
            raise NotFound(f"{asked.label[:140]} of task {task!r} has no share of its queries")
        await asyncio.to_thread(context.catalog.end_canary, known.task, known.model)
        await _tell("canary_ended", subject, "its share was ended", context)
        return CanarySchema.of(asked, (await _judged(context)).get(str(known.number)))
    stored = await asyncio.to_thread(context.catalog.set_canary, asked)
    words = f"it gets {percent(asked.share)} % of the queries that name no variant"
    await _tell("canary_set", subject, words, context)
    return CanarySchema.of(stored, None)


async def _roll_back(context: ApiContext, task: TaskName, model: str) -> RollbackSchema:
    """Take back what was done last for a model of one task."""
    done = await asyncio.to_thread(context.catalog.roll_back, task, ModelName(model))
    if done.canary is not None:
        subject = f"{task}/{done.canary.label}"
        await _tell("canary_ended", subject, "it was rolled back", context)
    for version, stage in ((done.restored, Stage.LIVE), (done.retired, Stage.RETIRED)):
        if version is not None and version.stage is not stage:
            subject = f"{task}/{version.label}"
            words = f"{version.stage} -> {stage}, rolled back"
            await _tell("stage_changed", subject, words, context)
    return RollbackSchema(
        task=task,
        model=model,
        ended=None if done.canary is None else done.canary.label,
        retired=None if done.retired is None else done.retired.label,
        live=None if done.restored is None else done.restored.label,
    )


async def _judged(context: ApiContext) -> Mapping[str, Any]:
    """What the control loop tells; nothing while the live state is away."""
    with contextlib.suppress(StateUnavailable):
        return await context.live.canaries()
    return {}


async def _tell(kind: str, subject: str, words: str, context: ApiContext) -> None:
    event = Event(at=timestamp(), kind=kind, subject=subject, message=words)
    await asyncio.to_thread(context.catalog.add_event, event)
