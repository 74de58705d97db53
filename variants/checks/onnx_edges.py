"""Changing what an ONNX model takes and gives, and nothing of what it computes.

Names of inputs and outputs, outputs that nobody asks for, inputs that always have the same value,
axes that were left open, rows along another axis than the first, a first axis that was fixed, and
float16 at the edges: what exporters have left, and what a task cannot have.
Whether a model whose batch was freed answers each row as it does alone has to be tried.

Parsing happens in native code, so callers that take files from outside do it in a child process.
"""

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from variants.checks.edges import Edges
from variants.checks.onnx_batch import free_batch, fresh_name
from variants.checks.onnx_file import check_file, parse_model
from variants.checks.onnx_light import without_weights
from variants.checks.onnx_signature import LONGEST_NAME
from variants.checks.onnx_walk import graphs, inner_names
from variants.errors import InvalidInput
from variants.figures import MOST_NAMED, counted, some_of

LARGEST_AXIS = 1_000_000
_LARGEST_FIXED = 1_000_000
"""Elements of an input that gets one value."""


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
    if edges.keep_outputs:
        _keep_outputs(where, model, edges.keep_outputs)
    if edges.fix_inputs:
        _fix_inputs(where, model, edges.fix_inputs)
    held = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in held]
    if edges.axis_sizes:
        _fix_axes(where, model, inputs, edges.axis_sizes)
    if edges.batch_axes:
        _move_batches(where, model, inputs, edges.batch_axes)
    _rename(where, model, "input", inputs, edges.input_names)
    _rename(where, model, "output", list(graph.output), edges.output_names)
    if edges.cast_float16:
        for value in inputs:
            _cast(model, value, comes_in=True)
        for value in graph.output:
            _cast(model, value, comes_in=False)
    if edges.free_batch:
        free_batch(where, model, inputs)
    target.write_bytes(model.SerializeToString(deterministic=True))


# -- names -----------------------------------------------------------------------------------------


def rename_inputs(where: str, model: Any, inputs: list[Any], names: Sequence[str]) -> None:
    """Call inputs of a model otherwise; they may exchange names, and what else bears one of the
    names gets another.

    Raises:
        InvalidInput: names are wrong.
    """
    _rename(where, model, "input", inputs, names)


def _rename(where: str, model: Any, side: str, values: list[Any], names: Sequence[str]) -> None:
    if not names:
        return
    if len(names) != len(values):
        has = ", ".join(value.name for value in values)
        raise InvalidInput(
            f"--{side}-names has {counted(len(names), 'name')}, but {where} has "
            f"{counted(len(values), side)}: {has}"
        )
    for name in names:
        if not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
            raise InvalidInput(f"{name[:128]!r} cannot be the name of an {side}")
    if len(set(names)) != len(names):
        raise InvalidInput(f"--{side}-names has a name twice")
    rename_values(model, dict(zip((value.name for value in values), names, strict=True)))


def rename_values(model: Any, names: Mapping[str, str]) -> None:
    """Call values of a model otherwise; what else bears such a name gets another one."""
    for name in sorted(set(names.values()) - set(names)):
        rename_value(model, name, fresh_name(model, name))
    for name in names:  # in two steps, for names may be exchanged
        rename_value(model, name, f"{name}\0")
    for name, new in names.items():
        rename_value(model, f"{name}\0", new)


def rename_value(model: Any, old: str, new: str) -> None:
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


# -- fewer outputs, and sizes of axes --------------------------------------------------------------


def _keep_outputs(where: str, model: Any, names: Sequence[str]) -> None:
    """Leave these outputs, in this order, and what they need."""
    graph = model.graph
    outputs = {value.name: value for value in graph.output}
    if unknown := [name for name in names if name not in outputs]:
        has = some_of(list(outputs), MOST_NAMED)
        raise InvalidInput(f"{where} has no output {unknown[0][:LONGEST_NAME]!r}; it has: {has}")
    if len(set(names)) != len(names):
        raise InvalidInput("--keep-outputs has a name twice")
    kept = [copied(outputs[name]) for name in names]
    del graph.output[:]
    graph.output.extend(kept)
    needed, read = set(names), {name for node in graph.node for name in node.input}
    nodes = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            needed |= {*node.input, *inner_names(node)}
            nodes.append(copied(node))
    del graph.node[:]
    graph.node.extend(reversed(nodes))
    # What nothing ever read stays as it was.
    for values in (graph.input, graph.initializer, graph.sparse_initializer):
        for place in reversed(range(len(values))):
            named = getattr(values[place], "values", values[place])  # of a sparse one
            if named.name in read - needed:
                del values[place]
    del graph.value_info[:]


def copied(message: Any) -> Any:
    """A protobuf message that no other one holds."""
    return type(message).FromString(message.SerializeToString())


def _fix_axes(
    where: str, model: Any, inputs: Sequence[Any], sizes: Sequence[tuple[str, int]]
) -> None:
    """Give open axes a size, wherever the name of one stands."""
    open_axes = {
        (value.name, place): axis
        for value in inputs
        for place, axis in enumerate(value.type.tensor_type.shape.dim)
        if axis.dim_value < 1
    }
    for name, size in sizes:
        if not 1 <= size <= LARGEST_AXIS:
            raise InvalidInput(f"the size of an axis is from 1 to {LARGEST_AXIS:,}, not {size:,}")
        value, _, place = name.rpartition(":")
        one = open_axes.get((value, int(place))) if place.isdigit() else None
        symbol = name if one is None else one.dim_param
        found = [axis for axis in open_axes.values() if symbol and axis.dim_param == symbol]
        if one is None and not found:
            told = ", ".join(
                f"{value}:{place} {axis.dim_param!r}" if axis.dim_param else f"{value}:{place}"
                for (value, place), axis in open_axes.items()
            )
            asked = name[:LONGEST_NAME]
            raise InvalidInput(f"{where} has no open axis {asked!r}; open are: {told or 'none'}")
        if one is not None:
            one.dim_value = size
        for graph in graphs(model):
            for each in (*getattr(graph, "input", ()), *getattr(graph, "output", ())):
                if isinstance(each, str):  # of a function
                    continue
                for axis in each.type.tensor_type.shape.dim:
                    if symbol and axis.dim_param == symbol:
                        axis.dim_value = size
        del model.graph.value_info[:]  # inferred again


# -- inputs with one value, and where the rows are -------------------------------------------------


def _fix_inputs(where: str, model: Any, values: Sequence[tuple[str, float]]) -> None:
    """Make inputs constants of the graph, whose elements all have one value."""
    from onnx import helper, numpy_helper

    graph = model.graph
    held = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value for value in graph.input if value.name not in held}
    for name, number in values:
        value = inputs.pop(name, None)
        if value is None:
            told = some_of(list(inputs), MOST_NAMED) or "none"
            raise InvalidInput(f"{where} has no input {name[:LONGEST_NAME]!r}; it has: {told}")
        tensor = value.type.tensor_type
        shape = [axis.dim_value for axis in tensor.shape.dim]
        if any(size < 1 for size in shape):
            raise InvalidInput(
                f"input {name!r} of {where} leaves an axis open, and one with a fixed value has a"
                " size: it has the rows of a query, or --axis-sizes gives it one"
            )
        if prod(shape) > _LARGEST_FIXED:
            raise InvalidInput(
                f"input {name!r} of {where} has {prod(shape):,} elements, more than the"
                f" {_LARGEST_FIXED:,} that may have a fixed value"
            )
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        with np.errstate(all="ignore"):
            array = np.full(shape, number).astype(dtype)
        if not np.isclose(float(array.flat[0]), number, rtol=1e-2 * (array.dtype.kind == "f")):
            raise InvalidInput(
                f"input {name!r} of {where} is {array.dtype}, and cannot be {number:g}"
            )
        graph.input.remove(value)
        graph.initializer.append(numpy_helper.from_array(array, name))
    if not inputs:
        raise InvalidInput(f"{where} would have no inputs left")


def _move_batches(
    where: str, model: Any, inputs: Sequence[Any], axes: Sequence[tuple[str, int]]
) -> None:
    """Put rows along the first axis, where they are along another one."""
    from onnx import helper

    taken = {value.name for value in inputs}
    edges = {value.name: value for value in (*inputs, *model.graph.output)}
    shapes = _shapes_of_outputs(model)
    for name, batch in axes:
        value = edges.pop(name, None)
        if value is None:
            told = some_of(list(edges), MOST_NAMED) or "none"
            raise InvalidInput(
                f"{where} has no input or output {name[:LONGEST_NAME]!r}; it has: {told}"
            )
        shape = value.type.tensor_type.shape
        if name in shapes:
            shape.CopyFrom(shapes[name])
        if not 0 < batch < len(shape.dim):
            raise InvalidInput(
                f"the rows of {name!r} of {where} cannot be along axis {batch}: its axes are"
                f" numbered from 0 to {len(shape.dim) - 1}, and 0 needs no --batch-axes"
            )
        within = fresh_name(model, f"{name}_within")
        rename_value(model, name, within)
        value.name = name
        outside = [batch, *(place for place in range(len(shape.dim)) if place != batch)]
        moved = [copied(shape.dim[place]) for place in outside]
        del shape.dim[:]
        shape.dim.extend(moved)
        back = [outside.index(place) for place in range(len(outside))]
        if name in taken:
            node = helper.make_node("Transpose", [name], [within], name=within, perm=back)
            model.graph.node.insert(0, node)
        else:
            node = helper.make_node("Transpose", [within], [name], name=within, perm=outside)
            model.graph.node.append(node)
    del model.graph.value_info[:]  # inferred again


def _shapes_of_outputs(model: Any) -> dict[str, Any]:
    """Shapes of outputs as they follow from the inputs, of which some say to have other axes."""
    from onnx import TensorShapeProto, shape_inference

    copy = without_weights(model)
    for value in copy.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    try:
        known = shape_inference.infer_shapes(copy, data_prop=True).graph
    except Exception:  # what is wrong with the model is for its check to say
        return {}
    shapes = {
        value.name: value.type.tensor_type.shape for value in (*known.value_info, *known.output)
    }
    for node in model.graph.node:  # of a reshape to what is computed, the number of axes is known
        if node.op_type == "Reshape" and not shapes[node.output[0]].dim:
            rank = [axis.dim_value for axis in shapes.get(node.input[1], TensorShapeProto()).dim]
            for _ in range(*rank):
                shapes[node.output[0]].dim.add()
    return {name: shape for name, shape in shapes.items() if shape.dim}


# -- float16 ---------------------------------------------------------------------------------------


def _cast(model: Any, value: Any, *, comes_in: bool) -> None:
    """Let an input or output be float32 outside, and float16 within as before."""
    from onnx import TensorProto, helper

    tensor, name = value.type.tensor_type, value.name
    if tensor.elem_type != TensorProto.FLOAT16:
        return
    within = fresh_name(model, f"{name}_float16")
    rename_value(model, name, within)
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
