"""Two routes: how many workers of each device kind are wanted and run, and how to change that."""

import asyncio
from collections import Counter
from collections.abc import Container, Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import ConfigDict, Field

from controlplane.api.context import ApiContext, happened
from controlplane.profiling.due.profiles import Cause, due_profiles, hosts_unknown
from controlplane.settings import Settings
from controlplane.views.fleet_status import FleetStatus, KindStatus, fleet_status, kind_statuses
from controlplane.views.lack_of_room import Room, lack_of_nodes, lack_of_room
from controlplane.views.plan_schemas import InventoryRow, ScaledKind
from controlplane.views.schemas import Schema
from controlplane.views.worker_schemas import WorkerSchema
from planner.sentences import there_are
from variants.catalog.validity.plans import MAX_WORKERS
from variants.errors import NotFound, StateUnavailable
from variants.figures import counted
from variants.types import CatalogSnapshot, DeviceKindName, Plan


class Inventory(Schema):
    inventory: list[InventoryRow]


class InventoryChange(Schema):
    """How many workers of the kind there shall be."""

    model_config = ConfigDict(extra="forbid")

    count: int = Field(
        ge=0, le=MAX_WORKERS, strict=True, description="0 ends them all.", examples=[2]
    )


def inventory_routes(context: ApiContext) -> APIRouter:
    """``GET /v1/inventory`` and ``PUT /v1/inventory/{device_kind}``."""
    routes = APIRouter(prefix="/v1", tags=["running"])

    @routes.get("/inventory", summary="Workers wanted and running, by device kind")
    async def inventory() -> Inventory:
        plan = await asyncio.to_thread(context.catalog.latest_plan)
        rows = await kinds_now(context, plan)
        return Inventory(inventory=[InventoryRow.model_validate(row) for row in rows])

    @routes.put(
        "/inventory/{device_kind}",
        summary="Ask for a number of workers",
        description="The control loop starts or drains workers until there are so many. It is kept "
        "in the catalog and wins over the settings from then on. A number that the machines cannot "
        "host is accepted: the rest stays pending, and starts when there is room. `lack` says so.",
    )
    async def set_inventory(
        device_kind: Annotated[str, Path(description="Name of a device kind.", examples=["cpu-4"])],
        change: InventoryChange,
    ) -> ScaledKind:
        kind = DeviceKindName(device_kind)
        known = {one.name for one in (await context.snapshot()).device_kinds}
        known.update(one.name for one in (await context.settings_now()).kinds)
        if kind not in known:
            names = there_are(known, device_kind)
            raise NotFound(f"there is no device kind {device_kind[:128]!r}{names}")
        before = _asked(await kinds_now(context, None), kind)
        await asyncio.to_thread(context.catalog.set_inventory, kind, change.count)
        if before != change.count:
            said = f"{before} -> {counted(change.count, 'worker')}"
            await context.tell(happened("inventory", device_kind, said))
        rows = await kinds_now(context, None)
        row = next(r for r in rows if r.device_kind == kind)
        lack = ""
        if row.missing:
            lack = await _lack_now(context, rows) or await _lack_of_nodes(context, row)
        return ScaledKind(**asdict(row), lack=lack)

    return routes


async def fleet_status_now(context: ApiContext, plan: Plan | None) -> FleetStatus:
    """What is wanted against what this gateway is connected to."""
    kinds = await kinds_now(context, plan)
    lack = await _lack_now(context, kinds)
    running = {row.device_kind for row in kinds if row.running}
    # In a thread: of a thousand variants it takes longer than a query may wait.
    unmeasured = await asyncio.to_thread(_unmeasured, await context.snapshot(), running)
    workers = await _workers(context)
    return fleet_status(kinds, plan, workers, lack, unmeasured, _silent(workers))


async def _lack_now(context: ApiContext, kinds: Iterable[KindStatus]) -> str:
    """Why workers of the one machine are missing that can never start there; else empty."""
    settings = await context.settings_now()
    if settings.ray_address or settings.layouts:  # nodes may come, layouts overlap
        return ""
    given = Room(cores=settings.all_cores, gpus=settings.all_gpus)
    return lack_of_room(kinds, _rooms(settings), given)


async def _lack_of_nodes(context: ApiContext, row: KindStatus) -> str:
    """Why workers of a cluster are missing, by the nodes that the control loop saw last."""
    settings = await context.settings_now()
    each = _rooms(settings).get(row.device_kind)
    if not settings.ray_address or each is None:
        return ""
    with suppress(StateUnavailable):
        if (seen := await context.live.machines()) is not None:
            nodes = [
                Room(cores=one["cores"], gpus=one["gpus"])
                for one in seen["nodes"]
                if row.device_kind in one["kinds"] and one["drains_until_s"] is None
            ]
            return lack_of_nodes(row, each, nodes)
    return ""


def _rooms(settings: Settings) -> dict[str, Room]:
    return {
        str(one.name): Room(cores=one.cores, gpus=int(one.gpu is not None))
        for one in settings.kinds
    }


async def kinds_now(context: ApiContext, plan: Plan | None) -> tuple[KindStatus, ...]:
    """Workers by device kind; ``plan`` says how many where plans decide."""
    settings = await context.settings_now()
    stored = await asyncio.to_thread(context.catalog.inventory)
    workers = await _workers(context)
    return kind_statuses(
        {one.name: one.most for one in settings.kinds},
        {str(kind): count for kind, count in stored.items()},
        workers,
        {str(kind): count for kind, count in plan.workers.items()}
        if plan is not None and settings.plans_decide
        else None,
        _silent(workers),
    )


def _unmeasured(catalog: CatalogSnapshot, running: Container[str]) -> dict[str, int]:
    """How many variants that could answer were never measured, by device kind of those that run."""
    kinds = [kind for kind in catalog.device_kinds if kind.name in running]
    due = due_profiles(catalog, kinds, hosts=hosts_unknown)
    return Counter(str(one.kind.name) for one in due if one.cause is Cause.MISSING)


def _asked(rows: Iterable[KindStatus], kind: str) -> int:
    return next((row.asked for row in rows if row.device_kind == kind), 0)


def _silent(workers: Iterable[WorkerSchema]) -> dict[str, float]:
    return {
        one.worker: one.silent_s for one in workers if one.silent_s is not None and not one.draining
    }


async def _workers(context: ApiContext) -> list[WorkerSchema]:
    return [WorkerSchema.model_validate(one) for one in await context.live.worker_status()]
