"""Architectures that teams have, in PyTorch, small or in the sizes that they are known by.

Weights are random, the same on every call, and only heads are fitted where answers are judged: for
speed, memory and sameness of answers, where no trained model is at hand.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

RESNET_50 = (3, 4, 6, 3)
"""Blocks of each stage (He and others, CVPR 2016, table 1)."""


class ResNet(nn.Module):  # type: ignore[misc]
    """Residual blocks of 1x1, 3x3 and 1x1 convolutions: ``(batch, 3, side, side)`` to scores."""

    def __init__(self, blocks: Sequence[int], *, width: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        )
        stages, channels = [], width
        for place, count in enumerate(blocks):
            inner = width << place
            for index in range(count):
                stride = 2 if place and not index else 1
                stages.append(_Bottleneck(channels, inner, stride))
                channels = 4 * inner
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)

    def features(self, images: Any) -> Any:
        return self.stages(self.stem(images)).mean((2, 3))

    def forward(self, images: Any) -> Any:
        return self.head(self.features(images))


class _Bottleneck(nn.Module):  # type: ignore[misc]
    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        self.around: nn.Module = nn.Identity()
        if stride != 1 or channels != 4 * inner:
            self.around = nn.Sequential(
                nn.Conv2d(channels, 4 * inner, 1, stride, bias=False), nn.BatchNorm2d(4 * inner)
            )
        self.inner = nn.Sequential(
            nn.Conv2d(channels, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, 4 * inner, 1, bias=False),
            nn.BatchNorm2d(4 * inner),
        )

    def forward(self, x: Any) -> Any:
        return torch.relu(self.around(x) + 0.5 * self.inner(x))


class VisionTransformer(nn.Module):  # type: ignore[misc]
    """Pieces of 16 x 16 pixels, a class token, encoder layers (Dosovitskiy and others, ICLR 2021):
    ``(batch, 3, side, side)`` to scores."""

    def __init__(self, *, side: int, width: int, layers: int, heads: int, classes: int) -> None:
        super().__init__()
        self.pieces = nn.Conv2d(3, width, 16, 16)
        self.first = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, (side // 16) ** 2 + 1, width) * 0.02)
        self.layers = _encoder(width, layers, heads, norm_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def features(self, images: Any) -> Any:
        pieces = self.pieces(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(pieces.shape[0], -1, -1), pieces], 1)
        return self.norm(self.layers(tokens + self.places)[:, 0])

    def forward(self, images: Any) -> Any:
        return self.head(self.features(images))


class TextEncoder(nn.Module):  # type: ignore[misc]
    """Tokens, places and encoder layers, as BERT has them (Devlin and others, NAACL 2019).

    Of ``input_ids`` and ``attention_mask``, ``(batch, tokens)``, scores of the whole text, or with
    ``each`` of each token.
    """

    def __init__(
        self,
        *,
        words: int,
        width: int,
        layers: int,
        heads: int,
        classes: int,
        each: bool = False,
        longest: int = 512,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(longest, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(_Layer(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, classes)
        self.each = each

    def features(self, input_ids: Any, attention_mask: Any) -> Any:
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        state = self.norm(self.words(input_ids) + self.places(places))
        kept = (attention_mask != 0)[:, None, None, :]
        for layer in self.layers:
            state = layer(state, kept)
        if self.each:
            return state
        weight = attention_mask[:, :, None].to(state.dtype)
        return (state * weight).sum(1) / weight.sum(1).clamp(min=1)

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        return self.head(self.features(input_ids, attention_mask))


class _Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.parts = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.last_norm = nn.LayerNorm(width)

    def forward(self, state: Any, kept: Any) -> Any:
        batch, length, width = state.shape
        split = self.parts(state).view(batch, length, 3, self.heads, width // self.heads)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=kept)
        state = self.norm(state + self.out(seen.transpose(1, 2).reshape(batch, length, width)))
        return self.last_norm(state + self.wide(state))


class Recurrent(nn.Module):  # type: ignore[misc]
    """An LSTM or GRU over steps, both ways: ``(batch, steps, numbers)`` to scores."""

    def __init__(self, kind: str, *, numbers: int, width: int, classes: int) -> None:
        super().__init__()
        made = getattr(nn, kind)
        self.steps = made(numbers, width, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, classes)

    def features(self, steps: Any) -> Any:
        return self.steps(steps)[0].mean(1)

    def forward(self, steps: Any) -> Any:
        return self.head(self.features(steps))


class TwoTower(nn.Module):  # type: ignore[misc]
    """How well an item suits a user: ``user`` int64 ``(batch, 1)`` and ``item`` ``(batch, 32)``."""

    def __init__(self, *, users: int, width: int) -> None:
        super().__init__()
        self.user = nn.Sequential(nn.Embedding(users, width), nn.Flatten(), nn.Linear(width, 64))
        self.item = nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, 64))

    def forward(self, user: Any, item: Any) -> Any:
        return (self.user(user) * self.item(item)).sum(1, keepdim=True)


class Detector(nn.Module):  # type: ignore[misc]
    """Boxes ``(batch, places, 4)``, scores ``(batch, places, classes)`` and the features that both
    are made of, of ``images`` ``(batch, 3, side, side)``."""

    def __init__(self, *, width: int, classes: int) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        for before, after in ((3, width), (width, 2 * width), (2 * width, 4 * width)):
            stages += [nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.SiLU()]
        self.stages = nn.Sequential(*stages)
        self.boxes = nn.Conv2d(4 * width, 4, 1)
        self.scores = nn.Conv2d(4 * width, classes, 1)

    def forward(self, images: Any) -> Any:
        features = self.stages(images)
        boxes = self.boxes(features).flatten(2).transpose(1, 2)
        scores = self.scores(features).flatten(2).transpose(1, 2).sigmoid()
        return boxes, scores, features


class UNet(nn.Module):  # type: ignore[misc]
    """Pictures to pictures of the same size, ``(batch, 3, side, side)``, by halving and doubling it
    (Ronneberger and others, MICCAI 2015); one doubling is a transposed convolution, one bilinear.
    """

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            [_Double(3, width), _Double(width, 2 * width), _Double(2 * width, 4 * width)]
        )
        self.up = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.stretch = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.after = nn.ModuleList([_Double(4 * width, 2 * width), _Double(3 * width, width)])
        self.head = nn.Conv2d(width, 3, 1)

    def forward(self, images: Any) -> Any:
        first, second, third = self.down
        large = first(images)
        middle = second(nn.functional.max_pool2d(large, 2))
        small = third(nn.functional.max_pool2d(middle, 2))
        found = self.after[0](torch.cat([self.up(small), middle], 1))
        return self.head(self.after[1](torch.cat([self.stretch(found), large], 1))).sigmoid()


class _Double(nn.Sequential):  # type: ignore[misc]
    def __init__(self, before: int, after: int) -> None:
        parts: list[nn.Module] = []
        for channels in (before, after):
            parts += [nn.Conv2d(channels, after, 3, 1, 1), nn.BatchNorm2d(after), nn.ReLU()]
        super().__init__(*parts)


class SpeechEncoder(nn.Module):  # type: ignore[misc]
    """Spectra ``(batch, 80, steps)`` to vectors ``(batch, steps / 2, width)`` by two convolutions
    and encoder layers, as Whisper has them (Radford and others, ICML 2023)."""

    def __init__(self, *, steps: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(80, width, 3, 1, 1)
        self.second = nn.Conv1d(width, width, 3, 2, 1)
        self.places = nn.Parameter(torch.randn(steps // 2, width) * 0.02)
        self.layers = _encoder(width, layers, heads, norm_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, spectra: Any) -> Any:
        found = nn.functional.gelu(self.second(nn.functional.gelu(self.first(spectra))))
        return self.norm(self.layers(found.transpose(1, 2) + self.places))


class Suppressed(nn.Module):  # type: ignore[misc]
    """A detector that gives only the boxes of a row that are sure: another number of each row."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, images: Any) -> Any:
        boxes, scores, _ = self.detector(images)
        best = scores.amax(2)
        found = (best > 0.5).nonzero()
        return boxes[found[:, 0], found[:, 1]], best[found[:, 0], found[:, 1]], found


def settle(model: nn.Module, images: Any) -> None:
    """Set the moments of batch normalisations by some rows, as training would have."""
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.reset_running_stats()
            part.momentum = None
    model.train()
    with torch.no_grad():
        model(images)
    model.eval()


def fit_head(model: Any, inputs: Sequence[Any], labels: Any) -> None:
    """Fit the last layer to rows of known classes, by ridge regression on the features."""
    model.eval()
    with torch.no_grad():
        features = torch.cat(
            [
                model.features(*[part[at : at + 16] for part in inputs])
                for at in range(0, len(labels), 16)
            ]
        )
        features = features.reshape(-1, features.shape[-1]).double()
        classes = model.head.weight.shape[0]
        right = nn.functional.one_hot(labels.reshape(-1), classes).double() * 8
        middle, mean = features.mean(0), right.mean(0)
        centred = features - middle
        gram = centred.T @ centred
        gram += torch.eye(len(gram), dtype=gram.dtype) * (gram.trace() / len(gram) * 1e-2 + 1e-9)
        weight = torch.linalg.solve(gram, centred.T @ (right - mean))
        model.head.weight.copy_(weight.T)
        model.head.bias.copy_(mean - middle @ weight)


def _encoder(width: int, layers: int, heads: int, *, norm_first: bool) -> nn.Module:
    layer = nn.TransformerEncoderLayer(
        width,
        heads,
        4 * width,
        dropout=0.0,
        activation="gelu",
        batch_first=True,
        norm_first=norm_first,
    )
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
