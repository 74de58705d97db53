"""Open Inference Protocol v2 but for inference, which has its own path: the routes.

What they answer with is the same over gRPC, and stands in ``protocol_views``.
"""

from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from controlplane.api.bodies.protocol import READINESS
from controlplane.api.errors import TOO_LONG
from controlplane.gateway.open_inference.protocol_views import ProtocolViews
from controlplane.gateway.open_inference.repository import Repository


def add_protocol_routes(api: FastAPI, views: ProtocolViews, repository: Repository) -> None:
    """Add the protocol's routes to the application."""
    _health(api, views)
    _statistics(api, views)  # before a task that might be called stats
    _metadata(api, views)
    _repository(api, views, repository)


_TAGS: list[Any] = ["protocol v2"]


class IndexRequest(BaseModel):
    """What of the repository is wanted; there may be no body at all."""

    ready: bool = Field(default=False, description="Only what is loaded.")


def _health(api: FastAPI, views: ProtocolViews) -> None:
    @api.get("/v2/health/live", name="health_live", tags=_TAGS, summary="Alive")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @api.get(
        "/v2/health/ready",
        name="health_ready",
        tags=_TAGS,
        summary="Ready to take requests",
        responses=READINESS,
    )
    async def ready() -> JSONResponse:
        """Ready as soon as the catalog was read, whatever is in it; tasks have their own."""
        state = views.is_ready()
        return JSONResponse({"ready": state}, 200 if state else 503)

    @api.get("/v2/models/{task}/ready", tags=_TAGS, summary="Task ready", responses=READINESS)
    async def task_ready(task: str) -> JSONResponse:
        """Ready as soon as some worker holds a variant that queries may be given unasked."""
        return _readiness(task, views.task_ready(task))

    @api.get(
        "/v2/models/{task}/versions/{variant}/ready",
        tags=_TAGS,
        summary="Variant ready",
        responses=READINESS,
    )
    async def variant_ready(task: str, variant: str) -> JSONResponse:
        return _readiness(task, views.task_ready(task, variant))


def _metadata(api: FastAPI, views: ProtocolViews) -> None:
    @api.get("/v2", tags=_TAGS, summary="Server metadata")
    async def server() -> dict[str, Any]:
        return views.server()

    @api.get("/v2/models/{task}", tags=_TAGS, summary="Task metadata")
    async def task_metadata(task: str) -> dict[str, Any]:
        return views.described(task)

    @api.get("/v2/models/{task}/versions/{variant}", tags=_TAGS, summary="Variant metadata")
    async def variant_metadata(task: str, variant: str) -> dict[str, Any]:
        return views.described(task, variant)

    @api.get("/v2/models/{task}/config", tags=_TAGS, summary="Task configuration")
    async def task_config(task: str) -> dict[str, Any]:
        """What a task has of a Triton model's configuration; `parameters` name each version."""
        return views.config(task)

    @api.get(
        "/v2/models/{task}/versions/{variant}/config", tags=_TAGS, summary="Variant configuration"
    )
    async def variant_config(task: str, variant: str) -> dict[str, Any]:
        return views.config(task, variant)


def _statistics(api: FastAPI, views: ProtocolViews) -> None:
    @api.get("/v2/models/stats", tags=_TAGS, summary="Statistics of all tasks")
    async def statistics() -> dict[str, Any]:
        """What was answered here since the start, by variant; times in nanoseconds."""
        return {"model_stats": await views.statistics()}

    @api.get("/v2/models/{task}/stats", tags=_TAGS, summary="Statistics of a task")
    async def task_statistics(task: str) -> dict[str, Any]:
        """What was answered here since the start, by variant; times in nanoseconds."""
        return {"model_stats": await views.statistics(task)}

    @api.get(
        "/v2/models/{task}/versions/{variant}/stats", tags=_TAGS, summary="Statistics of a variant"
    )
    async def variant_statistics(task: str, variant: str) -> dict[str, Any]:
        return {"model_stats": await views.statistics(task, variant)}


def _repository(api: FastAPI, views: ProtocolViews, repository: Repository) -> None:
    @api.post(
        "/v2/repository/index", name="repository_index", tags=_TAGS, summary="Repository index"
    )
    async def index(wanted: IndexRequest | None = None) -> list[dict[str, Any]]:
        """The variants of every task, and which of them are loaded."""
        return views.index(ready_only=wanted is not None and wanted.ready)

    @api.post(
        "/v2/repository/models/{task}/load",
        name="repository_load",
        tags=_TAGS,
        summary="Load a task",
        responses=TOO_LONG,
    )
    async def load(task: str) -> dict[str, Any]:
        """Pins a live variant of it, and returns once some worker holds one."""
        await repository.load(task)
        return {}

    @api.post(
        "/v2/repository/models/{task}/unload",
        name="repository_unload",
        tags=_TAGS,
        summary="Unload a task",
    )
    async def unload(task: str) -> dict[str, Any]:
        """Takes back what loads of it have pinned; `CONFLICT` where that is nothing."""
        await repository.unload(task)
        return {}


def _readiness(name: str, ready: bool) -> JSONResponse:
    return JSONResponse({"name": name, "ready": ready}, 200 if ready else 503)
