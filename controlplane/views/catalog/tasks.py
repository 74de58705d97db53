"""Tasks by their names, and what the control API shows of each."""

from controlplane.views.catalog.stages import SERVING, stages_of, version_key
from controlplane.views.catalog.task_schemas import TaskSchema
from planner.sentences import there_are
from variants.buckets import BucketedTask, bucketed_named, bucketed_tasks, in_order, own_texts_of
from variants.errors import TaskNotFound
from variants.types import CatalogSnapshot, Stage, Task, TaskName


def find_task(snapshot: CatalogSnapshot, name: str) -> Task:
    """The task of that name.

    Raises:
        TaskNotFound: there is none; the error names those that there are.
    """
    for task in snapshot.tasks:
        if task.name == name:
            return task
    of_lengths = bucketed_named(snapshot.tasks, name)
    if of_lengths is not None:
        buckets = ", ".join(one.name for one in of_lengths.buckets)
        raise TaskNotFound(
            f"task {name!r} takes rows of several lengths, and what is asked is known of each of"
            f" its buckets alone: {buckets}"
        )
    known = there_are(
        [*(task.name for task in snapshot.tasks), *bucketed_tasks(snapshot.tasks)], name
    )
    raise TaskNotFound(f"there is no task {name!r}{known or '; nothing is registered yet'}")


def named_tasks(
    snapshot: CatalogSnapshot, name: str, model: str | None = None, version: int | None = None
) -> tuple[TaskName, ...]:
    """The task of that name, or the buckets of the task for rows of several lengths.

    Args:
        model: only the buckets that have it, where any does.
        version: of the model, which a bucket may lack that has others of it.

    Raises:
        TaskNotFound: there is none.
    """
    of_lengths = bucketed_named(snapshot.tasks, name)
    if of_lengths is None:
        return (find_task(snapshot, name).name,)
    have = {
        one.task
        for one in snapshot.versions
        if one.model == model and version in (None, one.version)
    }
    parts = tuple(one.name for one in of_lengths.buckets)
    return tuple(one for one in parts if one in have) or parts


def task_rows(snapshot: CatalogSnapshot, name: str | None = None) -> list[TaskSchema]:
    """All tasks, or the one of that name, with how many models and answering variants they have.

    A task for rows of several lengths comes beside its buckets, with what all of these have.

    Raises:
        TaskNotFound: there is no task of that name.
    """
    of_lengths = bucketed_tasks(snapshot.tasks)
    asked: dict[TaskName, tuple[Task, tuple[TaskName, ...]]]
    if name is None:
        asked = {task.name: (task, (task.name,)) for task in snapshot.tasks}
        asked |= {one.name: (one.face, _names(one)) for one in of_lengths.values()}
    elif name in of_lengths:
        one = of_lengths[TaskName(name)]
        asked = {one.name: (one.face, _names(one))}
    else:
        task = find_task(snapshot, name)
        asked = {task.name: (task, (task.name,))}
    stages, own = stages_of(snapshot), own_texts_of(snapshot.versions)
    rows = []
    for at in sorted(asked, key=in_order):
        task, parts = asked[at]
        staged = [
            (variant.accuracy, stages.get(version_key(variant)))
            for variant in snapshot.variants
            if variant.task in parts
        ]
        live = [accuracy for accuracy, stage in staged if stage is Stage.LIVE]
        models = {version.model for version in snapshot.versions if version.task in parts}
        rows.append(
            TaskSchema.of(
                task,
                models=len(models),
                variants=sum(stage in SERVING for _, stage in staged),
                live_variants=len(live),
                best_accuracy=max(live, default=None),
                of_lengths=of_lengths.get(task.name),
                tokenizers={text.tokenizer for (of, _), text in own.items() if of in parts},
            )
        )
    return rows


def _names(of_lengths: BucketedTask) -> tuple[TaskName, ...]:
    return tuple(one.name for one in of_lengths.buckets)
