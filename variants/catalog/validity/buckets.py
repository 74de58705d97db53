"""Which buckets of lengths a catalog takes, alone and beside what it has."""

from collections.abc import Iterable
from math import isfinite

import numpy as np

from variants.buckets import bucket_name, bucketed_named, bucketed_tasks
from variants.errors import Conflict, InvalidInput
from variants.figures import figure
from variants.types import NAME, OpenAxis, Task, TaskName, TensorSpec

LONGEST = 1_000_000
"""The length of a bucket at most."""


def check_bucket(task: Task) -> None:
    """Refuse a bucket that contradicts its task; no bucket is fine.

    Raises:
        InvalidInput: its names, its length or an axis cannot be.
    """
    bucket = task.bucket
    if bucket is None:
        return
    where = f"task {task.name!r}"
    if not NAME.fullmatch(bucket.of):
        raise InvalidInput(f"{where} cannot be a bucket of {bucket.of[:40]!r}, which is no name")
    if task.name != bucket_name(bucket.of, bucket.length):
        raise InvalidInput(
            f"{where} is the bucket of {bucket.of!r} for the length {bucket.length}, which is"
            f" called {bucket_name(bucket.of, bucket.length)!r}"
        )
    if not 1 <= bucket.length <= LONGEST:
        raise InvalidInput(f"{where} has the length {bucket.length}, not 1 to {LONGEST}")
    specs = {spec.name: spec for spec in task.inputs}
    if not bucket.axes:
        raise InvalidInput(f"{where} is a bucket without an open axis")
    for axis in bucket.axes:
        _check_axis(where, axis, specs.get(axis.input), bucket.length)
    given = {spec.name: spec.shape for spec in task.outputs}
    for one in bucket.outputs:
        shape = given.get(one.output, ())
        if one.step < 1:
            raise InvalidInput(f"output {one.output!r} of {where} has a step of {one.step}")
        size = one.size(bucket.length)
        if not 0 <= one.axis < len(shape) or shape[one.axis] != size:
            raise InvalidInput(
                f"{where} has no output {one.output!r} with an axis {one.axis} of the length {size}"
            )


def _check_axis(where: str, axis: OpenAxis, spec: TensorSpec | None, length: int) -> None:
    if spec is None:
        raise InvalidInput(f"{where} has no input {axis.input!r} that could have an open axis")
    if not 0 <= axis.axis < len(spec.shape) or spec.shape[axis.axis] != length:
        raise InvalidInput(
            f"input {axis.input!r} of {where} has no axis {axis.axis} of the length {length}"
        )
    if not _holds(spec.dtype, axis.pad):
        raise InvalidInput(
            f"input {axis.input!r} of {where} is {spec.dtype} and cannot be filled up with"
            f" {figure(axis.pad)}"
        )


def _holds(dtype: str, value: float) -> bool:
    """Whether a type has this value."""
    if not isfinite(value):
        return False
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return abs(value) <= float(np.finfo(kind).max)
    if value != int(value):
        return False
    if kind.kind == "b":
        return value in (0, 1)
    limits = np.iinfo(kind)
    return int(limits.min) <= int(value) <= int(limits.max)


def check_names(task: Task, names: Iterable[TaskName], buckets: Iterable[Task]) -> None:
    """Refuse a new task whose name, or whose shared name, is taken, or a bucket unlike the others.

    Args:
        names: of the tasks that are stored.
        buckets: the stored tasks that are buckets.

    Raises:
        Conflict: the first contradiction, in one sentence.
    """
    stored = list(buckets)
    taken = bucketed_named(stored, task.name)
    if taken is not None:
        raise Conflict(
            f"{task.name!r} is the name of a task that takes rows of several lengths:"
            f" {', '.join(one.name for one in taken.buckets)}"
        )
    bucket = task.bucket
    if bucket is None:
        return
    if bucket.of in set(names):
        raise Conflict(
            f"task {bucket.of!r} exists and takes rows of one length; register for another name"
        )
    others = bucketed_named(stored, bucket.of)
    if others is None:
        return
    own = bucketed_tasks([task])[bucket.of]
    for what, same in (
        ("open axes", own.axes == others.axes),
        ("inputs", own.face.inputs == others.face.inputs),
        ("outputs", own.face.outputs == others.face.outputs),
        ("lengths of outputs", own.following == others.following),
        ("labels", own.face.labels == others.face.labels),
        ("metric", own.face.metric == others.face.metric),
    ):
        if not same:
            raise Conflict(f"the other buckets of {bucket.of!r} have other {what}")
