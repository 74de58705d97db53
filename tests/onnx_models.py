"""Tiny ONNX models, right and wrong, and rows for them.

The right one takes ``pixels`` ``[batch, 4]`` and gives ``scores`` ``[batch, 3]``: the class of a
row is where the highest of its first three values is.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, save

OPSET = 20
WEIGHT = np.eye(4, 3, dtype=np.float32)


def tensor(name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, list(shape))


def node(kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> Any:
    return helper.make_node(kind, list(inputs), [output], **attributes)


def model(
    *,
    nodes: Sequence[Any] | None = None,
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None,
    weights: dict[str, NDArray[Any]] | None = None,
    opsets: Sequence[tuple[str, int]] = (("", OPSET),),
) -> Any:
    """The right model, or one in which something else was said."""
    graph = helper.make_graph(
        nodes
        or [
            node("MatMul", ("pixels", "weight"), "product"),
            node("Softmax", ("product",), "scores"),
        ],
        "tiny",
        inputs or [tensor("pixels", "batch", 4)],
        outputs or [tensor("scores", "batch", 3)],
        [
            numpy_helper.from_array(array, name)
            for name, array in (weights or {"weight": WEIGHT}).items()
        ],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*opset) for opset in opsets], ir_version=10
    )


def text_model(**changes: Any) -> Any:
    """A model of rows of any length: where the mean of their ``values`` ``[batch, tokens, 2]`` is
    the largest, of those that their ``mask`` ``[batch, tokens, 1]`` leaves."""
    given: dict[str, Any] = {
        "inputs": [
            tensor("values", "batch", "tokens", 2),
            tensor("mask", "batch", "tokens", 1),
        ],
        "nodes": [
            node("Mul", ("values", "mask"), "kept"),
            node("ReduceSum", ("kept", "tokens_axis"), "sums", keepdims=0),
            node("ReduceSum", ("mask", "tokens_axis"), "counts", keepdims=0),
            node("Div", ("sums", "counts"), "scores"),
        ],
        "outputs": [tensor("scores", "batch", 2)],
        "weights": {"tokens_axis": np.array([1])},
    } | changes
    return model(**given)


def write(path: Path, what: Any = None) -> Path:
    """Save a model, the right one unless told."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save(model() if what is None else what, str(path))
    return path


def endless(rows: int = 0, *, squeezes: bool = False) -> Any:
    """Never finishes a run of so many rows or more: a loop of 2^62 rounds.

    Args:
        squeezes: whether it drops whichever axes have the size 1, so that the sizes of its outputs
            are known only once it has run.
    """
    body = helper.make_graph(
        [
            node("Identity", ("going",), "go_on"),
            node("Softmax", ("state",), "next"),
        ],
        "body",
        [
            tensor("round", kind=TensorProto.INT64),
            tensor("going", kind=TensorProto.BOOL),
            tensor("state", "batch", 3),
        ],
        [tensor("go_on", kind=TensorProto.BOOL), tensor("next", "batch", 3)],
    )
    return model(
        nodes=[
            node("MatMul", ("pixels", "weight"), "product"),
            node("Shape", ("pixels",), "rows", end=1),
            node("Less", ("rows", "least"), "few"),
            node("Where", ("few", "none", "many"), "rounds"),
            node("Squeeze", ("rounds",) if squeezes else ("rounds", "none"), "limit"),
            node("Loop", ("limit", "yes", "product"), "scores", body=body),
        ],
        weights={
            "weight": WEIGHT,
            "least": np.array([rows]),
            "none": np.array([0]),
            "many": np.array([2**62]),
            "yes": np.array(True),
        },
    )


def greedy(mib: int) -> Any:
    """Takes that much memory for one row, and nothing before it runs."""
    return model(
        nodes=[
            node("MatMul", ("pixels", "weight"), "product"),
            node("ReduceSum", ("product", "axis"), "total", keepdims=0),
            node("Unsqueeze", ("total", "axis"), "column"),
            node("Shape", ("column",), "shape"),
            node("Concat", ("shape", "wide"), "whole", axis=0),
            node("Slice", ("whole", "from", "to"), "tall"),
            node("Expand", ("column", "tall"), "huge"),
            node("Exp", ("huge",), "larger"),
            node("ReduceMax", ("larger", "axis"), "most", keepdims=1),
            node("Add", ("product", "most"), "scores"),
        ],
        weights={
            "weight": WEIGHT,
            "axis": np.array([1]),
            "wide": np.array([mib * 2**18]),
            "from": np.array([1]),
            "to": np.array([3]),
        },
    )


def nan_maker() -> Any:
    """Divides nothing by nothing in every row."""
    return model(
        nodes=[
            node("MatMul", ("pixels", "weight"), "product"),
            node("Sub", ("product", "product"), "zero"),
            node("Div", ("zero", "zero"), "scores"),
        ]
    )


def rows(count: int = 30, *, seed: int = 1) -> dict[str, NDArray[Any]]:
    """``pixels`` and the ``labels`` that the right model gives them."""
    pixels = np.random.default_rng(seed).random((count, 4), dtype=np.float32)
    return {"pixels": pixels, "labels": pixels[:, :3].argmax(1)}


def write_rows(path: Path, **changes: Any) -> Path:
    """Save rows, some arrays changed; ``None`` leaves one out."""
    arrays = {n: a for n, a in (rows() | changes).items() if a is not None}
    np.savez(path, **arrays)
    return path
