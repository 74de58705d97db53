"""Two routes: whether equal queries of a task share answers, and within which limits."""

from dataclasses import replace

from fastapi import APIRouter

from controlplane.api.changed_tasks import changed
from controlplane.api.context import ApiContext, happened
from controlplane.api.path_parameters import TaskPath
from controlplane.views.catalog.task_schemas import SharingSchema, TaskSchema
from variants.types import Sharing


def sharing_routes(context: ApiContext) -> APIRouter:
    """``PUT`` and ``DELETE`` of ``/v1/tasks/{task}/sharing``."""
    routes = APIRouter(prefix="/v1", tags=["catalog"])

    @routes.put(
        "/tasks/{task}/sharing",
        name="share_answers",
        summary="Let equal queries of a task share answers",
        description="Equal queries in flight share one run, and an answer is given again while it "
        "is younger than `ttl_s`, by each gateway within `memory_mib`. Only for models whose "
        "answer follows from their inputs alone. When this is answered, all gateways go by it.",
    )
    async def share(task: TaskPath, limits: SharingSchema) -> TaskSchema:
        return await _set(task, Sharing(ttl_s=limits.ttl_s, memory_mib=limits.memory_mib))

    @routes.delete(
        "/tasks/{task}/sharing", name="unshare_answers", summary="Run every query of a task again"
    )
    async def unshare(task: TaskPath) -> TaskSchema:
        return await _set(task, None)

    async def _set(name: str, sharing: Sharing | None) -> TaskSchema:
        return await changed(
            context,
            name,
            lambda one: replace(one, sharing=sharing),
            told=lambda _, after: [happened("sharing_changed", after.name, _words(after.sharing))],
        )

    return routes


def _words(sharing: Sharing | None) -> str:
    if sharing is None:
        return "every query is run"
    kept = "equal queries in flight share a run"
    if not sharing.ttl_s:
        return kept
    return f"{kept}; answers are kept for {sharing.ttl_s:,g} s, at most {sharing.memory_mib:,g} MiB"
