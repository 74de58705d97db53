"""An ONNX file as it lies: its fields by their lengths, and copies of it that are made so.

To parse a file takes as much memory again as it has bytes. What is only looked for, or read at
each load of a variant, is found by walking over it.

A copy without its weights says where in the file they lie, so that a runtime maps them from there.
Processors want numbers at addresses that are multiples of their size, and runtimes count with it,
but in a file they lie anywhere: a copy can have them at multiples of ``ALIGNMENT``.
"""

import mmap
from collections.abc import Iterator
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import NamedTuple

from variants.varint import read_varint, varint

MODEL_GRAPH, GRAPH_INITIALIZER, GRAPH_INPUT = 7, 5, 11
TENSOR_DIMS, TENSOR_TYPE, TENSOR_NAME, TENSOR_RAW = 1, 2, 8, 9
TENSOR_DOC, TENSOR_EXTERNAL, TENSOR_LOCATION = 12, 13, 14
VALUE_NAME, ENTRY_KEY, ENTRY_VALUE = 1, 1, 2
"""Numbers of fields, of the message that comes first in the name."""
VARINT, EIGHT, LENGTH, FOUR = 0, 1, 2, 5
"""How a field is written."""
SIZES = {1: 4, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 12: 4, 13: 8, 16: 2}
"""Bytes of an element, by ``TensorProto.DataType``: of those that lie in memory as in the file."""
ALIGNMENT = 64
"""A line of a processor's cache: more than any element needs."""
LEAST_BYTES = 2**16
"""Of a weight: all smaller ones may lie anywhere."""
PIECE_BYTES = 2**24
"""So much of a file at a time is written anew."""
LEAST_FILE_BYTES = 2**24
"""A smaller file is left as it is: to load it takes little in any case."""


class Field(NamedTuple):
    """One field of a message."""

    number: int
    value: int
    """Of a ``VARINT``; else 0."""
    begin: int
    """Where it begins, with its key."""
    start: int
    """Where its content begins."""
    end: int


class Weight(NamedTuple):
    """A constant of the main graph, and where its numbers lie in the file."""

    name: str
    dtype: int
    """A ``TensorProto.DataType``."""
    shape: tuple[int, ...]
    start: int
    end: int


def fields(data: mmap.mmap | bytes, start: int, end: int) -> Iterator[Field]:
    """Each field of the message that lies there.

    Raises:
        ValueError, IndexError: it is no such message.
    """
    while start < end:
        begin = start
        key, start = read_varint(data, start)
        number, written = key >> 3, key & 7
        if number == 0:  # none has it, and a file of zeros would be millions of such fields
            raise ValueError(number)
        if written == VARINT:
            at = start
            value, start = read_varint(data, start)
            yield Field(number, value, begin, at, start)
        elif written in (LENGTH, EIGHT, FOUR):
            size, start = read_varint(data, start) if written == LENGTH else (_SIZE[written], start)
            if start + size > end:
                raise ValueError(size)
            yield Field(number, 0, begin, start, start + size)
            start += size
        else:
            raise ValueError(written)


def without_weights(
    data: mmap.mmap | bytes, location: str, *, least: int = LEAST_BYTES, alignment: int = ALIGNMENT
) -> tuple[bytes, list[Weight]]:
    """A model whose large weights are said to lie in a file, and these weights.

    Left as they are: those that are not aligned, those that are inputs as well, and those that are
    not written as they lie in memory.

    Args:
        location: the name of the file that ``data`` is.
        least: bytes of a weight that is large.

    Raises:
        ValueError, IndexError, UnicodeDecodeError: it is no ONNX model.
    """
    model: list[bytes] = []
    weights: list[Weight] = []
    for field in fields(data, 0, len(data)):
        if field.number != MODEL_GRAPH:
            model.append(data[field.begin : field.end])
            continue
        graph = list(fields(data, field.start, field.end))
        given = {_name(data, each, VALUE_NAME) for each in graph if each.number == GRAPH_INPUT}
        parts: list[bytes] = []
        for part in graph:
            weight = _weight(data, part, least) if part.number == GRAPH_INITIALIZER else None
            if weight is None or weight.name in given or weight.start % alignment:
                parts.append(data[part.begin : part.end])
            else:
                weights.append(weight)
                parts.append(_message(GRAPH_INITIALIZER, _elsewhere(weight, location)))
        model.append(_message(MODEL_GRAPH, b"".join(parts)))
    return b"".join(model), weights


def large_weights(data: mmap.mmap | bytes, least: int = LEAST_BYTES) -> list[Weight]:
    """The weights that ``without_weights`` takes out wherever they lie; nothing is copied.

    Raises:
        ValueError, IndexError, UnicodeDecodeError: it is no ONNX model.
    """
    found: list[Weight] = []
    for field in fields(data, 0, len(data)):
        if field.number == MODEL_GRAPH:
            graph = list(fields(data, field.start, field.end))
            given = {_name(data, each, VALUE_NAME) for each in graph if each.number == GRAPH_INPUT}
            weights = (
                _weight(data, part, least) for part in graph if part.number == GRAPH_INITIALIZER
            )
            found += [one for one in weights if one is not None and one.name not in given]
    return found


def align_weights(path: Path) -> None:
    """Have the large weights of a large file at multiples of ``ALIGNMENT``, if it is an ONNX model.

    Raises:
        OSError: it cannot be read or written anew.
    """
    if path.stat().st_size < LEAST_FILE_BYTES:
        return
    target = path.with_name(f"{path.name}.aligned")
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        target.open("wb") as made,
        suppress(ValueError, IndexError, UnicodeDecodeError),
    ):
        made.writelines(aligned(data))
        target.replace(path)
    target.unlink(missing_ok=True)


def aligned(data: mmap.mmap | bytes, least: int = LEAST_BYTES) -> Iterator[bytes]:
    """The same model, in pieces, with large weights at multiples of ``ALIGNMENT``: before each
    stands a text of spaces that says nothing.

    Raises:
        ValueError, IndexError, UnicodeDecodeError: it is no ONNX model.
    """
    at = 0
    for field in fields(data, 0, len(data)):
        if field.number != MODEL_GRAPH:
            placed = [_Placed(b"", field.begin, field.end)]
        else:
            placed = _graph_placed(data, field, at, least)
        for head, start, end in placed:
            yield head
            for piece in range(start, end, PIECE_BYTES):
                yield data[piece : min(end, piece + PIECE_BYTES)]
            at += len(head) + end - start


class _Placed(NamedTuple):
    """A part of a file that is written anew."""

    head: bytes
    """What comes first."""
    start: int
    """Where in the old file the rest begins."""
    end: int


def _graph_placed(data: mmap.mmap | bytes, graph: Field, at: int, least: int) -> list[_Placed]:
    """The parts of a graph that is to lie at ``at``.

    Raises:
        ValueError: it has none of the sizes that its size has room for, which is one in millions.
    """
    key, parts = varint(MODEL_GRAPH << 3 | LENGTH), list(fields(data, graph.start, graph.end))
    for width in range(1, 6):  # bytes of its size, on which it depends where its weights lie
        begin = end = at + len(key) + width
        placed = []
        for part in parts:
            one = _weight_placed(data, part, end, least)
            placed.append(one)
            end += len(one.head) + one.end - one.start
        size = varint(end - begin)
        if len(size) == width:
            return [_Placed(key + size, 0, 0), *placed]
    raise ValueError(at)


def _weight_placed(data: mmap.mmap | bytes, part: Field, at: int, least: int) -> _Placed:
    """A field of a graph that is to lie at ``at``."""
    if part.number != GRAPH_INITIALIZER or _weight(data, part, least) is None:
        return _Placed(b"", part.begin, part.end)
    own = list(fields(data, part.start, part.end))
    raw = next(field for field in own if field.number == TENSOR_RAW)
    others = b"".join(
        data[one.begin : one.end] for one in own if one.number not in (TENSOR_RAW, TENSOR_DOC)
    )
    key = varint(GRAPH_INITIALIZER << 3 | LENGTH)
    count = raw.end - raw.start
    before = varint(TENSOR_RAW << 3 | LENGTH) + varint(count)
    for spaces in range(2 * ALIGNMENT):
        content = others + _message(TENSOR_DOC, b" " * spaces) + before
        head = key + varint(len(content) + count) + content
        if (at + len(head)) % ALIGNMENT == 0:
            break
    return _Placed(head, raw.start, raw.end)


_SIZE = {EIGHT: 8, FOUR: 4}


def _weight(data: mmap.mmap | bytes, at: Field, least: int) -> Weight | None:
    """The tensor that lies there; None where its numbers are to stay in the model."""
    if at.end - at.start < least:
        return None
    shape: list[int] = []
    dtype, name, raw = 0, "", None
    for field in fields(data, at.start, at.end):
        if field.number == TENSOR_DIMS:
            shape += _dims(data, field)
        elif field.number == TENSOR_TYPE:
            dtype = field.value
        elif field.number == TENSOR_NAME:
            name = data[field.start : field.end].decode()
        elif field.number == TENSOR_RAW:
            raw = field
        elif field.number in (TENSOR_EXTERNAL, TENSOR_LOCATION):
            return None
    if raw is None or not name or SIZES.get(dtype, 0) * prod(shape) != raw.end - raw.start:
        return None
    if raw.end - raw.start < least:
        return None
    return Weight(name, dtype, tuple(shape), raw.start, raw.end)


def _dims(data: mmap.mmap | bytes, field: Field) -> list[int]:
    """Sizes, of which each has a field of its own or all share one."""
    if data[field.begin] & 7 == VARINT:
        return [field.value]
    found, at = [], field.start
    while at < field.end:
        size, at = read_varint(data, at)
        found.append(size)
    return found


def _name(data: mmap.mmap | bytes, at: Field, number: int) -> str:
    for field in fields(data, at.start, at.end):
        if field.number == number:
            return data[field.start : field.end].decode()
    return ""


def _elsewhere(weight: Weight, location: str) -> bytes:
    """The ``TensorProto`` of a weight whose numbers are in a file."""
    length = weight.end - weight.start
    said = {"location": location, "offset": str(weight.start), "length": str(length)}
    entries = [
        _message(
            TENSOR_EXTERNAL,
            _message(ENTRY_KEY, key.encode()) + _message(ENTRY_VALUE, value.encode()),
        )
        for key, value in said.items()
    ]
    dims = b"".join(_number(TENSOR_DIMS, size) for size in weight.shape)
    name = _message(TENSOR_NAME, weight.name.encode())
    return b"".join(
        [dims, _number(TENSOR_TYPE, weight.dtype), name, *entries, _number(TENSOR_LOCATION, 1)]
    )


def _message(number: int, content: bytes) -> bytes:
    return varint(number << 3 | LENGTH) + varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return varint(number << 3 | VARINT) + varint(value)
