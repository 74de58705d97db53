"""Small networks, layer by layer, with random weights; and digits to train them on."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, ValueInfoProto

from tests.onnx_models import model, node, tensor
from variants.builders.compression.scores import Targets

Array = NDArray[Any]


class Net:
    """A graph that grows: each method adds a layer and names the tensor that it makes."""

    def __init__(self, *shape: int, seed: int = 0, kind: int = TensorProto.FLOAT) -> None:
        self.random = np.random.default_rng(seed)
        self.input = tensor("pixels", "batch", *shape, kind=kind)
        self.nodes: list[Any] = []
        self.weights: dict[str, Array] = {}

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        made = node(kind, inputs, name, **attributes)
        made.output.extend(f"{name}_{place}" for place in range(1, outputs))
        self.nodes.append(made)
        return name

    def const(self, value: Any) -> str:
        name = f"const_{len(self.weights)}"
        array = np.asarray(value)
        self.weights[name] = array.astype(np.float32) if array.dtype.kind == "f" else array
        return name

    def draw(self, *shape: int, deviation: float = 1.0) -> str:
        return self.const(self.random.standard_normal(shape) * deviation)

    def conv(
        self, into: str, *shape: int, kernel: int = 3, groups: int = 1, bias: bool = True,
        **attributes: Any,
    ) -> str:  # fmt: skip
        """``shape`` is (channels in, channels out)."""
        inner, outer = shape
        fan_in = inner // groups * kernel**2
        inputs = [self.draw(outer, inner // groups, kernel, kernel, deviation=fan_in**-0.5 * 1.4)]
        inputs += [self.draw(outer, deviation=0.2)] if bias else []
        pads = [kernel // 2] * 4
        return self.op("Conv", into, *inputs, pads=pads, group=groups, **attributes)

    def gemm(self, into: str, inner: int, outer: int, *, turned: bool = True) -> str:
        shape = (outer, inner) if turned else (inner, outer)
        inputs = [self.draw(*shape, deviation=inner**-0.5 * 1.4), self.draw(outer, deviation=0.2)]
        return self.op("Gemm", into, *inputs, transB=int(turned))

    def matmul(self, into: str, inner: int, outer: int) -> str:
        return self.op("MatMul", into, self.draw(inner, outer, deviation=inner**-0.5 * 1.4))

    def norm(self, into: str, channels: int) -> str:
        inputs = [self.random.uniform(0.5, 1.5, channels), self.random.normal(0, 0.2, channels)]
        inputs += [self.random.normal(0, 0.2, channels), self.random.uniform(0.5, 1.5, channels)]
        return self.op("BatchNormalization", into, *map(self.const, inputs))

    def reshape(self, into: str, *shape: int) -> str:
        return self.op("Reshape", into, self.const(np.array(shape)))

    def end(self, scores: str, *shape: int, opset: int = 20) -> Any:
        """The model; without the ``shape`` of a row, it does not say what its output is."""
        return model(
            nodes=[*self.nodes, node("Identity", (scores,), "scores")],
            inputs=[self.input],
            outputs=[tensor("scores", "batch", *shape) if shape else ValueInfoProto(name="scores")],
            weights=self.weights,
            opsets=[("", opset)],
        )


def outputs(net: Any, rows: Mapping[str, Array]) -> Array:
    """The first output for all rows, in ONNX Runtime."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    source = str(net) if isinstance(net, Path) else net.SerializeToString()
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(rows))[0])


def rows(count: int, *shape: int, seed: int = 1) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {"pixels": random.standard_normal((count, *shape)).astype(np.float32)}


def save(net: Any, path: Path) -> Path:
    onnx.save(net, str(path))
    return path


def digits(part: str) -> tuple[dict[str, Array], Array]:
    """Rows of ``train``, ``calibration`` or ``evaluation``, and their labels."""
    pixels, labels = _digits()[part]
    return {"pixels": pixels}, labels


def right(net: Any, part: str = "evaluation") -> float:
    """Share of the rows that a model answers rightly."""
    given, labels = digits(part)
    return float((outputs(net, given).argmax(1) == labels).mean())


def perceptron(*hidden: int, softmax: bool = True, seed: int = 0) -> Any:
    """An untrained network of linear layers for digits."""
    net = Net(64, seed=seed)
    last, width = net.op("Div", "pixels", net.const(16.0)), 64
    for size in hidden:
        last, width = net.op("Relu", net.gemm(last, width, size)), size
    last = net.gemm(last, width, 10)
    return net.end(net.op("Softmax", last, axis=-1) if softmax else last, 10)


def residual(*, seed: int = 0) -> Any:
    """An untrained network of convolutions for digits, with a way around one of them."""
    net = Net(64, seed=seed)
    last = net.reshape(net.op("Div", "pixels", net.const(16.0)), -1, 1, 8, 8)
    last = net.op("Relu", net.conv(last, 1, 16))
    around = net.conv(net.op("Relu", net.conv(last, 16, 16)), 16, 16)
    last = net.op("Relu", net.op("Add", around, last))
    last = net.op("MaxPool", last, kernel_shape=[2, 2], strides=[2, 2])
    last = net.op("Relu", net.conv(last, 16, 32))
    last = net.op("Flatten", net.op("MaxPool", last, kernel_shape=[2, 2], strides=[2, 2]))
    return net.end(net.op("Softmax", net.gemm(last, 128, 10), axis=-1), 10)


def trained(net: Any, *, epochs: int, learning_rate: float = 5e-3, most: int = 2000) -> Any:
    """The network after some training on digits, on ``most`` of the rows.

    Its clock stands still: a machine that others keep busy would shorten the training.
    """
    from variants.builders.compression.trainable import TrainableGraph
    from variants.builders.compression.training import Tuning

    given, labels = digits("train")
    graph = TrainableGraph(net)
    tuning = Tuning(epochs=epochs, learning_rate=learning_rate, clock=lambda: 0.0)
    tuning(graph, {"pixels": given["pixels"][:most]}, Targets(labels=labels[:most]))
    return graph.trained()


def sizes(net: Any) -> Sequence[tuple[int, ...]]:
    """Shapes of the weights of more than one axis."""
    return [tuple(w.dims) for w in net.graph.initializer if len(w.dims) > 1]


@cache
def _digits() -> dict[str, tuple[Array, Array]]:
    from variants.zoo.digits import split

    return split()
