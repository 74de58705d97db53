"""An ONNX model that leaves one axis beside the batch open, and the same model with a size there.

Text models are exported so: their rows have as many tokens as a text has. What is served has one
size, and there is a model for each of a few lengths. Outputs may be as long as the rows.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from variants.checks.onnx_file import parse_model
from variants.checks.onnx_light import without_weights
from variants.checks.onnx_walk import graphs
from variants.errors import InvalidArtifact
from variants.types import FollowingAxis, LengthBucket

Place = tuple[str, int]
"""An output, and an axis of a row of it."""
Run = Callable[[int], Mapping[Place, int]]
"""Runs a model with rows of a length, and says which sizes its outputs have then."""
FAR = 16
"""Times the longest rows at which it is looked, too, whether an output depends on their length."""
TWO = 2
LENGTH = "length"
"""What an axis is called that is opened again."""
HOW = (
    "give that axis the same name in all inputs, such as"
    " dynamic_axes={'ids': {0: 'batch', 1: 'tokens'}, 'mask': {0: 'batch', 1: 'tokens'}}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedAxis:
    """A model whose open axis has a size, and where it was."""

    data: bytes
    inputs: list[tuple[str, int]]
    """Names with the axis of a row, in the order of the inputs."""
    outputs: list[FollowingAxis]
    """The outputs that are as long as the rows, or a fixed part of that."""
    first: str
    """Name of the first output."""


def fix_axis(
    data: bytes,
    length: int,
    *,
    where: str,
    longest: int = 0,
    run: Run = lambda _: {},
) -> FixedAxis:
    """A model whose open axis has this size.

    An output is as long as the rows where it names its axis as the inputs do, or leaves it open and
    has the size that the inputs have, whatever that is; or a fixed part of it. Nothing is checked
    of the model besides; that is for what comes of it.

    Args:
        where: what the model is called in sentences.
        longest: the longest size that its axis will have; what depends on it shows better there.
        run: for a length of rows, the sizes that outputs have when the model is run: for those of
            which no other way says it.

    Raises:
        InvalidArtifact: it leaves no axis open but the batch, or more than one, or an output
            depends on it in another way than by being as long.
    """
    model = parse_model(where, data)
    found = _open_inputs(model, where)
    inputs = [(name, axis) for name, axis, _ in found]
    symbol = found[0][2].dim_param
    named = [
        FollowingAxis(output=value.name, axis=axis - 1)
        for value in model.graph.output
        for axis, dim in _dims(value)
        if axis and symbol and dim.dim_param == symbol
    ]
    for _, _, dim in found:
        _set(dim, length)
    if symbol:
        _fix_everywhere(model, symbol, length)
    # What was inferred for an open axis is inferred again.
    model.graph.ClearField("value_info")
    others = _as_long(model, inputs, length, where, max(length, longest), run)
    return FixedAxis(
        data=model.SerializeToString(deterministic=True),
        inputs=inputs,
        outputs=_one_each(model, [*named, *others], where),
        first=next((str(value.name) for value in model.graph.output), ""),
    )


def _open_inputs(model: Any, where: str) -> list[tuple[str, int, Any]]:
    """Inputs with the one axis of a row that they leave open, and its dimension.

    Raises:
        InvalidArtifact: there is none, an input has several, or they are not the same one.
    """
    held = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in held]
    found = [(value.name, axis, dim) for value in inputs for axis, dim in _open(value)]
    if not found:
        raise InvalidArtifact(
            f"{where} leaves no axis open but the batch, so it takes rows of one length: leave"
            " --lengths out"
        )
    names = [name for name, _, _ in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidArtifact(
            f"{where}: input {twice!r} leaves {names.count(twice)} axes open beside the batch; rows"
            " may differ in the length of one, and --axis-sizes gives the others a size"
        )
    symbols = {dim.dim_param for _, _, dim in found}
    if len(found) > 1 and (len(symbols) > 1 or "" in symbols):
        told = ", ".join(f"{name!r} {dim.dim_param or '?'}" for name, _, dim in found)
        raise InvalidArtifact(f"{where}: its inputs leave different axes open: {told}; {HOW}")
    return found


def _one_each(model: Any, following: list[FollowingAxis], where: str) -> list[FollowingAxis]:
    """The same in the order of the outputs.

    Raises:
        InvalidArtifact: an output has two of them.
    """
    ordered = [
        one
        for value in model.graph.output
        for one in sorted(following, key=lambda each: each.axis)
        if one.output == value.name
    ]
    names = [one.output for one in ordered]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidArtifact(
            f"{where}: output {twice!r} is as long as the rows along {names.count(twice)} axes, and"
            " one is possible: --keep-outputs leaves that output out"
        )
    return ordered


def _as_long(
    model: Any,
    inputs: list[tuple[str, int]],
    length: int,
    where: str,
    longest: int,
    run: Run,
) -> list[FollowingAxis]:
    """Outputs whose open axes follow from the length of the rows; all open axes of outputs get the
    size that they have.

    Exporters call such axes after the operators that made them, so what they are is found by the
    sizes that follow from a few lengths.

    Raises:
        InvalidArtifact: the size of an axis cannot be told, or depends on the length otherwise.
    """
    left = [(value, axis, dim) for value in model.graph.output for axis, dim in _open(value)]
    if not left:
        return []
    sizes = _Sizes(model, inputs, run)
    other = length + 1 if length % 2 else length // 2  # within tables of places, and blocks of two
    found = []
    for value, axis, dim in left:
        place = (value.name, axis)
        own, others = (sizes.at(each, place) for each in (length, other))
        far = sizes.inferred(FAR * longest, place)
        if own and own == others and far in (0, own):
            _set(dim, own)
            continue
        step, offset = _part_of(sizes, place, longest) or (
            _part_of(sizes, place, FAR * longest, runs=False) or (0, 0)
        )
        follows = FollowingAxis(output=value.name, axis=axis, step=step or 1, offset=offset)
        if not step or own != follows.size(length) or not own:
            raise InvalidArtifact(
                f"{where}: output {value.name!r} leaves axis {axis + 1} open, whose size"
                f" {_depends(own, others, length, other)}; with --lengths an output is as long as"
                " the rows or a fixed part of that, at least 1, or has one size: give that axis the"
                " name that it has in the inputs, leave the output out (--keep-outputs), or"
                " register a task for each length (--axis-sizes)"
            )
        found.append(follows)
        _set(dim, own)
    return found


def _depends(own: int, others: int, length: int, other: int) -> str:
    if not own and not others:
        return "cannot be told"
    return f"is {own} for rows of {length} and {others} for rows of {other}"


def _part_of(
    sizes: "_Sizes", place: Place, longest: int, *, runs: bool = True
) -> tuple[int, int] | None:
    """Step and offset by which the size of an axis follows from the length of rows.

    The size goes up by one from each step to the next. Where two steps begin says how far apart
    they are, and what the first one lacks.

    Args:
        runs: whether the model may be run to find sizes.

    Returns:
        None where it follows otherwise, or cannot be told.
    """
    size = partial(sizes.at if runs else sizes.inferred, place=place)
    most = size(longest)
    if most < TWO:
        return None
    half = most // TWO
    first = bisect_left(range(1, longest + 1), half, key=size) + 1
    last = bisect_left(range(1, longest + 1), most, key=size) + 1
    step, rest = divmod(last - first, most - half)
    if rest or not step:
        return None
    found = FollowingAxis(output=place[0], axis=place[1], step=step, offset=most * step - last)
    tried = {longest, longest - 1, longest // 2 + 1, longest // 2, longest // 3, first, last - 1}
    if any(size(one) not in (0, found.size(one)) for one in tried if one > 0):
        return None
    return found.step, found.offset


class _Sizes:
    """Sizes of a model's outputs by the length of its inputs; 0 where they cannot be told."""

    def __init__(self, model: Any, inputs: list[tuple[str, int]], run: Run) -> None:
        self._model = without_weights(model)
        self._axes = dict(inputs)
        self._run = run
        self._inferred: dict[int, Mapping[Place, int]] = {}
        self._seen: dict[int, Mapping[Place, int]] = {}

    def at(self, length: int, place: Place) -> int:
        """By inference, else by running the model."""
        found = self.inferred(length, place)
        if not found:
            if length not in self._seen:
                self._seen[length] = self._run(length)
            found = self._seen[length].get(place, 0)
        return found

    def inferred(self, length: int, place: Place) -> int:
        if length not in self._inferred:
            self._inferred[length] = self._infer(length)
        return self._inferred[length].get(place, 0)

    def _infer(self, length: int) -> dict[Place, int]:
        from onnx import shape_inference

        copy = self._model
        for value in copy.graph.input:
            if value.name in self._axes:
                _set(value.type.tensor_type.shape.dim[self._axes[value.name] + 1], length)
        for value in copy.graph.output:
            value.type.tensor_type.ClearField("shape")
        try:
            known = shape_inference.infer_shapes(copy, data_prop=True)
        except Exception:  # what is wrong with the model is for its check to say
            return {}
        return {
            (value.name, axis - 1): dim.dim_value
            for value in known.graph.output
            for axis, dim in _dims(value)
            if axis and dim.HasField("dim_value") and dim.dim_value > 0
        }


def _set(dim: Any, size: int) -> None:
    dim.Clear()
    dim.dim_value = size


def open_again(data: bytes, bucket: LengthBucket) -> bytes:
    """The model of a bucket with its axis open, the same one for all buckets of a model.

    Raises:
        InvalidArtifact: it is none of that bucket.
    """
    model = parse_model("the model", data)
    axes = [(one.input, one.axis, bucket.length, LENGTH) for one in bucket.axes]
    for one in bucket.outputs:
        as_long = (one.step, one.offset) == (1, 0)
        called = LENGTH if as_long else f"{LENGTH} of {one.output}"
        axes.append((one.output, one.axis, one.size(bucket.length), called))
    values = {value.name: value for value in (*model.graph.input, *model.graph.output)}
    for name, axis, size, called in axes:
        dims = [dim for at, dim in _dims(values[name]) if at == axis + 1] if name in values else []
        if [dim.dim_value for dim in dims] != [size]:
            raise InvalidArtifact(f"the model has no axis {axis} of the length {size} in {name!r}")
        dims[0].Clear()
        dims[0].dim_param = called
    return bytes(model.SerializeToString(deterministic=True))


def _fix_everywhere(model: Any, symbol: str, length: int) -> None:
    from onnx import GraphProto

    for graph in graphs(model):
        values = (*graph.input, *graph.output, *graph.value_info)
        for value in values if isinstance(graph, GraphProto) else ():
            for _, dim in _dims(value):
                if dim.dim_param == symbol:
                    _set(dim, length)


def _open(value: Any) -> Iterator[tuple[int, Any]]:
    """Open axes of a row, the batch axis left out, and their dimensions."""
    for axis, dim in _dims(value):
        if axis and (not dim.HasField("dim_value") or dim.dim_value < 1):
            yield axis - 1, dim


def _dims(value: Any) -> Iterator[tuple[int, Any]]:
    """All axes of a tensor, the batch axis as 0; none of what is no tensor."""
    if value.type.HasField("tensor_type"):
        yield from enumerate(value.type.tensor_type.shape.dim)
