"""Sizes of outputs that a model does not say, found by running it.

Exporters leave axes of outputs open, or say sizes that are wrong, where they do not see what comes
out; and neither does the inference of shapes where sizes are computed in the graph. A model that
has dropped all axes of size 1 gives one row without its batch axis.
The model runs, so this happens in a child process.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from profiler.evaluation.freed_batch import drawn, session_of
from variants.checks.onnx_batch import BATCH, fresh_name, settle_outputs
from variants.checks.onnx_file import check_file, parse_model
from variants.checks.onnx_light import without_weights

TRIED_ROWS = (1, 2, 3)
TOGETHER = 2
"""Rows that are run together to see whether an output has an answer for each."""

Shape = tuple[int, ...]


def has_unsaid(path: Path, *, limit_mib: float = 2048) -> bool:
    """Whether ``say_output_sizes`` would run a model.

    Raises:
        InvalidArtifact: it cannot be read.
    """
    return bool(_read(path, limit_mib)[1])


def say_output_sizes(source: Path, target: Path, *, limit_mib: float = 2048) -> bool:
    """Write a model with the sizes that its outputs have, whatever the number of rows, or say that
    it says them, or that they cannot be told, and write nothing.

    The same file always gives the same bytes. ``target`` may be ``source``.

    Raises:
        InvalidArtifact: it cannot be read.
    """
    model, unsaid = _read(source, limit_mib)
    if not unsaid:
        return False
    try:
        shapes = _tried(source, unsaid)
    except Exception:  # what does not run is refused where it is judged
        return False
    said = [_say(model, name, shapes[name]) for name in unsaid]
    if any(said):
        whole = target.with_name(f"{target.name}.said")  # or nothing, whatever ends this
        whole.write_bytes(model.SerializeToString(deterministic=True))
        whole.replace(target)
    return any(said)


def with_other_rows(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Those of a model's outputs that have not one answer for each of some rows, as the boxes that
    are left once those of all rows were sorted out; none where it does not run."""
    if not names:
        return ()
    try:
        session = session_of(path)
        rows = {value.name: drawn(value, TOGETHER) for value in session.get_inputs()}
        found = session.run(list(names), rows)
    except Exception:  # what does not run is refused where it is judged
        return ()
    uneven = zip(names, found, strict=True)
    return tuple(name for name, output in uneven if np.shape(output)[:1] != (TOGETHER,))


def sizes_by_length(path: Path) -> Callable[[int], Mapping[tuple[str, int], int]]:
    """What runs a model that leaves one axis of its rows open, with one row of a length.

    Returns:
        A function of that length to the sizes of its outputs, by name and axis of a row; none where
        it does not run.
    """

    @cache
    def session() -> Any:
        return session_of(path)

    def sizes(length: int) -> Mapping[tuple[str, int], int]:
        try:
            rows = {value.name: drawn(value, 1, length) for value in session().get_inputs()}
            names = [value.name for value in session().get_outputs()]
            found = session().run(names, rows)
        except Exception:  # a model may take no rows that are so short
            return {}
        return {
            (name, axis): size
            for name, output in zip(names, found, strict=True)
            for axis, size in enumerate(np.shape(output)[1:])
        }

    return sizes


def _read(path: Path, limit_mib: float) -> tuple[Any, list[str]]:
    """A model, and its outputs whose sizes are not said though those of its inputs are."""
    check_file(path, limit_mib=limit_mib)
    model = parse_model(path.name, path.read_bytes())
    held = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in held]
    if not inputs or not all(_is_settled(value) for value in inputs):
        return model, []
    return model, _unsaid(model, inputs)


def _is_settled(value: Any) -> bool:
    """Whether a tensor has an open first axis, and a size along all others."""
    axes = value.type.tensor_type.shape.dim
    return bool(axes) and axes[0].dim_value < 1 and all(axis.dim_value > 0 for axis in axes[1:])


def _unsaid(model: Any, inputs: Sequence[Any]) -> list[str]:
    """Outputs whose sizes neither the model says nor inference finds."""
    from onnx import shape_inference

    try:
        inferred = shape_inference.infer_shapes(without_weights(model), data_prop=True)
    except Exception:  # what is wrong with the model is for its check to say
        return []
    settle_outputs(inferred, inputs)
    squeezes = any(node.op_type == "Squeeze" and not _names_axes(node) for node in model.graph.node)
    return [
        value.name
        for value in inferred.graph.output
        if value.type.HasField("tensor_type") and (squeezes or not _is_settled(value))
    ]


def _names_axes(node: Any) -> bool:
    """Whether it says which axes leave; else all of size 1 do, that of the batch as well."""
    return any(node.input[1:]) or any(one.name == "axes" for one in node.attribute)


def _tried(path: Path, names: Sequence[str]) -> Mapping[str, list[Shape]]:
    """Shapes of outputs for each number of rows that is tried."""
    session = session_of(path)
    found: dict[str, list[Shape]] = {name: [] for name in names}
    for count in TRIED_ROWS:
        rows = {value.name: drawn(value, count) for value in session.get_inputs()}
        for name, output in zip(names, session.run(list(names), rows), strict=True):
            found[name].append(np.shape(output))
    return found


def _say(model: Any, name: str, shapes: Sequence[Shape]) -> bool:
    """Note the shape of an output, and give it its batch axis for one row, if it lacks that then;
    whether that changed anything. Nothing is said of one that has not an answer for each row."""
    from onnx import helper, numpy_helper

    one, *more = shapes
    row = more[0][1:]
    if any(shape != (count, *row) for count, shape in zip(TRIED_ROWS[1:], more, strict=True)):
        return False
    value = next(each for each in model.graph.output if each.name == name)
    axes = value.type.tensor_type.shape.dim
    if one == (1, *row) and _is_settled(value) and row == tuple(a.dim_value for a in axes[1:]):
        return False
    if one != (1, *row):
        if np.prod(one) != np.prod(row):
            return False
        squeezed, sizes = fresh_name(model, name), fresh_name(model, f"{name}_sizes")
        for node in model.graph.node:
            for values in (node.input, node.output):
                values[:] = [squeezed if value == name else value for value in values]
        held = numpy_helper.from_array(np.array([-1, *row], np.int64), sizes)
        model.graph.initializer.append(held)
        made = helper.make_node("Reshape", [squeezed, sizes], [name], name=squeezed)
        model.graph.node.append(made)
    del axes[:]
    axes.add(dim_param=BATCH)
    for size in row:
        axes.add(dim_value=size)
    for stale in [each for each in model.graph.value_info if each.name == name]:
        model.graph.value_info.remove(stale)
    return True
