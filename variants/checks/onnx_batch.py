"""An ONNX model whose first axis is fixed, and the same model for any number of rows.

Exporters write the size of the batch into nodes too: into the shapes of reshapes, into a constant
that is joined to each row, into the state that a recurrent layer begins with. Which axis of a value
is the batch shows in the shapes that follow from another number of rows. Whether such a model
answers each row as it does alone has to be tried afterwards.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from variants.checks.onnx_walk import graphs, inner_names
from variants.errors import InvalidArtifact

BATCH = "batch"
"""What a first axis is called that was freed."""
_OTHER = 7
"""So many times as many rows are assumed; a number that sizes of layers are no multiples of."""
_LARGEST_SHAPE = 64
"""Numbers in a constant that may say a shape; larger ones are weights."""
_RECURRENT = ("LSTM", "GRU", "RNN")

Shape = tuple[int, ...]


def free_batch(where: str, model: Any, inputs: Sequence[Any]) -> None:
    """Let a model take any number of rows; it is changed in place.

    Args:
        where: what the model is called in sentences.
        inputs: of its graph, without those that are weights.

    Raises:
        InvalidArtifact: its inputs have different batches.
    """
    sizes = {
        axes[0].dim_value
        for value in inputs
        if (axes := value.type.tensor_type.shape.dim) and axes[0].HasField("dim_value")
    }
    if len(sizes) > 1:
        told = " and ".join(map(str, sorted(sizes)))
        raise InvalidArtifact(f"{where}: its inputs have batches of {told}, so none can be freed")
    (size,) = sizes or {1}  # with none, nodes may be made for one row all the same
    fixed = [
        axes[0]
        for value in (*inputs, *model.graph.output)
        if (axes := value.type.tensor_type.shape.dim)
        and axes[0].HasField("dim_value")
        and axes[0].dim_value == size
    ]
    del model.graph.value_info[:]  # they tell shapes of one size
    _Freed(model, inputs, size).free_nodes()
    for axis in fixed:
        axis.dim_param = BATCH


class _Freed:
    """A model whose nodes are changed one after the other, until all take another batch."""

    def __init__(self, model: Any, inputs: Sequence[Any], size: int) -> None:
        self._model = model
        self._inputs = [
            value.name
            for value in inputs
            if (axes := value.type.tensor_type.shape.dim) and axes[0].dim_value in (size, 0)
        ]
        self._size = size
        self._following = _following(model, self._inputs)
        self._before = self._shapes(size)
        self._rows = ""
        """What gives the number of rows, once something asks for it."""

    def free_nodes(self) -> None:
        """Change what was made for one size; what comes after it shows once it is changed."""
        seen: set[str] = set()
        while True:
            after = self._shapes(self._size * _OTHER)
            nodes = list(self._model.graph.node)  # some are added
            changed = [node for node in nodes if self._free(node, after, seen)]
            if not changed:
                return

    def _free(self, node: Any, after: Mapping[str, Shape], seen: set[str]) -> bool:
        """Whether a node was changed; each is but once."""
        if node.output[0] in seen:
            return False
        if node.op_type == "Reshape":
            done = self._free_reshape(node, after)
        elif node.op_type == "Concat" and self._size == 1:
            done = self._free_concat(node, after)
        elif node.op_type == "Gather" and self._size == 1:
            done = self._free_gather(node, after)
        elif node.op_type == "Resize" and self._size == 1:
            done = self._free_resize(node, after)
        elif node.op_type in _RECURRENT and self._size == 1:
            done = self._free_recurrent(node, after)
        else:
            return False
        if done:
            seen.add(node.output[0])
        return done

    def _free_reshape(self, node: Any, after: Mapping[str, Shape]) -> bool:
        """Let the axis that has the batch be as long as it comes.

        It is the one before which there are as many elements as before the batch of what comes in.
        """
        if len(node.input) < 2 or node.input[1] in self._following:
            return False
        whole, (source, batch) = (
            self._before.get(node.output[0]),
            self._batch(node.input[0], after),
        )
        if whole is None or source is None or batch is None:
            return source is None and self._keep_first(node)
        ahead = prod(source[:batch])
        places = [place for place in range(len(whole)) if prod(whole[:place]) == ahead]
        if not places:
            return False
        place = batch if batch in places and whole[batch] == source[batch] else places[0]
        shape = [-1 if at == place else one for at, one in enumerate(whole)]
        node.input[1] = self._hold(shape, node.input[1])  # others may use the constant, too
        return True

    def _keep_first(self, node: Any) -> bool:
        """Let a reshape of what has no known shape keep as many rows as come: 0 copies them."""
        said = self._constant(node.input[1])
        if said is None or not said.size or said[0] != self._size or not said.all():
            return False
        for attribute in [one for one in node.attribute if one.name == "allowzero"]:
            node.attribute.remove(attribute)
        node.input[1] = self._hold([0, *said[1:].tolist()], node.input[1])
        return True

    def _free_gather(self, node: Any, after: Mapping[str, Shape]) -> bool:
        """Turn the look-up of all values in their order, which only gives them another shape, into
        a reshape: PyTorch's newer exporter writes some means so."""
        source, batch = self._batch(node.input[0], after)
        whole = self._before.get(node.output[0])
        if source is None or batch != 0 or len(source) != 1 or whole is None or whole[0] != 1:
            return False
        order = self._constant(node.input[1])
        if order is None or not np.array_equal(order.ravel(), np.arange(source[0])):
            return False
        del node.attribute[:]
        node.op_type = "Reshape"
        node.input[1] = self._hold([-1, *whole[1:]], node.input[1])
        return True

    def _free_concat(self, node: Any, after: Mapping[str, Shape]) -> bool:
        """Join to each row what is there once, such as the token of a class."""
        found = [self._batch(name, after) for name in node.input]
        axes = {axis for _, axis in found if axis is not None}
        joined = next((one.i for one in node.attribute if one.name == "axis"), 0)
        if len(axes) != 1:
            return False
        (axis,) = axes
        once = [
            place
            for place, (shape, batch) in enumerate(found)
            if batch is None
            and (node.input[place] not in self._following or (shape or ())[axis : axis + 1] == (1,))
        ]
        rank = max(len(shape) for shape, batch in found if shape is not None and batch is not None)
        if joined % rank == axis or not once:
            return False
        for place in once:
            self._repeat(node, place, axis, rank)
        return True

    def _free_resize(self, node: Any, after: Mapping[str, Shape]) -> bool:
        """Let what is made larger have as many rows as it has."""
        from onnx import helper

        whole, (_, batch) = self._before.get(node.output[0]), self._batch(node.input[0], after)
        said = any(one.name == "axes" for one in node.attribute)
        if len(node.input) < 4 or not node.input[3] or said or batch != 0 or whole is None:
            return False
        if node.input[3] in self._following:
            return False
        sizes = self._fresh(f"{node.output[0]}_sizes")
        parts = [self._count_rows(), self._hold(whole[1:], "batch_behind")]
        self._insert(node, helper.make_node("Concat", parts, [sizes], name=sizes, axis=0))
        node.input[3] = sizes
        return True

    def _free_recurrent(self, node: Any, after: Mapping[str, Shape]) -> bool:
        """Begin with the same state for each row."""
        _, batch = self._batch(node.input[0], after)
        if batch is None:
            return False
        layout = next((one.i for one in node.attribute if one.name == "layout"), 0)
        places = range(5, min(7, len(node.input)))  # initial_h, initial_c
        once = [p for p in places if node.input[p] and self._batch(node.input[p], after)[1] is None]
        for place in once:
            self._repeat(node, place, 0 if layout else 1, 3)
        return bool(once)

    def _batch(
        self, name: str, after: Mapping[str, Shape]
    ) -> tuple[Shape, int] | tuple[Shape | None, None]:
        """The shape of a value with the size that the batch had, and which axis grows with it."""
        before, now = self._before.get(name), after.get(name)
        if before is None or now is None or len(before) != len(now):
            return before, None
        grown = [axis for axis, (a, b) in enumerate(zip(before, now, strict=True)) if a != b]
        return (before, grown[0]) if len(grown) == 1 else (before, None)

    def _repeat(self, node: Any, place: int, axis: int, rank: int) -> None:
        """Let a node read an input once for each row, along an axis of size 1."""
        from onnx import helper

        name = node.input[place]
        sizes, each = self._fresh(f"{name}_sizes"), self._fresh(f"{name}_each")
        parts = [self._count_rows()]
        if axis:
            parts.insert(0, self._hold([1] * axis, "batch_ahead"))
        if axis < rank - 1:
            parts.append(self._hold([1] * (rank - axis - 1), "batch_behind"))
        self._insert(node, helper.make_node("Concat", parts, [sizes], name=sizes, axis=0))
        self._insert(node, helper.make_node("Expand", [name, sizes], [each], name=each))
        node.input[place] = each

    def _count_rows(self) -> str:
        """Name of a value that has the number of rows, as a tensor of one number."""
        from onnx import helper

        if not self._rows:
            shape, self._rows = self._fresh("batch_sizes"), self._fresh("batch_rows")
            first = self._hold([0], "batch_first")
            for made in (
                helper.make_node("Gather", [shape, first], [self._rows], name=self._rows, axis=0),
                helper.make_node("Shape", [self._inputs[0]], [shape], name=shape),
            ):
                self._model.graph.node.insert(0, made)
        return self._rows

    def _insert(self, node: Any, made: Any) -> None:
        """Put a node before another one."""
        graph = self._model.graph
        at = next(i for i, one in enumerate(graph.node) if one.output[0] == node.output[0])
        graph.node.insert(at, made)

    def _constant(self, name: str) -> Any | None:
        """A constant of the graph as an array; None where the name is of something else."""
        from onnx import numpy_helper

        held = [one for one in self._model.graph.initializer if one.name == name]
        held += [
            attribute.t
            for node in self._model.graph.node
            if node.op_type == "Constant" and node.output[0] == name
            for attribute in node.attribute
            if attribute.name == "value"
        ]
        return numpy_helper.to_array(held[0]) if held else None

    def _shapes(self, size: int) -> dict[str, Shape]:
        return shapes_for(self._model, self._inputs, size)

    def _hold(self, numbers: Sequence[int], like: str) -> str:
        """Put a constant into the graph; its name begins like this one."""
        from onnx import numpy_helper

        name = self._fresh(like)
        array = np.array(numbers, dtype=np.int64)
        self._model.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def _fresh(self, like: str) -> str:
        return fresh_name(self._model, like)


def shapes_for(model: Any, inputs: Sequence[str], size: int) -> dict[str, Shape]:
    """Shapes of all values of the graph that follow from inputs of so many rows."""
    from onnx import ModelProto, shape_inference

    light = ModelProto(ir_version=model.ir_version)
    light.opset_import.extend(model.opset_import)
    light.graph.name = "shapes"
    light.graph.node.extend(model.graph.node)
    light.graph.input.extend(model.graph.input)
    for value in model.graph.output:
        light.graph.output.add(name=value.name)
    known = {value.name: value for value in light.graph.input}
    for tensor in model.graph.initializer:
        if prod(tensor.dims) <= _LARGEST_SHAPE:
            light.graph.initializer.append(tensor)
        elif tensor.name not in known:  # a weight, of which only the shape matters
            weight = light.graph.input.add(name=tensor.name).type.tensor_type
            weight.elem_type = tensor.data_type
            for one in tensor.dims:
                weight.shape.dim.add(dim_value=one)
    for name in inputs:
        axes = known[name].type.tensor_type.shape.dim
        if axes:
            axes[0].Clear()
            axes[0].dim_value = size
    try:
        inferred = shape_inference.infer_shapes(light, data_prop=True).graph
    except Exception:  # what is wrong with the model is for its check to say
        return {}
    found = {
        value.name: tuple(one.dim_value for one in value.type.tensor_type.shape.dim)
        for value in (*inferred.value_info, *inferred.input, *inferred.output)
        if value.type.tensor_type.HasField("shape")
        and all(one.dim_value > 0 for one in value.type.tensor_type.shape.dim)
    }
    return found | {one.name: tuple(one.dims) for one in light.graph.initializer}


def settle_outputs(model: Any, inputs: Sequence[Any]) -> None:
    """Give open axes of outputs the size that they have for any number of rows, and free a first
    axis that is as long as that of the inputs: exporters leave axes open whose size they do not
    see, and fix those that nobody told them of.

    Nothing is settled where inputs leave open another axis than the batch, or fix that.
    """
    outputs = [value for value in model.graph.output if _is_open(value) or _is_fixed(value)]
    if not outputs or any(_is_open(value) or _is_fixed(value) for value in inputs):
        return
    names = [value.name for value in inputs]
    some, more = (shapes_for(model, names, size) for size in (2, 3))
    for value in outputs:
        one, other = some.get(value.name, ()), more.get(value.name, ())
        shape = value.type.tensor_type.shape
        fits = len(shape.dim) == len(one) and (one[:1], other[:1]) == ((2,), (3,))
        if not fits or one[1:] != other[1:]:
            continue
        said = [axis.dim_value for axis in shape.dim[1:]]
        if any(a and a != b for a, b in zip(said, one[1:], strict=True)):
            continue
        del shape.dim[:]
        shape.dim.add(dim_param=BATCH)
        for size in one[1:]:
            shape.dim.add(dim_value=size)


def _is_open(value: Any) -> bool:
    """Whether a tensor has an axis without a size, the first left out."""
    return any(axis.dim_value < 1 for axis in value.type.tensor_type.shape.dim[1:])


def _is_fixed(value: Any) -> bool:
    axes = value.type.tensor_type.shape.dim
    return bool(axes) and axes[0].dim_value > 0


def fresh_name(model: Any, name: str) -> str:
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


def _following(model: Any, names: Sequence[str]) -> set[str]:
    """Values of the graph that depend on these, and these."""
    found = set(names)
    for node in model.graph.node:
        if found & {*node.input, *inner_names(node)}:
            found.update(node.output)
    return found
