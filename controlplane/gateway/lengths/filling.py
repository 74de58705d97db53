"""Filling rows up: how long they are, and tensors of one length from them.

A query is never split, so all its rows go to one bucket, and its longest row decides to which.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from variants.errors import InvalidInput
from variants.figures import counted
from variants.types import OpenAxis, TensorSpec
from workers.runtimes.protocol import Tensor

MOST_BYTES = 2**26
"""Of one input once it is filled up. One long row makes all rows of its query as long."""


def lengths_of(inputs: Mapping[str, Any], axes: Sequence[OpenAxis]) -> list[int]:
    """How long each row is, of rows as JSON has them.

    Raises:
        InvalidInput: what should be rows is none, a row has no values, or inputs differ.
    """
    first = axes[0]
    found = [_length(row, first, number) for number, row in _rows(inputs, first)]
    for other in axes[1:]:
        own = [_length(row, other, number) for number, row in _rows(inputs, other)]
        if len(own) != len(found):
            raise InvalidInput("all inputs must have the same number of rows")
        for number, (length, expected) in enumerate(zip(own, found, strict=True)):
            if length != expected:
                raise InvalidInput(
                    f"row {number} has the length {expected} in input {first.input!r} and {length}"
                    f" in {other.input!r}"
                )
    return found


def _rows(inputs: Mapping[str, Any], axis: OpenAxis) -> "enumerate[Any]":
    rows = inputs[axis.input]
    if not isinstance(rows, list) or not rows:
        raise InvalidInput(f"input {axis.input!r} must be a list of at least one row")
    return enumerate(rows)


def _length(row: Any, axis: OpenAxis, number: int) -> int:
    """The size of a row along an axis, where it is nested that deep and regular so far."""
    level = [row]
    for _ in range(axis.axis):
        if set(map(type, level)) != {list}:
            break
        level = list(chain.from_iterable(level))
    if set(map(type, level)) != {list}:
        hint = "; put a single row in a list of its own" if not axis.axis else ""
        raise InvalidInput(
            f"row {number} of input {axis.input!r} is no list of {axis.axis + 1} levels{hint}"
        )
    sizes = set(map(len, level))
    if len(sizes) != 1 or 0 in sizes:
        which = "is empty" if 0 in sizes else "has parts of different lengths"
        raise InvalidInput(f"row {number} of input {axis.input!r} {which}")
    return sizes.pop()


def filled(
    rows: Sequence[Any],
    lengths: Sequence[int],
    spec: TensorSpec,
    axis: OpenAxis,
    read: Callable[[list[Any], TensorSpec], Tensor],
) -> Tensor:
    """Rows of these lengths as a tensor of an input of one length.

    Args:
        spec: the input, of the length of the bucket.
        read: rows of one length as a tensor of an input of that length.

    Raises:
        InvalidInput: it would be too large; or whatever ``read`` raises.
    """
    of_length: dict[int, list[int]] = {}
    for number, length in enumerate(lengths):
        of_length.setdefault(length, []).append(number)
    found = _padding(len(lengths), spec, axis)
    for length, numbers in of_length.items():
        tensor = read([rows[number] for number in numbers], _at(spec, axis, length))
        part: Any = (np.array(numbers), *_up_to(axis, length))
        found[part] = tensor
    return found


def length_of_shapes(shapes: Mapping[str, Any], axes: Sequence[OpenAxis]) -> int | None:
    """The length of tensors of these shapes, rows first; None where one has none that is a size.

    Raises:
        InvalidInput: inputs differ in their lengths.
    """
    found: dict[str, int] = {}
    for axis in axes:
        shape = shapes.get(axis.input)
        if not isinstance(shape, list) or len(shape) <= axis.axis + 1:
            return None
        size = shape[axis.axis + 1]
        if type(size) is not int or size < 1:
            return None
        found[axis.input] = size
    if len(set(found.values())) > 1:
        told = ", ".join(f"{name!r} {size}" for name, size in found.items())
        raise InvalidInput(f"the inputs of one query have rows of different lengths: {told}")
    return next(iter(found.values()))


def filled_tensor(tensor: Tensor, spec: TensorSpec, axis: OpenAxis) -> Tensor:
    """A tensor of rows of one length as one of an input of another length, at least that.

    Raises:
        InvalidInput: it would be too large.
    """
    if tensor.shape[1:] == spec.shape:
        return tensor
    found = _padding(len(tensor), spec, axis)
    found[(slice(None), *_up_to(axis, tensor.shape[axis.axis + 1]))] = tensor
    return found


def _padding(rows: int, spec: TensorSpec, axis: OpenAxis) -> Tensor:
    """So many rows of an input, all of it padding."""
    size = rows * prod(spec.shape) * np.dtype(spec.dtype).itemsize
    if size > MOST_BYTES:
        raise InvalidInput(
            f"input {spec.name!r} would have {size / 2**20:,.0f} MiB with {counted(rows, 'row')} as"
            f" long as the longest, more than the {MOST_BYTES >> 20} allowed: ask in parts"
        )
    return np.full((rows, *spec.shape), np.asarray(axis.pad).astype(spec.dtype), spec.dtype)


def _up_to(axis: OpenAxis, length: int) -> tuple[slice, ...]:
    """The part of a row that is no padding."""
    return (*(slice(None),) * axis.axis, slice(length))


def _at(spec: TensorSpec, axis: OpenAxis, length: int) -> TensorSpec:
    shape = (*spec.shape[: axis.axis], length, *spec.shape[axis.axis + 1 :])
    return replace(spec, shape=shape)
