"""A small convolutional network with random weights, and images for it."""

from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from tests.onnx_models import node, tensor

SIZE, CLASSES = 12, 5


def convolutional() -> Any:
    """``image`` ``[batch, 3, 12, 12]`` to ``scores`` ``[batch, 5]``, of what vision models have.

    A convolution with bias, normalisation, a rectifier and pooling; a sum with a shortcut; a dense
    layer with bias and a softmax.
    """
    draw = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return (draw.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    arrays = {
        "w1": weights(8, 3, 3, 3),
        "b1": weights(8, 1)[:, 0],
        "scale": np.linspace(0.5, 2, 8, dtype=np.float32),
        "shift": np.zeros(8, np.float32),
        "mean": np.zeros(8, np.float32),
        "variance": np.ones(8, np.float32),
        "w2": weights(8, 8, 3, 3),
        "b2": weights(8, 1)[:, 0],
        "w3": weights(CLASSES, 8),
        "b3": weights(CLASSES, 1)[:, 0],
    }
    graph = helper.make_graph(
        [
            node("Conv", ("image", "w1", "b1"), "c1", pads=[1] * 4),
            node("BatchNormalization", ("c1", "scale", "shift", "mean", "variance"), "n1"),
            node("Relu", ("n1",), "r1"),
            node("MaxPool", ("r1",), "p1", kernel_shape=[2, 2], strides=[2, 2]),
            node("Conv", ("p1", "w2", "b2"), "c2", pads=[1] * 4),
            node("Add", ("c2", "p1"), "sum"),
            node("Relu", ("sum",), "r2"),
            node("GlobalAveragePool", ("r2",), "pooled"),
            node("Flatten", ("pooled",), "flat"),
            node("Gemm", ("flat", "w3", "b3"), "logits", transB=1),
            node("Softmax", ("logits",), "scores"),
        ],
        "convolutional",
        [tensor("image", "batch", 3, SIZE, SIZE)],
        [tensor("scores", "batch", CLASSES)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def images(count: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).random((count, 3, SIZE, SIZE), dtype=np.float32)
