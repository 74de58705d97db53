"""PyTorch modules for tests, all of them small."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

DATA = torch.rand(50, 1, 6, 6, generator=torch.Generator().manual_seed(3))
"""What a user has in memory."""


class Images(nn.Module):  # type: ignore[misc]
    """Images ``(batch, 1, 6, 6)`` to probabilities of 3 classes.

    Keeps its last input; a buffer and a constant of it are views of ``DATA``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", DATA[3])
        self.scale = DATA[7]
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.5),
            nn.Flatten(), nn.Linear(64, 3),
        )  # fmt: skip
        self.last: Any = None

    def forward(self, pixels: Any) -> Any:
        self.last = pixels
        return self.body((pixels - self.mean) * self.scale).softmax(-1)


class Words(nn.Module):  # type: ignore[misc]
    """Word numbers and a mask, ``(batch, 5)`` each, to a dictionary with two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 4)
        self.classes = nn.Linear(4, 2)

    def forward(self, ids: Any, mask: Any, scale: float = 2.0) -> dict[str, Any]:
        kept = self.words(ids) * mask.unsqueeze(-1)
        logits = self.classes(kept.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)) * scale
        return {"logits": logits, "best": logits.argmax(-1)}


class Does(nn.Module):  # type: ignore[misc]
    """Four numbers to four: a linear layer, and then what it is told. Has a buffer ``seen``."""

    def __init__(self, what: Callable[["Does", Any], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(1))
        self.what = what

    def forward(self, x: Any) -> Any:
        return self.what(self, self.linear(x))
