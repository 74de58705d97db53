"""The models that both serve: random weights, as ONNX, with the rows that are asked for.

``tiny`` is an MLP that takes microseconds, ``small`` a CNN for 3 x 32 x 32 of about a millisecond,
``resnet`` a ResNet-18 for 3 x 64 x 64.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model of the benchmark, and what is asked of it."""

    name: str
    shape: tuple[int, ...]
    slo_ms: float
    rate: float
    """Queries per second at which the cost of a query is compared."""
    workers: int
    """Mosec's processes: the best of some, as with ``threads`` and ``batch``."""
    threads: int
    batch: int

    @property
    def width(self) -> int:
        return int(np.prod(self.shape))


MODELS = (
    Model(name="tiny", shape=(64,), slo_ms=20.0, rate=800.0, workers=2, threads=1, batch=32),
    Model(name="small", shape=(3, 32, 32), slo_ms=30.0, rate=100.0, workers=1, threads=2, batch=16),
    Model(name="resnet", shape=(3, 64, 64), slo_ms=100.0, rate=30.0, workers=2, threads=1, batch=4),
)


class Block(nn.Module):  # type: ignore[misc]
    """Two convolutions and a way around them (He and others, 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.around: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.around = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.around(x))


def _network(name: str) -> nn.Module:
    if name == "tiny":
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    if name == "small":
        sizes = ((3, 64, 1), (64, 96, 2), (96, 160, 1), (160, 192, 2), (192, 256, 1), (256, 256, 2))
        body = [
            nn.Sequential(nn.Conv2d(a, b, 3, stride, 1), nn.BatchNorm2d(b), nn.ReLU())
            for a, b, stride in sizes
        ]
        return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU()]
    before = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(before, outputs, stride), Block(outputs, outputs, 1)]
        before = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def export(model: Model, folder: Path) -> tuple[Path, Path]:
    """Write a model and its evaluation rows, labelled by itself; returns both files."""
    torch.manual_seed(0)
    network = _network(model.name).eval()
    path, rows_path = folder / f"{model.name}.onnx", folder / f"{model.name}.npz"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (torch.randn(2, *model.shape),),
            str(path),
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "n"}, "y": {0: "n"}},
            opset_version=17,
            dynamo=False,
        )
    rows = np.random.default_rng(7).random((64, *model.shape)).round(4).astype(np.float32)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    scores: Any = session.run(None, {"x": rows})[0]
    np.savez(rows_path, x=rows, labels=scores.argmax(axis=1).astype(np.int64))
    return path, rows_path
