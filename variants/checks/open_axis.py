"""An ONNX model that leaves one axis beside the batch open, and the same model with a size there.

Text models are exported so: their rows have as many tokens as a text has. What is served has one
size, and there is a model for each of a few lengths.
"""

from collections.abc import Iterator
from typing import Any

from variants.checks.onnx_check import parse_model
from variants.checks.onnx_walk import graphs
from variants.errors import InvalidArtifact

HOW = (
    "give that axis the same name in all inputs, such as"
    " dynamic_axes={'ids': {0: 'batch', 1: 'tokens'}, 'mask': {0: 'batch', 1: 'tokens'}}"
)


def fix_axis(data: bytes, length: int, *, where: str) -> tuple[bytes, list[tuple[str, int]]]:
    """A model whose open axis has this size, and where it was: names of inputs with the axis of a
    row, in the order of the inputs.

    Nothing is checked of the model besides; that is for what comes of it.

    Args:
        where: what the model is called in sentences.

    Raises:
        InvalidArtifact: it leaves no axis open but the batch, or more than one, or an output
            depends on it.
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
            " may differ in the length of one"
        )
    symbols = {dim.dim_param for _, _, dim in found}
    if len(found) > 1 and (len(symbols) > 1 or "" in symbols):
        told = ", ".join(f"{name!r} {dim.dim_param or '?'}" for name, _, dim in found)
        raise InvalidArtifact(f"{where}: its inputs leave different axes open: {told}; {HOW}")
    symbol = found[0][2].dim_param
    for value in model.graph.output:
        if any(axis and symbol and dim.dim_param == symbol for axis, dim in _dims(value)):
            raise InvalidArtifact(
                f"{where}: output {value.name!r} is as long as the rows ({symbol}); with --lengths"
                " every output must have one size: leave that output out, or have the model reduce"
                " it, as a mean over the tokens does"
            )
    for _, _, dim in found:
        dim.Clear()
        dim.dim_value = length
    if symbol:
        _fix_everywhere(model, symbol, length)
    # What was inferred for an open axis is inferred again.
    model.graph.ClearField("value_info")
    return model.SerializeToString(deterministic=True), [(name, axis) for name, axis, _ in found]


def _fix_everywhere(model: Any, symbol: str, length: int) -> None:
    from onnx import GraphProto

    for graph in graphs(model):
        values = (*graph.input, *graph.output, *graph.value_info)
        for value in values if isinstance(graph, GraphProto) else ():
            for _, dim in _dims(value):
                if dim.dim_param == symbol:
                    dim.Clear()
                    dim.dim_value = length


def _open(value: Any) -> Iterator[tuple[int, Any]]:
    """Open axes of a row, the batch axis left out, and their dimensions."""
    for axis, dim in _dims(value):
        if axis and (not dim.HasField("dim_value") or dim.dim_value < 1):
            yield axis - 1, dim


def _dims(value: Any) -> Iterator[tuple[int, Any]]:
    """All axes of a tensor, the batch axis as 0; none of what is no tensor."""
    if value.type.HasField("tensor_type"):
        yield from enumerate(value.type.tensor_type.shape.dim)
