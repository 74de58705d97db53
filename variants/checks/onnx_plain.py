"""ONNX models as converters leave them, brought into the form that is served; none of it changes
what they compute.

Converters of classic models write what no option of theirs avoids, or only one that few know:
scores as a list of maps (``ZipMap``), no opset of the standard operators where none is used, and
outputs that say to have one row however many come, or one axis where there are two. Other exporters
keep parts of a model as functions, write -1 for the size of an open axis and ``?`` for its name, or
call an output a scalar that is none.

Parsing happens in native code, so callers that take files from outside do it in a child process.
"""

import mmap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from variants.checks.onnx_file import check_file, parse_model
from variants.checks.onnx_light import without_weights
from variants.checks.onnx_walk import graphs
from variants.errors import InvalidArtifact
from variants.onnx_wire import MODEL_GRAPH, Field, fields

CLASSIC = "ai.onnx.ml"
ADDED_OPSET = 15
"""Of the standard operators, where a model of classic ones names none. Any will do; this one every
builder takes as it is."""
NO_NAMES = ("?", "-1", "None")
"""What exporters write for a name where an axis has none; two such axes need not be equal."""
MOST_FIELDS = 2**20
"""More than the main graph of any model has nodes, weights and edges together: walking over them
takes a second."""
_FUNCTIONS = 25
"""Of ``ModelProto``."""
_SQUEEZE = b'"\x07Squeeze'
"""The type of such a node, as a field of it: one may leave out the batch axis of a single row."""
_EDGES = {11: "input", 12: "output"}
"""Of ``GraphProto``."""
_TYPE, _TENSOR, _SHAPE, _AXIS = 2, 1, 2, 1
"""From the input or output of a graph to its axes, each the number of a field of the one before."""


def may_be_unusual(path: Path) -> bool:
    """Whether it looks as if ``plain`` had something to do, or outputs do not say their sizes:
    cheap, and without parsing. What is no model looks as if it had not, unless it has more fields
    than any model, which is for a child process to look at."""
    with (
        suppress(OSError, ValueError, IndexError),
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        if data.find(CLASSIC.encode()) >= 0 or data.find(_SQUEEZE) >= 0:
            return True
        walk = _Walk(data)
        try:
            return any(
                field.number == _FUNCTIONS
                or (field.number == MODEL_GRAPH and _has_unusual_edges(walk, field))
                for field in walk.fields(0, len(data))
            )
        except _TooManyFields:
            return True
    return False


class _TooManyFields(Exception):
    """No model has so many."""


class _Walk:
    """A walk over the fields of a file, which ends where these are more than any model has."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self._left = MOST_FIELDS

    def fields(self, start: int, end: int) -> Iterator[Field]:
        """Each field of the message that lies there.

        Raises:
            ValueError, IndexError: it is no such message.
            _TooManyFields: there were too many in all.
        """
        for field in fields(self.data, start, end):
            self._left -= 1
            if self._left < 0:
                raise _TooManyFields
            yield field


def _has_unusual_edges(walk: _Walk, graph: Field) -> bool:
    """Whether an output of a graph does not say its sizes, or an axis says one that is none."""
    for field in walk.fields(graph.start, graph.end):
        if field.number not in _EDGES:
            continue
        places = [field]
        for number in (_TYPE, _TENSOR, _SHAPE, _AXIS):
            places = [one for place in places for one in _within(walk, place, number)]
        axes = [{one.number: one for one in walk.fields(axis.start, axis.end)} for axis in places]
        if any(_is_odd(walk.data, axis) for axis in axes):
            return True
        is_output = _EDGES[field.number] == "output"
        if is_output and (not axes or any(1 not in one for one in axes[1:])):
            return True
    return False


def _is_odd(data: mmap.mmap, axis: dict[int, Field]) -> bool:
    """Whether an axis has a size below 1, or a name that is none."""
    size, name = axis.get(1), axis.get(2)
    if size is not None and not 0 < size.value < 2**63:
        return True
    said = b"" if name is None else data[name.start : name.end]
    return said in [one.encode() for one in NO_NAMES]


def _within(walk: _Walk, message: Field, number: int) -> Iterator[Field]:
    """The fields of a number within a message."""
    found = walk.fields(message.start, message.end)
    return (each for each in found if each.number == number)


def plain(source: Path, target: Path, *, limit_mib: float = 2048) -> bool:
    """Write a model in its plain form, or say that it has it and write nothing.

    The same file always gives the same bytes.

    Raises:
        InvalidArtifact: it cannot be read.
    """
    where = source.name
    check_file(source, limit_mib=limit_mib)
    model = parse_model(where, source.read_bytes())
    if not model.HasField("graph"):
        return False  # for the check to refuse
    inlined = _inlined(where, model)
    changed = inlined is not None
    model = model if inlined is None else inlined
    changed |= _say_opset(model)
    changed |= _open_axes(model.graph)
    changed |= _say_axes(model)
    changed |= _unpack_maps(model.graph)
    changed |= _free_outputs(model.graph)
    changed |= _widen_regressors(model.graph)
    if changed:
        target.write_bytes(model.SerializeToString(deterministic=True))
    return changed


def _inlined(where: str, model: Any) -> Any | None:
    """The model with its functions in the places where they are called; None where none is."""
    functions = {(function.domain, function.name) for function in model.functions}
    called = {(node.domain, node.op_type) for graph in graphs(model) for node in graph.node}
    inner = {(node.domain, node.op_type) for one in model.functions for node in one.node}
    if not functions & called - inner:
        return None
    from onnx import inliner

    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # native code gives several types
        raise InvalidArtifact(
            f"{where} defines functions of its own that cannot be inlined; export it inlined"
        ) from error


def _say_opset(model: Any) -> bool:
    """Name an opset of the standard operators, where all operators are classic ones."""
    imported = {entry.domain for entry in model.opset_import}
    if CLASSIC not in imported or imported & {"", "ai.onnx"}:
        return False
    if any(node.domain != CLASSIC for graph in graphs(model) for node in graph.node):
        return False
    model.opset_import.add(domain="", version=ADDED_OPSET)
    return True


def _open_axes(graph: Any) -> bool:
    """Take out sizes and names of axes that are none, so that these are open and have no name."""
    found = False
    for value in (*graph.input, *graph.output, *graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param in NO_NAMES or (axis.HasField("dim_value") and axis.dim_value < 1):
                axis.Clear()
                found = True
    return found


def _say_axes(model: Any) -> bool:
    """Give outputs that are said to have no axes those that they have, where that can be told."""
    from onnx import shape_inference

    outputs = [value for value in model.graph.output if value.type.HasField("tensor_type")]
    bare = [value for value in outputs if not value.type.tensor_type.shape.dim]
    if not bare:
        return False
    copy = without_weights(model)
    for value in copy.graph.output:
        if value.type.HasField("tensor_type") and not value.type.tensor_type.shape.dim:
            value.type.tensor_type.ClearField("shape")
    try:
        known = shape_inference.infer_shapes(copy, data_prop=True).graph
    except Exception:  # what is wrong with the model is for its check to say
        return False
    shapes = {value.name: value.type.tensor_type.shape for value in known.output}
    told = [value for value in bare if shapes[value.name].dim]
    for value in told:
        value.type.tensor_type.shape.CopyFrom(shapes[value.name])
    return bool(told)


def _unpack_maps(graph: Any) -> bool:
    """Give scores as the tensor that is there before ``ZipMap`` makes maps of it."""
    from onnx import TensorProto, helper

    outputs = {value.name: value for value in graph.output}
    read = {name for node in graph.node for name in node.input}
    found = False
    for node in graph.node:
        if (node.domain, node.op_type) != (CLASSIC, "ZipMap") or len(node.input) != 1:
            continue
        name = node.output[0] if node.output else ""
        classes = [
            len(attribute.strings) or len(attribute.ints)
            for attribute in node.attribute
            if attribute.name in ("classlabels_strings", "classlabels_int64s")
        ]
        if name not in outputs or name in read or len(classes) != 1:
            continue
        scores = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", classes[0]])
        outputs[name].CopyFrom(scores)
        node.CopyFrom(helper.make_node("Identity", list(node.input), [name], name=node.name))
        found = True
    return found


def _free_outputs(graph: Any) -> bool:
    """Free the first axis of outputs that are said to have one row where any number comes in.

    Whether they really have as many rows as come in is seen when the model is tried.
    """
    held = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in held]
    if not inputs or any(_first_size(value) for value in inputs):
        return False
    wrong = [value for value in graph.output if _first_size(value) == 1]
    for value in wrong:
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    return bool(wrong)


def _widen_regressors(graph: Any) -> bool:
    """Give what a regressor of trees says that it has but one axis of the second that it has."""
    outputs = {value.name: value for value in graph.output}
    found = False
    for node in graph.node:
        if (node.domain, node.op_type) != (CLASSIC, "TreeEnsembleRegressor"):
            continue
        value = outputs.get(node.output[0])
        if value is not None and len(value.type.tensor_type.shape.dim) == 1:
            said = [one.i for one in node.attribute if one.name == "n_targets"]
            value.type.tensor_type.shape.dim.add(dim_value=max(1, *said, 1))
            found = True
    return found


def _first_size(value: Any) -> int:
    """Size of the first axis; 0 where it is open, or there is none."""
    dims = value.type.tensor_type.shape.dim
    return int(dims[0].dim_value) if dims else 0
