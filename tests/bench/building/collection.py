"""Files of models that teams bring along, each with rows to judge it by and what registers it.

``make("resnet", folder)`` writes one, small; with ``full`` in the size that it is known by. Weights
are random and heads are fitted (``tests/bench/building/architectures.py``).
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.bench.building.architectures import (
    RESNET_50,
    Detector,
    Recurrent,
    ResNet,
    SpeechEncoder,
    TextEncoder,
    TwoTower,
    UNet,
    VisionTransformer,
    fit_head,
    settle,
)

CLASSES = 10
FITTED = 96
"""Rows that a head is fitted to."""

Arrays = dict[str, Any]
"""Inputs by name, of one number of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """A model as a team hands it in."""

    name: str
    path: Path
    rows: Path
    """To judge it by (npz)."""
    inputs: Arrays
    """A few of these rows, to ask."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of ``modelless.Client.register``."""
    about: str = ""


def make(name: str, folder: Path, *, full: bool = False) -> Brought:
    """Write a model and its rows into ``folder``. Seconds, some minutes of the largest in full.

    Raises:
        KeyError: there is no such model.
    """
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # exporters speak of their own future
        return MODELS[name](folder, full)


def resnet(folder: Path, full: bool) -> Brought:
    side, count = (224, 160) if full else (32, 60)
    blocks, width = (RESNET_50, 64) if full else ((1, 1), 8)
    model = ResNet(blocks, width=width, classes=CLASSES)
    settle(model, torch.tensor(pictures(32, side, seed=3)[0]))
    return _of_pictures("resnet", model, folder, side, count, opset=17 if full else 18)


def vit(folder: Path, full: bool) -> Brought:
    side, count = (224, 120) if full else (32, 60)
    sizes = (
        {"width": 384, "layers": 12, "heads": 6} if full else {"width": 32, "layers": 2, "heads": 2}
    )
    model = VisionTransformer(side=side, classes=CLASSES, **sizes)
    return _of_pictures("vit", model, folder, side, count)


def encoder(folder: Path, full: bool) -> Brought:
    """Multilingual encoders are mostly their table of words: 250,000 of 384 numbers."""
    return _of_tokens("encoder", folder, each=False, **(_FULL_ENCODER if full else _SMALL_ENCODER))


def tagger(folder: Path, full: bool) -> Brought:
    sizes = _SMALL_ENCODER | ({"words": 30_522, "width": 256, "layers": 4} if full else {})
    return _of_tokens("tagger", folder, each=True, **sizes)


def lstm(folder: Path, full: bool) -> Brought:
    return _recurrent("LSTM", folder, full)


def gru(folder: Path, full: bool) -> Brought:
    return _recurrent("GRU", folder, full)


def towers(folder: Path, full: bool) -> Brought:
    users, count = (100_000 if full else 500), 400
    model = TwoTower(users=users, width=64).eval()
    draw = np.random.default_rng(1)
    rows = {
        "user": draw.integers(0, users, (count, 1)),
        "item": draw.standard_normal((count, 32)).astype(np.float32),
    }
    return _of_numbers("towers", model, folder, rows, ["score"])


def detector(folder: Path, full: bool) -> Brought:
    side = 160 if full else 32
    model = Detector(width=32 if full else 8, classes=4)
    images = pictures(80, side)[0]
    settle(model, torch.tensor(images))
    return _of_numbers(
        "detector", model, folder, {"images": images}, ["boxes", "scores", "features"]
    )


def unet(folder: Path, full: bool) -> Brought:
    side = 128 if full else 32
    model = UNet(width=32 if full else 4)
    images = pictures(40, side)[0]
    settle(model, torch.tensor(images))
    return _of_numbers("unet", model, folder, {"images": images}, ["pictures"])


def speech(folder: Path, full: bool) -> Brought:
    steps = 3_000 if full else 40
    sizes = (
        {"width": 384, "layers": 4, "heads": 6} if full else {"width": 16, "layers": 1, "heads": 2}
    )
    model = SpeechEncoder(steps=steps, **sizes).eval()
    spectra = np.random.default_rng(1).standard_normal((40, 80, steps)).astype(np.float32)
    return _of_numbers("speech", model, folder, {"spectra": spectra}, ["vectors"])


def forest(folder: Path, full: bool) -> Brought:
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(500 if full else 20, random_state=0)
    return _of_table("forest", model, folder, full)


def boosting(folder: Path, full: bool) -> Brought:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return _of_table(
        "boosting", HistGradientBoostingClassifier(max_iter=150 if full else 40), folder, full
    )


MODELS: Mapping[str, Callable[[Path, bool], Brought]] = {
    "resnet": resnet,
    "vit": vit,
    "encoder": encoder,
    "tagger": tagger,
    "lstm": lstm,
    "gru": gru,
    "towers": towers,
    "detector": detector,
    "unet": unet,
    "speech": speech,
    "forest": forest,
    "boosting": boosting,
}
"""Each as ``make`` has it."""
_SMALL_ENCODER = {"words": 400, "width": 32, "layers": 2, "heads": 4}
_FULL_ENCODER = {"words": 250_037, "width": 384, "layers": 12, "heads": 12}


def pictures(count: int, side: int, *, seed: int = 1) -> tuple[Any, Any]:
    """Pictures ``(count, 3, side, side)`` of ten kinds with as much noise, and their kinds."""
    kinds = np.random.default_rng(0).standard_normal((CLASSES, 3, 8, 8)).astype(np.float32)
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, CLASSES, count)
    large = np.kron(kinds[labels], np.ones((1, 1, side // 8, side // 8), np.float32))
    return (large / 2 + draw.standard_normal(large.shape) / 2).astype(np.float32), labels


def _of_pictures(
    name: str, model: Any, folder: Path, side: int, count: int, *, opset: int = 18
) -> Brought:
    images, labels = pictures(FITTED, side)
    fit_head(model, [torch.tensor(images)], torch.tensor(labels))
    images, labels = pictures(count, side, seed=2)
    path = _exported(name, model, folder, {"images": images}, ["scores"], opset=opset)
    return _brought(name, path, {"images": images}, {"labels": labels}, {})


def _of_tokens(name: str, folder: Path, *, each: bool, words: int, **sizes: int) -> Brought:
    kinds = 3
    model = TextEncoder(words=words, classes=kinds, each=each, **sizes).eval()
    rows, labels = _texts(FITTED, words, kinds, each, seed=1)
    tensors = [torch.tensor(array) for array in rows.values()]
    if each:
        with torch.no_grad():
            found = model.features(*tensors)[tensors[1] == 1]
        fit_head(_Head(model.head), [found], torch.tensor(labels[rows["attention_mask"] == 1]))
    else:
        fit_head(model, tensors, torch.tensor(labels))
    rows, labels = _texts(60, words, kinds, each, seed=2)
    path = _exported(name, model, folder, rows, ["scores"], open_axis="tokens")
    return _brought(name, path, rows, {"labels": labels}, {"lengths": (16, 32)})


class _Head(torch.nn.Module):  # type: ignore[misc]
    """A last layer alone, of which ``fit_head`` is given what goes into it."""

    def __init__(self, head: Any) -> None:
        super().__init__()
        self.head = head

    def features(self, found: Any) -> Any:
        return found


def _texts(count: int, words: int, kinds: int, each: bool, *, seed: int) -> tuple[Arrays, Any]:
    """Numbers of words of texts of 4 to 32, mostly the one that says their kind, or which kind each
    word is of."""
    draw = np.random.default_rng(seed)
    ids, mask = np.zeros((2, count, 32), np.int64)
    labels = draw.integers(0, kinds, count)
    for row, label in enumerate(labels):
        length = 32 if not row else int(draw.integers(4, 33))
        chosen = draw.integers(5, words, length)
        chosen[draw.random(length) < 0.6] = 5 + 7 * label
        ids[row, :length], mask[row, :length] = chosen, 1
    if each:
        labels = np.where(mask == 1, (ids - 5) % kinds, -100)
    return {"input_ids": ids, "attention_mask": mask}, labels


def _recurrent(kind: str, folder: Path, full: bool) -> Brought:
    name, kinds = kind.lower(), 5
    model = Recurrent(kind, numbers=40, width=256 if full else 16, classes=kinds).eval()
    middles = np.random.default_rng(0).standard_normal((kinds, 1, 40))

    def steps(count: int, seed: int) -> tuple[Any, Any]:
        draw = np.random.default_rng(seed)
        labels = draw.integers(0, kinds, count)
        noise = draw.standard_normal((count, 50, 40))
        return (0.4 * middles[labels] + noise).astype(np.float32), labels

    rows, labels = steps(FITTED, 1)
    fit_head(model, [torch.tensor(rows)], torch.tensor(labels))
    rows, labels = steps(300, 2)
    path = _exported(name, model, folder, {"steps": rows}, ["scores"])
    return _brought(name, path, {"steps": rows}, {"labels": labels}, {})


def _of_numbers(
    name: str, model: Any, folder: Path, rows: Arrays, outputs: Sequence[str]
) -> Brought:
    """Judged by its own first output."""
    with torch.no_grad():
        found = model(*[torch.tensor(array) for array in rows.values()])
    first = found if isinstance(found, torch.Tensor) else found[0]
    path = _exported(name, model, folder, rows, outputs)
    return _brought(name, path, rows, {"targets": first.numpy()}, {"metric": "r2"})


def _of_table(name: str, model: Any, folder: Path, full: bool) -> Brought:
    from skl2onnx import to_onnx

    count = 3_000 if full else 900
    rows = np.random.default_rng(1).standard_normal((count, 20)).astype(np.float32)
    kinds = (rows[:, 0] * rows[:, 1] > 0).astype(int) + (rows[:, 2] > 0.5)
    labels = np.array(["low", "mid", "top"])[kinds]
    held_out = count * 2 // 3
    model.fit(rows[:held_out], labels[:held_out])
    path = folder / f"{name}.onnx"
    path.write_bytes(to_onnx(model, rows[:2]).SerializeToString())
    return _brought(name, path, {"X": rows[held_out:]}, {"labels": labels[held_out:]}, {})


def _exported(
    name: str,
    model: Any,
    folder: Path,
    rows: Arrays,
    outputs: Sequence[str],
    *,
    opset: int = 18,
    open_axis: str | None = None,
) -> Path:
    path = folder / f"{name}.onnx"
    sizes: dict[int, Any] = {0: torch.export.Dim("batch")}
    if open_axis:
        sizes[1] = torch.export.Dim(open_axis, min=2, max=512)
    torch.onnx.export(
        model.eval(), tuple(torch.tensor(array[:2]) for array in rows.values()), str(path),
        dynamo=True, opset_version=opset, input_names=[*rows], output_names=[*outputs],
        dynamic_shapes=tuple(sizes for _ in rows), external_data=False, verbose=False,
    )  # fmt: skip
    return path


def _brought(
    name: str, path: Path, rows: Arrays, truth: Arrays, options: Mapping[str, Any]
) -> Brought:
    table = path.with_suffix(".npz")
    np.savez(table, **rows, **truth)
    few = {one: array[:4] for one, array in rows.items()}
    return Brought(name=name, path=path, rows=table, inputs=few, options=options)
