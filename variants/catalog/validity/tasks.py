"""What a task may be: its tensors, the names of its classes and its default SLO."""

import math
from dataclasses import replace
from unicodedata import category

from variants.buckets import positions_axis
from variants.catalog.validity.buckets import check_bucket
from variants.catalog.validity.plain_values import (
    check_count,
    check_name,
    check_number,
    check_storable,
    check_unique,
)
from variants.catalog.validity.sharing import check_sharing
from variants.errors import InvalidInput
from variants.figures import counted
from variants.images import check_image
from variants.metrics.metric import parse_metric
from variants.texts.inputs import check_text
from variants.types import Slo, Task, TensorSpec

DTYPES = ("float32", "float64", "int64", "int32", "uint8", "bool")
"""The element types that a task's tensors may have."""

UNPRINTED = ("Cc", "Zl", "Zp")
"""Categories of control characters and of what separates lines, which no label has."""

MOST_LABELS = 10
"""Labels that an error lists at most."""

MAX_AXES = 7
"""Axes of a tensor besides the batch's: the tensor channel carries eight."""


def check_task(task: Task) -> None:
    """Refuse a task with a bad name, signature, label list, metric or default SLO."""
    check_name(task.name, "a task")
    where = f"task {task.name!r}"
    for side, specs in (("input", task.inputs), ("output", task.outputs)):
        if not specs:
            raise InvalidInput(f"{where} has no {side}s")
        for spec in specs:
            _check_tensor(spec, f"{side} {spec.name!r} of {where}")
        check_unique(f"{side} of {where}", (spec.name for spec in specs))
    check_labels(task)
    check_slo(task.slo, where)
    check_sharing(task.sharing, where)
    check_image(task)
    check_bucket(task)
    check_text(task)


def _check_tensor(spec: TensorSpec, where: str) -> None:
    if not spec.name:
        raise InvalidInput(f"{where} has no name")
    check_storable(spec.name, f"the name of {where}")
    if spec.dtype not in DTYPES:
        raise InvalidInput(
            f"{where} has type {spec.dtype!r}; it must be one of {', '.join(DTYPES)}"
        )
    if len(spec.shape) > MAX_AXES:
        raise InvalidInput(f"{where} has {len(spec.shape)} axes; at most {MAX_AXES} are possible")
    for size in spec.shape:
        check_count(size, f"a dimension of {where}")


def check_labels(task: Task) -> None:
    """Refuse names that are not those of a task's classes, with ``InvalidInput``; none are fine."""
    if not task.labels:
        return
    where, metric = f"task {task.name!r}", parse_metric(task.metric)
    if not metric.classifies:
        raise InvalidInput(f"{where} has labels, which only classifiers have, and is of {metric}")
    for label in task.labels:
        check_storable(label, f"a label of {where}")
    if len(set(task.labels)) != len(task.labels):
        twice = next(one for one in task.labels if task.labels.count(one) > 1)
        raise InvalidInput(f"{where} has the same label for two classes: {twice[:80]!r}")
    output = task.outputs[0]
    by_position = positions_axis(task) is not None
    classes = output.shape[-1] if by_position else math.prod(output.shape)
    if len(task.labels) != classes:
        raise InvalidInput(
            f"{where} has {counted(len(task.labels), 'label')}, but output {output.name!r} "
            f"has {classes} class{'' if classes == 1 else 'es'}"
        )


def check_given(labels: tuple[str, ...]) -> None:
    """Refuse new names of classes that are empty, or that a line of text cannot hold.

    Raises:
        InvalidInput: the first that is so, by its place.
    """
    for place, label in enumerate(labels, start=1):
        if not label.strip():
            raise InvalidInput(f"label {place:,} is empty")
        if any(category(letter) in UNPRINTED for letter in label):
            raise InvalidInput(
                f"label {place:,} has a line break or another control character: {label[:80]!r}"
            )


def labelled(task: Task, labels: tuple[str, ...]) -> Task:
    """The task with these names of its classes.

    Raises:
        InvalidInput: they are not those of its classes.
    """
    check_given(labels)
    found = replace(task, labels=labels)
    check_labels(found)
    return found


def check_slo(slo: Slo, where: str) -> None:
    """Refuse defaults that no query could have, with ``InvalidInput``; ``where`` names the task."""
    if not (math.isfinite(slo.latency_ms) and slo.latency_ms > 0):
        raise InvalidInput(
            f"the default latency of {where} is {slo.latency_ms:g} ms; it must be positive and"
            " finite"
        )
    if slo.accuracy is not None and not 0 <= slo.accuracy <= 1:
        raise InvalidInput(
            f"the default accuracy floor of {where} is {slo.accuracy:g}, not in [0, 1]"
        )
    if slo.cost is not None:
        check_number(slo.cost, f"the default cost ceiling of {where}")
