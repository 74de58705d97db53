"""Tensors from JSON: nested lists of numbers, checked against an input's shape and type.

This runs once per query. ``lean_json`` reads most bodies; this is for short ones and for what it
leaves. The short way packs rows of numbers directly; what it cannot do goes the long way, which
looks at the lists first and finds out what was wrong. A number is rounded once from the double that
JSON's numbers are taken for.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from struct import Struct, pack
from struct import error as StructError
from typing import Any, NamedTuple

import numpy as np

from controlplane.gateway.lengths.filling import filled, lengths_of
from controlplane.gateway.query.lean_json import Numbers
from variants.buckets import BucketedTask
from variants.checks.json_shape import shown
from variants.errors import InvalidInput
from variants.types import Task, TensorSpec
from workers.finite import all_finite
from workers.runtimes.protocol import Tensor

MAX_ROWS = 4096
CODES = {
    "int8": "b", "uint8": "B", "int16": "h", "int32": "i", "int64": "q",
    "uint16": "H", "uint32": "I", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip
"""How ``struct`` calls the types of tensors; booleans go another way."""
LISTS = {list}


def read_rows(inputs: Any, specs: Sequence[TensorSpec], booleans: bool) -> list[Tensor]:
    """Tensors from ``inputs``: a list of rows, or name to rows where a task has several inputs.

    Args:
        booleans: whether the body may hold booleans, so that the long way has to be taken.

    Returns:
        A tensor for each of ``specs``, in their order, of shape (rows, *shape of the input).

    Raises:
        InvalidInput: the inputs do not fit.
    """
    if len(specs) == 1 and not isinstance(inputs, dict):
        return [_checked_rows(inputs, specs[0], booleans)]
    names = [spec.name for spec in specs]
    if not isinstance(inputs, dict) or inputs.keys() != set(names):
        raise InvalidInput(f"'inputs' must be an object with rows for each of: {', '.join(names)}")
    found = {spec.name: _checked_rows(inputs[spec.name], spec, booleans) for spec in specs}
    return same_rows(found, specs)


def filled_rows(
    task: BucketedTask, inputs: Any, booleans: bool
) -> tuple[Task, list[Tensor], list[int]]:
    """The bucket that rows of several lengths go to, its tensors, as ``read_rows`` has them, and
    how long each row was.

    Raises:
        InvalidInput: the inputs do not fit, or a row is too long.
    """
    specs = task.face.inputs
    if len(specs) == 1 and not isinstance(inputs, dict):
        inputs = {specs[0].name: inputs}
    names = [spec.name for spec in specs]
    if not isinstance(inputs, dict) or inputs.keys() != set(names):
        raise InvalidInput(f"'inputs' must be an object with rows for each of: {', '.join(names)}")
    lengths = lengths_of(inputs, task.axes)
    bucket = task.holding(max(lengths))
    axes = {axis.input: axis for axis in task.axes}
    found = {}
    for spec in bucket.inputs:
        rows, axis = inputs[spec.name], axes.get(spec.name)
        if axis is None:
            found[spec.name] = _checked_rows(rows, spec, booleans)
        else:
            found[spec.name] = filled(
                rows, lengths, spec, axis, lambda some, at: _checked_rows(some, at, booleans)
            )
    return bucket, same_rows(found, bucket.inputs), lengths


def _checked_rows(rows: Any, spec: TensorSpec, booleans: bool) -> Tensor:
    if isinstance(rows, Numbers):
        if len(rows) > MAX_ROWS:
            raise unread(spec)
        read = rows.tensor((len(rows), *spec.shape), spec.dtype)
        if read is None:
            raise unread(spec)
        return read
    if not isinstance(rows, list) or not rows:
        raise InvalidInput(f"input {spec.name!r} must be a list of at least one row")
    if not booleans and len(rows) <= MAX_ROWS:
        direct = packed(rows, spec.shape, spec.dtype)
        if direct is not None:
            return direct
    values = leaves(rows, spec)
    shape = values.shape
    if shape[1:] != spec.shape:
        hint = "; put a single row in a list of its own" if shape == spec.shape else ""
        raise InvalidInput(
            f"input {spec.name!r} must have shape {shape_words(spec)}, not "
            f"{shown(list(shape))}{hint}"
        )
    if len(rows) > MAX_ROWS:
        raise InvalidInput(
            f"input {spec.name!r} has {len(rows):,} rows; a query has at most {MAX_ROWS:,}: ask in"
            " parts"
        )
    return tensor_of(values.flat, spec).reshape(shape)


# -- the short way ------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _packer(width: int, dtype: str) -> tuple[Callable[..., bytes], np.dtype[Any]] | None:
    """What writes a row of so many numbers, and what NumPy makes of the bytes, where there is a
    shortcut."""
    code = CODES.get(dtype)
    return (Struct(f"<{width}{code}").pack, np.dtype(dtype)) if code else None


def packed(rows: list[Any], shape: tuple[int, ...], dtype: str) -> Tensor | None:
    """Rows of numbers as a tensor of shape (rows, *shape), five times as fast as numpy makes it.

    ``None`` where that is not possible or something is wrong: the long way finds out what. Text,
    nulls, nested lists, another length and numbers too large for the type are all refused by
    ``pack``; only booleans pass for numbers, so there must not be any.
    """
    level, width = rows, 0
    if not shape:
        level, width = [rows], len(rows)
    else:
        *outer, width = shape
        for size in outer:
            # Text has a length, too, and would be taken apart into its characters.
            if set(map(type, level)) != LISTS or set(map(len, level)) != {size}:
                return None
            level = list(chain.from_iterable(level))
        # One row is the common case, and for it the general test takes longer than its answer.
        if (type(level[0]) is not list) if len(level) == 1 else (set(map(type, level)) != LISTS):
            return None
    packer = _packer(width, dtype)
    if packer is None:
        return None
    pack, read_as = packer
    try:
        data = pack(*level[0]) if len(level) == 1 else b"".join([pack(*row) for row in level])
    except (StructError, OverflowError):
        return None
    return np.ndarray((len(rows), *shape), read_as, data)


def may_hold_booleans(body: bytes | bytearray) -> bool:
    """Whether a JSON text may hold booleans. It is never wrong when it says no."""
    # One character is found much faster than four, and few bodies have one of these two. ``in``
    # first takes what it looks for to be a number, and makes an error of it.
    find = body.find
    return (find(b"r") >= 0 and find(b"true") >= 0) or (find(b"f") >= 0 and find(b"false") >= 0)


# -- the long way -------------------------------------------------------------------------------


OBJECTS = "objects; of a typed array of JavaScript, Array.from makes a list"
FRACTIONS = "fractions: 3.0 is one, and 3 is none"


class Leaves(NamedTuple):
    """The values of nested lists that are regular, and fit an input's type but for their size."""

    flat: list[Any]
    shape: tuple[int, ...]


def leaves(data: Any, spec: TensorSpec) -> Leaves:
    """Nested JSON lists taken apart, one level after the other.

    Nothing is converted, and no level holds more than a pointer for each of its values: what comes
    of a wrong body is in proportion to its size.

    Raises:
        InvalidInput: they are ragged, or hold what the input does not.
    """
    if not isinstance(data, list):
        raise InvalidInput(f"input {spec.name!r} must be a list of numbers")
    level, shape = data, [len(data)]
    while list in (types := set(map(type, level))):
        widths = set(map(len, level)) if types == LISTS else ()
        if len(widths) != 1:
            which = _first_other(level) if level is data and types == LISTS else ""
            raise InvalidInput(f"input {spec.name!r} has rows of different lengths{which}")
        shape.extend(widths)
        level = list(chain.from_iterable(level))
    wrong = _wrong(types, spec.dtype)
    if wrong is not None:
        expected = "booleans" if spec.dtype == "bool" else f"{spec.dtype} numbers"
        raise InvalidInput(f"input {spec.name!r} must hold {expected}, not {wrong}")
    return Leaves(level, tuple(shape))


def _first_other(rows: list[Any]) -> str:
    """Which row is the first that is as long as the first one no more, counted from 0."""
    length = len(rows[0])
    at, other = next((at, len(row)) for at, row in enumerate(rows) if len(row) != length)
    return f": row 0 is {length:,} long, row {at:,} is {other:,}"


def _wrong(types: set[type], dtype: str) -> str | None:
    """What values of these types are, where they do not fit: types that JSON has."""
    if not types <= {int, float, bool, str}:
        if type(None) in types:  # which is how some clients write NaN
            return "null: only finite numbers can be asked with"
        return OBJECTS if dict in types else "mixed values"
    if str in types:
        return "text"
    if dtype == "bool":
        if types <= {bool}:
            return None
        return FRACTIONS if float in types else "numbers"
    if float in types and dtype[0] != "f":
        return FRACTIONS
    return "booleans" if bool in types else None


def tensor_of(flat: list[Any], spec: TensorSpec) -> Tensor:
    """Values that fit an input's type, but for their size, as a tensor of one axis."""
    if spec.dtype == "bool":
        return np.ndarray(len(flat), "bool", bytes(flat))
    try:
        data = pack(f"<{len(flat)}{CODES[spec.dtype]}", *flat)
    except (StructError, OverflowError) as error:  # it depends on the types, which is raised
        outside = f"input {spec.name!r} has values outside {spec.dtype}"
        floats = spec.dtype.startswith("float")
        raise InvalidInput(_not_finite(spec) if floats else outside) from error
    return np.ndarray(len(flat), spec.dtype, data)


def finite(array: Tensor, spec: TensorSpec) -> Tensor:
    """The array itself, of any shape.

    Raises:
        InvalidInput: it holds NaN or an infinite value.
    """
    if array.dtype.kind == "f" and not all_finite(array):
        raise InvalidInput(_not_finite(spec))
    return array


def unread(spec: TensorSpec) -> InvalidInput:
    """The error of numbers that a lean body cannot give; the ordinary way finds a better one."""
    return InvalidInput(f"input {spec.name!r} does not fit")


def _not_finite(spec: TensorSpec) -> str:
    return f"input {spec.name!r} has NaN, infinite or too large values"


def same_rows(found: Mapping[str, Tensor], specs: Sequence[TensorSpec]) -> list[Tensor]:
    """The tensors in the order of ``specs``.

    Raises:
        InvalidInput: one is missing, or they have different numbers of rows.
    """
    if len(specs) == len(found) == 1:  # by the name of one of these
        return [*found.values()]
    missing = [spec.name for spec in specs if spec.name not in found]
    if missing:
        raise InvalidInput(f"input {missing[0]!r} is missing")
    tensors = [found[spec.name] for spec in specs]
    if len({len(tensor) for tensor in tensors}) > 1:
        raise InvalidInput("all inputs must have the same number of rows")
    return tensors


def shape_words(spec: TensorSpec) -> str:
    """The shape of an input as an error names it: ``[rows, 28, 28]``."""
    return f"[{', '.join(['rows', *map(str, spec.shape)])}]"
