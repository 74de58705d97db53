"""Cutting back: of outputs that are as long as the rows, what is not of padding."""

from collections.abc import Sequence

import numpy as np

from variants.buckets import following_of
from variants.types import Task
from workers.runtimes.protocol import Tensor


def cut_apart(
    task: Task, outputs: Sequence[Tensor], lengths: Sequence[int]
) -> list[Tensor | list[Tensor]]:
    """The outputs of a bucket for rows of these lengths: of one that is as long as the rows, or a
    part of that, an array for each row, as long as its own part; others as they are."""
    axes = following_of(task)
    return [
        tensor
        if (one := axes.get(spec.name)) is None
        else [
            np.ascontiguousarray(row[(slice(None),) * one.axis + (slice(one.size(length)),)])
            for row, length in zip(tensor, lengths, strict=True)
        ]
        for spec, tensor in zip(task.outputs, outputs, strict=True)
    ]


def cut(task: Task, outputs: Sequence[Tensor], length: int) -> list[Tensor]:
    """The outputs of a bucket for rows that all have this length."""
    axes = following_of(task)
    return [
        tensor
        if (one := axes.get(spec.name)) is None
        else tensor[(slice(None),) * (one.axis + 1) + (slice(one.size(length)),)]
        for spec, tensor in zip(task.outputs, outputs, strict=True)
    ]
