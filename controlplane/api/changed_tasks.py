"""What is changed of a task: what holds when a query names nothing, and what classes are called."""

import asyncio
from dataclasses import asdict

from fastapi import APIRouter

from controlplane.api.context import ApiContext
from controlplane.api.path_parameters import TaskPath
from controlplane.timestamps import timestamp
from controlplane.views import catalog_views
from controlplane.views.catalog_schemas import LabelsSchema, SloChange, TaskSchema
from planner.sentences import some_of
from variants.errors import InvalidInput, NotFound, TaskNotFound
from variants.types import Event, Slo, TaskName

MOST_NAMES = 10
"""Of classes, in an event."""


def changed_tasks_routes(context: ApiContext) -> APIRouter:
    """``PATCH`` of ``/v1/tasks/{task}/slo``, ``PUT`` of ``/v1/tasks/{task}/labels``."""
    routes = APIRouter(prefix="/v1", tags=["catalog"])

    @routes.patch(
        "/tasks/{task}/slo",
        summary="Change the default SLO of a task",
        description="What is left out stays as it is; null for `accuracy` or `cost` asks for "
        "nothing. It holds for queries that name nothing of the kind. Gateways follow within a "
        "second. Of two changes at once both hold; where they change the same, the later one.",
    )
    async def change(task: TaskPath, change: SloChange) -> TaskSchema:
        if not change.model_fields_set:
            known = ", ".join(SloChange.model_fields)
            raise InvalidInput(f"nothing is to be changed; there are: {known}")
        catalog_views.find_task(await context.snapshot(), task)
        try:
            before, after = await asyncio.to_thread(
                context.catalog.change_slo, TaskName(task), change.applied
            )
        except NotFound as error:  # somebody has removed it meanwhile
            raise TaskNotFound(error.message) from error
        if after != before:
            event = Event(
                at=timestamp(), kind="slo_changed", subject=task, message=_words(before, after)
            )
            await asyncio.to_thread(context.catalog.add_event, event)
        return catalog_views.task_rows(await context.snapshot(), task)[0]

    @routes.put(
        "/tasks/{task}/labels",
        summary="Name the classes of a task",
        description="In the order of its scores, one for each class; an empty list takes the "
        "names away. Replies have `labels` and `scores` while there are names. Gateways follow "
        "within a second.",
    )
    async def name(task: TaskPath, wanted: LabelsSchema) -> TaskSchema:
        labels = tuple(wanted.labels)
        before = catalog_views.find_task(await context.snapshot(), task).labels
        if labels != before:
            await asyncio.to_thread(context.catalog.set_labels, TaskName(task), labels)
            message = f"{_names(before)} -> {_names(labels)}"
            event = Event(at=timestamp(), kind="labels_changed", subject=task, message=message)
            await asyncio.to_thread(context.catalog.add_event, event)
        return catalog_views.task_rows(await context.snapshot(), task)[0]

    return routes


def _names(labels: tuple[str, ...]) -> str:
    return some_of(labels, MOST_NAMES) if labels else "none"


def _words(before: Slo, after: Slo) -> str:
    """What differs: ``latency_ms 1000 -> 50, accuracy any -> 0.95``."""
    old, new = asdict(before), asdict(after)
    return ", ".join(
        f"{name} {_word(old[name])} -> {_word(new[name])}" for name in old if old[name] != new[name]
    )


def _word(value: object) -> str:
    return "any" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
