"""The seven architectures of the digits family, from one matrix product to an average of 25 views.

Every module takes raw pixels ``(batch, 64)`` in 0 to 16 and returns logits ``(batch, 10)``: scaling
and up-sampling happen inside, so that all of them have the signature of the one task. Only the
training process imports this module, because it imports torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

CLASSES = 10
SIDE = 8
PIXELS = SIDE * SIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one model is made. Only the larger models see distorted copies of the images."""

    name: str
    build: Callable[[], Any]
    epochs: int
    learning_rate: float
    augment: bool
    seed: int = 0


class PooledLinear(nn.Module):  # type: ignore[misc]
    """Logistic regression on 2x2 means of the pixels; pooling folds into the one weight matrix."""

    def __init__(self) -> None:
        super().__init__()
        eye = torch.eye(PIXELS).view(PIXELS, 1, SIDE, SIDE) / 16
        pool = functional.avg_pool2d(eye, 2).flatten(1)
        self.register_buffer("pool", pool)
        self.linear = nn.Linear(pool.shape[1], CLASSES)

    def forward(self, pixels: Any) -> Any:
        return functional.linear(pixels, self.linear.weight @ self.pool.T, self.linear.bias)


class Contrast(nn.Module):  # type: ignore[misc]
    """Centres each image and divides by its mean distance from the centre."""

    def forward(self, pixels: Any) -> Any:
        centred = pixels - pixels.mean(1, keepdim=True)
        return centred / (centred.abs().mean(1, keepdim=True) + 1e-3)


class Views(nn.Module):  # type: ignore[misc]
    """Up-samples and, once trained, averages the trunk's logits over shifted views of the image.

    ``views`` is the number of shifts per axis: 5 gives 25 views. A view costs inference, not
    training.
    """

    def __init__(self, trunk: Any, *, scale: int, views: int = 1) -> None:
        super().__init__()
        self.trunk = trunk
        self.upsample = nn.Upsample(scale_factor=scale, mode="bilinear", align_corners=False)
        self.side = SIDE * scale
        self.views = views

    def forward(self, pixels: Any) -> Any:
        images = self.upsample((pixels / 16).unflatten(1, (1, SIDE, SIDE)))
        if self.training or self.views == 1:
            return self.trunk(images)
        reach = self.views - 1
        padded = functional.pad(images, (reach,) * 4)
        offsets = range(0, 2 * reach + 1, 2)
        side = self.side
        shifted = [padded[:, :, y : y + side, x : x + side] for y in offsets for x in offsets]
        logits = self.trunk(torch.stack(shifted, 1).flatten(0, 1))
        return logits.unflatten(0, (-1, len(shifted))).mean(1)


def _conv(inputs: int, outputs: int, stride: int = 1) -> list[Any]:
    return [
        nn.Conv2d(inputs, outputs, 3, padding=1, stride=stride, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    ]


def _mlp(*hidden: int) -> Any:
    """Fully connected layers on pixels of equal contrast; with none hidden, a linear model."""
    layers: list[Any] = [Contrast()]
    width = PIXELS
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


def _cnn_small() -> Any:
    trunk = nn.Sequential(
        *_conv(1, 12),
        nn.MaxPool2d(2),
        *_conv(12, 24),
        nn.MaxPool2d(2),
        *_conv(24, 32),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 16, CLASSES),
    )
    return Views(trunk, scale=4)


def _cnn() -> Any:
    trunk = nn.Sequential(
        *_conv(1, 16),
        *_conv(16, 24),
        nn.MaxPool2d(2),
        *_conv(24, 32),
        nn.MaxPool2d(2),
        *_conv(32, 48),
        nn.Dropout(0.2),
        nn.Conv2d(48, 96, 8),
        nn.Flatten(),
        nn.Linear(96, CLASSES),
    )
    return Views(trunk, scale=4)


def _cnn_large() -> Any:
    trunk = nn.Sequential(
        *_conv(1, 16, stride=2),
        *_conv(16, 32),
        nn.MaxPool2d(2),
        *_conv(32, 64),
        *_conv(64, 64),
        nn.MaxPool2d(2),
        *_conv(64, 96),
        nn.Dropout(0.2),
        nn.Conv2d(96, 96, 8, groups=96),
        nn.Flatten(),
        nn.Linear(96, CLASSES),
    )
    return Views(trunk, scale=8, views=5)


RECIPES = (
    Recipe(name="linear-pooled", build=PooledLinear, epochs=80, learning_rate=0.05, augment=False),
    Recipe(name="linear", build=_mlp, epochs=30, learning_rate=0.01, augment=False),
    Recipe(
        name="mlp-small",
        build=lambda: _mlp(128, 48),
        epochs=10,
        learning_rate=0.003,
        augment=False,
    ),
    Recipe(name="mlp", build=lambda: _mlp(640, 384), epochs=12, learning_rate=0.002, augment=False),
    Recipe(name="cnn-small", build=_cnn_small, epochs=8, learning_rate=0.005, augment=False),
    Recipe(name="cnn", build=_cnn, epochs=8, learning_rate=0.004, augment=True),
    Recipe(name="cnn-large", build=_cnn_large, epochs=14, learning_rate=0.005, augment=True),
)
"""Ascending by cost and by accuracy."""
