"""What is changed of a task: its default SLO, how pictures are read, what classes are called."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict, replace

from fastapi import APIRouter

from controlplane.api.context import ApiContext, happened
from controlplane.api.path_parameters import TaskPath
from controlplane.views.catalog.task_changes import ImageChange, LabelsSchema, SloChange, TaskChange
from controlplane.views.catalog.task_schemas import TaskSchema
from controlplane.views.catalog.tasks import named_tasks, task_rows
from variants.catalog.validity.tasks import labelled
from variants.errors import InvalidInput, NotFound, TaskNotFound
from variants.figures import accuracy_floor, some_of
from variants.types import Event, ImageScale, Slo, Task, TaskName

Told = Callable[[Task, Task], list[Event]]
MOST_NAMES = 10
"""Of classes, in an event."""


async def changed(
    context: ApiContext,
    name: str,
    change: Callable[[Task], Task],
    *,
    told: Told,
) -> TaskSchema:
    """Change a task, tell of it where that makes a difference, and show the task; of a task for
    rows of several lengths, change all its buckets or none.

    Args:
        told: events to tell, from the task before and after.

    Raises:
        InvalidInput: no task can be so.
        TaskNotFound: there is none of that name.
    """
    named_tasks(await context.snapshot(), name)  # which says what is near, where there is none
    try:
        # By name: the catalog knows a bucket that was registered after what was read here.
        done = await asyncio.to_thread(context.catalog.change_tasks, (TaskName(name),), change)
    except NotFound as error:  # somebody has removed it meanwhile
        raise TaskNotFound(error.message) from error
    events = [event for before, after in done if after != before for event in told(before, after)]
    await context.tell(*events)
    return task_rows(await context.snapshot(), name)[0]


def changed_tasks_routes(context: ApiContext) -> APIRouter:
    """``PATCH`` of a task's ``slo`` and ``image``, or of both, ``PUT`` of its ``labels``."""
    routes = APIRouter(prefix="/v1", tags=["catalog"])
    _add_defaults(routes, context)
    _add_labels(routes, context)
    return routes


def _add_defaults(routes: APIRouter, context: ApiContext) -> None:
    """What holds where a query says nothing: its SLO, and how its picture becomes numbers."""

    @routes.patch(
        "/tasks/{task}",
        name="change_task",
        summary="Change the default SLO of a task and how its pictures are read",
        description="Both at once or neither; each as by its own path. What is left out stays.",
    )
    async def change_both(task: TaskPath, change: TaskChange) -> TaskSchema:
        _refuse_empty(change)
        slo = change.slo or SloChange.model_validate({})
        image = change.image or ImageChange.model_validate({})
        return await changed(
            context,
            task,
            lambda one: replace(
                one,
                slo=slo.applied(one.slo),
                image=image.applied(one.image) if image.model_fields_set else one.image,
            ),
            told=lambda before, after: [*_slo_told(before, after), *_image_told(before, after)],
        )

    @routes.patch(
        "/tasks/{task}/slo",
        name="change_slo",
        summary="Change the default SLO of a task",
        description="What is left out stays as it is; null for `accuracy` or `cost` asks for "
        "nothing. It holds for queries that name nothing of the kind. Gateways follow within a "
        "second. Of two changes at once both hold; where they change the same, the later one.",
    )
    async def change(task: TaskPath, change: SloChange) -> TaskSchema:
        _refuse_empty(change)
        return await changed(
            context,
            task,
            lambda one: replace(one, slo=change.applied(one.slo)),
            told=_slo_told,
        )

    @routes.patch(
        "/tasks/{task}/image",
        name="change_image",
        summary="Say how pictures become the values of a task's input",
        description="By `(value / 255 - mean) / std` of each pixel's value; what is left out stays"
        " as it is. It holds for queries by picture that name neither `Image-Mean` nor `Image-Std`."
        " When this is answered, all gateways go by it.",
    )
    async def scale(task: TaskPath, change: ImageChange) -> TaskSchema:
        _refuse_empty(change)
        return await changed(
            context,
            task,
            lambda one: replace(one, image=change.applied(one.image)),
            told=_image_told,
        )


def _add_labels(routes: APIRouter, context: ApiContext) -> None:
    """What classes are called."""

    @routes.put(
        "/tasks/{task}/labels",
        name="name_labels",
        summary="Name the classes of a task",
        description="In the order of its scores, one for each class; an empty list takes the "
        "names away. Replies have `labels` and `scores` while there are names. When this "
        "is answered, all gateways go by it.",
    )
    async def name(task: TaskPath, wanted: LabelsSchema) -> TaskSchema:
        return await changed(
            context,
            task,
            lambda one: labelled(one, tuple(wanted.labels)),
            told=lambda before, after: [
                happened(
                    "labels_changed",
                    after.name,
                    f"{_names(before.labels)} -> {_names(after.labels)}",
                )
            ],
        )


def _slo_told(before: Task, after: Task) -> list[Event]:
    if before.slo == after.slo:
        return []
    return [happened("slo_changed", after.name, _words(before.slo, after.slo))]


def _image_told(before: Task, after: Task) -> list[Event]:
    if before.image == after.image:
        return []
    words = f"{_scale(before.image)} -> {_scale(after.image)}"
    return [happened("image_changed", after.name, words)]


def _refuse_empty(change: SloChange | ImageChange | TaskChange) -> None:
    """
    Raises:
        InvalidInput: it changes nothing.
    """
    parts = (change.slo, change.image) if isinstance(change, TaskChange) else (change,)
    if not any(part.model_fields_set for part in parts if part is not None):
        known = ", ".join(type(change).model_fields)
        raise InvalidInput(f"nothing is to be changed; what can be: {known}")


def _scale(image: ImageScale | None) -> str:
    """``mean 0.485, 0.456, 0.406, std 0.229, 0.224, 0.225``."""
    if image is None:
        return "none said"
    mean, std = (", ".join(f"{value:g}" for value in one) for one in (image.mean, image.std))
    return f"mean {mean}, std {std}"


def _names(labels: tuple[str, ...]) -> str:
    return some_of(labels, MOST_NAMES) if labels else "none"


def _words(before: Slo, after: Slo) -> str:
    """What differs: ``latency_ms 1000 -> 50, accuracy any -> 95.00 %``."""
    old, new = asdict(before), asdict(after)
    return ", ".join(
        f"{name} {_word(name, old[name])} -> {_word(name, new[name])}"
        for name in old
        if old[name] != new[name]
    )


def _word(name: str, value: object) -> str:
    if name == "accuracy" and isinstance(value, float):
        return accuracy_floor(value)
    return "any" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
