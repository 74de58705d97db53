"""Three routes: the peaks of demand that operators declare."""

import asyncio
from time import time
from typing import Annotated

from fastapi import APIRouter, Path

from controlplane.api.context import ApiContext, happened
from controlplane.timestamps import spoken
from controlplane.views.catalog.tasks import find_task
from controlplane.views.peak_schemas import PeakDeclaration, PeakSchema
from controlplane.views.schemas import Schema
from planner.forecasting.peaks import is_over, words
from variants.catalog.protocol import MOST_PEAKS, Catalog
from variants.catalog.validity.absent import no_peak
from variants.catalog.validity.peaks import check_peak
from variants.errors import InvalidInput
from variants.types import Peak


class Peaks(Schema):
    peaks: list[PeakSchema]


PeakId = Annotated[int, Path(ge=1, le=2**53, description="Id of a declared peak.", examples=[1])]


def peak_routes(context: ApiContext) -> APIRouter:
    """``GET``, ``POST`` and ``DELETE`` of ``/v1/peaks``."""
    routes = APIRouter(prefix="/v1", tags=["running"])

    @routes.get("/peaks", summary="Declared peaks of demand")
    async def peaks() -> Peaks:
        found = await asyncio.to_thread(context.catalog.peaks)
        now_s = time()
        return Peaks(peaks=[PeakSchema.of(peak, now_s) for peak in found])

    @routes.post(
        "/peaks",
        name="declare_peak",
        status_code=201,
        summary="Declare a peak of demand",
        description="The control loop plans for it before it begins: as long ahead as workers take "
        "to start and variants to load. A factor is of the demand that is expected when it begins.",
    )
    async def declare(declaration: PeakDeclaration) -> PeakSchema:
        peak = declaration.peak()
        check_peak(peak)
        now_s = time()
        if is_over(peak, now_s):
            raise InvalidInput(f"the peak ended at {spoken(peak.end_s)}: declare one to come")
        if peak.task is not None:
            find_task(await context.snapshot(), peak.task[:128])
        stored = await asyncio.to_thread(_add, context.catalog, peak, now_s)
        row = PeakSchema.of(stored, now_s)
        begins, ends = (spoken(at.timestamp()) for at in (row.start, row.end))
        said = f"{words(stored)}, from {begins} until {ends}"
        if row.repeat:
            said += f", {row.repeat}"
        await context.tell(happened("peak_declared", f"peak {stored.id}", said))
        return row

    @routes.delete("/peaks/{id}", name="remove_peak", summary="Take a declared peak back")
    async def remove(id: PeakId) -> PeakSchema:
        found = await asyncio.to_thread(context.catalog.peaks)
        peak = next((peak for peak in found if peak.id == id), None)
        if peak is None:
            raise no_peak(id, (one.id for one in found))
        await asyncio.to_thread(context.catalog.remove_peak, id)
        await context.tell(happened("peak_removed", f"peak {id}", words(peak)))
        return PeakSchema.of(peak, time())

    return routes


def _add(catalog: Catalog, peak: Peak, now_s: float) -> Peak:
    """Add a peak; where there is no room, those that are over make it."""
    known = catalog.peaks()
    if len(known) >= MOST_PEAKS:
        for other in known:
            if is_over(other, now_s):
                catalog.remove_peak(other.id)
    return catalog.add_peak(peak)
