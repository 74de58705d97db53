"""One small network for all runtimes, in every form they take, and what numpy makes of it.

``image`` ``(rows, 3, 12, 12)`` to ``scores`` ``(rows, 10)``, no softmax in the end, which would
make errors small: convolution, rectifier, pooling, convolution, rectifier, two dense layers. Its
weights take 160 KiB, so that leaking them shows.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from onnx import helper, numpy_helper, save

from tests.onnx_models import OPSET, node, tensor
from variants.types import TensorSpec

Array = NDArray[np.float32]

SIZE, CLASSES = 12, 10
INPUT = TensorSpec(name="image", dtype="float32", shape=(3, SIZE, SIZE))
OUTPUT = TensorSpec(name="scores", dtype="float32", shape=(CLASSES,))
_SHAPES = {
    "conv1": (16, 3, 3, 3),
    "conv2": (32, 16, 3, 3),
    "dense1": (32, 32 * (SIZE // 2) ** 2),
    "dense2": (CLASSES, 32),
}


def images(count: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).random((count, 3, SIZE, SIZE), dtype=np.float32)


def weights() -> dict[str, Array]:
    """Weights that neither blow numbers up nor let them vanish, and biases."""
    draw = np.random.default_rng(0)
    found: dict[str, Array] = {}
    for name, shape in _SHAPES.items():
        scale = np.sqrt(2 / np.prod(shape[1:]))
        found[f"{name}_weight"] = (scale * draw.standard_normal(shape)).astype(np.float32)
        found[f"{name}_bias"] = (0.1 * draw.standard_normal(shape[0])).astype(np.float32)
    return found


def reference(rows: Array) -> Array:
    """What the network answers, by numpy alone, in double precision."""
    w = {name: array.astype(np.float64) for name, array in weights().items()}

    def convolved(x: Any, name: str) -> Any:
        windows = sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
        product = np.einsum("nchwij,ocij->nohw", windows, w[f"{name}_weight"])
        return np.maximum(product + w[f"{name}_bias"][:, None, None], 0)

    x = convolved(rows.astype(np.float64), "conv1")
    n, channels, height, width = x.shape
    x = x.reshape(n, channels, height // 2, 2, width // 2, 2).max((3, 5))
    x = convolved(x, "conv2").reshape(n, -1)
    x = np.maximum(x @ w["dense1_weight"].T + w["dense1_bias"], 0)
    scores: Array = (x @ w["dense2_weight"].T + w["dense2_bias"]).astype(np.float32)
    return scores


def write_onnx(path: Path) -> Path:
    def named(name: str, before: str) -> tuple[str, str, str]:
        return before, f"{name}_weight", f"{name}_bias"

    graph = helper.make_graph(
        [
            node("Conv", named("conv1", "image"), "c1", pads=[1] * 4),
            node("Relu", ["c1"], "r1"),
            node("MaxPool", ["r1"], "p1", kernel_shape=[2, 2], strides=[2, 2]),
            node("Conv", named("conv2", "p1"), "c2", pads=[1] * 4),
            node("Relu", ["c2"], "r2"),
            node("Flatten", ["r2"], "flat"),
            node("Gemm", named("dense1", "flat"), "d1", transB=1),
            node("Relu", ["d1"], "r3"),
            node("Gemm", named("dense2", "r3"), "scores", transB=1),
        ],
        "network",
        [tensor("image", "batch", 3, SIZE, SIZE)],
        [tensor("scores", "batch", CLASSES)],
        [numpy_helper.from_array(array, name) for name, array in weights().items()],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=10), str(path))
    return path


def module() -> Any:
    """The network as a PyTorch module."""
    import torch
    from torch.nn import functional

    class Network(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            for name, array in weights().items():
                self.register_parameter(name, torch.nn.Parameter(torch.from_numpy(array)))

        def forward(self, image: Any) -> Any:
            x = functional.conv2d(image, self.conv1_weight, self.conv1_bias, padding=1)
            x = functional.max_pool2d(functional.relu(x), 2)
            x = functional.conv2d(x, self.conv2_weight, self.conv2_bias, padding=1)
            x = functional.relu(x).flatten(1)
            x = functional.relu(functional.linear(x, self.dense1_weight, self.dense1_bias))
            return functional.linear(x, self.dense2_weight, self.dense2_bias)

    return Network().eval()


def write_archive(path: Path) -> Path:
    """The network as users hand it in."""
    import torch

    from controlplane.client.exporting.export import export

    export(module(), torch.from_numpy(images(3)), path)
    return path
