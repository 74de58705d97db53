"""Which ONNX files hold weights in half precision, and what ONNX Runtime must not do with these.

On a CPU, ONNX Runtime computes products of such weights in fp32 and puts casts around them. Where
its ``MatmulTransposeFusion`` then takes a transposition into a product, it leaves a node without a
schema, and its ``NchwcTransformer`` ends the process with SIGSEGV while the session is made
(https://github.com/microsoft/onnxruntime/issues/28392, reported of 1.24 and 1.25 on x86, and so in
1.31). So such a file is loaded without the first, which costs it a transposition and no accuracy.

The file is walked as it lies, by the lengths of its fields: to parse it would take as much memory
again, and this is done at each load.
"""

import mmap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

CRASHES = ("MatmulTransposeFusion",)
"""What is left out, by the names of ONNX Runtime."""

FLOAT16 = 10
"""``TensorProto.FLOAT16``."""
GRAPH, INITIALIZER, DATA_TYPE = 7, 5, 2
"""Numbers of fields: of ``ModelProto``, of ``GraphProto`` and of ``TensorProto``."""
VARINT, EIGHT, LENGTH, FOUR = 0, 1, 2, 5
"""How a field is written."""


def crashing_optimisers(path: str | Path) -> list[str]:
    """What ONNX Runtime is to leave out with this file on a CPU."""
    return list(CRASHES) if has_halves(path) else []


def has_halves(path: str | Path) -> bool:
    """Whether a weight of the file's main graph is fp16; not where it is no such file."""
    with (
        suppress(OSError, ValueError, IndexError),
        Path(path).open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        return any(
            _is_half(data, *tensor)
            for kind, graph in _fields(data, 0, len(data))
            if kind == GRAPH and isinstance(graph, tuple)
            for number, tensor in _fields(data, *graph)
            if number == INITIALIZER and isinstance(tensor, tuple)
        )
    return False


def _is_half(data: mmap.mmap, start: int, end: int) -> bool:
    return any(
        number == DATA_TYPE and value == FLOAT16 for number, value in _fields(data, start, end)
    )


def _fields(
    data: mmap.mmap, start: int, end: int
) -> Iterator[tuple[int, int | tuple[int, int] | None]]:
    """Each field of a message: its number, and its value, or from where to where that lies.

    Raises:
        ValueError, IndexError: it is no such message.
    """
    while start < end:
        key, start = _varint(data, start)
        number, written = key >> 3, key & 7
        if written == VARINT:
            value, start = _varint(data, start)
            yield number, value
        elif written == LENGTH:
            size, start = _varint(data, start)
            yield number, (start, start + size)
            start += size
        elif written in (EIGHT, FOUR):
            yield number, None
            start += 8 if written == EIGHT else 4
        else:
            raise ValueError(written)


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    """The number that begins there, and where the next byte is."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError(shift)
