"""How many workers of each device kind are wanted, and how many run: two routes."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path
from pydantic import ConfigDict, Field

from controlplane.schemas import Schema, WorkerSchema
from variants.errors import NotFound
from variants.types import DeviceKindName, Event
from variants.validation import MAX_WORKERS

if TYPE_CHECKING:
    from controlplane.api import ApiContext


class InventoryRow(Schema):
    """A device kind with the workers that were asked for and those that are there."""

    device_kind: str = Field(examples=["cpu-4"])
    wanted: int = Field(description="Asked for here, or else by the settings.", examples=[2])
    running: int = Field(description="Connected and not draining.", examples=[1])


class Inventory(Schema):
    inventory: list[InventoryRow]


class InventoryChange(Schema):
    """How many workers of the kind there shall be."""

    model_config = ConfigDict(extra="forbid")

    count: int = Field(
        ge=0, le=MAX_WORKERS, strict=True, description="0 ends them all.", examples=[2]
    )


def inventory_routes(context: "ApiContext") -> APIRouter:
    """``GET /v1/inventory`` and ``PUT /v1/inventory/{device_kind}``."""
    routes = APIRouter(prefix="/v1", tags=["running"])

    @routes.get("/inventory", summary="Workers wanted and running, by device kind")
    async def inventory() -> Inventory:
        wanted, running = await _wanted(context), await _running(context)
        kinds = sorted({*wanted, *running})
        return Inventory(inventory=[_row(kind, wanted, running) for kind in kinds])

    @routes.put(
        "/inventory/{device_kind}",
        summary="Ask for a number of workers",
        description="The control loop starts or drains workers until there are so many. It is kept "
        "in the catalog and wins over the settings from then on. A number that the machines cannot "
        "host is accepted: the rest stays pending, and starts when there is room.",
    )
    async def set_inventory(
        device_kind: Annotated[str, Path(description="Name of a device kind.", examples=["cpu-4"])],
        change: InventoryChange,
    ) -> InventoryRow:
        kind = DeviceKindName(device_kind)
        known = {one.name for one in (await context.snapshot()).device_kinds}
        known.add(DeviceKindName(context.settings.device_kind))
        if kind not in known:
            names = ", ".join(sorted(known))
            raise NotFound(f"there is no device kind {device_kind[:128]!r}; there are: {names}")
        running = await _running(context)
        before = (await _wanted(context)).get(kind, 0)
        await asyncio.to_thread(context.catalog.set_inventory, kind, change.count)
        if before != change.count:
            event = Event(
                at=datetime.now(UTC).isoformat(timespec="seconds"),
                kind="inventory",
                subject=device_kind,
                message=f"{before} -> {change.count} workers",
            )
            await asyncio.to_thread(context.catalog.add_event, event)
        return _row(kind, {kind: change.count}, running)

    return routes


def _row(
    kind: str, wanted: Mapping[DeviceKindName, int], running: Mapping[str, int]
) -> InventoryRow:
    name = DeviceKindName(kind)
    return InventoryRow(device_kind=kind, wanted=wanted.get(name, 0), running=running.get(kind, 0))


async def _wanted(context: "ApiContext") -> dict[DeviceKindName, int]:
    """As the control loop reads it: what was asked for, over what the settings say."""
    asked = await asyncio.to_thread(context.catalog.inventory)
    settings = context.settings
    return {DeviceKindName(settings.device_kind): settings.workers, **asked}


async def _running(context: "ApiContext") -> Counter[str]:
    statuses = await context.live.worker_status()
    workers = map(WorkerSchema.model_validate, statuses)
    return Counter(one.device_kind for one in workers if not one.draining)
