"""Routes of canaries: a version gets a share of the queries, and a model is rolled back."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter

from controlplane.api.context import ApiContext, happened
from controlplane.api.path_parameters import ModelPath, TaskPath, VersionPath
from controlplane.timestamps import timestamp
from controlplane.views.canary_schemas import (
    Canaries,
    CanarySchema,
    CanaryShare,
    RollbackAsked,
    RollbackSchema,
)
from controlplane.views.catalog.tasks import named_tasks
from variants.buckets import in_order
from variants.catalog.validity.canaries import RolledBack
from variants.errors import NotFound, StateUnavailable
from variants.figures import percent
from variants.types import Canary, CatalogSnapshot, Event, ModelName, ModelVersion, TaskName


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
        return Canaries(canaries=[CanarySchema.of(one, judged.get(one.share_id)) for one in known])

    @routes.put(
        "/models/{task}/{model}/versions/{version}/canary",
        name="share_canary",
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
        rows = await (_give(context, asked) if change.share else _end(context, known, asked))
        return rows[0].model_copy(update={"task": task})

    @routes.post(
        "/models/{task}/{model}/rollback",
        summary="Take back what was done last for a model",
        description="Ends the share of its canary. Where no version has one, the newest live "
        "version is retired, and the one that was live before is live again: at once, so that a "
        "version is live at all times. `CONFLICT` where there is none before, and where no "
        "`version` is named while a newer one than the live one is a canary or was live, or a "
        "canary's share was ended by the control loop: `choices` has what may be meant.",
    )
    async def roll_back(
        task: TaskPath, model: ModelPath, asked: RollbackAsked | None = None
    ) -> RollbackSchema:
        version = None if asked is None else asked.version
        parts = named_tasks(await context.snapshot(), task, model, version)
        return await _roll_back(context, task, parts, model, version)

    return routes


def _asked(task: TaskName, model: str, version: int, change: CanaryShare) -> Canary:
    """The share of a version of one task, as it is asked for."""
    return Canary(
        task=task, model=ModelName(model), version=version, share=change.share,
        after=change.after, promote=change.promote, set_at=timestamp(),
    )  # fmt: skip


async def _give(context: ApiContext, asked: Sequence[Canary]) -> list[CanarySchema]:
    """Give a version of one task, or of each of its buckets, its share.

    Raises:
        Conflict, NotFound: one of them cannot have it; then none gets it.
    """
    given = await asyncio.to_thread(context.catalog.set_canary, *asked)
    events = [
        _event(
            "canary_set",
            one,
            f"it gets {percent(one.share)} % of the queries that name no variant",
        )
        for one in given
    ]
    await context.tell(*events)
    return [CanarySchema.of(one, None) for one in given]


async def _end(
    context: ApiContext, known: CatalogSnapshot, asked: Sequence[Canary]
) -> list[CanarySchema]:
    """End the share of a version of one task, or of each of its buckets in which it has one.

    Raises:
        NotFound: it has none that could be ended.
    """
    sharing = {(one.task, one.label) for one in known.canaries if one.share}
    ending = {one.task: one for one in asked if (one.task, one.label) in sharing}
    if not ending:
        first = asked[0]
        raise NotFound(f"{first.label[:140]} of task {first.task!r} has no share of its queries")
    model = asked[0].model
    ended = await asyncio.to_thread(context.catalog.end_canary, tuple(ending), model)
    events = [_event("canary_ended", one, "its share was ended") for one in ended]
    await context.tell(*events)
    judged = await _judged(context)
    return [CanarySchema.of(ending[one.task], judged.get(one.share_id)) for one in ended]


async def _roll_back(
    context: ApiContext, task: str, parts: Sequence[TaskName], model: str, version: int | None
) -> RollbackSchema:
    """Take back what was done last for a model, in one task or in all buckets of one at once."""
    done = await asyncio.to_thread(context.catalog.roll_back, parts, ModelName(model), version)
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
    events = []
    for one in done:
        if one.canary is not None:
            events.append(_event("canary_ended", one.canary, "it was rolled back"))
        for version, stage in reversed(one.moves):
            if version.stage is not stage:
                words = f"{version.stage} -> {stage}, rolled back"
                events.append(_event("stage_changed", version, words))
    await context.tell(*events)


async def _judged(context: ApiContext) -> Mapping[str, Any]:
    """What the control loop tells; nothing while the live state is away."""
    with contextlib.suppress(StateUnavailable):
        return await context.live.canaries()
    return {}


def _event(kind: str, about: Canary | ModelVersion, words: str) -> Event:
    return happened(kind, f"{about.task}/{about.label}", words)
