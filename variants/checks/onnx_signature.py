"""What a model takes and gives: one tensor of rows under each name, or why it is none."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from variants.catalog.validity.tasks import MAX_AXES
from variants.errors import InvalidArtifact
from variants.figures import apart
from variants.types import TensorSpec

DTYPES = {1: "float32", 11: "float64", 7: "int64", 6: "int32", 2: "uint8", 9: "bool"}
"""ONNX's numbers of the element types that a task may have."""

FIXED = "has a fixed batch"

MAX_ROW_MIB = 256
"""Largest row of one input or output, which has to fit into a message."""

LONGEST_NAME = 200

LEAVE_OUT = "--keep-outputs NAMES leaves it out where there are others"

SCIKIT_HINT = (
    "export scikit-learn classifiers with modelless.export, or convert them with the option "
    "'zipmap': False of skl2onnx"
)


def describe(spec: TensorSpec) -> str:
    """``float32 [batch, 64]``."""
    return f"{spec.dtype} [{', '.join(['batch', *map(str, spec.shape)])}]"


def row_spec(file: str, side: str, value: Any) -> TensorSpec:
    """What a model takes or gives under one name, without the batch axis.

    Args:
        side: ``input`` or ``output``.

    Raises:
        InvalidArtifact: it is no tensor of rows.
    """
    if not value.name.isprintable() or not 0 < len(value.name) <= LONGEST_NAME:
        raise InvalidArtifact(f"{file} has an {side} with a name that cannot be shown")
    where = f"{file}: {side} {value.name!r}"
    if not value.type.HasField("tensor_type"):
        maps = value.type.HasField("sequence_type") and value.type.sequence_type.elem_type.HasField(
            "map_type"
        )
        hint = f"; {SCIKIT_HINT}" if maps else f"; {LEAVE_OUT}" if side == "output" else ""
        raise InvalidArtifact(f"{where} is not a tensor{hint}")
    tensor = value.type.tensor_type
    dtype = _dtype(where, tensor.elem_type)
    if not tensor.HasField("shape"):
        raise InvalidArtifact(f"{where} does not declare its shape")
    axes = list(tensor.shape.dim)
    if not axes:
        fixed = f": --fix-inputs {value.name}=NUMBER gives it one value for good"
        hint = fixed if side == "input" else ""
        raise InvalidArtifact(f"{where} is a scalar; its first axis must be the batch{hint}")
    _check_batch_axis(where, side, value.name, axes)
    if len(axes) > MAX_AXES + 1:
        raise InvalidArtifact(f"{where} has {len(axes)} axes, more than the {MAX_AXES + 1} allowed")
    shape = _row_shape(where, side, value.name, axes)
    row_mib = math.prod(shape) * np.dtype(dtype).itemsize / 2**20
    if row_mib > MAX_ROW_MIB:
        row, limit = apart(row_mib, MAX_ROW_MIB)
        raise InvalidArtifact(f"{where} takes {row} MiB for one row, more than the {limit} allowed")
    return TensorSpec(name=value.name, dtype=dtype, shape=shape)


def _check_batch_axis(where: str, side: str, name: str, axes: Sequence[Any]) -> None:
    """
    Raises:
        InvalidArtifact: the first axis has a size, so that it is no batch.
    """
    if not axes[0].HasField("dim_value"):
        return
    size = axes[0].dim_value
    inner = next((place for place, axis in enumerate(axes) if place and axis.dim_value < 1), None)
    if inner is not None and side == "input":
        one_row = " if they are along that one; --free-batch with --axis-sizes, if that is a row;"
        raise InvalidArtifact(
            f"{where} leaves axis {inner} open, but its first has the size {size}; rows are along"
            f" the first axis: --batch-axes {name}={inner} puts them there,"
            f"{one_row if size == 1 else ''} or export it with the batch first, as batch_first=True"
            " of PyTorch's recurrent layers does"
        )
    if side == "output":
        raise InvalidArtifact(
            f"{where} {FIXED} of {size} however many rows come in, and an answer has one for each;"
            f" {LEAVE_OUT}"
        )
    raise InvalidArtifact(
        f"{where} {FIXED} of {size}; export it with a dynamic first axis, or try --free-batch"
    )


def _row_shape(where: str, side: str, name: str, axes: Sequence[Any]) -> tuple[int, ...]:
    """The sizes of all axes but the first.

    Raises:
        InvalidArtifact: one is open.
    """
    for position, axis in enumerate(axes[1:], start=1):
        if axis.HasField("dim_value") and axis.dim_value >= 1:
            continue
        if side == "output":
            raise InvalidArtifact(
                f"{where} leaves axis {position} open, and its size does not follow from the"
                f" inputs; only the batch axis may vary: {LEAVE_OUT}"
            )
        called = axis.dim_param or f"{name}:{position}"
        raise InvalidArtifact(
            f"{where} leaves axis {position} open; only the batch axis may vary: register it "
            f"with --lengths 16,64,256 or --axis-sizes {called[:LONGEST_NAME]}=SIZE, or export it"
            " with one size"
        )
    return tuple(int(axis.dim_value) for axis in axes[1:])


def numeric(outputs: Sequence[Any]) -> Sequence[Any]:
    """Without the class's name that skl2onnx writes before the scores: no task has it. Scores that
    are no tensor are left, with what is to be done about them."""
    from onnx import TensorProto

    types = [value.type.tensor_type for value in outputs]
    kinds = [each.elem_type for each in types]
    if kinds in ([TensorProto.STRING, TensorProto.FLOAT], [TensorProto.STRING, 0]):
        return outputs[len(types[0].shape.dim) == 1 :]
    return outputs


def _dtype(where: str, element: int) -> str:
    from onnx import TensorProto

    if element not in DTYPES:
        known = ", ".join(DTYPES.values())
        kinds = {number: name.lower() for name, number in TensorProto.DataType.items()}
        kind = kinds.get(element, str(element)) if element else "undeclared"
        hint = _HINTS.get(kind, "")
        raise InvalidArtifact(f"{where} has type {kind}; it must be one of {known}{hint}")
    return DTYPES[element]


_HINTS = {
    "float16": "; --cast-float16 casts it at the edges",
    "bfloat16": "; export it with inputs and outputs of float32",
    "string": "; export what comes after the tokenizer, and give that by --tokenizer",
}
