"""The control API: what is registered, measured, planned and running, and the ways to change it.

``build_api`` makes a FastAPI application over four protocols. Blocking catalog calls run in
threads, so that a slow database never holds up queries in the same process.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, FastAPI, Path, Request, Response
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

from controlplane.api.bodies.named import name_schemas
from controlplane.api.bodies.registration import REGISTRATION_FORM
from controlplane.api.canaries import canary_routes
from controlplane.api.changed_tasks import changed_tasks_routes
from controlplane.api.clients import client_routes
from controlplane.api.context import ApiContext
from controlplane.api.devices import device_routes
from controlplane.api.errors import ERRORS, RequestIds, add_error_handlers, describe_errors
from controlplane.api.inventory import inventory_routes
from controlplane.api.nodes import node_routes
from controlplane.api.path_parameters import ModelPath, TaskPath, known_parameters
from controlplane.api.peaks import peak_routes
from controlplane.api.quarantine import quarantine_routes
from controlplane.api.reading.catalog import catalog_routes, profile_routes
from controlplane.api.reading.events import event_routes
from controlplane.api.reading.running import running_routes
from controlplane.api.removal import removal_routes
from controlplane.api.rules import rule_routes
from controlplane.api.sharing import sharing_routes
from controlplane.dashboard.pages import ICONS, PAGES, entity_tag, read_icon, read_page
from controlplane.registry.over_rest.operations import Registrations
from controlplane.views.catalog.model_schemas import (
    PromotionAsked,
    StageChange,
    StageSchema,
    VersionSchema,
)
from controlplane.views.catalog.models import is_last_live, model_rows
from controlplane.views.catalog.tasks import named_tasks
from controlplane.views.schemas import OperationSchema, OperationsSchema
from planner.sentences import NAMED
from variants.catalog.protocol import Catalog
from variants.catalog.validity.spaces import WHY, is_own_space, standing_back
from variants.errors import Conflict, NotFound
from variants.figures import some_of
from variants.types import CatalogSnapshot, Event, ModelName, ModelVersion, Stage, TaskName

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


MOST_LOOKS = 10
"""So often a change that others have overtaken is decided anew."""
LOCATION = {"Location": {"description": "The operation.", "schema": {"type": "string"}}}
"""Headers of an answer that begins an operation."""


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
        changed_tasks_routes(context),
        sharing_routes(context),
        removal_routes(context),
        canary_routes(context),
        _registration_routes(registrations),
        _stage_routes(context),
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


def _registration_routes(registrations: Registrations) -> APIRouter:
    """Registrations: how they begin, how far they are, and how they end."""
    routes = APIRouter(prefix="/v1", tags=["registration"])

    @routes.post(
        "/models",
        status_code=202,
        summary="Register a model version",
        description="Checks the model, makes its variants, measures them and adds all to the "
        "catalog, or nothing. Poll the operation that it answers with.",
        openapi_extra={"requestBody": REGISTRATION_FORM},
        responses={202: {"headers": LOCATION}},
        response_model_exclude_unset=True,
    )
    async def register(request: Request, response: Response) -> OperationSchema:
        headers = request.headers
        operation = await registrations.start(
            request.stream(),
            headers.get("content-type", ""),
            int(headers.get("content-length", "").lstrip("0") or 0),
        )
        response.headers["Location"] = f"/v1/operations/{operation['id']}"
        return OperationSchema.model_validate(operation)

    @routes.get(
        "/operations",
        summary="Long-running requests of the last day",
        description="The newest first: registrations over REST, through all gateways.",
        response_model_exclude_unset=True,
    )
    async def operations() -> OperationsSchema:
        found = [OperationSchema.model_validate(one) for one in await registrations.all()]
        return OperationsSchema(operations=found)

    @routes.get(
        "/operations/{id}",
        summary="State of a long-running request",
        response_model_exclude_unset=True,
    )
    async def operation(id: str) -> OperationSchema:
        return OperationSchema.model_validate(await registrations.read(id))

    @routes.delete(
        "/operations/{id}",
        status_code=202,
        summary="End a long-running request",
        description="It fails with `CONFLICT` within seconds, and nothing of it is registered,"
        " unless it is over by then. What it has built and measured is kept for another try.",
        response_model_exclude_unset=True,
    )
    async def end_operation(id: str) -> OperationSchema:
        return OperationSchema.model_validate(await registrations.end(id))

    return routes


def _stage_routes(context: ApiContext) -> APIRouter:
    """Stages of versions."""
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
        task: TaskPath, model: ModelPath, version: Annotated[int, Path(ge=1)], change: StageChange
    ) -> StageSchema:
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
                decided_at=snapshot.revision,
            ):  # fmt: skip
                await asyncio.to_thread(_tell, context.catalog, moving, change.stage, back)
                break
        else:
            raise Conflict("the catalog is being changed all the time; ask again")
        return _staged(task, found[0], change.stage, back)

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
            await asyncio.to_thread(_tell, context.catalog, moving, Stage.LIVE, back)
        shown = _versions(await context.snapshot(), task, model, done[0].version)[0]
        return _staged(task, shown, Stage.LIVE, back)

    return routes


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
        known = sorted({one.version for row in rows for one in row.versions})
        raise NotFound(
            f"model {model[:128]!r} of task {task[:128]!r} has no version {number};"
            f" there are: {some_of([str(one) for one in known], NAMED)}"
        )
    return found


def _standing_back(
    snapshot: CatalogSnapshot, moving: Sequence[VersionSchema], stage: Stage
) -> list[ModelVersion]:
    """The versions that become canaries because another one becomes live."""
    apart = {task.name for task in snapshot.tasks if is_own_space(task.metric)}
    stages = {(TaskName(v.task), ModelName(v.model), v.version): stage for v in moving}
    return standing_back((v for v in snapshot.versions if v.task in apart), stages)


def _tell(
    catalog: Catalog,
    moving: Sequence[VersionSchema],
    stage: Stage,
    back: Sequence[ModelVersion],
) -> None:
    """Tell as events that the stage of a version was set, in each bucket.

    Args:
        moving: as it was before.
        back: the versions that became canaries by it.
    """
    at = datetime.now(UTC).isoformat(timespec="seconds")
    events = [
        Event(
            at=at,
            kind="stage_changed",
            subject=f"{one.task}/{one.model}-v{one.version}",
            message=f"{one.stage} -> {stage}",
        )
        for one in moving
    ]
    events += [
        Event(
            at=at,
            kind="stage_changed",
            subject=f"{one.task}/{one.label}",
            message=f"{one.stage} -> {Stage.CANARY}: {WHY}, and {moving[0].model}-v"
            f"{moving[0].version} is live",
        )
        for one in back
    ]
    catalog.add_event(*events)


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
