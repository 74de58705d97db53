"""Tasks for rows of several lengths: the name that is asked, and the buckets that answer it.

A bucket is a task like any other, with models, variants and a plan of its own, for rows of one
length. Shorter rows are filled up to it. What buckets share is the name that clients ask: that of
a ``BucketedTask``, which is made of the buckets that there are and kept nowhere.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from variants.errors import InvalidInput
from variants.metrics.metric import parse_metric
from variants.types import (
    Digest,
    FollowingAxis,
    LengthBucket,
    ModelVersion,
    OpenAxis,
    Stage,
    Task,
    TaskName,
    TensorSpec,
    TextInput,
)

OPEN = -1
"""The size of an open axis in the signature of a bucketed task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketedTask:
    """Buckets under the name that clients ask."""

    face: Task
    """How clients see it: the shortest bucket under the shared name, its open axes, and those of
    outputs that follow them, ``OPEN``."""
    buckets: tuple[Task, ...]
    """Ascending by length, at least one."""

    @property
    def name(self) -> TaskName:
        return self.face.name

    @property
    def axes(self) -> tuple[OpenAxis, ...]:
        return bucket_of(self.buckets[0]).axes

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(bucket_of(task).length for task in self.buckets)

    def holding(self, length: int) -> Task:
        """The shortest bucket for rows of a length.

        Raises:
            InvalidInput: the longest one is too short.
        """
        for task in self.buckets:
            if length <= bucket_of(task).length:
                return task
        raise InvalidInput(
            f"a row has the length {length}, and task {self.name!r} takes rows of up to"
            f" {self.lengths[-1]}"
        )

    def inputs_at(self, length: int) -> tuple[TensorSpec, ...]:
        """The inputs of rows of a length."""
        return _inputs_at(self.face.inputs, self.axes, length)

    @property
    def following(self) -> tuple[FollowingAxis, ...]:
        """Of the outputs that are as long as the rows, or a part of that."""
        return bucket_of(self.buckets[0]).outputs


OwnTexts = Mapping[tuple[TaskName, str], TextInput]
"""How texts become rows of a version, by its task and label, where it has its own tokenizer."""


class TaskTable(dict[TaskName, Task]):
    """Tasks by name, and beside them the bucketed ones, which are found only where no task is, the
    tokenizers that tasks and versions name, as ``variants.texts.inputs.packed`` makes them, and
    which versions have their own."""

    __slots__ = ("bucketed", "own_texts", "texts", "tokenizers", "unread")

    def __init__(
        self,
        tasks: Iterable[Task],
        tokenizers: Mapping[Digest, bytes] | None = None,
        own_texts: OwnTexts | None = None,
        unread: Collection[TaskName] = (),
    ) -> None:
        super().__init__((task.name, task) for task in tasks)
        self.bucketed = bucketed_tasks(self.values())
        self.tokenizers: Mapping[Digest, bytes] = tokenizers or {}
        self.own_texts: OwnTexts = own_texts or {}
        found: dict[TaskName, dict[str, TextInput]] = {}
        for (name, _), text in self.own_texts.items():
            found.setdefault(name, {}).setdefault(text.way, text)
        self.texts: Mapping[TaskName, tuple[TextInput, ...]] = {
            name: tuple(texts.values()) for name, texts in found.items()
        }
        """By which versions of a task read texts that do not read them as the task says."""
        self.unread = frozenset(unread)
        """Tasks by whose own tokenizer nobody reads, as ``tasks_of_other_texts`` has them."""


def own_texts_of(versions: Iterable[ModelVersion]) -> OwnTexts:
    """Of those among versions that may answer."""
    return {
        (one.task, one.label): one.text
        for one in versions
        if one.text is not None and one.stage in (Stage.LIVE, Stage.CANARY)
    }


def tasks_of_other_texts(versions: Iterable[ModelVersion]) -> frozenset[TaskName]:
    """Tasks of which all versions that may answer have their own tokenizer, and there are some: no
    text has to be read by that of the task."""
    answering = [one for one in versions if one.stage in (Stage.LIVE, Stage.CANARY)]
    return frozenset(one.task for one in answering) - {
        one.task for one in answering if one.text is None
    }


def bucketed_tasks(tasks: Iterable[Task]) -> dict[TaskName, BucketedTask]:
    """What there is of several lengths among tasks, by the names that clients ask."""
    found: dict[TaskName, list[Task]] = {}
    for task in tasks:
        if task.bucket is not None:
            found.setdefault(task.bucket.of, []).append(task)
    return {name: _bucketed(name, buckets) for name, buckets in found.items()}


def bucketed_named(tasks: Iterable[Task], name: str) -> BucketedTask | None:
    """The bucketed task of a name, if there is one among tasks."""
    of_it = (task for task in tasks if task.bucket is not None and task.bucket.of == name)
    return bucketed_tasks(of_it).get(TaskName(name))


def bucket_of(task: Task) -> LengthBucket:
    """What makes a task a bucket, of one that is."""
    assert task.bucket is not None
    return task.bucket


def asked_name(task: Task) -> TaskName:
    """The name that clients ask: of a bucket, that of all its buckets."""
    return task.name if task.bucket is None else task.bucket.of


def bucket_name(name: str, length: int) -> TaskName:
    """What the bucket of a length is called: ``sentiment.64``."""
    return TaskName(f"{name}.{length}")


def in_order(name: str) -> tuple[str, int, str]:
    """By what names of tasks are sorted where people read them: buckets behind the name that they
    share, the shortest first."""
    shared, dot, length = name.rpartition(".")
    if dot and length.isdecimal():
        return (shared, int(length), name)
    return (name, -1, name)


def read_bucket(document: Mapping[str, Any] | None) -> LengthBucket | None:
    """A bucket from plain JSON values, as ``dataclasses.asdict`` gives them."""
    if document is None:
        return None
    return LengthBucket(
        of=TaskName(document["of"]),
        length=document["length"],
        axes=tuple(OpenAxis(**axis) for axis in document["axes"]),
        outputs=tuple(FollowingAxis(**axis) for axis in document.get("outputs", ())),
    )


def following_of(bucket: Task) -> dict[str, FollowingAxis]:
    """The outputs of a bucket that are as long as the rows, or a part of that, by name."""
    return {one.output: one for one in bucket_of(bucket).outputs}


def judged_axis(task: Task) -> FollowingAxis | None:
    """The same of the first output of a task, if that is one and each position is judged by
    itself."""
    if task.bucket is None or positions_axis(task) is None:
        return None
    return following_of(task)[task.outputs[0].name]


def points(metric: str, first: TensorSpec) -> bool:
    """Whether a first output that is as long as the rows says which position of a row is meant, as
    where an answer begins: it has one score for each, and a row's class is the number of one."""
    return len(first.shape) == 1 and parse_metric(metric).classifies


def following_axes(task: Task) -> dict[str, int]:
    """Outputs that are as long as the rows, to the axis of a row along which they are: of a bucket,
    or of the face of several."""
    if task.bucket is not None:
        return {one.output: one.axis for one in task.bucket.outputs}
    return {spec.name: spec.shape.index(OPEN) for spec in task.outputs if OPEN in spec.shape}


def positions_axis(task: Task) -> int | None:
    """The axis of a row of the first output along which each position is judged by itself; None
    where a row is judged as a whole."""
    first = task.outputs[0]
    return None if points(task.metric, first) else following_axes(task).get(first.name)


def _bucketed(name: TaskName, buckets: list[Task]) -> BucketedTask:
    ascending = tuple(sorted(buckets, key=lambda task: bucket_of(task).length))
    shortest, of = ascending[0], bucket_of(ascending[0])
    face = replace(
        shortest,
        name=name,
        inputs=_inputs_at(shortest.inputs, of.axes, OPEN),
        outputs=_at(shortest.outputs, {one.output: one.axis for one in of.outputs}, OPEN),
        bucket=None,
    )
    return BucketedTask(face=face, buckets=ascending)


@lru_cache(maxsize=1024)
def _inputs_at(
    inputs: tuple[TensorSpec, ...], axes: tuple[OpenAxis, ...], length: int
) -> tuple[TensorSpec, ...]:
    """Inputs with this size along their open axes."""
    return _at(inputs, {axis.input: axis.axis for axis in axes}, length)


def _at(
    specs: tuple[TensorSpec, ...], axes: Mapping[str, int], size: int
) -> tuple[TensorSpec, ...]:
    """Tensors with this size along these axes of a row, by name."""
    return tuple(
        spec
        if (axis := axes.get(spec.name)) is None
        else replace(spec, shape=(*spec.shape[:axis], size, *spec.shape[axis + 1 :]))
        for spec in specs
    )
