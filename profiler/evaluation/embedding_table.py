"""How many numbers of tokens a model has embeddings for, as far as its graph shows it.

A tokenizer whose numbers go beyond that is not the one that the model was trained with, and the
first text that has such a token would fail. Exporters write the lookup as a ``Gather`` along the
first axis of the weights; between it and the input may stand what changes the numbers' type or
shape, or a choice between two ways. What cannot be followed says nothing.

Takes protobuf messages. Parsing them happens in native code, so callers that take files from
outside do it in a child process.
"""

from collections.abc import Iterator
from typing import Any

from variants.checks.onnx_walk import nodes

_SAME_NUMBERS = frozenset(
    {"Identity", "Cast", "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Transpose", "Expand"}
)
"""Operators whose output has the numbers of their first input, and no others."""
_SAME_SHAPE = frozenset({"Identity", "Cast", "CastLike", "DequantizeLinear"})
"""Operators whose output has the shape of their first input."""
_LOOKUPS = {"Gather": (1, 0), "EmbedLayerNormalization": (0, 2)}
"""Which input of an operator has numbers, and which one has the embeddings."""


def rows_of_table(model: Any, ids: str) -> int | None:
    """How many embeddings there are for the numbers of an input: of several tables the fewest.

    Args:
        ids: the input with the numbers of tokens.

    Returns:
        None where the graph does not show it.
    """
    graph = _Graph(model)
    rows = [size for node in graph.lookups(ids) if (size := graph.rows_of(node)) is not None]
    return min(rows, default=None)


class _Graph:
    """All nodes of a model, those of inner graphs among them, by what they read and make."""

    def __init__(self, model: Any) -> None:
        self._readers: dict[str, list[Any]] = {}
        self._makers: dict[str, Any] = {}
        self._branches: dict[str, str] = {}
        """What a branch of an ``If`` gives, to what that is called outside."""
        self._held = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
        for node in nodes(model):
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
            for name in node.output:
                self._makers[name] = node
            for attribute in node.attribute:
                self._held |= {one.name: tuple(one.dims) for one in attribute.g.initializer}
                if node.op_type == "If":
                    inner = (value.name for value in attribute.g.output)
                    self._branches |= dict(zip(inner, node.output, strict=False))

    def lookups(self, ids: str) -> Iterator[Any]:
        """Nodes that look the numbers of an input up."""
        waiting, seen = [ids], {ids}
        while waiting:
            name = waiting.pop()
            found = [self._branches[name]] if name in self._branches else []
            for node in self._readers.get(name, ()):
                kind = node.op_type
                if kind in _LOOKUPS and node.input[_LOOKUPS[kind][0]] == name:
                    yield node
                elif kind in _SAME_NUMBERS and node.input[0] == name:
                    found += node.output
            waiting += [one for one in found if one not in seen]
            seen.update(found)

    def rows_of(self, node: Any) -> int | None:
        """How many rows the table of a lookup has."""
        shape = self._shape(node.input[_LOOKUPS[node.op_type][1]])
        axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
        if shape is None or not -len(shape) <= axis < len(shape):
            return None
        return int(shape[axis])

    def _shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of weights, also of those that are kept in another form."""
        if name in self._held:
            return self._held[name]
        node = self._makers.get(name)
        if node is None or node.domain not in ("", "ai.onnx", "com.microsoft"):
            return None
        attributes = {one.name: one for one in node.attribute}
        if node.op_type == "Constant" and "value" in attributes:
            return tuple(attributes["value"].t.dims)
        if not node.input or node.op_type not in (*_SAME_SHAPE, "Transpose"):
            return None
        shape = self._shape(node.input[0])
        if node.op_type != "Transpose" or shape is None:
            return shape
        perm = attributes["perm"].ints if "perm" in attributes else range(len(shape))[::-1]
        return tuple(shape[axis] for axis in perm)
