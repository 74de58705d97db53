"""Datatypes of the Open Inference Protocol, and tensors from their raw bytes.

A task's input has one type, and its metadata say which. Values may also come in a narrower type
from which every value converts exactly: FP16 or BF16 for FP32 halve what has to be sent.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from controlplane.gateway.query.json_tensors import finite
from variants.checks.json_shape import shown
from variants.errors import InvalidInput
from variants.types import TensorSpec
from workers.runtimes.protocol import Tensor

V2_NAMES = {
    "bool": "BOOL", "uint8": "UINT8", "int8": "INT8", "int16": "INT16", "int32": "INT32",
    "int64": "INT64", "float16": "FP16", "float32": "FP32", "float64": "FP64",
    "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
}  # fmt: skip
"""Numpy's names of element types to the protocol's, which also has BF16 and BYTES."""
BF16 = "BF16"
BYTES = "BYTES"

_DTYPES = {name: dtype for dtype, name in V2_NAMES.items()}


@lru_cache(maxsize=256)
def listed_type(datatype: object, expected: str) -> str | None:
    """The numpy type in which values of a datatype are written out, as JSON does it.

    Args:
        expected: the numpy type of the task's input.

    Returns:
        ``None`` where they are not taken for such an input: another kind, or some would change.
    """
    if not isinstance(datatype, str):
        return None
    dtype = "float32" if datatype == BF16 else _DTYPES.get(datatype)
    if dtype is None or (dtype != expected and "bool" in (dtype, expected)):
        return None
    return dtype if np.can_cast(dtype, expected, "safe") else None


def source_type(datatype: object, spec: TensorSpec) -> str:
    """As ``listed_type``, for an input.

    Raises:
        InvalidInput: it takes no values of this datatype.
    """
    found = listed_type(datatype, spec.dtype) if isinstance(datatype, str) else None
    if found is None:
        expected = V2_NAMES[spec.dtype]
        raise InvalidInput(
            f"input {spec.name!r} must have datatype {expected}, not {shown(datatype)}"
        )
    return found


def width_of(datatype: str) -> int:
    """Bytes of one value; BYTES has none."""
    return 2 if datatype == BF16 else np.dtype(_DTYPES[datatype]).itemsize


def raw_tensor(
    raw: bytes | memoryview, datatype: str, shape: Sequence[int], spec: TensorSpec
) -> Tensor:
    """A tensor of this shape, in the input's own type, from little-endian bytes.

    It is a view of the bytes where the datatype is the input's.

    Args:
        datatype: one that ``source_type`` has accepted.
        raw: as many bytes as shape and datatype need.

    Raises:
        InvalidInput: there are booleans other than 0 and 1, or values that are not finite.
    """
    array: Tensor
    if datatype == BF16:
        # The upper half of a float32.
        upper = np.frombuffer(raw, "<u2").astype("<u4")
        array = (upper << 16).view("<f4").reshape(shape)
    else:
        array = np.frombuffer(raw, _DTYPES[datatype]).reshape(shape)
    if datatype == "BOOL" and array.view(np.uint8).max(initial=0) > 1:
        raise InvalidInput(f"input {spec.name!r} has booleans other than 0 and 1")
    return finite(array.astype(spec.dtype, copy=False), spec)


def check_size(spec: TensorSpec, datatype: str, shape: Sequence[int], given: int) -> None:
    """Compare the length of raw bytes with what shape and datatype need.

    Raises:
        InvalidInput: they differ.
    """
    needed = math.prod(shape) * width_of(datatype)
    if given != needed:
        raise InvalidInput(f"input {spec.name!r} needs {needed} raw bytes, {given} were sent")


def best_classes(scores: Tensor, count: int, labels: Sequence[str]) -> list[list[str]]:
    """The classification extension: the best classes of each row, ``score:index:label``.

    Args:
        scores: of shape (rows, ...); what is behind the first axis is taken as one list of classes.
        count: how many of them; all that there are where it is more.
        labels: names of the classes, or none.
    """
    flat = scores.reshape(len(scores), math.prod(scores.shape[1:]))
    count = min(count, flat.shape[1])
    # Equal scores stay in the order of their classes.
    order = np.argsort(-flat.astype(np.float64), axis=1, kind="stable")[:, :count]
    named = len(labels) == flat.shape[1]
    return [
        [
            f"{row[index]:f}:{index}:{labels[index]}" if named else f"{row[index]:f}:{index}"
            for index in best
        ]
        for row, best in zip(flat.tolist(), order.tolist(), strict=True)
    ]


def elements_of(raw: bytes | memoryview) -> list[bytes]:
    """The elements of BYTES from the wire, as ``bytes_of`` writes them.

    Raises:
        InvalidInput: their lengths do not fit.
    """
    found: list[bytes] = []
    at, end = 0, len(raw)
    while at < end:
        length = int.from_bytes(raw[at : at + 4], "little")
        if at + 4 + length > end:
            raise InvalidInput(f"element {len(found)} of BYTES is longer than what there is")
        found.append(bytes(raw[at + 4 : at + 4 + length]))
        at += 4 + length
    return found


def bytes_of(texts: Sequence[str]) -> bytes:
    """BYTES on the wire: each element behind its length, four bytes, little-endian."""
    pieces = []
    for text in texts:
        data = text.encode()
        pieces += [len(data).to_bytes(4, "little"), data]
    return b"".join(pieces)
