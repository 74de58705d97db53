"""An ONNX graph as the compressors need it: simplified, run at any tensor, and counted."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from variants.builders.activations import first_line, open_session, run
from variants.builders.onnx_fp32 import simplify
from variants.checks.onnx_walk import inner_names
from variants.errors import VariantNotBuilt

Shape = tuple[int, ...]
Arrays = Mapping[str, NDArray[Any]]


def read(source: Path) -> Any:
    """The model with constants folded, as the fp32 variant is: batch normalisation is merged into
    the convolution before it, and what only computes shapes is gone where shapes are known. Nothing
    is noted of the tensors between the nodes.

    Raises:
        VariantNotBuilt: ONNX Runtime refuses the model.
    """
    import onnx

    model = onnx.load(str(source))
    held = {tensor.name for tensor in model.graph.initializer}
    # Weights that are listed as inputs too count as replaceable, and nothing may be folded.
    inputs = [value for value in model.graph.input if value.name not in held]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    with tempfile.TemporaryDirectory() as folder:
        plain, simplified = Path(folder) / "plain.onnx", Path(folder) / "simplified.onnx"
        onnx.save(model, str(plain))
        simplify(plain, simplified)
        model = onnx.load(str(simplified))
    del model.graph.value_info[:]  # shapes noted between layers would be wrong once those change
    return model


def copied(model: Any) -> Any:
    """A second model of the same content."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def save(model: Any, target: Path) -> None:
    """Write a model that ONNX itself finds valid, without sets of operators that it does not use.

    Raises:
        VariantNotBuilt: it is not valid.
    """
    import onnx

    domains = {"", "ai.onnx", *(node.domain for node in _all_nodes(model.graph))}
    _refill(model.opset_import, [each for each in model.opset_import if each.domain in domains])
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise VariantNotBuilt(f"the changed graph is not valid: {first_line(error)}") from error
    onnx.save(model, str(target))


def _all_nodes(graph: Any) -> Iterator[Any]:
    """The nodes of a graph, and of the graphs within them."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _all_nodes(inner)


def initialisers(model: Any) -> dict[str, NDArray[Any]]:
    """Name to value of all constants, in the graph's order."""
    from onnx import numpy_helper

    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def replace_initialisers(model: Any, values: Arrays) -> None:
    """Give initialisers new values, of any shape; names that are not there yet are added."""
    from onnx import numpy_helper

    places = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, value in values.items():
        tensor = numpy_helper.from_array(np.ascontiguousarray(value), name)
        if name in places:
            places[name].CopyFrom(tensor)
        else:
            model.graph.initializer.append(tensor)


def drop_unused(model: Any) -> None:
    """Remove initialisers and nodes that no output needs."""
    needed = {value.name for value in model.graph.output}
    kept = []
    for node in reversed(model.graph.node):  # sorted, as ONNX demands: users come after
        if any(name in needed for name in node.output):
            needed.update(node.input, inner_names(node))
            kept.append(node)
    tensors = [tensor for tensor in model.graph.initializer if tensor.name in needed]
    _refill(model.graph.node, kept[::-1])
    _refill(model.graph.initializer, tensors)


def replace_nodes(model: Any, nodes: Sequence[Any]) -> None:
    """Give a graph other nodes, of its own or new ones."""
    _refill(model.graph.node, nodes)


def _refill(field: Any, values: Sequence[Any]) -> None:
    copies = [type(value).FromString(value.SerializeToString()) for value in values]
    del field[:]
    field.extend(copies)


def attribute(node: Any, name: str, default: Any) -> Any:
    """The value of a node's attribute, or ``default`` where it is not set."""
    from onnx import helper

    for entry in node.attribute:
        if entry.name == name:
            return helper.get_attribute_value(entry)
    return default


def opset(model: Any) -> int:
    """Version of the standard operators."""
    return int(next(e.version for e in model.opset_import if e.domain in ("", "ai.onnx")))


def blank(model: Any, rows: int) -> dict[str, NDArray[Any]]:
    """Input name to zeros ``(rows, *shape)`` of the model's signature."""
    from onnx import helper

    made = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim[1:]]
        made[value.name] = np.zeros(
            (rows, *shape), helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        )
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Shapes of all tensors, for one row and for two: what differs depends on the batch."""

    one: Mapping[str, Shape]
    two: Mapping[str, Shape]

    def batch_axes(self, name: str) -> list[int]:
        """Axes that grow with the batch."""
        pairs = zip(self.one[name], self.two[name], strict=True)
        return [axis for axis, (one, two) in enumerate(pairs) if one != two]


def shapes(model: Any) -> Shapes:
    """Found by running the model on zeros: what inference of shapes leaves open is known then.

    Raises:
        VariantNotBuilt: it cannot be run, or holds values that are no tensors.
    """
    from onnx import ValueInfoProto

    names = [name for node in model.graph.node for name in node.output if name]
    shown = copied(model)
    del shown.graph.output[:]
    shown.graph.output.extend(ValueInfoProto(name=name) for name in names)
    session = open_session(shown)
    fixed = {name: value.shape for name, value in initialisers(model).items()}

    def of(rows: int) -> dict[str, Shape]:
        given = blank(model, rows)
        values = given | dict(zip(names, run(session, names, given), strict=True))
        return fixed | {name: np.shape(value) for name, value in values.items()}

    return Shapes(one=of(1), two=of(2))


def multiply_adds(model: Any, known: Shapes | None = None) -> dict[str, int]:
    """Multiply-adds for one row in each layer that has any, by the layer's first output."""
    one = (known or shapes(model)).one
    found = {}
    for node in model.graph.node:
        if node.op_type == "Conv":
            found[node.output[0]] = prod(one[node.output[0]]) * prod(one[node.input[1]][1:])
        elif node.op_type == "ConvTranspose":
            found[node.output[0]] = prod(one[node.input[0]]) * prod(one[node.input[1]][1:])
        elif node.op_type in ("MatMul", "Gemm"):
            depth = one[node.input[0]][0 if attribute(node, "transA", 0) else -1]
            found[node.output[0]] = prod(one[node.output[0]]) * depth
    return found


def producers(model: Any) -> dict[str, Any]:
    """Tensor to the node that makes it."""
    return {name: node for node in model.graph.node for name in node.output if name}


def fresh(name: str, taken: Iterable[str]) -> str:
    """``name``, or with a number behind it, so that it is not among ``taken``."""
    seen = set(taken)
    candidates = (name if number == 0 else f"{name}_{number}" for number in range(len(seen) + 1))
    return next(candidate for candidate in candidates if candidate not in seen)


def names(model: Any) -> set[str]:
    """Names of all tensors and nodes."""
    graph = model.graph
    found = {value.name for value in (*graph.input, *graph.output, *graph.initializer, *graph.node)}
    return found.union(*(node.output for node in graph.node), *(node.input for node in graph.node))
