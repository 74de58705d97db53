"""Routes that show what happened, and what may be asked of it."""

import asyncio
from collections.abc import Iterable
from datetime import UTC
from difflib import get_close_matches
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, StringConstraints

from controlplane.api.context import ApiContext
from controlplane.api.path_parameters import no_worker
from controlplane.api.reading.event_kinds import EVENT_KINDS
from controlplane.api.reading.running import worker_name
from controlplane.views.catalog.tasks import named_tasks
from controlplane.views.schemas import EventSchema, Schema
from variants.errors import InvalidInput, StateUnavailable, TaskNotFound
from variants.types import EventFilter

NEAR = 10
"""Kinds that are named in place of one that is none."""
ALIKE = 0.75
"""Of two names, how alike they are from which on one may be mistyped, by ``difflib``."""
SECOND = len("2026-01-31T23:59:59")
KindName = Annotated[str, StringConstraints(max_length=64)]
Limit = Annotated[int, Query(ge=1, le=1_000, description="At most so many, newest first.")]


class Events(Schema):
    events: list[EventSchema]


def event_routes(context: ApiContext) -> APIRouter:
    """What happened."""
    routes = APIRouter(prefix="/v1", tags=["running"])

    @routes.get("/events", summary="What happened")
    async def events(
        limit: Limit = 50,
        after: Annotated[
            int, Query(ge=0, le=2**53, description="Only those with a higher `seq`.")
        ] = 0,
        kind: Annotated[
            list[KindName] | None,
            Query(
                max_length=50,
                description="Only of this kind; given again, of these. "
                f"There are: {', '.join(sorted(EVENT_KINDS))}.",
            ),
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
        await _check_kinds(context, kind or ())
        asked = EventFilter(
            after=after,
            kinds=frozenset(kind or ()),
            since="" if since is None else since.astimezone(UTC).isoformat()[:SECOND],
            tasks=await _tasks(context, task) if task else frozenset(),
            worker=worker,
        )
        found = await asyncio.to_thread(context.catalog.events, limit, asked)
        if worker and not found:
            await _check_worker(context, worker)
        return Events(events=[EventSchema.of(event) for event in found])

    return routes


async def _any(context: ApiContext, asked: EventFilter) -> bool:
    return bool(await asyncio.to_thread(context.catalog.events, 1, asked))


async def _check_kinds(context: ApiContext, kinds: Iterable[str]) -> None:
    """Raise for a kind that is none: that nothing of it has happened would say it were one.

    Raises:
        InvalidInput: neither are there events of it, nor were there any in an earlier release.
    """
    for kind in kinds:
        if kind in EVENT_KINDS or await _any(context, EventFilter(kinds=frozenset({kind}))):
            continue
        raise InvalidInput(f"there is no kind of event {kind!r}; {_kinds_like(kind)}")


def _kinds_like(kind: str) -> str:
    """Which kinds may be meant, and where all are; all themselves where nothing is like it."""
    known = sorted(EVENT_KINDS)
    asked = kind.lower().replace("-", "_")
    words = set(asked.split("_"))
    near = (
        [one for one in known if asked and asked in one]
        or get_close_matches(asked, known, NEAR, cutoff=ALIKE)
        or [one for one in known if words & set(one.split("_"))]
    )
    if not near:
        return f"there are: {', '.join(known)}"
    named = near[:NEAR]
    return (
        f"there are: {', '.join(named)} and {len(known) - len(named)} others, which /docs lists"
        " under GET /v1/events"
    )


async def _tasks(context: ApiContext, task: str) -> frozenset[str]:
    """The task of that name, with the buckets of one for rows of several lengths.

    Raises:
        TaskNotFound: there is none and nothing is told of one that there was.
    """
    try:
        return frozenset({task, *named_tasks(await context.snapshot(), task)})
    except TaskNotFound:
        of_it = frozenset({task})
        if await _any(context, EventFilter(tasks=of_it)):  # it was removed
            return of_it
        raise


async def _check_worker(context: ApiContext, worker: str) -> None:
    """Raise for a worker that is not there and of which nothing is told either.

    Raises:
        NotFound: the error names those that there are.
    """
    if await _any(context, EventFilter(worker=worker)):
        return
    try:
        statuses = await context.live.worker_status()
    except StateUnavailable:  # then nobody knows
        return
    names = set(map(worker_name, statuses))
    if worker not in names:
        raise no_worker(worker, names, ", and no event tells of one")
