"""A model of texts with the inputs of its task.

Models that answer the same task come from different exports: one calls the numbers of tokens
``input_ids`` and another ``ids``, one takes types of tokens and another none. Queries are read
before it is known which of them answers, so all have the inputs of the task: each is called as
there, an input that only the task has is read by nothing, and one that only the model has is made
of the numbers of tokens. Types of tokens cannot be: where the task lacks them, they come beside the
numbers, in the same ones (``TextInput.packed_types``).

Parsing happens in native code, so callers that take files from outside do it in a child process.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.evaluation.text_inputs import FilledInputs
from variants.checks.onnx_batch import fresh_name
from variants.checks.onnx_edges import copied, rename_inputs, rename_value
from variants.checks.onnx_file import parse_model
from variants.texts.inputs import names_of
from variants.types import TYPE_UNIT, TextInput

_PARTS = ("numbers", "types")


def as_task_takes(
    data: bytes,
    own: FilledInputs,
    text: TextInput,
    dtypes: Mapping[str, str],
    pad: int,
    *,
    where: str,
) -> bytes | None:
    """An ONNX model that takes what its task does; None where it does already.

    A mask that the task lacks is 1 wherever something else stands than ``pad``, and types of tokens
    are taken out of the numbers then: they are 0 where these are plain.

    Args:
        own: the inputs of the model.
        text: those of the task.
        dtypes: of the inputs of the task, by name.
        pad: the number of the token that fills up rows of this model.
        where: what the model is called in sentences.

    Raises:
        InvalidArtifact: it cannot be read.
    """
    goes_to = _goes_to(own, text)
    model = parse_model(where, data)
    graph = model.graph
    held = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in held]
    before = [(value.name, own.dtypes[value.name]) for value in inputs]
    if before == [(name, dtypes[name]) for name in names_of(text)]:
        return None
    made = {name: fresh_name(model, f"{name}_made") for name, to in goes_to.items() if to is None}
    rename_inputs(where, model, inputs, [goes_to[name] or made[name] for name, _ in before])
    like = next(value for value in inputs if value.name == text.ids)
    shape = like.type.tensor_type.shape
    nodes = _Nodes(model, text.ids, dtypes[text.ids])
    if own.types is not None and text.types is None:
        nodes.take_types_out()
    for value, (name, dtype) in zip(inputs, before, strict=True):
        wanted = goes_to[name]
        if wanted is not None and dtypes[wanted] != dtype:
            nodes.cast_input(value.name, dtype)
        elif wanted is None and name == own.mask:
            nodes.mask(value.name, dtype, pad)
        elif wanted is None:
            nodes.types(value.name, dtype)
    rest = [value for value in graph.input if value.name in held]
    takes = [_input(name, dtypes[name], shape) for name in names_of(text)]
    del graph.input[:]
    graph.input.extend([*takes, *rest])
    first = [*nodes.made, *(copied(node) for node in graph.node)]
    del graph.node[:]
    graph.node.extend(first)
    return bytes(model.SerializeToString(deterministic=True))


def _goes_to(own: FilledInputs, text: TextInput) -> dict[str, str | None]:
    """The model's inputs to those of its task that fill them; None where the task has none."""
    pairs = ((own.ids, text.ids), (own.mask, text.mask), (own.types, text.types))
    return {name: wanted for name, wanted in pairs if name is not None}


class _Nodes:
    """Nodes that stand before all others of a model, and make inputs of its own."""

    def __init__(self, model: Any, ids: str, dtype: str) -> None:
        """
        Args:
            ids: the input with the numbers of tokens, of this type.
        """
        self.made: list[Any] = []
        self._model = model
        self._ids = ids
        self._dtype = dtype
        self._types = ""
        """What has the types of tokens."""

    def take_types_out(self) -> None:
        """Have all that reads the numbers of tokens get them without the types that are in them."""
        inner, self._types = (fresh_name(self._model, f"{self._ids}_{what}") for what in _PARTS)
        rename_value(self._model, self._ids, inner)
        unit = self._constant(f"{self._ids}_unit", TYPE_UNIT)
        self._add("Mod", [self._ids, unit], inner)
        self._add("Div", [self._ids, unit], self._types)

    def cast_input(self, name: str, dtype: str) -> None:
        """Have an input taken in another type by all that read it."""
        inner = fresh_name(self._model, f"{name}_{dtype}")
        rename_value(self._model, name, inner)
        self._add("Cast", [name], inner, to=_element(dtype))

    def mask(self, name: str, dtype: str, pad: int) -> None:
        filler = self._constant(f"{name}_filler", pad)
        fills, stays = (fresh_name(self._model, f"{name}_{what}") for what in ("fills", "stays"))
        self._add("Equal", [self._ids, filler], fills)
        self._add("Not", [fills], stays)
        self._add("Cast", [stays], name, to=_element(dtype))

    def types(self, name: str, dtype: str) -> None:
        self._add("Cast", [self._types], name, to=_element(dtype))

    def _constant(self, name: str, value: int) -> str:
        """What a number of the type of the tokens' is called in the model."""
        from onnx import numpy_helper

        name = fresh_name(self._model, name)
        array = np.array(value, self._dtype)
        self._model.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def _add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> None:
        from onnx import helper

        self.made.append(helper.make_node(kind, inputs, [output], **attributes))


def _element(dtype: str) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _input(name: str, dtype: str, shape: Any) -> Any:
    from onnx import helper

    value = helper.make_tensor_value_info(name, _element(dtype), None)
    value.type.tensor_type.shape.CopyFrom(shape)
    return value
