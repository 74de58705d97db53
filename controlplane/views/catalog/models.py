"""What the control API shows of models and their versions."""

from collections import defaultdict

from controlplane.views.catalog.model_schemas import ModelSchema, VersionSchema
from controlplane.views.catalog.stages import stages_of, version_key
from controlplane.views.catalog.tasks import named_tasks
from planner.sentences import there_are
from variants.buckets import in_order
from variants.errors import NotFound
from variants.types import CatalogSnapshot, ModelName, Stage, TaskName


def model_rows(
    snapshot: CatalogSnapshot, task: str | None = None, model: str | None = None
) -> list[ModelSchema]:
    """Models with their versions, oldest first; of one task, or one model of it. Of a task for rows
    of several lengths each bucket's stand by themselves, the shortest length first.

    Raises:
        TaskNotFound: the task is unknown.
        NotFound: the task has no such model.
    """
    parts = None if task is None else named_tasks(snapshot, task)
    variants: dict[tuple[TaskName, ModelName, int], list[str]] = defaultdict(list)
    for variant in snapshot.variants:
        variants[version_key(variant)].append(variant.name)
    texts = {one.name: one.text for one in snapshot.tasks}
    grouped: dict[tuple[TaskName, ModelName], list[VersionSchema]] = defaultdict(list)
    for version in sorted(snapshot.versions, key=lambda v: (in_order(v.task), v.model, v.version)):
        if (parts is None or version.task in parts) and model in (None, version.model):
            built = variants[version.task, version.model, version.version]
            grouped[version.task, version.model].append(
                VersionSchema.of(version, of_task=texts.get(version.task), variants=built)
            )
    if model is not None and not grouped:
        of_it = {one.model for one in snapshot.versions if parts is None or one.task in parts}
        known = there_are(of_it, model)
        raise NotFound(f"task {task!r} has no model {model!r}{known}")
    return [
        ModelSchema(
            task=of_task,
            model=name,
            live=max((v.version for v in versions if v.stage is Stage.LIVE), default=None),
            versions=versions,
        )
        for (of_task, name), versions in grouped.items()
    ]


def model_row(snapshot: CatalogSnapshot, task: str, model: str) -> ModelSchema:
    """One model with its versions, oldest first; of a task for rows of several lengths with those
    of all buckets, each under its bucket's name.

    Raises:
        TaskNotFound: the task is unknown.
        NotFound: the task has no such model.
    """
    rows = model_rows(snapshot, task, model)
    versions = [version for row in rows for version in row.versions]
    return ModelSchema(
        task=task,
        model=model,
        live=max((row.live for row in rows if row.live is not None), default=None),
        versions=sorted(versions, key=lambda one: one.version),
    )


def is_last_live(snapshot: CatalogSnapshot, of: VersionSchema) -> bool:
    """Whether a version is live and no other version of its task is that has variants."""
    stages = stages_of(snapshot)
    return of.stage is Stage.LIVE and not any(
        one.task == of.task
        and (one.model, one.version) != (of.model, of.version)
        and stages.get(version_key(one)) is Stage.LIVE
        for one in snapshot.variants
    )
