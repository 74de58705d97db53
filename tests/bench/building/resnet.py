"""A network of ResNet-18's size with random weights: for speed, where no trained one is at hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

CLASSES = 1000
OPSET = 20
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Channels of each stage and the stride of its first block; two blocks each."""


def resnet18(path: Path, *, image: int = 224) -> None:
    """Write the network as ONNX: ``images`` float32 ``[batch, 3, image, image]`` to ``scores``
    ``[batch, 1000]``, logits; 11.7 million parameters, 45 MiB, 1.8 GFLOP a row of 224 x 224.

    The layers are those of He and others, *Deep Residual Learning for Image Recognition* (CVPR
    2016), table 1, with batch normalisation as nodes of its own, as a trainer leaves it. Weights
    are He-normal, so activations neither vanish nor explode; the same on every call.
    """
    net = _Net()
    last = net.convolution("images", 3, 64, kernel=7, stride=2, name="stem")
    last = net.add("Relu", [last], "stem_relu")
    last = net.add(
        "MaxPool", [last], "stem_pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4
    )
    width = 64
    for stage, (channels, stride) in enumerate(STAGES, start=1):
        for block in (1, 2):
            name = f"stage{stage}_block{block}"
            last = _block(net, last, width, channels, stride if block == 1 else 1, name)
            width = channels
    last = net.add("GlobalAveragePool", [last], "pool")
    last = net.add("Flatten", [last], "flat")
    net.weight("head_weight", net.normal(CLASSES, width, deviation=width**-0.5))
    net.weight("head_bias", np.zeros(CLASSES))
    net.nodes.append(
        helper.make_node(
            "Gemm", [last, "head_weight", "head_bias"], ["scores"], name="head", transB=1
        )
    )
    graph = helper.make_graph(
        net.nodes,
        "resnet18",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, image, image])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", CLASSES])],
        net.weights,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    opsets = [helper.make_opsetid("", OPSET)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=10), str(path))


def _block(net: "_Net", before: str, inputs: int, outputs: int, stride: int, name: str) -> str:
    """Two 3x3 convolutions and the way around them; the second starts damped, as a trained one."""
    inner = net.convolution(before, inputs, outputs, stride=stride, name=f"{name}_conv1")
    inner = net.add("Relu", [inner], f"{name}_relu1")
    inner = net.convolution(inner, outputs, outputs, gain=0.5, name=f"{name}_conv2")
    around = before
    if stride != 1 or inputs != outputs:
        around = net.convolution(
            before, inputs, outputs, kernel=1, stride=stride, name=f"{name}_shortcut"
        )
    both = net.add("Add", [inner, around], f"{name}_add")
    return net.add("Relu", [both], f"{name}_relu2")


class _Net:
    """Nodes and weights as they come; an output is called as its node."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._random = np.random.default_rng(18)

    def add(self, kind: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def weight(self, name: str, values: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype=np.float32), name))
        return name

    def normal(self, *shape: int, deviation: float) -> Any:
        return self._random.standard_normal(shape, dtype=np.float32) * np.float32(deviation)

    def convolution(
        self,
        before: str,
        inputs: int,
        outputs: int,
        *,
        name: str,
        kernel: int = 3,
        stride: int = 1,
        gain: float = 1.0,
    ) -> str:
        """A convolution without bias and its normalisation; channels differ in scale, as trained
        ones do."""
        deviation = (2 / (inputs * kernel**2)) ** 0.5
        weight = self.normal(outputs, inputs, kernel, kernel, deviation=deviation)
        raw = self.add(
            "Conv",
            [before, self.weight(f"{name}_weight", weight)],
            name,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
        )
        moments = {
            "scale": gain * np.exp(self.normal(outputs, deviation=0.3)),
            "bias": self.normal(outputs, deviation=0.1),
            "mean": self.normal(outputs, deviation=0.1),
            "variance": np.exp(self.normal(outputs, deviation=0.2)),
        }
        given = [self.weight(f"{name}_{moment}", values) for moment, values in moments.items()]
        return self.add("BatchNormalization", [raw, *given], f"{name}_norm")
