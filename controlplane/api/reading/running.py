"""Routes that show what goes on: workers, the plan and why it is so, and what happened."""

import asyncio
from collections.abc import Mapping
from operator import itemgetter
from time import time
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from controlplane.api.context import ApiContext
from controlplane.api.inventory import fleet_status_now
from controlplane.api.path_parameters import WorkerPath, no_worker
from controlplane.api.rules import rule_rows
from controlplane.views.catalog.tasks import find_task
from controlplane.views.headroom import HeadroomSchema
from controlplane.views.history import LONGEST_S, asked, history
from controlplane.views.machines.core_shortage import CoreLevel
from controlplane.views.plan_schemas import (
    AnsweredStatusSchema,
    CertificateStatusSchema,
    CoreStatusSchema,
    KeysStatusSchema,
    LoopStatusSchema,
    PlanSchema,
    StorageStatusSchema,
)
from controlplane.views.rule_schemas import told
from controlplane.views.schemas import AskedHistory, History, Schema, SloReport, TickSchema
from controlplane.views.worker_schemas import WorkerSchema
from variants.errors import StateUnavailable
from workers.types import WorkerStatus


class Workers(Schema):
    workers: list[WorkerSchema]
    next: str | None = Field(
        None, description="What `after` names for the workers behind these; null: these are all."
    )


class Ticks(Schema):
    ticks: list[TickSchema]


Limit = Annotated[int, Query(ge=1, le=1_000, description="At most so many, newest first.")]
OneTask = Annotated[str | None, Query(max_length=128, description="Of this one only, else of all.")]
Back = Annotated[float, Query(ge=10, le=LONGEST_S, description="How far back to go.")]


def running_routes(context: ApiContext) -> APIRouter:
    """What is there now, and how queries end."""
    routes = APIRouter(prefix="/v1", tags=["running"])
    _add_workers(routes, context)
    _add_plan(routes, context)
    _add_outcomes(routes, context)
    return routes


def _add_workers(routes: APIRouter, context: ApiContext) -> None:
    """Workers: all of them, in parts, or one."""

    @routes.get("/workers", summary="Workers and what they have loaded")
    async def workers(
        limit: Annotated[
            int | None, Query(ge=1, le=1_000, description="At most so many, by name; else all.")
        ] = None,
        after: Annotated[
            str, Query(max_length=256, description="Only those behind the worker of this name.")
        ] = "",
    ) -> Workers:
        statuses = await context.live.worker_status()
        named = ((worker_name(status), status) for status in statuses)
        listed = sorted((one for one in named if one[0] > after), key=itemgetter(0))
        part = listed if limit is None else listed[:limit]
        return Workers(
            workers=[WorkerSchema.model_validate(status) for _, status in part],
            next=part[-1][0] if len(part) < len(listed) else None,
        )

    @routes.get("/workers/{worker}", summary="One worker and what it has loaded")
    async def worker(worker: WorkerPath) -> WorkerSchema:
        statuses = {worker_name(status): status for status in await context.live.worker_status()}
        if worker not in statuses:
            raise no_worker(worker, statuses)
        return WorkerSchema.model_validate(statuses[worker])


def _add_plan(routes: APIRouter, context: ApiContext) -> None:
    """The plan, and the turns of the control loop that made it."""

    @routes.get("/plan", summary="The newest plan, its explanation, and how it stands now")
    async def plan(
        task: Annotated[
            str | None,
            Query(max_length=128, description="Placements and routes of this one only, else all."),
        ] = None,
    ) -> PlanSchema:
        return await _plan_now(context, task)

    @routes.get("/ticks", summary="What the control loop saw and decided")
    async def ticks(
        limit: Limit = 20,
        changes: Annotated[
            bool,
            Query(
                description="Only turns that began something, or whose plan differs by more than "
                "its rates."
            ),
        ] = False,
    ) -> Ticks:
        found = await asyncio.to_thread(context.catalog.ticks, limit, changes=changes)
        return Ticks(ticks=[TickSchema.of(tick) for tick in found])


def _add_outcomes(routes: APIRouter, context: ApiContext) -> None:
    """How queries end, lately and over the last hour."""

    @routes.get("/slo", summary="How well SLOs are met")
    async def slo() -> SloReport:
        short = (await context.cores()).level is CoreLevel.SHORT
        before = (await context.told()).get("slo_missed", ())
        return SloReport.of(await context.live.slo_report(), cores_short=short, before=before)

    @routes.get("/demand", summary="What was asked over the last hour, by SLO class")
    async def demand(task: OneTask = None, seconds: Back = LONGEST_S) -> AskedHistory:
        found = asked(await context.live.history(), time(), seconds, task)
        if task is not None and not found["classes"]:
            find_task(await context.snapshot(), task)
        return AskedHistory.model_validate(found)

    @routes.get("/history", name="history", summary="How queries ended over the last hour")
    async def past(task: OneTask = None, seconds: Back = LONGEST_S) -> History:
        samples = await context.live.history()
        if task is not None and all(task not in one["tasks"] for one in samples):
            # Of one that is removed the samples of the last hour are shown.
            find_task(await context.snapshot(), task)
        return History.model_validate(history(samples, time(), seconds, task))


async def _plan_now(context: ApiContext, task: str | None) -> PlanSchema:
    """The newest plan, and how all stands that it is about.

    Raises:
        TaskNotFound: nothing is placed of that task, and there is none.
    """
    newest = await asyncio.to_thread(context.catalog.latest_plan)
    if task is not None and (newest is None or all(p.task != task for p in newest.placements)):
        find_task(await context.snapshot(), task)
    row = PlanSchema.of(newest, await fleet_status_now(context, newest), task)
    row.rules = [said for each in await rule_rows(context) if (said := told(each))]
    storage, loop, answered, cores, headroom = await asyncio.gather(
        context.storage(),
        context.control_loop(),
        context.answered(),
        context.cores(),
        context.headroom(),
    )
    row.storage = StorageStatusSchema.model_validate(storage)
    row.certificate = CertificateStatusSchema.model_validate(context.certificate())
    row.client_keys = KeysStatusSchema.model_validate(context.keys_status())
    row.control_loop = LoopStatusSchema.model_validate(loop)
    row.answered = AnsweredStatusSchema.model_validate(answered)
    row.cores = CoreStatusSchema.model_validate(cores)
    if headroom:
        report = await _slo(context)
        short = cores.level is CoreLevel.SHORT
        row.headroom = HeadroomSchema.of(headroom, report, cores_short=short)
    return row


async def _slo(context: ApiContext) -> SloReport | None:
    """How queries ended lately; None while the live state does not answer."""
    try:
        return SloReport.of(await context.live.slo_report())
    except StateUnavailable:
        return None


def worker_name(status: WorkerStatus | Mapping[str, Any]) -> str:
    """The name of a worker, as it or the live state tells of it."""
    return str(status["worker"] if isinstance(status, Mapping) else status.worker)
