"""Small networks with weights that say what they are for, and how to run them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

from tests.onnx_models import model, node, tensor, write

Array = NDArray[Any]
OPSET = 20
CLASSES = 5


def images(count: int = 48, *, channels: int = 4, seed: int = 2) -> dict[str, Array]:
    """``images`` ``(count, channels, 8, 8)``, standard normal."""
    random = np.random.default_rng(seed)
    return {"images": random.standard_normal((count, channels, 8, 8)).astype(np.float32)}


def residual(path: Path, *, channels: int = 4, softmax: bool = True, opset: int = OPSET) -> Path:
    """Two convolutions, pooling, a way around the second, and a linear head over five classes.

    The channels of the first convolution differ in scale by up to 1,000.
    """
    random = np.random.default_rng(3)

    def normal(*shape: int, deviation: float) -> Array:
        return (random.standard_normal(shape) * deviation).astype(np.float32)

    scales = np.geomspace(1e-3, 1, 8, dtype=np.float32)
    weights = {
        "w1": normal(8, channels, 3, 3, deviation=0.2) * scales[:, None, None, None],
        "b1": normal(8, deviation=0.1) * scales,
        "w2": normal(8, 8, 3, 3, deviation=0.2),
        "b2": normal(8, deviation=0.1),
        "w3": normal(CLASSES, 8, deviation=1.5),
        "b3": normal(CLASSES, deviation=0.1),
    }
    nodes = [
        node("Conv", ("images", "w1", "b1"), "c1", name="first", pads=[1, 1, 1, 1]),
        node("Relu", ("c1",), "r1"),
        node("MaxPool", ("r1",), "p1", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ("p1", "w2", "b2"), "c2", name="second", pads=[1, 1, 1, 1]),
        node("Add", ("c2", "p1"), "sum", name="around"),
        node("Relu", ("sum",), "r2"),
        node("GlobalAveragePool", ("r2",), "g"),
        node("Flatten", ("g",), "flat"),
        node("Gemm", ("flat", "w3", "b3"), "logits", name="head", transB=1),
        *([node("Softmax", ("logits",), "scores")] if softmax else []),
    ]
    return write(
        path,
        model(
            nodes=nodes,
            inputs=[tensor("images", "batch", channels, 8, 8)],
            outputs=[tensor("scores" if softmax else "logits", "batch", CLASSES)],
            weights=weights,
            opsets=[("", opset)],
        ),
    )


def layers(path: Path, matrices: Mapping[str, Array], *, convolutions: bool = False) -> Path:
    """Matrix products one after the other with ReLUs between, ``pixels`` ``[batch, 4]`` to
    ``scores``; a node is called as its matrix. They may be convolutions over one pixel."""
    nodes: list[Any] = []
    held = {f"{name}_weight": matrix.astype(np.float32) for name, matrix in matrices.items()}
    last, width = "pixels", 4
    if convolutions:
        held = {name: matrix.T[:, :, None, None].copy() for name, matrix in held.items()}
        held["places"] = np.array([2, 3])
        nodes.append(node("Unsqueeze", (last, "places"), "image"))
        last = "image"
    for index, (name, matrix) in enumerate(matrices.items()):
        kind = "Conv" if convolutions else "Gemm"
        nodes.append(node(kind, (last, f"{name}_weight"), f"{name}_out", name=name))
        last, width = f"{name}_out", matrix.shape[1]
        if index < len(matrices) - 1:
            nodes.append(node("Relu", (last,), f"{name}_relu"))
            last = f"{name}_relu"
    if convolutions:
        nodes.append(node("Flatten", (last,), "flat"))
        last = "flat"
    nodes.append(node("Softmax", (last,), "scores"))
    return write(
        path,
        model(
            nodes=nodes,
            inputs=[tensor("pixels", "batch", 4)],
            outputs=[tensor("scores", "batch", width)],
            weights=held,
        ),
    )


def answers(path: Path, rows: Mapping[str, Array], *, threads: int = 1) -> Array:
    """The first output of all rows in one batch."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(rows))[0])


def kernels(path: Path, folder: Path) -> Counter[str]:
    """Which operators run once ONNX Runtime has optimised the model for this machine."""
    options = ort.SessionOptions()
    options.log_severity_level = 4  # that the file is for this machine only
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return Counter(n.op_type for n in onnx.load(folder / "optimised.onnx").graph.node)


def weights(path: Path) -> dict[str, Array]:
    graph = onnx.load(path).graph
    return {w.name: onnx.numpy_helper.to_array(w) for w in graph.initializer}


def nodes(path: Path, kind: str) -> list[Any]:
    return [n for n in onnx.load(path).graph.node if n.op_type == kind]


def names(found: Sequence[Any]) -> list[str]:
    return [n.name for n in found]
