"""One route: the device kinds, where they come from, and which nodes have them."""

import socket

from fastapi import APIRouter
from pydantic import Field

from controlplane.api.context import ApiContext
from controlplane.slices import Source
from controlplane.views.catalog.variant_schemas import DeviceSchema
from controlplane.views.schemas import Schema
from variants.errors import StateUnavailable
from variants.types import DeviceKind


class DeviceRow(DeviceSchema):
    """A device kind of this installation, or one that models were measured on."""

    source: Source | None = Field(
        None,
        description="Whether settings named the kind, or a look at the machine or the cluster's "
        "nodes found it (numbered: settings say how many workers); null for one that only the "
        "catalog knows.",
    )
    measured: bool = Field(True, description="Whether any variant has a profile on it.")
    nodes: list[str] = Field(
        default_factory=list, description="Nodes that have it, as the control loop saw them last."
    )


class Devices(Schema):
    devices: list[DeviceRow]
    advice: list[str] = Field(
        default_factory=list, description="What could be done about nodes that are used otherwise."
    )


def device_routes(context: ApiContext) -> APIRouter:
    """``GET /v1/devices``."""
    routes = APIRouter(prefix="/v1", tags=["catalog"])

    @routes.get("/devices", summary="Device kinds: price, where they come from, their nodes")
    async def devices() -> Devices:
        own = {kind.name: kind for kind in (await context.settings_now()).kinds}
        known = {kind.name: kind for kind in (await context.snapshot()).device_kinds}
        unmeasured = {
            name: DeviceKind(
                name=name,
                cores=kind.cores,
                memory_mib=kind.memory_mib,
                usd_per_hour=kind.usd_per_hour,
                gpu=kind.gpu,
                idle_w=kind.idle_w,
            )
            for name, kind in own.items()
            if name not in known
        }
        nodes, advice = await _nodes(context)
        rows = []
        for name, kind in sorted({**known, **unmeasured}.items()):
            row = DeviceRow.model_validate(kind)
            row.source = own[name].source if name in own else None
            row.measured = name in known
            row.nodes = nodes.get(name, [])
            rows.append(row)
        return Devices(devices=rows, advice=advice)

    return routes


async def _nodes(context: ApiContext) -> tuple[dict[str, list[str]], list[str]]:
    """Names of nodes by kind, and advice; nothing while the live state does not answer."""
    if not context.settings.ray_address:
        return {kind.name: [socket.gethostname()] for kind in context.settings.kinds}, []
    try:
        seen = await context.live.nodes()
    except StateUnavailable:
        seen = None
    return (seen["kinds"], seen["advice"]) if seen else ({}, [])
