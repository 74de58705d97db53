"""A model without the numbers in its weights, of which only types and shapes matter to inference.

ONNX's checker and its inference of shapes write the whole model into bytes, read these in native
code, and give it back the same way. Of a model of a gigabyte that is four more of memory and most
of the time that its check takes, for numbers that no shape follows from.
"""

from math import prod
from typing import Any

MOST_VALUES = 4_096
"""Numbers in a constant that may say a shape; larger ones are weights."""


def without_weights(model: Any) -> Any:
    """A ``ModelProto`` in which large initialisers are inputs of the same type and shape.

    Those that are inputs already, as before version 4 of ONNX's format, texts, and those within
    nodes stay as they are.
    """
    from onnx import ModelProto, TensorProto

    light = ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _set(light, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _set(light.graph, field.name, value)
    known = {value.name for value in light.graph.input}
    for tensor in model.graph.initializer:
        small = prod(tensor.dims) <= MOST_VALUES
        if small or tensor.name in known or tensor.data_type == TensorProto.STRING:
            light.graph.initializer.append(tensor)
            continue
        weight = light.graph.input.add(name=tensor.name).type.tensor_type
        weight.elem_type = tensor.data_type
        for size in tensor.dims:
            weight.shape.dim.add(dim_value=size)
    return light


def _set(message: Any, name: str, value: Any) -> None:
    """Give a field a copy of a value: a message, a list of messages, or a plain value."""
    if hasattr(value, "CopyFrom"):
        getattr(message, name).CopyFrom(value)
    elif hasattr(value, "MergeFrom"):
        getattr(message, name).MergeFrom(value)
    else:
        setattr(message, name, value)
