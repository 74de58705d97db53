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
from contextlib import suppress
from pathlib import Path

from variants.onnx_wire import GRAPH_INITIALIZER, MODEL_GRAPH, TENSOR_TYPE, Field, fields

CRASHES = ("MatmulTransposeFusion",)
"""What is left out, by the names of ONNX Runtime."""

FLOAT16 = 10
"""``TensorProto.FLOAT16``."""


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
            _is_half(data, tensor)
            for graph in fields(data, 0, len(data))
            if graph.number == MODEL_GRAPH
            for tensor in fields(data, graph.start, graph.end)
            if tensor.number == GRAPH_INITIALIZER
        )
    return False


def _is_half(data: mmap.mmap, tensor: Field) -> bool:
    return any(
        field.number == TENSOR_TYPE and field.value == FLOAT16
        for field in fields(data, tensor.start, tensor.end)
    )
