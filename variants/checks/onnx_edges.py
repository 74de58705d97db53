"""Changing what an ONNX model takes and gives, and nothing of what it computes.

Names of inputs and outputs, a first axis that was fixed, and float16 at the edges: what exporters
have left, and what a task cannot have. Whether a model whose batch was freed answers each row as it
does alone has to be tried: nodes may have been made for one size.

Parsing happens in native code, so callers that take files from outside do it in a child process.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from variants.checks.edges import Edges
from variants.checks.onnx_check import LONGEST_NAME, check_file, parse_model
from variants.checks.onnx_walk import graphs
from variants.errors import InvalidArtifact, InvalidInput

BATCH = "batch"
"""What a first axis is called that was freed."""


def change_edges(source: Path, target: Path, edges: Edges, *, limit_mib: float = 2048) -> None:
    """Write a model with other edges; the same file and edges always give the same bytes.

    Raises:
        InvalidArtifact: it cannot be read, or what is asked cannot be done to it.
        InvalidInput: names are wrong.
    """
    where = source.name
    check_file(source, limit_mib=limit_mib)
    model = parse_model(where, source.read_bytes())
    graph = model.graph
    held = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in held]
    _rename(where, model, "input", inputs, edges.input_names)
    _rename(where, model, "output", list(graph.output), edges.output_names)
    if edges.cast_float16:
        for value in inputs:
            _cast(model, value, comes_in=True)
        for value in graph.output:
            _cast(model, value, comes_in=False)
    if edges.free_batch:
        _free_batch(where, model, inputs)
    target.write_bytes(model.SerializeToString(deterministic=True))


# -- names -----------------------------------------------------------------------------------------


def _rename(where: str, model: Any, side: str, values: list[Any], names: Sequence[str]) -> None:
    if not names:
        return
    if len(names) != len(values):
        has = ", ".join(value.name for value in values)
        raise InvalidInput(
            f"--{side}-names has {len(names)} names, but {where} has {len(values)} {side}s: {has}"
        )
    for name in names:
        if not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
            raise InvalidInput(f"{name[:128]!r} cannot be the name of an {side}")
    if len(set(names)) != len(names):
        raise InvalidInput(f"--{side}-names has a name twice")
    old = [value.name for value in values]
    for name in set(names) - set(old):  # what else bears it gets another one
        _rename_value(model, name, _fresh(model, name))
    for name in old:  # in two steps, for names may be exchanged
        _rename_value(model, name, f"{name}\0")
    for name, new in zip(old, names, strict=True):
        _rename_value(model, f"{name}\0", new)


def _rename_value(model: Any, old: str, new: str) -> None:
    """Call a value otherwise, wherever it is named; names are unique in a model."""
    for graph in graphs(model):
        for node in graph.node:
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    if name == old:
                        names[i] = new
        for kind in ("input", "output", "value_info", "initializer"):
            for value in getattr(graph, kind, ()):
                if not isinstance(value, str) and value.name == old:
                    value.name = new
        for sparse in getattr(graph, "sparse_initializer", ()):
            if sparse.values.name == old:
                sparse.values.name = new


def _fresh(model: Any, name: str) -> str:
    """A name that begins like this one and that nothing bears."""
    known = {each for graph in graphs(model) for node in graph.node for each in node.output}
    for graph in graphs(model):
        known |= {each for node in graph.node for each in node.input}
    known |= {value.name for kind in ("input", "output") for value in getattr(model.graph, kind)}
    known |= {tensor.name for tensor in model.graph.initializer}
    number = 1
    while f"{name}_{number}" in known:
        number += 1
    return f"{name}_{number}"


# -- float16 ---------------------------------------------------------------------------------------


def _cast(model: Any, value: Any, *, comes_in: bool) -> None:
    """Let an input or output be float32 outside, and float16 within as before."""
    from onnx import TensorProto, helper

    tensor, name = value.type.tensor_type, value.name
    if tensor.elem_type != TensorProto.FLOAT16:
        return
    within = _fresh(model, f"{name}_float16")
    _rename_value(model, name, within)
    value.name = name
    tensor.elem_type = TensorProto.FLOAT
    if comes_in:
        model.graph.node.insert(
            0, helper.make_node("Cast", [name], [within], name=within, to=TensorProto.FLOAT16)
        )
    else:
        model.graph.node.append(
            helper.make_node("Cast", [within], [name], name=within, to=TensorProto.FLOAT)
        )


# -- the batch -------------------------------------------------------------------------------------


def _free_batch(where: str, model: Any, inputs: Sequence[Any]) -> None:
    sizes = {
        axes[0].dim_value
        for value in inputs
        if (axes := value.type.tensor_type.shape.dim) and axes[0].HasField("dim_value")
    }
    if not sizes:
        return
    if len(sizes) > 1:
        told = " and ".join(map(str, sorted(sizes)))
        raise InvalidArtifact(f"{where}: its inputs have batches of {told}, so none can be freed")
    (size,) = sizes
    for value in (*inputs, *model.graph.output):
        axes = value.type.tensor_type.shape.dim
        if axes and axes[0].HasField("dim_value") and axes[0].dim_value == size:
            axes[0].dim_param = BATCH
    del model.graph.value_info[:]  # they tell shapes of one size
    _free_reshapes(model, size)


def _free_reshapes(model: Any, size: int) -> None:
    """Let reshapes to that many rows keep as many as come: a first size of 0 copies it."""
    from onnx import numpy_helper

    held = {tensor.name: tensor for tensor in model.graph.initializer}
    constants = {
        node.output[0]: attribute.t
        for node in model.graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    for node in model.graph.node:
        if node.op_type != "Reshape" or len(node.input) < 2:
            continue
        if any(attribute.name == "allowzero" and attribute.i for attribute in node.attribute):
            continue
        tensor = held.get(node.input[1]) or constants.get(node.input[1])
        shape = None if tensor is None else numpy_helper.to_array(tensor)
        if shape is None or shape.ndim != 1 or not shape.size or shape[0] != size:
            continue
        free = np.array([0, *shape[1:]], dtype=np.int64)
        name = _fresh(model, node.input[1])  # others may use the constant, too
        model.graph.initializer.append(numpy_helper.from_array(free, name))
        node.input[1] = name
