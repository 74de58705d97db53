"""Two routes: which variants workers keep out because they failed, and the end of that."""

import asyncio
from time import time

from fastapi import APIRouter
from pydantic import Field

from controlplane.api.context import ApiContext, happened
from controlplane.api.path_parameters import TaskPath
from controlplane.timestamps import timestamp_of
from controlplane.views.catalog.variants import variant_row
from controlplane.views.schemas import Schema
from controlplane.views.worker_schemas import ReplicaSchema, WorkerSchema
from variants.errors import Conflict
from variants.types import QuarantineLift, ReplicaState, TaskName, VariantName

AHEAD_S = 60.0
"""How far a worker's clock may be ahead."""


class QuarantineRow(Schema):
    """A variant that one worker keeps out."""

    task: str
    variant: str
    worker: str
    device_kind: str
    since: str = Field(examples=["2027-11-26T08:00:00+00:00"])
    why: str = Field(examples=["it crashed a worker 2 times within a day"])


class Quarantine(Schema):
    quarantine: list[QuarantineRow]


class LiftedQuarantine(Schema):
    """A quarantine that is lifted: workers take the variant back within a tick."""

    task: str
    variant: str
    lifted_at: str
    workers: list[str] = Field(description="Those that kept it out.")


def quarantine_routes(context: ApiContext) -> APIRouter:
    """``GET /v1/quarantine`` and ``DELETE /v1/quarantine/{task}/{variant}``."""
    routes = APIRouter(prefix="/v1", tags=["running"])

    @routes.get("/quarantine", summary="Variants that workers keep out because they failed")
    async def quarantine() -> Quarantine:
        found = await _kept_out(context)
        return Quarantine(
            quarantine=[
                QuarantineRow(
                    task=one.task,
                    variant=one.variant,
                    worker=worker.worker,
                    device_kind=worker.device_kind,
                    since=timestamp_of(one.quarantined_s or 0.0),
                    why=one.message,
                )
                for worker, one in found
            ]
        )

    @routes.delete(
        "/quarantine/{task}/{variant}",
        name="lift_quarantine",
        summary="Let workers take back a variant that was repaired",
        description="All workers forget what it did until now, those as well that are away at the "
        "moment or are started anew. It is loaded again where the plan or a query wants it, and "
        "put into quarantine again if it fails again.",
    )
    async def lift(task: TaskPath, variant: str) -> LiftedQuarantine:
        row = variant_row(await context.snapshot(), task, variant)
        found = [
            (worker.worker, one)
            for worker, one in await _kept_out(context)
            if (one.task, one.variant) == (row.task, row.name)
        ]
        if not found:
            raise Conflict(f"{row.task}/{row.name} is not in quarantine at any worker")
        # A worker's clock may be ahead of this one; much, and what fails later would be lifted too.
        now_s = time()
        latest_s = max(one.quarantined_s or 0.0 for _, one in found)
        at_s = min(max(now_s, latest_s), now_s + AHEAD_S)
        lifted = QuarantineLift(task=TaskName(row.task), variant=VariantName(row.name), at_s=at_s)
        await asyncio.to_thread(context.catalog.lift_quarantine, lifted)
        at = ", ".join(worker for worker, _ in found)
        said = f"{at} kept it out: {found[0][1].message}"
        await context.tell(happened("quarantine_lifted", f"{row.task}/{row.name}", said))
        return LiftedQuarantine(
            task=row.task,
            variant=row.name,
            lifted_at=timestamp_of(at_s),
            workers=[worker for worker, _ in found],
        )

    return routes


async def _kept_out(context: ApiContext) -> list[tuple[WorkerSchema, ReplicaSchema]]:
    """What is in quarantine and where, by task, variant and worker."""
    workers = map(WorkerSchema.model_validate, await context.live.worker_status())
    found = [
        (worker, one)
        for worker in workers
        for one in worker.replicas
        if one.state is ReplicaState.QUARANTINED
    ]
    return sorted(found, key=lambda each: (each[1].task, each[1].variant, each[0].worker))
