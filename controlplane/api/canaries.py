"""Routes of canaries: a version gets a share of the queries, and a model is rolled back."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path

from controlplane.api.context import ApiContext
from controlplane.api.path_parameters import ModelPath, TaskPath
from controlplane.timestamps import timestamp
from controlplane.views.canary_schemas import Canaries, CanarySchema, CanaryShare, RollbackSchema
from controlplane.views.catalog.tasks import named_tasks
from variants.buckets import in_order
from variants.catalog.validity.canaries import RolledBack, check_may_share
from variants.errors import NotFound, StateUnavailable
from variants.figures import percent
from variants.types import Canary, CatalogSnapshot, Event, ModelName, Stage, TaskName

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
        known = await context.snapshot()
        parts = named_tasks(known, task, model, version)
        asked = [_asked(part, model, version, change) for part in parts]
        rows = await (_give(context, known, asked) if change.share else _end(context, known, asked))
        return rows[0].model_copy(update={"task": task})

    @routes.post(
        "/models/{task}/{model}/rollback",
        summary="Take back what was done last for a model",
        description="Ends the share of its canary. Where no version has one, the newest live "
        "version is retired, and the one that was live before is live again: at once, so that a "
        "version is live at all times. `CONFLICT` where there is none before.",
    )
    async def roll_back(task: TaskPath, model: ModelPath) -> RollbackSchema:
        parts = named_tasks(await context.snapshot(), task, model)
        return await _roll_back(context, task, parts, model)

    return routes


def _asked(task: TaskName, model: str, version: int, change: CanaryShare) -> Canary:
    """The share of a version of one task, as it is asked for."""
    return Canary(
        task=task, model=ModelName(model), version=version, share=change.share,
        after=change.after, promote=change.promote, set_at=timestamp(),
    )  # fmt: skip


async def _give(
    context: ApiContext, known: CatalogSnapshot, asked: Sequence[Canary]
) -> list[CanarySchema]:
    """Give a version of one task, or of each of its buckets, its share.

    Raises:
        Conflict, NotFound: one of them cannot have it; then none gets it.
    """
    versions = {(one.task, one.label): one for one in known.versions}
    sharing = {one.task: one for one in known.canaries}
    for one in asked:
        check_may_share(one, versions.get(_key(one)), sharing.get(one.task))
    rows = []
    for one in asked:
        stored = await asyncio.to_thread(context.catalog.set_canary, one)
        words = f"it gets {percent(one.share)} % of the queries that name no variant"
        await _tell("canary_set", f"{one.task}/{one.label}", words, context)
        rows.append(CanarySchema.of(stored, None))
    return rows


async def _end(
    context: ApiContext, known: CatalogSnapshot, asked: Sequence[Canary]
) -> list[CanarySchema]:
    """End the share of a version of one task, or of each of its buckets in which it has one.

    Raises:
        NotFound: it has none that could be ended.
    """
    sharing = {_key(one): one for one in known.canaries if one.share}
    ending = [(one, sharing[_key(one)]) for one in asked if _key(one) in sharing]
    if not ending:
        first = asked[0]
        raise NotFound(f"{first.label[:140]} of task {first.task!r} has no share of its queries")
    rows = []
    for one, share in ending:
        await asyncio.to_thread(context.catalog.end_canary, share.task, share.model)
        await _tell("canary_ended", f"{one.task}/{one.label}", "its share was ended", context)
        rows.append(CanarySchema.of(one, (await _judged(context)).get(str(share.number))))
    return rows


def _key(canary: Canary) -> tuple[TaskName, str]:
    return canary.task, canary.label


async def _roll_back(
    context: ApiContext, task: str, parts: Sequence[TaskName], model: str
) -> RollbackSchema:
    """Take back what was done last for a model, in one task or in all buckets of one at once."""
    done = await asyncio.to_thread(context.catalog.roll_back, parts, ModelName(model))
    with contextlib.suppress(StateUnavailable):  # who asks again would go back further
        await _tell_back(context, done)
    first = done[0]
    return RollbackSchema(
        task=task,
        model=model,
        ended=None if first.canary is None else first.canary.label,
        retired=None if first.retired is None else first.retired.label,
        live=None if first.restored is None else first.restored.label,
    )


async def _tell_back(context: ApiContext, done: Sequence[RolledBack]) -> None:
    for one in done:
        if one.canary is not None:
            subject = f"{one.canary.task}/{one.canary.label}"
            await _tell("canary_ended", subject, "it was rolled back", context)
        for version, stage in ((one.restored, Stage.LIVE), (one.retired, Stage.RETIRED)):
            if version is not None and version.stage is not stage:
                subject = f"{version.task}/{version.label}"
                words = f"{version.stage} -> {stage}, rolled back"
                await _tell("stage_changed", subject, words, context)


async def _judged(context: ApiContext) -> Mapping[str, Any]:
    """What the control loop tells; nothing while the live state is away."""
    with contextlib.suppress(StateUnavailable):
        return await context.live.canaries()
    return {}


async def _tell(kind: str, subject: str, words: str, context: ApiContext) -> None:
    event = Event(at=timestamp(), kind=kind, subject=subject, message=words)
    await asyncio.to_thread(context.catalog.add_event, event)
