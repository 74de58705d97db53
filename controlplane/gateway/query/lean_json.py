"""Lean JSON: the body of a query, its numbers in a buffer rather than a Python object for each.

``simdjson`` reads a body whole and hands out what is asked for; a list of numbers becomes one block
of doubles or integers. What is the least unusual is left to the ordinary way, which reads the body
once more and finds out what is wrong: a ``Lean`` body says either what that way would say, or
nothing.
"""

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import orjson
import simdjson

from controlplane.gateway.overload.repeated_refusals import brackets_in
from workers.runtimes.protocol import Tensor

LEAST_BYTES = 4_096
"""Below it the ordinary way is as quick: ``python -m tests.bench.serving.reading``."""
KEPT_BYTES = 2**18
"""A parser keeps memory for its longest body, about 15 times as much. Longer ones get their own."""
MOST_FIELDS = 16
"""In one object. Looking a field up takes time in proportion to their number."""

_ENTRY = ("name", "datatype", "shape", "parameters")
_V2_FIELDS = ("parameters", "outputs", "id")


MOST_PLAIN = 16_384
"""Bytes of a value that is no numbers: each becomes a Python object."""


class Unusual(Exception):
    """A body that is left to the ordinary way."""


class LongBody(Exception):
    """A body that is to be read elsewhere, because it would take too long here."""


class Brackets:
    """How many opening brackets of a body belong to no list that has been read.

    A list within a row of numbers would not be noticed otherwise: a buffer does not say how its
    values were nested.
    """

    __slots__ = ("left",)

    def __init__(self, body: bytes | bytearray) -> None:
        self.left = brackets_in(body, 0, len(body))


class Lean(NamedTuple):
    """The fields of a body, with ``Numbers`` in the place of lists of numbers."""

    fields: dict[str, Any]
    brackets: Brackets

    def whole(self) -> bool:
        """Whether the lists that were read are all that the body has."""
        # No escapes are in the body, so what is written anew has as many brackets as it had; those
        # of ``Numbers`` were counted when they were read.
        return self.brackets.left == orjson.dumps(self.fields, default=_nothing).count(b"[")


class Numbers:
    """A list of numbers, nested or not, that is still with the parser.

    The parser reads no other body while there is one: so it must be in no circle of references.
    """

    __slots__ = ("_array", "_brackets")

    def __init__(self, array: simdjson.Array, brackets: Brackets) -> None:
        self._array = array
        self._brackets = brackets

    def __len__(self) -> int:
        return len(self._array)

    def tensor(self, shape: tuple[int, ...], dtype: str) -> Tensor | None:
        """All values, where the list is nested as ``shape`` says and they fit the type.

        A number is rounded once from the double that JSON's numbers are taken for.
        """
        kind = _KINDS.get(dtype)
        if kind is None:
            return None
        try:
            values = np.frombuffer(self._array.as_buffer(of_type=kind.buffer), kind.read_as)
            if not len(values) or len(values) != prod(shape) or not _nested(self._array, shape):
                return None
        except (TypeError, ValueError):  # no number, or one that is too large; an empty list
            return None
        if kind.least is not None and (values.min() < kind.least or values.max() > kind.most):
            return None
        self._brackets.left -= lists_in(shape)
        return values.astype(dtype, copy=False).reshape(shape)


@lru_cache(maxsize=1024)
def lists_in(shape: tuple[int, ...]) -> int:
    """Of how many lists a nested one of this shape consists, itself included."""
    return sum(prod(shape[:level]) for level in range(len(shape)))


class _Kind(NamedTuple):
    """How values of a type are read, and which of them it holds."""

    buffer: Any
    read_as: str
    least: float | None
    most: float


def _kind(dtype: str) -> _Kind:
    if dtype.startswith("float"):
        limits = np.finfo(dtype)
        if dtype == "float64":
            return _Kind("d", "<f8", None, 0.0)
        # Half way to what would follow the largest number, a number is rounded to infinity.
        half = (2.0 - 2.0 ** -(limits.nmant + 1)) * 2.0 ** (limits.maxexp - 1)
        most = float(np.nextafter(half, 0.0))
        return _Kind("d", "<f8", -most, most)
    whole = np.iinfo(dtype)
    if dtype == "int64":
        return _Kind("i", "<i8", None, 0)
    return _Kind("i", "<i8", whole.min, min(whole.max, 2**63 - 1))


_KINDS = {
    dtype: _kind(dtype)
    for dtype in (
        "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
        "float16", "float32", "float64",
    )
}  # fmt: skip
"""Every type but booleans, and uint64, of which a buffer of int64 has only half."""


def lean_v1(body: bytes | bytearray, least_bytes: int = LEAST_BYTES) -> Lean | None:
    """The body of ``/v1/query``; ``None`` where it is short, unusual, or no JSON object."""
    document = _document(body, least_bytes)
    try:
        return None if document is None else _lean_v1(document, body)
    except Unusual:
        return None


def _lean_v1(document: simdjson.Object, body: bytes | bytearray) -> Lean:
    lean = Lean({}, Brackets(body))
    for key in document:
        if key in lean.fields:
            raise Unusual  # the last one counts
        value = document[key]
        lean.fields[key] = _inputs(value, lean.brackets) if key == "inputs" else _plain(value)
    return lean


def lean_v2(body: bytes | bytearray, least_bytes: int = LEAST_BYTES) -> Lean | None:
    """The JSON of an inference request of v2; ``None`` as above."""
    document = _document(body, least_bytes)
    try:
        return None if document is None else _lean_v2(document, body)
    except Unusual:
        return None


def _lean_v2(document: simdjson.Object, body: bytes | bytearray) -> Lean:
    entries = document.get("inputs")
    if not _is_list(entries) or len(entries) > MOST_FIELDS:
        raise Unusual
    keys = list(document)
    if len(set(keys)) != len(keys):
        raise Unusual
    lean = Lean({}, Brackets(body))
    lean.fields.update({key: _plain(document[key]) for key in _V2_FIELDS if key in keys})
    inputs = lean.fields["inputs"] = []
    for entry in entries:
        if not isinstance(entry, simdjson.Object) or len(entry) > MOST_FIELDS:
            raise Unusual
        names = list(entry)
        if len(set(names)) != len(names):
            raise Unusual
        found = {name: _plain(entry[name]) for name in _ENTRY if name in names}
        if "data" in names:
            found["data"] = _numbers(entry["data"], lean.brackets)
        inputs.append(found)
    return lean


def _document(body: bytes | bytearray, least_bytes: int) -> simdjson.Object | None:
    """The body, if it is a plain JSON object worth reading in this way."""
    # Another first byte may be a byte order mark, which only this parser takes.
    # ``in`` would first take what it looks for to be a number, and make an error of it.
    if len(body) < least_bytes or body[:1] != b"{" or body.find(b"\\") >= 0:
        return None
    try:
        parser = simdjson.Parser() if len(body) > KEPT_BYTES else _PARSER
        document = parser.parse(body)
    except ValueError:
        return None
    except RuntimeError:  # too deep, or the parser's last body is still held
        return None
    if not isinstance(document, simdjson.Object) or len(document) > MOST_FIELDS:
        return None
    return document


_PARSER = simdjson.Parser()


def _is_list(value: Any) -> TypeGuard[simdjson.Array]:
    return isinstance(value, simdjson.Array)


def _inputs(value: Any, brackets: Brackets) -> Any:
    """Rows of numbers, or name to rows."""
    if isinstance(value, simdjson.Object) and len(value) <= MOST_FIELDS:
        names = list(value)
        if len(set(names)) == len(names):
            return {name: _numbers(value[name], brackets) for name in names}
    return _numbers(value, brackets)


def _numbers(value: Any, brackets: Brackets) -> Any:
    return Numbers(value, brackets) if _is_list(value) else _plain(value)


def _plain(value: Any) -> Any:
    """A value as the ordinary way reads it.

    Raises:
        Unusual: it is large.
    """
    if isinstance(value, str) and len(value) > MOST_PLAIN:
        raise Unusual
    if not isinstance(value, simdjson.Object | simdjson.Array):
        return value
    if len(value.mini) > MOST_PLAIN:
        raise Unusual
    return value.as_dict() if isinstance(value, simdjson.Object) else value.as_list()


def _nested(array: simdjson.Array, shape: tuple[int, ...]) -> bool:
    """Whether lists of values that are all numbers are nested in this way.

    Raises:
        TypeError: a number stands where a list should.
    """
    if len(array) != shape[0]:
        return False
    if len(shape) <= 2:
        return len(shape) == 1 or set(map(len, array)) == {shape[1]}  # type: ignore[arg-type]
    return all(_nested(inner, shape[1:]) for inner in array)  # type: ignore[arg-type]


def _nothing(_: object) -> None:
    """What ``Lean.whole`` writes in the place of ``Numbers``."""
