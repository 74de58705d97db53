"""Models of the sizes that people serve on GPUs, with random weights, as ONNX."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

WORDS, WIDTH, HEADS, LAYERS, LENGTH = 30_522, 768, 12, 12, 128


class Bottleneck(nn.Module):  # type: ignore[misc]
    """Three convolutions and a way around them (He and others, 2016)."""

    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(inputs, inner, 1),
            nn.ReLU(),
            *_convolution(inner, inner, 3, stride),
            nn.ReLU(),
            *_convolution(inner, 4 * inner, 1),
        )
        self.around: nn.Module = nn.Identity()
        if stride != 1 or inputs != 4 * inner:
            self.around = nn.Sequential(*_convolution(inputs, 4 * inner, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.around(x))


class Block(nn.Module):  # type: ignore[misc]
    """An encoder's layer, normalised after each part (Vaswani and others, 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed = nn.Linear(WIDTH, 3 * WIDTH)
        self.back = nn.Linear(WIDTH, WIDTH)
        self.dense = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.mixed(x).reshape(-1, LENGTH, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        weights = (query @ key.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5).softmax(-1)
        seen = (weights @ value).transpose(1, 2).reshape(-1, LENGTH, WIDTH)
        x = self.first(x + self.back(seen))
        return self.second(x + self.dense(x))


class Encoder(nn.Module):  # type: ignore[misc]
    """BERT-base's size, 110 million parameters: word numbers ``[batch, 128]`` to two scores."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.body = nn.Sequential(nn.LayerNorm(WIDTH), *(Block() for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.words(x) + self.places)[:, 0])


def resnet50() -> nn.Module:
    """ResNet-50, 25.6 million parameters: images ``[batch, 3, 224, 224]`` to 1,000 scores."""
    layers = [*_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for inner, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(count):
            layers.append(Bottleneck(before, inner, stride if number == 0 else 1))
            before = 4 * inner
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model of the benchmark, and rows for it."""

    name: str
    make: Callable[[], nn.Module]
    rows: Callable[[int], Any]
    """So many rows, the same on every call."""


MODELS = {
    model.name: model
    for model in (
        Model(
            name="resnet50",
            make=resnet50,
            rows=lambda count: _draw().random((count, 3, 224, 224), dtype=np.float32),
        ),
        Model(
            name="bert-base",
            make=Encoder,
            rows=lambda count: _draw().integers(0, WORDS, (count, LENGTH), dtype=np.int64),
        ),
    )
}


def export(model: Model, folder: Path) -> tuple[Path, Path]:
    """Write a model, ``x`` to ``y``, and 64 rows labelled by itself; returns both files."""
    torch.manual_seed(0)
    network = model.make().eval()
    path, rows_path = folder / f"{model.name}.onnx", folder / f"{model.name}.npz"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (torch.from_numpy(model.rows(2)),),
            str(path),
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "n"}, "y": {0: "n"}},
            opset_version=17,
            dynamo=False,
        )
    rows = model.rows(64)
    with torch.inference_mode():
        scores = network(torch.from_numpy(rows)).numpy()
    np.savez(rows_path, x=rows, labels=scores.argmax(axis=1).astype(np.int64))
    return path, rows_path


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    body = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return [body, nn.BatchNorm2d(outputs)]


def _draw() -> np.random.Generator:
    return np.random.default_rng(7)
