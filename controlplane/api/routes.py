"""The control API: what is registered, measured, planned and running, and the ways to change it.

``build_api`` makes a FastAPI application over four protocols. Blocking catalog calls run in
threads, so that a slow database never holds up queries in the same process.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import orjson
from fastapi import Depends, FastAPI, Request, Response
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

from controlplane.api.answers import answer_routes
from controlplane.api.bodies.named import name_schemas
from controlplane.api.changed_tasks import changed_tasks_routes
from controlplane.api.clients import client_routes
from controlplane.api.context import ApiContext
from controlplane.api.devices import device_routes
from controlplane.api.errors import ERRORS, RequestIds, add_error_handlers, describe_errors
from controlplane.api.inventory import inventory_routes
from controlplane.api.nodes import node_routes
from controlplane.api.path_parameters import known_parameters
from controlplane.api.peaks import peak_routes
from controlplane.api.quarantine import quarantine_routes
from controlplane.api.reading.catalog import catalog_routes, profile_routes
from controlplane.api.reading.events import event_routes
from controlplane.api.reading.running import running_routes
from controlplane.api.rules import rule_routes
from controlplane.api.sharing import sharing_routes
from controlplane.api.versions.canaries import canary_routes
from controlplane.api.versions.registering import registration_routes
from controlplane.api.versions.removal import removal_routes
from controlplane.api.versions.stages import stage_routes
from controlplane.dashboard.pages import ICONS, PAGES, entity_tag, read_icon, read_page
from controlplane.registry.over_rest.operations import Registrations

DESCRIPTION = """\
Ask for a task, not a model. Queries go to `POST /v1/query` and to the Open Inference Protocol under
`/v2`; everything here shows and steers what stands behind them.

Every error has the same body: `error`, `code`, `retryable`, `request_id`. `retry_after_s` and the
header `Retry-After` say when to come back, where that is known; an `SLO_INFEASIBLE` has the
`reasons` of each variant and the nearest `alternatives`.

Where `MODELLESS_API_TOKEN` is set, requests carry `Authorization: Bearer TOKEN`.
"""
TAGS = [
    {"name": "queries", "description": "Asking a task."},
    {"name": "catalog", "description": "Tasks, models, variants and their profiles."},
    {"name": "running", "description": "Workers, the plan and why it is so."},
    {"name": "registration", "description": "Adding models and moving their versions."},
    {"name": "protocol v2", "description": "Health and metadata of the Open Inference Protocol."},
]


class ControlApi(FastAPI):
    """Its OpenAPI document has the schema of errors, to which all routes refer, and those of bodies
    by name."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            describe_errors(super().openapi())
            name_schemas(super().openapi())
        return super().openapi()


def build_api(context: ApiContext) -> FastAPI:
    """The control API as an ASGI application.

    Its lifespan ends running registrations; where an application mounts it without its lifespan,
    it has to await ``api.state.registrations.close()``.
    """
    registrations = context.registrations or Registrations(
        settings=context.settings, operations=context.live
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await registrations.close()

    api = _without_routes(lifespan)
    api.state.registrations = registrations
    api.add_middleware(JsonBodies)
    api.add_middleware(RequestIds)
    add_error_handlers(api)
    for routes in (
        catalog_routes(context),
        profile_routes(context),
        running_routes(context),
        event_routes(context),
        device_routes(context),
        node_routes(context),
        inventory_routes(context),
        peak_routes(context),
        rule_routes(context),
        client_routes(context),
        quarantine_routes(context),
        answer_routes(context),
        changed_tasks_routes(context),
        sharing_routes(context),
        removal_routes(context),
        canary_routes(context),
        registration_routes(registrations),
        stage_routes(context),
    ):
        api.include_router(routes, dependencies=[Depends(known_parameters)])
    for path, name in PAGES.items():
        _add_file(api, path, "text/html", *read_page(name))
    _add_description(api)
    for path in ICONS:
        _add_file(api, path, "image/svg+xml", *read_icon())
    return api


def _without_routes(lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]]) -> ControlApi:
    """The application that says what the API is, and answers nothing yet."""
    return ControlApi(
        title="modelless",
        summary="Ask for a task, not a model.",
        description=DESCRIPTION,
        version="1",
        lifespan=lifespan,
        strict_content_type=False,
        # A redirect has no body, and few clients send theirs again: better a typed 404.
        redirect_slashes=False,
        # FastAPI's own pages load their scripts from another host, and its own route makes the
        # document on the event loop, which takes as long as a thousand queries.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        openapi_tags=TAGS,
        # Names of functions in clients that are made of the document: `query`, not
        # `query_v1_query_post`.
        generate_unique_id_function=lambda route: route.name,
        responses=ERRORS,
    )


class JsonBodies:
    """ASGI middleware: reads as JSON what ``curl -d`` sends, which calls every body a form.

    Nothing here takes such a form. That a web page could send one changes nothing: its Origin is
    checked before.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = MutableHeaders(scope=scope)
            if headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
                headers["content-type"] = "application/json"
        await self.app(scope, receive, send)


def _add_file(
    api: FastAPI, path: str, media_type: str, body: bytes, headers: dict[str, str]
) -> None:
    @api.get(path, include_in_schema=False)
    async def show(request: Request) -> Response:
        return _unless_known(request, body, media_type, headers)


def _add_description(api: FastAPI) -> None:
    """``/openapi.json``: made once, in a thread, when somebody asks for it first."""
    lock = asyncio.Lock()
    made: list[tuple[bytes, str]] = []

    def make() -> tuple[bytes, str]:
        document = orjson.dumps(api.openapi())
        return document, entity_tag(document)

    @api.get("/openapi.json", include_in_schema=False)
    async def describe(request: Request) -> Response:
        async with lock:
            if not made:
                made.append(await asyncio.to_thread(make))
        document, tag = made[0]
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        return _unless_known(request, document, "application/json", headers)


def _unless_known(
    request: Request, body: bytes, media_type: str, headers: dict[str, str]
) -> Response:
    """The file, or that who asks has it already."""
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)
