"""Tensors from JSON: nested lists of numbers, checked against an input's shape and type.

This runs once per query. The short way packs rows of numbers directly; what it cannot do goes the
long way through numpy, which also finds out what was wrong.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from variants.errors import InvalidInput
from variants.types import TensorSpec
from workers.runtime import Tensor

MAX_ROWS = 4096
SHOWN = 80
"""Characters of a wrong value that an error repeats."""


def read_rows(inputs: Any, specs: Sequence[TensorSpec], booleans: bool) -> list[Tensor]:
    """Tensors from ``inputs``: a list of rows, or name to rows where a task has several inputs."""
    if len(specs) == 1 and not isinstance(inputs, dict):
        return [_checked_rows(inputs, specs[0], booleans)]
    names = [spec.name for spec in specs]
    if not isinstance(inputs, dict) or inputs.keys() != set(names):
        raise InvalidInput(f"'inputs' must be an object with rows for each of: {', '.join(names)}")
    found = {spec.name: _checked_rows(inputs[spec.name], spec, booleans) for spec in specs}
    return same_rows(found, specs)


def _checked_rows(rows: Any, spec: TensorSpec, booleans: bool) -> Tensor:
    if not isinstance(rows, list) or not rows:
        raise InvalidInput(f"input {spec.name!r} must be a list of at least one row")
    if not booleans and len(rows) <= MAX_ROWS:
        direct = packed(rows, spec.shape, spec.dtype)
        if direct is not None:
            return direct
    array = numbers(rows, spec, booleans)
    if array.shape[1:] != spec.shape:
        hint = "; put a single row in a list of its own" if array.shape == spec.shape else ""
        got = f"{list(array.shape)}{hint}"
        raise InvalidInput(f"input {spec.name!r} must have shape {shape_words(spec)}, not {got}")
    if len(array) > MAX_ROWS:
        raise InvalidInput(
            f"input {spec.name!r} has {len(array)} rows; at most {MAX_ROWS} are taken"
        )
    return array


@lru_cache(maxsize=1024)
def _packer(width: int, dtype: str) -> Callable[..., bytes] | None:
    """What writes a row of so many numbers, where there is a shortcut."""
    code = {"float32": "f", "float64": "d"}.get(dtype)
    return struct.Struct(f"<{width}{code}").pack if code else None


def packed(rows: list[Any], shape: tuple[int, ...], dtype: str) -> Tensor | None:
    """Rows of numbers as a tensor, five times as fast as numpy makes it.

    ``None`` where that is not possible or something is wrong: the long way finds out what. Text,
    nulls, nested lists, another length and numbers too large for the type are all refused by
    ``pack``; only booleans pass for numbers, so there must not be any.
    """
    if len(shape) != 1:
        return None
    pack = _packer(shape[0], dtype)
    if pack is None:
        return None
    try:
        data = pack(*rows[0]) if len(rows) == 1 else b"".join([pack(*row) for row in rows])
    except (struct.error, OverflowError, TypeError):
        return None
    return np.ndarray((len(rows), *shape), dtype, data)


def may_hold_booleans(body: bytes | bytearray) -> bool:
    # One character is found much faster than four, and few bodies have one of these two.
    return (b"r" in body and b"true" in body) or (b"f" in body and b"false" in body)


def numbers(data: Any, spec: TensorSpec, booleans: bool) -> Tensor:
    """Numbers from nested JSON lists, in the input's type."""
    if not isinstance(data, list):
        raise InvalidInput(f"input {spec.name!r} must be a list of numbers")
    try:
        array: Tensor = np.array(data)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"input {spec.name!r} has rows of different lengths") from error
    wanted = np.dtype(spec.dtype)
    kind = array.dtype.kind
    if wanted.kind == "f":
        fits = kind in "fiu"
    elif wanted.kind == "b":
        fits = kind == "b"
    else:
        fits = kind in "iu" or not array.size
    if fits and booleans and wanted.kind != "b" and _holds_boolean(data):
        fits, kind = False, "b"
    if not fits:
        what = {"U": "text", "O": "null or mixed values", "b": "booleans", "f": "fractions"}
        expected = "booleans" if wanted.kind == "b" else f"{spec.dtype} numbers"
        got = what.get(kind, "numbers")
        raise InvalidInput(f"input {spec.name!r} must hold {expected}, not {got}")
    if wanted.kind in "iu" and array.size:
        limits = np.iinfo(wanted)
        if array.min() < limits.min or array.max() > limits.max:
            raise InvalidInput(f"input {spec.name!r} has values outside {spec.dtype}")
    if array.dtype != wanted:
        with np.errstate(over="ignore"):
            array = array.astype(wanted)
    return finite(array, spec)


def _holds_boolean(data: list[Any]) -> bool:
    """Whether nested lists that numpy took for one array hold a boolean among numbers."""
    while data and isinstance(data[0], list):
        data = list(chain.from_iterable(data))
    return any(type(value) is bool for value in data)


def finite(array: Tensor, spec: TensorSpec) -> Tensor:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InvalidInput(f"input {spec.name!r} has NaN, infinite or too large values")
    return array


def same_rows(found: Mapping[str, Tensor], specs: Sequence[TensorSpec]) -> list[Tensor]:
    missing = [spec.name for spec in specs if spec.name not in found]
    if missing:
        raise InvalidInput(f"input {missing[0]!r} is missing")
    tensors = [found[spec.name] for spec in specs]
    if len({len(tensor) for tensor in tensors}) > 1:
        raise InvalidInput("all inputs must have the same number of rows")
    return tensors


def shape_words(spec: TensorSpec) -> str:
    return f"[{', '.join(['rows', *map(str, spec.shape)])}]"


def shown(value: Any) -> str:
    """A wrong value as an error repeats it."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
