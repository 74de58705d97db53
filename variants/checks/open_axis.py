"""An ONNX model that leaves one axis beside the batch open, and the same model with a size there.

Text models are exported so: their rows have as many tokens as a text has. What is served has one
size, and there is a model for each of a few lengths. Outputs may be as long as the rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from variants.checks.onnx_check import parse_model
from variants.checks.onnx_walk import graphs
from variants.errors import InvalidArtifact
from variants.types import LengthBucket

LENGTH = "length"
"""What an axis is called that is opened again."""
HOW = (
    "give that axis the same name in all inputs, such as"
    " dynamic_axes={'ids': {0: 'batch', 1: 'tokens'}, 'mask': {0: 'batch', 1: 'tokens'}}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedAxis:
    """A model whose open axis has a size, and where it was."""

    data: bytes
    inputs: list[tuple[str, int]]
    """Names with the axis of a row, in the order of the inputs."""
    outputs: list[tuple[str, int]]
    """The same of the outputs that are as long as the rows."""
    first: str
    """Name of the first output."""


def fix_axis(data: bytes, length: int, *, where: str) -> FixedAxis:
    """A model whose open axis has this size.

    An output is as long as the rows where it names its axis as the inputs do, or leaves it open and
    has the size that the inputs have, whatever that is. Nothing is checked of the model besides;
    that is for what comes of it.

    Args:
        where: what the model is called in sentences.

    Raises:
        InvalidArtifact: it leaves no axis open but the batch, or more than one, or an output
            depends on it in another way than by being as long.
    """
    model = parse_model(where, data)
    held = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in held]
    found = [(value.name, axis, dim) for value in inputs for axis, dim in _open(value)]
    if not found:
        raise InvalidArtifact(
            f"{where}: leaves no axis open but the batch, so it takes rows of one length: leave"
            " --lengths out"
        )
    names = [name for name, _, _ in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidArtifact(
            f"{where}: input {twice!r} leaves {names.count(twice)} axes open beside the batch; rows"
            " may differ in the length of one, and --axis-sizes gives the others a size"
        )
    symbols = {dim.dim_param for _, _, dim in found}
    if len(found) > 1 and (len(symbols) > 1 or "" in symbols):
        told = ", ".join(f"{name!r} {dim.dim_param or '?'}" for name, _, dim in found)
        raise InvalidArtifact(f"{where}: its inputs leave different axes open: {told}; {HOW}")
    symbol = found[0][2].dim_param
    following = [
        (value.name, axis - 1)
        for value in model.graph.output
        for axis, dim in _dims(value)
        if axis and symbol and dim.dim_param == symbol
    ]
    for _, _, dim in found:
        _set(dim, length)
    if symbol:
        _fix_everywhere(model, symbol, length)
    # What was inferred for an open axis is inferred again.
    model.graph.ClearField("value_info")
    inputs = [(name, axis) for name, axis, _ in found]
    following += _as_long(model, inputs, length, where)
    ordered = [
        one for value in model.graph.output for one in sorted(following) if one[0] == value.name
    ]
    names = [name for name, _ in ordered]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidArtifact(
            f"{where}: output {twice!r} is as long as the rows along {names.count(twice)} axes, and"
            " one is possible: --keep-outputs leaves that output out"
        )
    return FixedAxis(
        data=model.SerializeToString(deterministic=True),
        inputs=inputs,
        outputs=ordered,
        first=next((str(value.name) for value in model.graph.output), ""),
    )


def _as_long(
    model: Any, inputs: list[tuple[str, int]], length: int, where: str
) -> list[tuple[str, int]]:
    """Outputs whose open axes have the size that the inputs have, with the axis of a row; all open
    axes of outputs get the size that they have.

    Exporters call such axes after the operators that made them, so what they are is found by the
    sizes that follow from two lengths.

    Raises:
        InvalidArtifact: the size of an axis cannot be told, or depends on the length otherwise.
    """
    left = [(value, axis, dim) for value in model.graph.output for axis, dim in _open(value)]
    if not left:
        return []
    other = length + 1 if length % 2 else length // 2  # within tables of places, and blocks of two
    sizes = [_sizes_of_outputs(model, inputs, size) for size in (length, other)]
    found = []
    for value, axis, dim in left:
        own, others = (each.get((value.name, axis)) for each in sizes)
        if (own, others) == (length, other):
            found.append((value.name, axis))
            _set(dim, length)
        elif own is None or own != others:
            depends = (
                "cannot be told"
                if own is None or others is None
                else f"is {own} for rows of {length} and {others} for rows of {other}"
            )
            raise InvalidArtifact(
                f"{where}: output {value.name!r} leaves axis {axis + 1} open, whose size {depends};"
                " with --lengths an output is as long as the rows, or has one size: give that axis"
                " the name that it has in the inputs, leave the output out (--keep-outputs), or"
                " register a task for each length (--axis-sizes)"
            )
        else:
            _set(dim, own)
    return found


def _sizes_of_outputs(
    model: Any, inputs: list[tuple[str, int]], length: int
) -> dict[tuple[str, int], int]:
    """Sizes that follow from the length of the inputs, by output and axis of a row."""
    from onnx import ModelProto, shape_inference

    copy = ModelProto()
    copy.CopyFrom(model)
    axes = dict(inputs)
    for value in copy.graph.input:
        if value.name in axes:
            _set(value.type.tensor_type.shape.dim[axes[value.name] + 1], length)
    for value in copy.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        known = shape_inference.infer_shapes(copy, data_prop=True)
    except Exception:  # what is wrong with the model is for its check to say
        return {}
    return {
        (value.name, axis - 1): dim.dim_value
        for value in known.graph.output
        for axis, dim in _dims(value)
        if axis and dim.HasField("dim_value")
    }


def _set(dim: Any, size: int) -> None:
    dim.Clear()
    dim.dim_value = size


def open_again(data: bytes, bucket: LengthBucket) -> bytes:
    """The model of a bucket with its axis open, the same one for all buckets of a model.

    Raises:
        InvalidArtifact: it is none of that bucket.
    """
    model = parse_model("the model", data)
    axes = {axis.input: axis.axis for axis in bucket.axes}
    axes |= {axis.output: axis.axis for axis in bucket.outputs}
    values = {value.name: value for value in (*model.graph.input, *model.graph.output)}
    for name, axis in axes.items():
        dims = [dim for at, dim in _dims(values[name]) if at == axis + 1] if name in values else []
        if [dim.dim_value for dim in dims] != [bucket.length]:
            raise InvalidArtifact(
                f"the model has no axis {axis} of the length {bucket.length} in {name!r}"
            )
        dims[0].Clear()
        dims[0].dim_param = LENGTH
    return bytes(model.SerializeToString(deterministic=True))


def _fix_everywhere(model: Any, symbol: str, length: int) -> None:
    from onnx import GraphProto

    for graph in graphs(model):
        values = (*graph.input, *graph.output, *graph.value_info)
        for value in values if isinstance(graph, GraphProto) else ():
            for _, dim in _dims(value):
                if dim.dim_param == symbol:
                    _set(dim, length)


def _open(value: Any) -> Iterator[tuple[int, Any]]:
    """Open axes of a row, the batch axis left out, and their dimensions."""
    for axis, dim in _dims(value):
        if axis and (not dim.HasField("dim_value") or dim.dim_value < 1):
            yield axis - 1, dim


def _dims(value: Any) -> Iterator[tuple[int, Any]]:
    """All axes of a tensor, the batch axis as 0; none of what is no tensor."""
    if value.type.HasField("tensor_type"):
        yield from enumerate(value.type.tensor_type.shape.dim)
