"""Export a scikit-learn pipeline and a PyTorch module, and register both for one new task.

Start modelless in another terminal with ``make up``, and run::

    .venv/bin/python examples/register_models.py

It trains both models on scikit-learn's wines, writes them to ``--folder``, and hands them to
``modelless register``. Each becomes several variants with measured accuracy and latency; then the
task ``wine`` answers. The first model is live at once, and so is the second, because it is another
model and not a new version of the first.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import modelless

TASK = "wine"
Rows = NDArray[np.float32]
Labels = NDArray[np.int64]


def train_pipeline(rows: Rows, labels: Labels) -> object:
    """A fitted scikit-learn pipeline for rows of shape ``(rows, 13)``."""
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, labels)


def train_module(rows: Rows, labels: Labels) -> nn.Module:
    """A trained PyTorch module; ``BatchNorm1d`` scales its inputs, ``(rows, 13)``."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.BatchNorm1d(13), nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.02)
    for _ in range(100):
        loss = nn.functional.cross_entropy(module(torch.tensor(rows)), torch.tensor(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return module.eval()


def register(model: Path, evaluation: Path) -> None:
    """Hand a file in. ``--variants`` keeps it short here; without it all kinds are built."""
    modelless_command = Path(sys.executable).with_name("modelless")
    options = ["--task", TASK, "--eval", str(evaluation)]
    labels = ["--labels", "barolo,grignolino,barbera"]
    kinds = ["--variants", "onnx-fp32,torch-fp32"]
    subprocess.run(
        [modelless_command, "register", str(model), *options, *labels, *kinds], check=True
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--url", help="else MODELLESS_URL, or this machine")
    options.add_argument("--folder", type=Path, default=Path("wine"))
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)

    data, target = load_wine(return_X_y=True)
    rows, held_out, labels, truth = train_test_split(
        data.astype(np.float32), target.astype(np.int64), test_size=0.5, random_state=0
    )
    # Accuracy is measured on rows that neither model was trained on, by the name of the input.
    evaluation = given.folder / "held_out.npz"
    np.savez(evaluation, features=held_out, labels=truth)

    pipeline, module = given.folder / "wine-linear.onnx", given.folder / "wine-mlp.pt2"
    modelless.export(train_pipeline(rows, labels), rows[:8], pipeline)
    example_inputs = torch.tensor(rows[:8])
    modelless.export(train_module(rows, labels), example_inputs, module, input_names=["features"])
    for model in (pipeline, module):
        register(model, evaluation)

    token = os.environ.get("MODELLESS_API_TOKEN", "")
    with modelless.Client(given.url, token=token) as client:
        for preference in ("cost", "accuracy"):
            reply = client.query(TASK, held_out[:3], prefer=preference, latency_ms=2_000)
            print(f"prefer {preference}: {', '.join(reply.labels)} from {reply.variant}")


if __name__ == "__main__":
    main()
