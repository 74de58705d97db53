"""Routes that show what is registered: tasks, models, variants, and how long these take."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from controlplane.api.context import ApiContext
from controlplane.api.inventory import kinds_now
from controlplane.api.path_parameters import ModelPath, TaskPath
from controlplane.profiling.due.staleness import changed_on
from controlplane.views.catalog.answer_schemas import read_answers
from controlplane.views.catalog.model_schemas import ModelSchema, VersionSchema
from controlplane.views.catalog.models import model_row, model_rows
from controlplane.views.catalog.task_schemas import TaskSchema
from controlplane.views.catalog.tasks import named_tasks, task_rows
from controlplane.views.catalog.text_vectors import OpenAiModel, openai_models
from controlplane.views.catalog.variant_schemas import ProfileSchema, VariantSchema
from controlplane.views.catalog.variants import variant_row, variant_rows
from controlplane.views.live_latencies import Live, live_latencies, tell_device, tell_profile
from controlplane.views.schemas import Schema
from controlplane.views.worker_schemas import WorkerSchema
from planner.feedback.accuracies import read
from planner.feedback.by_class import ByClass, mean_of
from planner.sentences import there_are
from variants.artifacts.protocol import ArtifactStore
from variants.errors import ModellessError, NotFound, StateUnavailable
from variants.metrics.metric import parse_metric
from variants.types import CatalogSnapshot, Digest, TaskName, VariantName


class Tasks(Schema):
    tasks: list[TaskSchema]


class Models(Schema):
    models: list[ModelSchema]


class AllModels(Models):
    """All models; beside them, as OpenAI's clients list them, those that make vectors of texts."""

    object: str = "list"
    data: list[OpenAiModel] = Field(description="What may be asked at `/v1/embeddings`.")


class Variants(Schema):
    variants: list[VariantSchema]


class Profiles(Schema):
    profiles: list[ProfileSchema]


def catalog_routes(context: ApiContext) -> APIRouter:
    """Tasks, models and variants."""
    routes = APIRouter(prefix="/v1", tags=["catalog"])
    settings = context.settings
    # Of a cluster's nodes nothing is known here: the control loop compares profiles with them.
    here = () if settings.ray_address else settings.kinds
    changed = changed_on(frozenset(kind.name for kind in here))

    @routes.get("/tasks", summary="All tasks")
    async def tasks() -> Tasks:
        return Tasks(tasks=await _tasks(context))

    @routes.get("/tasks/{task}", summary="One task")
    async def task(task: TaskPath) -> TaskSchema:
        return (await _tasks(context, task))[0]

    @routes.get("/tasks/{task}/models", summary="Models of a task")
    async def task_models(task: TaskPath) -> Models:
        return Models(models=model_rows(await context.snapshot(), task))

    @routes.get("/tasks/{task}/variants", summary="Variants of a task, with the frontier")
    async def variants(task: TaskPath) -> Variants:
        there = await _kinds_there(context)
        snapshot = await context.snapshot()
        rows = variant_rows(snapshot, task, changed, there)
        await _tell_live(context, snapshot, rows)
        return Variants(variants=rows)

    @routes.get("/variants/{task}/{variant}", summary="One variant")
    async def variant(task: TaskPath, variant: str) -> VariantSchema:
        there = await _kinds_there(context)
        snapshot = await context.snapshot()
        row = variant_row(snapshot, task, variant, changed, there)
        await _tell_live(context, snapshot, [row])
        return row

    @routes.get("/models", summary="All models")
    async def models() -> AllModels:
        snapshot = await context.snapshot()
        return AllModels(models=model_rows(snapshot), data=openai_models(snapshot))

    @routes.get("/models/{task}/{model}", summary="One model with its versions")
    async def model(task: TaskPath, model: ModelPath) -> ModelSchema:
        row = model_row(await context.snapshot(), task, model)
        for version in row.versions:
            version.source_bytes = await asyncio.to_thread(_size, context.store, version)
        return row

    return routes


def profile_routes(context: ApiContext) -> APIRouter:
    """Profiles."""
    routes = APIRouter(prefix="/v1", tags=["catalog"])

    @routes.get("/profiles", summary="Latency, memory and load time per device kind")
    async def profiles(
        task: Annotated[str | None, Query(description="Only of this task.")] = None,
        variant: Annotated[str | None, Query(description="Only of this variant.")] = None,
        device_kind: Annotated[str | None, Query(description="Only on this kind.")] = None,
    ) -> Profiles:
        snapshot = await context.snapshot()
        of = _checked(snapshot, task, variant)
        if device_kind is not None:
            await _check_kind(context, snapshot, device_kind)
        found = [
            ProfileSchema.of(profile)
            for profile in snapshot.profiles
            if (of is None or profile.task in of)
            and variant in (None, profile.variant)
            and device_kind in (None, profile.device_kind)
        ]
        live = await _live(context)
        for each in found:
            tell_profile(each, live)
        return Profiles(profiles=found)

    return routes


def _checked(
    snapshot: CatalogSnapshot, task: str | None, variant: str | None
) -> tuple[TaskName, ...] | None:
    """The tasks that are meant, None for all.

    Names of which there can be no profiles are refused: an empty list would say that none was made.

    Raises:
        TaskNotFound, NotFound: the catalog has no task or variant of that name.
    """
    of = None if task is None else named_tasks(snapshot, task)
    known = {v.name for v in snapshot.variants if of is None or v.task in of}
    if variant is not None and variant not in known:
        said = "there is" if task is None else f"task {task!r} has"
        raise NotFound(f"{said} no variant {variant[:128]!r}{there_are(known, variant)}")
    return of


async def _check_kind(context: ApiContext, snapshot: CatalogSnapshot, kind: str) -> None:
    """Raise for a device kind that is none. It may be one on which nothing was measured yet.

    Raises:
        NotFound: neither is it in the catalog nor is there a worker of it; the error names others.
    """
    known = {str(one.name) for one in snapshot.device_kinds}
    if kind in known:
        return
    there = await _kinds_there(context)
    if there is not None and kind not in there:
        said = there_are(known | there, kind)
        raise NotFound(f"there is no device kind {kind[:128]!r}{said}")


async def _tasks(context: ApiContext, name: str | None = None) -> list[TaskSchema]:
    """All tasks, or the one of that name, with what clients and answers say of their variants."""
    snapshot = await context.snapshot()
    rows = task_rows(snapshot, name)
    said: dict[TaskName, list[str]] = {}
    told = await context.told()
    answers = read_answers(told.get("answers", ()))
    for task, variant in sorted(read(told.get("contradicted", ()))):
        said.setdefault(task, []).append(variant)
    for row in rows if said else ():
        of = named_tasks(snapshot, row.name)
        row.contradicted = [variant for part in of for variant in said.get(part, ())]
    for row in rows if answers else ():
        of = named_tasks(snapshot, row.name)
        found = [(key[1], one) for key, one in sorted(answers.items()) if key[0] in of]
        row.answers_changed = [variant for variant, one in found if one.changed]
        row.answers_differ = [variant for variant, one in found if one.differs]
    return rows


async def _live(context: ApiContext) -> Live:
    """What batches take now; nothing while the live state does not answer."""
    try:
        statuses = await context.live.worker_status()
    except StateUnavailable:
        return {}
    return live_latencies(WorkerSchema.model_validate(status) for status in statuses)


async def _feedback(
    context: ApiContext,
) -> tuple[Mapping[str, Mapping[str, tuple[int, int]]], Mapping[str, Mapping[str, ByClass]]]:
    """What clients say of answers, all together and by class; none while the live state is away."""
    try:
        return await context.live.feedback(), await context.live.feedback_by_class()
    except StateUnavailable:
        return {}, {}


async def _kinds_there(context: ApiContext) -> set[str] | None:
    """Device kinds of which a worker is there or asked for; None while nobody can say it."""
    try:
        rows = await kinds_now(context, None)
    except StateUnavailable:
        return None
    return {row.device_kind for row in rows if row.asked or row.running or row.draining}


async def _tell_live(
    context: ApiContext, snapshot: CatalogSnapshot, rows: Iterable[VariantSchema]
) -> None:
    live = await _live(context)
    said, by_class = await _feedback(context)
    metrics = {str(task.name): parse_metric(task.metric) for task in snapshot.tasks}
    told = await context.told()
    counted, contradicted = (read(told.get(name, ())) for name in ("accuracies", "contradicted"))
    answers = read_answers(told.get("answers", ()))
    for row in rows:
        key = TaskName(row.task), VariantName(row.name)
        if found := counted.get(key):
            row.counted_accuracy = found.accuracy
        if found := contradicted.get(key):
            row.said_accuracy = found.accuracy
        row.answers = answers.get(key)
        right, wrong = said.get(row.task, {}).get(row.name, (0, 0))
        if right or wrong:
            row.live_accuracy, row.live_accuracy_rows = right / (right + wrong), right + wrong
            of_classes, metric = by_class.get(row.task, {}).get(row.name), metrics[row.task]
            if of_classes and metric.by_class:
                row.live_accuracy = mean_of(metric, of_classes)
        for device in row.devices:
            tell_device(device, row.task, row.name, live)


def _size(store: ArtifactStore, version: VersionSchema) -> int | None:
    """Bytes of a version's source; None when it is not in this store."""
    try:
        return store.size_bytes(Digest(version.source))
    except ModellessError:
        return None
