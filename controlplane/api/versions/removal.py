"""Two routes: tasks, and retired versions of models, are taken out for good."""

import asyncio
import contextlib
from collections.abc import Sequence

from fastapi import APIRouter
from pydantic import Field

from controlplane.api.context import ApiContext, happened
from controlplane.api.path_parameters import ModelPath, TaskPath, VersionPath
from controlplane.views.catalog.tasks import named_tasks
from controlplane.views.schemas import Schema
from variants.catalog.removal import Removed
from variants.errors import NotFound, StateUnavailable, TaskNotFound
from variants.figures import counted
from variants.types import Event, ModelName, TaskName


class RemovedSchema(Schema):
    """What was taken out. Workers unload it, and then its artifacts are deleted."""

    task: str = Field(examples=["digits"])
    versions: list[str] = Field(examples=[["cnn-small-v1"]])
    variants: list[str]
    peaks: int = Field(description="Peaks of demand that were declared for the task.")
    artifacts: int = Field(
        description="So many are deleted once no worker has them loaded, unless something else uses"
        " them; the event `artifacts_freed` tells how many were."
    )


def removal_routes(context: ApiContext) -> APIRouter:
    """``DELETE`` of ``/v1/tasks/{task}`` and of versions of models."""
    routes = APIRouter(prefix="/v1", tags=["registration"])

    @routes.delete(
        "/tasks/{task}",
        summary="Remove a task with all its models",
        description="Queries that are under way are answered; those that come afterwards get "
        "`TASK_NOT_FOUND`. It cannot be undone. Another task may have its name at once; numbers of "
        "its models' versions are given again only to the same bytes.",
    )
    async def remove_task(task: TaskPath) -> RemovedSchema:
        named_tasks(await context.snapshot(), task)  # names those that there are, if it is none
        try:
            removed = await asyncio.to_thread(context.catalog.remove_task, TaskName(task))
        except NotFound as error:  # somebody else has removed it meanwhile
            raise TaskNotFound(error.message) from error
        await _tell(
            context,
            [happened("task_removed", one, _words(removed.of(one))) for one in removed.tasks],
        )
        return _row(task, removed)

    @routes.delete(
        "/models/{task}/{model}/versions/{version}",
        summary="Remove a retired version",
        description="`CONFLICT` where it is not retired. It cannot be undone.",
    )
    async def remove_version(
        task: TaskPath, model: ModelPath, version: VersionPath
    ) -> RemovedSchema:
        parts = named_tasks(await context.snapshot(), task, model, version)
        removed = await asyncio.to_thread(
            context.catalog.remove_version, parts, ModelName(model), version
        )
        await _tell(
            context,
            [
                happened("version_removed", f"{one}/{model}-v{version}", _words(removed.of(one)))
                for one in parts
            ],
        )
        return _row(task, removed)

    return routes


async def _tell(context: ApiContext, events: Sequence[Event]) -> None:
    """Tell what was taken out. Where that cannot be written, the answer says it all the same: who
    asked again would be told that nothing of the kind is there."""
    with contextlib.suppress(StateUnavailable):
        await context.tell(*events)


def _row(task: str, removed: Removed) -> RemovedSchema:
    return RemovedSchema(
        task=task,
        versions=[version.label for version in removed.versions],
        variants=[variant.name for variant in removed.variants],
        peaks=len(removed.peaks),
        artifacts=len(removed.artifacts),
    )


def _words(removed: Removed) -> str:
    said = (
        f"{counted(len(removed.versions), 'version')}, {counted(len(removed.variants), 'variant')}"
    )
    if removed.peaks:
        said += f", {counted(len(removed.peaks), 'declared peak')}"
    return said
