"""The inputs of a request of the Open Inference Protocol, as the tensors of its task."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from controlplane.gateway.query.json_tensors import (
    MAX_ROWS,
    leaves,
    packed,
    same_rows,
    shape_words,
    tensor_of,
    unread,
)
from controlplane.gateway.query.lean_json import Numbers
from controlplane.gateway.query.query_fields import parameters_of
from controlplane.gateway.query.v2.datatypes import raw_tensor, source_type, width_of
from variants.checks.json_shape import shown
from variants.errors import InvalidInput
from variants.figures import counted
from variants.types import TensorSpec
from workers.runtimes.protocol import Tensor

REGION = "shared_memory_region"
"""The parameter of a tensor that lies in memory which a client shares."""
WHOLE = {int}
"""What the sizes in a shape are."""


def v2_inputs(
    inputs: Sequence[Any], specs: Sequence[TensorSpec], raw: memoryview, booleans: bool
) -> list[Tensor]:
    """The tensors of a request's inputs, in the order of the task's.

    Args:
        inputs: as its JSON has them.
        raw: the bytes that follow the JSON, for the inputs that say so, in their order.
        booleans: whether there may be booleans among numbers.

    Raises:
        InvalidInput: they are not the task's, or bytes are left over.
    """
    found: dict[str, Tensor] = {}
    by_name = {spec.name: spec for spec in specs}
    for entry in inputs:
        if not isinstance(entry, dict):
            raise InvalidInput("each of 'inputs' must be an object")
        name = entry.get("name")
        spec = input_spec(name, by_name, found)
        dtype = source_type(entry.get("datatype"), spec)
        shape = v2_shape(entry.get("shape"), spec)
        own = parameters_of(entry, "parameters of input", name)
        if REGION in own:
            raise not_shared(f"input {spec.name!r}")
        if (size := own.get("binary_data_size")) is not None:
            if entry.get("data") is not None:
                raise InvalidInput(
                    f"input {spec.name!r} has 'data' and raw bytes (binary_data_size): send one"
                )
            found[spec.name], raw = _binary(raw, size, entry["datatype"], shape, spec)
        elif dtype == spec.dtype:
            found[spec.name] = _listed(entry.get("data"), shape, spec, booleans)
        else:
            narrow = _listed(entry.get("data"), shape, replace(spec, dtype=dtype), booleans)
            found[spec.name] = narrow.astype(spec.dtype)
    if len(raw):
        follow = "follows" if len(raw) == 1 else "follow"
        raise InvalidInput(f"{counted(len(raw), 'byte')} {follow} the last input")
    return same_rows(found, specs)


def input_spec(
    name: Any, specs: Mapping[str, TensorSpec], found: Mapping[str, object]
) -> TensorSpec:
    """The input of this name.

    Args:
        found: those that have come already.

    Raises:
        InvalidInput: there is none, or it has come already.
    """
    if not isinstance(name, str):
        raise InvalidInput(f"each of 'inputs' must have a name, one of: {', '.join(specs)}")
    spec = specs.get(name)
    if spec is None:
        expected = ", ".join(specs)
        raise InvalidInput(f"input {shown(name)} is not an input of the task; expected: {expected}")
    if spec.name in found:
        raise InvalidInput(f"input {spec.name!r} appears twice")
    return spec


def _binary(
    raw: memoryview, size: Any, datatype: str, shape: tuple[int, ...], spec: TensorSpec
) -> tuple[Tensor, memoryview]:
    """A tensor of this shape from the front of the raw bytes, and what is left of them."""
    expected = math.prod(shape) * width_of(datatype)
    if size != expected or expected > len(raw):
        raise InvalidInput(
            f"input {spec.name!r} needs {counted(expected, 'raw byte')}, binary_data_size is "
            f"{shown(size)} and {counted(len(raw), 'byte')} {'is' if len(raw) == 1 else 'are'} left"
        )
    return raw_tensor(raw[:expected], datatype, shape, spec), raw[expected:]


def _listed(data: Any, shape: tuple[int, ...], spec: TensorSpec, booleans: bool) -> Tensor:
    """A tensor of this shape from its values, flat or nested."""
    count = math.prod(shape)
    if isinstance(data, Numbers):
        read = data.tensor((count,) if len(data) == count else shape, spec.dtype)
        if read is None:
            raise unread(spec)
        return read.reshape(shape)
    if not booleans and isinstance(data, list):
        is_flat = len(data) == count
        direct = packed([data], (count,), spec.dtype) if is_flat else None
        if direct is None and len(data) == shape[0]:
            direct = packed(data, spec.shape, spec.dtype)
        if direct is not None:
            return direct.reshape(shape)
    flat = leaves(data, spec).flat
    if len(flat) != count:
        raise InvalidInput(
            f"input {spec.name!r} has {counted(len(flat), 'value')}, its shape {list(shape)} needs "
            f"{count}"
        )
    return tensor_of(flat, spec).reshape(shape)


def v2_shape(shape: Any, spec: TensorSpec) -> tuple[int, ...]:
    """The shape of an input, its rows first.

    Raises:
        InvalidInput: it is not the input's.
    """
    if (
        not isinstance(shape, list)
        or len(shape) != 1 + len(spec.shape)
        or set(map(type, shape)) != WHOLE
        or tuple(shape[1:]) != spec.shape
        or shape[0] < 1
    ):
        raise InvalidInput(
            f"input {spec.name!r} must have shape {shape_words(spec)}, not {shown(shape)}"
        )
    if shape[0] > MAX_ROWS:
        raise InvalidInput(
            f"input {spec.name!r} has {shape[0]:,} rows; a query has at most {MAX_ROWS:,}: ask in"
            " parts"
        )
    return tuple(shape)


def not_shared(what: str) -> InvalidInput:
    """The error of a tensor that a client has, or wants, in memory that it shares."""
    return InvalidInput(f"{what}: shared memory is not supported")
