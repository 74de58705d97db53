"""Cutting back: of outputs that are as long as the rows, what is not of padding."""

from collections.abc import Sequence

import numpy as np

from variants.buckets import following_axes
from variants.types import Task
from workers.runtimes.protocol import Tensor


def cut_apart(
    task: Task, outputs: Sequence[Tensor], lengths: Sequence[int]
) -> list[Tensor | list[Tensor]]:
    """The outputs of a bucket for rows of these lengths: of one that is as long as the rows an
    array for each row, of its own length; others as they are."""
    axes = following_axes(task)
    return [
        tensor
        if (axis := axes.get(spec.name)) is None
        else [
            np.ascontiguousarray(row[(slice(None),) * axis + (slice(length),)])
            for row, length in zip(tensor, lengths, strict=True)
        ]
        for spec, tensor in zip(task.outputs, outputs, strict=True)
    ]


def cut(task: Task, outputs: Sequence[Tensor], length: int) -> list[Tensor]:
    """The outputs of a bucket for rows that all have this length."""
    axes = following_axes(task)
    return [
        tensor
        if (axis := axes.get(spec.name)) is None
        else tensor[(slice(None),) * (axis + 1) + (slice(length),)]
        for spec, tensor in zip(task.outputs, outputs, strict=True)
    ]
