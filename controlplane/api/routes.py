"""The control API: what is registered, measured, planned and running, and the ways to change it.

``build_api`` makes a FastAPI application over four protocols. Blocking catalog calls run in
threads, so that a slow database never holds up queries in the same process.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from time import time
from typing import Annotated

import orjson
from fastapi import APIRouter, FastAPI, Path, Query, Request, Response
from pydantic import AwareDatetime, StringConstraints
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

from controlplane.api.bodies import REGISTRATION_FORM
from controlplane.api.canaries import canary_routes
from controlplane.api.changed_tasks import changed_tasks_routes
from controlplane.api.clients import client_routes
from controlplane.api.context import ApiContext
from controlplane.api.devices import device_routes
from controlplane.api.errors import ERRORS, RequestIds, add_error_handlers
from controlplane.api.inventory import fleet_status_now, inventory_routes
from controlplane.api.nodes import node_routes
from controlplane.api.path_parameters import ModelPath, TaskPath
from controlplane.api.peaks import peak_routes
from controlplane.api.quarantine import quarantine_routes
from controlplane.api.removal import removal_routes
from controlplane.api.rules import rule_routes, rule_rows
from controlplane.api.sharing import sharing_routes
from controlplane.dashboard.pages import ICONS, PAGES, entity_tag, read_icon, read_page
from controlplane.profiling.staleness import changed_on
from controlplane.registry.operations import Registrations
from controlplane.views import catalog_views
from controlplane.views.catalog_schemas import (
    ModelSchema,
    ProfileSchema,
    StageChange,
    TaskSchema,
    VariantSchema,
    VersionSchema,
)
from controlplane.views.history import LONGEST_S, history
from controlplane.views.live_latencies import Live, live_latencies, tell_device, tell_profile
from controlplane.views.plan_schemas import PlanSchema, StorageStatusSchema
from controlplane.views.rule_schemas import told
from controlplane.views.schemas import (
    EventSchema,
    History,
    OperationSchema,
    Schema,
    SloReport,
    TickSchema,
)
from controlplane.views.worker_schemas import WorkerSchema
from variants.artifacts.protocol import ArtifactStore
from variants.errors import ModellessError, NotFound, StateUnavailable
from variants.types import Event, EventFilter, ModelName, TaskName


class Tasks(Schema):
    tasks: list[TaskSchema]


class Models(Schema):
    models: list[ModelSchema]


class Variants(Schema):
    variants: list[VariantSchema]


class Profiles(Schema):
    profiles: list[ProfileSchema]


class Workers(Schema):
    workers: list[WorkerSchema]


class Ticks(Schema):
    ticks: list[TickSchema]


class Events(Schema):
    events: list[EventSchema]


SECOND = len("2026-01-31T23:59:59")
KindName = Annotated[str, StringConstraints(max_length=64)]
Limit = Annotated[int, Query(ge=1, le=1_000, description="At most so many, newest first.")]

DESCRIPTION = """\
Ask for a task, not a model. Queries go to `POST /v1/query` and to the Open Inference Protocol under
`/v2`; everything here shows and steers what stands behind them.

Every error has the same body: `error`, `code`, `retryable`, `request_id`.
"""


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

    api = FastAPI(
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
        openapi_tags=[
            {"name": "queries", "description": "Asking a task."},
            {"name": "catalog", "description": "Tasks, models, variants and their profiles."},
            {"name": "running", "description": "Workers, the plan and why it is so."},
            {"name": "registration", "description": "Adding models and moving their versions."},
            {
                "name": "protocol v2",
                "description": "Health and metadata of the Open Inference Protocol.",
            },
        ],
        responses=ERRORS,
    )
    api.state.registrations = registrations
    api.add_middleware(JsonBodies)
    api.add_middleware(RequestIds)
    add_error_handlers(api)
    api.include_router(_catalog_routes(context))
    api.include_router(_profile_routes(context))
    api.include_router(_running_routes(context))
    api.include_router(device_routes(context))
    api.include_router(node_routes(context))
    api.include_router(inventory_routes(context))
    api.include_router(peak_routes(context))
    api.include_router(rule_routes(context))
    api.include_router(client_routes(context))
    api.include_router(quarantine_routes(context))
    api.include_router(changed_tasks_routes(context))
    api.include_router(sharing_routes(context))
    api.include_router(removal_routes(context))
    api.include_router(canary_routes(context))
    api.include_router(_registration_routes(context, registrations))
    for path, name in PAGES.items():
        _add_file(api, path, "text/html", *read_page(name))
    _add_description(api)
    for path in ICONS:
        _add_file(api, path, "image/svg+xml", *read_icon())
    return api


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


def _catalog_routes(context: ApiContext) -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["catalog"])
    settings = context.settings
    # Of a cluster's nodes nothing is known here: the control loop compares profiles with them.
    here = () if settings.ray_address else settings.kinds
    changed = changed_on(frozenset(kind.name for kind in here))

    @routes.get("/tasks", summary="All tasks")
    async def tasks() -> Tasks:
        return Tasks(tasks=catalog_views.task_rows(await context.snapshot()))

    @routes.get("/tasks/{task}", summary="One task")
    async def task(task: TaskPath) -> TaskSchema:
        return catalog_views.task_rows(await context.snapshot(), task)[0]

    @routes.get("/tasks/{task}/models", summary="Models of a task")
    async def task_models(task: TaskPath) -> Models:
        return Models(models=catalog_views.model_rows(await context.snapshot(), task))

    @routes.get("/tasks/{task}/variants", summary="Variants of a task, with the frontier")
    async def variants(task: TaskPath) -> Variants:
        rows = catalog_views.variant_rows(await context.snapshot(), task, changed)
        await _tell_live(context, rows)
        return Variants(variants=rows)

    @routes.get("/variants/{task}/{variant}", summary="One variant")
    async def variant(task: TaskPath, variant: str) -> VariantSchema:
        row = catalog_views.variant_row(await context.snapshot(), task, variant, changed)
        await _tell_live(context, [row])
        return row

    @routes.get("/models", summary="All models")
    async def models() -> Models:
        return Models(models=catalog_views.model_rows(await context.snapshot()))

    @routes.get("/models/{task}/{model}", summary="One model with its versions")
    async def model(task: TaskPath, model: ModelPath) -> ModelSchema:
        row = catalog_views.model_rows(await context.snapshot(), task, model)[0]
        for version in row.versions:
            version.source_bytes = await asyncio.to_thread(_size, context.store, version)
        return row

    return routes


def _profile_routes(context: ApiContext) -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["catalog"])

    @routes.get("/profiles", summary="Latency, memory and load time per device kind")
    async def profiles(
        task: Annotated[str | None, Query(description="Only of this task.")] = None,
        variant: Annotated[str | None, Query(description="Only of this variant.")] = None,
        device_kind: Annotated[str | None, Query(description="Only on this kind.")] = None,
    ) -> Profiles:
        snapshot = await context.snapshot()
        found = [
            ProfileSchema.of(profile)
            for profile in snapshot.profiles
            if task in (None, profile.task)
            and variant in (None, profile.variant)
            and device_kind in (None, profile.device_kind)
        ]
        live = await _live(context)
        for each in found:
            tell_profile(each, live)
        return Profiles(profiles=found)

    return routes


async def _live(context: ApiContext) -> Live:
    """What batches take now; nothing while the live state does not answer."""
    try:
        statuses = await context.live.worker_status()
    except StateUnavailable:
        return {}
    return live_latencies(WorkerSchema.model_validate(status) for status in statuses)


async def _tell_live(context: ApiContext, rows: Iterable[VariantSchema]) -> None:
    live, said = await _live(context), await context.live.feedback()
    for row in rows:
        right, wrong = said.get(row.task, {}).get(row.name, (0, 0))
        if right or wrong:
            row.live_accuracy, row.live_accuracy_rows = right / (right + wrong), right + wrong
        for device in row.devices:
            tell_device(device, row.task, row.name, live)


def _running_routes(context: ApiContext) -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["running"])

    @routes.get("/workers", summary="Workers and what they have loaded")
    async def workers() -> Workers:
        statuses = await context.live.worker_status()
        found = [WorkerSchema.model_validate(status) for status in statuses]
        return Workers(workers=sorted(found, key=lambda worker: worker.worker))

    @routes.get("/plan", summary="The newest plan, its explanation, and how it stands now")
    async def plan(
        task: Annotated[
            str | None,
            Query(max_length=128, description="Placements and routes of this one only, else all."),
        ] = None,
    ) -> PlanSchema:
        newest = await asyncio.to_thread(context.catalog.latest_plan)
        row = PlanSchema.of(newest, await fleet_status_now(context, newest), task)
        row.rules = [said for each in await rule_rows(context) if (said := told(each))]
        row.storage = StorageStatusSchema.model_validate(await context.storage())
        return row

    @routes.get("/ticks", summary="What the control loop saw and decided")
    async def ticks(limit: Limit = 20) -> Ticks:
        found = await asyncio.to_thread(context.catalog.ticks, limit)
        return Ticks(ticks=[TickSchema.of(tick) for tick in found])

    @routes.get("/events", summary="What happened")
    async def events(
        limit: Limit = 50,
        after: Annotated[
            int, Query(ge=0, le=2**53, description="Only those with a higher `seq`.")
        ] = 0,
        kind: Annotated[
            list[KindName] | None,
            Query(max_length=50, description="Only of this kind; given again, of these."),
        ] = None,
        since: Annotated[
            AwareDatetime | None,
            Query(description="Only from this time on, in ISO 8601 with its offset from UTC."),
        ] = None,
        task: Annotated[
            str, Query(max_length=128, description="Only of this task, its models and variants.")
        ] = "",
        worker: Annotated[
            str, Query(max_length=256, description="Only of this worker and variants on it.")
        ] = "",
    ) -> Events:
        asked = EventFilter(
            after=after,
            kinds=frozenset(kind or ()),
            since="" if since is None else since.astimezone(UTC).isoformat()[:SECOND],
            task=task,
            worker=worker,
        )
        found = await asyncio.to_thread(context.catalog.events, limit, asked)
        return Events(events=[EventSchema.of(event) for event in found])

    @routes.get("/slo", summary="How well SLOs are met")
    async def slo() -> SloReport:
        return SloReport.of(await context.live.slo_report())

    @routes.get("/history", summary="How queries ended over the last hour")
    async def past(
        task: Annotated[
            str | None, Query(max_length=128, description="Of this one only, else of all.")
        ] = None,
        seconds: Annotated[
            float, Query(ge=10, le=LONGEST_S, description="How far back to go.")
        ] = LONGEST_S,
    ) -> History:
        samples = await context.live.history()
        return History.model_validate(history(samples, time(), seconds, task))

    return routes


def _registration_routes(context: ApiContext, registrations: Registrations) -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["registration"])

    @routes.post(
        "/models",
        status_code=202,
        summary="Register a model version",
        description="Checks the model, makes its variants, measures them and adds all to the "
        "catalog, or nothing. Poll the operation that it answers with.",
        openapi_extra={"requestBody": REGISTRATION_FORM},
        response_model_exclude_unset=True,
    )
    async def register(request: Request, response: Response) -> OperationSchema:
        headers = request.headers
        operation = await registrations.start(
            request.stream(),
            headers.get("content-type", ""),
            int(headers.get("content-length", 0)),
        )
        response.headers["Location"] = f"/v1/operations/{operation['id']}"
        return OperationSchema.model_validate(operation)

    @routes.get(
        "/operations/{id}",
        summary="State of a long-running request",
        response_model_exclude_unset=True,
    )
    async def operation(id: str) -> OperationSchema:
        return OperationSchema.model_validate(await registrations.read(id))

    @routes.post(
        "/models/{task}/{model}/versions/{version}/stage",
        summary="Promote or retire a version",
        description="The other versions of the model stay where they are.",
    )
    async def set_stage(
        task: TaskPath, model: ModelPath, version: Annotated[int, Path(ge=1)], change: StageChange
    ) -> VersionSchema:
        row = catalog_views.model_rows(await context.snapshot(), task, model)[0]
        before = next((one for one in row.versions if one.version == version), None)
        if before is None:
            raise NotFound(f"model {model[:128]!r} of task {task[:128]!r} has no version {version}")
        if before.stage is not change.stage:
            event = Event(
                at=datetime.now(UTC).isoformat(timespec="seconds"),
                kind="stage_changed",
                subject=f"{task}/{model}-v{version}",
                message=f"{before.stage} -> {change.stage}",
            )
            await asyncio.to_thread(
                context.catalog.set_stage, TaskName(task), ModelName(model), version, change.stage
            )
            await asyncio.to_thread(context.catalog.add_event, event)
        return before.model_copy(update={"stage": change.stage})

    return routes


def _size(store: ArtifactStore, version: VersionSchema) -> int | None:
    """Bytes of a version's source; None when it is not in this store."""
    try:
        return store.size_bytes(version.source)  # type: ignore[arg-type]
    except ModellessError:
        return None
