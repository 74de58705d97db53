"""Trains the digits family: seven ONNX models of one task, from 10 us to several ms per image.

``python -m variants.zoo.digits --out DIR`` prints one JSON line per step and leaves, of all models
or of those that ``--models`` names,

- ``<model>/1/model.onnx`` for each model: ``pixels`` float32 ``[batch, 64]`` (raw 0 to 16, row by
  row) to ``scores`` float32 ``[batch, 10]``, probabilities;
- ``calibration.npz`` and ``evaluation.npz``: rows that no model was trained on (``pixels``,
  ``labels``); only the second one measures accuracy;
- ``labels.txt``, one label a line;
- ``family.json``, written last: the mark that the models it names, and all rows, are whole.

What was made by the same recipe is left alone, so that a second run returns at once. The data are
scikit-learn's digits: 1,797 images of 8x8 pixels, in a fixed stratified split.
"""

import argparse
import hashlib
import json
import os
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FAMILY = "digits"
MODELS = ("linear-pooled", "linear", "mlp-small", "mlp", "cnn-small", "cnn", "cnn-large")
"""Ascending by cost and by accuracy; ``digits_models.RECIPES`` says how each is made."""
LABELS = tuple(str(digit) for digit in range(10))
EVALUATION_ROWS = 540
CALIBRATION_ROWS = 200
BATCH = 64
OPSET = 20
"""Old enough for ONNX Runtime 1.17, new enough for what the exporter emits."""

Arrays = NDArray[Any]


def recipe_digest() -> str:
    """What the family is made by: the two files of code.

    Libraries are left out, so that a family that was made once is served without torch.
    """
    digest = hashlib.sha256()
    for name in ("digits.py", "digits_models.py"):
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()


def absent(out: Path, digest: str, models: Sequence[str] = MODELS) -> tuple[str, ...]:
    """Those of these models that ``out`` does not hold, made by this recipe, with all rows."""
    made = _made(out, digest)
    return tuple(model for model in models if model not in made)


def _made(out: Path, digest: str) -> tuple[str, ...]:
    """The models that are whole in ``out``; none where anything that its mark names is gone."""
    try:
        family = json.loads((out / "family.json").read_text())
        if family["recipe"] == digest and all((out / name).is_file() for name in family["files"]):
            return tuple(map(str, family["models"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return ()


def split() -> dict[str, tuple[Arrays, Arrays]]:
    """``train``, ``calibration`` and ``evaluation`` rows: pixels ``(rows, 64)`` and labels."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    data = load_digits()
    pixels, labels = data.data.astype(np.float32), data.target.astype(np.int64)
    rest, held, rest_labels, held_labels = train_test_split(
        pixels, labels, test_size=EVALUATION_ROWS, random_state=0, stratify=labels
    )
    train, calibration, train_labels, calibration_labels = train_test_split(
        rest, rest_labels, test_size=CALIBRATION_ROWS, random_state=0, stratify=rest_labels
    )
    return {
        "train": (train, train_labels),
        "calibration": (calibration, calibration_labels),
        "evaluation": (held, held_labels),
    }


def _distort(pixels: Any, random: Any) -> Any:
    """Rotate, scale, shear and shift each image a little: ``(rows, 64)`` in and out."""
    import torch
    from torch.nn import functional

    rows = len(pixels)

    def draw(reach: float) -> Any:
        return (torch.rand(rows, generator=random) * 2 - 1) * reach

    angle, shear = draw(0.15), draw(0.1)
    width, height = 1 + draw(0.1), 1 + draw(0.1)
    across = torch.stack([width * angle.cos(), shear - angle.sin(), draw(0.12)], 1)
    down = torch.stack([angle.sin(), height * angle.cos(), draw(0.12)], 1)
    grid = functional.affine_grid(
        torch.stack([across, down], 1), [rows, 1, 8, 8], align_corners=False
    )
    images = pixels.view(rows, 1, 8, 8)
    return functional.grid_sample(images, grid, align_corners=False).reshape(rows, 64)


def train(recipe: Any, pixels: Arrays, labels: Arrays) -> Any:
    """One trained module in evaluation mode, ending in logits."""
    import torch
    from torch.nn import functional

    torch.manual_seed(recipe.seed)
    random = torch.Generator().manual_seed(recipe.seed)
    model = recipe.build().train().to(memory_format=torch.channels_last)
    rows, targets = torch.tensor(pixels), torch.tensor(labels)
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser,
        recipe.learning_rate,
        total_steps=recipe.epochs * -(-len(rows) // BATCH),
    )
    for _ in range(recipe.epochs):
        for chosen in torch.randperm(len(rows), generator=random).split(BATCH):
            batch = rows[chosen]
            if recipe.augment:
                batch = _distort(batch, random)
            loss = functional.cross_entropy(
                model(batch), targets[chosen], label_smoothing=0.05 if recipe.augment else 0.0
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return model.eval()


def export(model: Any, path: Path) -> None:
    """Write ``model`` with a softmax behind it as one ONNX file with a free batch axis."""
    import onnx
    import torch

    whole = torch.nn.Sequential(model, torch.nn.Softmax(-1)).eval()
    program = torch.onnx.export(
        whole,
        (torch.zeros(3, 64),),
        dynamo=True,
        opset_version=OPSET,
        input_names=["pixels"],
        output_names=["scores"],
        dynamic_shapes=({0: "batch"},),
        optimize=True,
        verbose=False,
    )
    proto = program.model_proto
    _strip_metadata(proto)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(proto, str(path))


def _strip_metadata(proto: Any) -> None:
    """Drop what the exporter notes of the source code; it is larger than a small model."""
    del proto.metadata_props[:]
    graph = proto.graph
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.ClearField("doc_string")
    del graph.value_info[:]


def make(out: Path, models: Sequence[str] = MODELS) -> None:
    """Train and export those of these models that are not in ``out``, announcing every step.

    Raises:
        OSError: ``out`` cannot be written.
    """
    started = time.monotonic()
    digest = recipe_digest()
    wanted = absent(out, digest, models)
    if not wanted:
        _announce(step="cached", done=1, total=1, message=f"{out} is up to date")
        return
    _announce(step="start", done=0, total=1, message="importing torch")
    from variants.zoo.digits_models import RECIPES

    _quiet_torch()
    out.mkdir(parents=True, exist_ok=True)
    before = _made(out, digest)
    if not before:
        (out / "family.json").unlink(missing_ok=True)
    data = split()
    recipes = [recipe for recipe in RECIPES if recipe.name in wanted]
    total = 2 * len(recipes)
    for index, recipe in enumerate(recipes):
        _announce(step="train", done=2 * index, total=total, message=f"training {recipe.name}")
        model = train(recipe, *data["train"])
        _announce(
            step="export", done=2 * index + 1, total=total, message=f"exporting {recipe.name}"
        )
        export(model, out / _file_of(recipe.name))
    if not before:
        for name in ("calibration", "evaluation"):
            pixels, labels = data[name]
            np.savez(out / f"{name}.npz", pixels=pixels, labels=labels)
        (out / "labels.txt").write_text("".join(f"{label}\n" for label in LABELS))
    made = [model for model in MODELS if model in before or model in wanted]
    family = {
        "family": FAMILY,
        "recipe": digest,
        "models": made,
        "files": [*map(_file_of, made), "calibration.npz", "evaluation.npz", "labels.txt"],
    }
    mark = out / "family.json.part"
    mark.write_text(json.dumps(family, indent=2) + "\n")
    mark.replace(out / "family.json")
    seconds = time.monotonic() - started
    _announce(step="done", done=total, total=total, message=f"trained in {seconds:,.0f} s")


def _file_of(model: str) -> str:
    return f"{model}/1/model.onnx"


def _quiet_torch() -> None:
    """Keep the exporter's remarks out of the output and make sums repeatable.

    One thread, so that sums do not depend on the number of cores. It is quick as well: where others
    use the cores too, several threads wait for each other in every small operator.
    """
    import logging

    import torch

    warnings.filterwarnings("ignore")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)


def _announce(**progress: object) -> None:
    line: Mapping[str, object] = progress
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the digits family.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--niceness", type=int, default=0, help="added to this process's")
    asked = parser.parse_args()
    os.nice(asked.niceness)
    make(asked.out, asked.models)


if __name__ == "__main__":
    main()
