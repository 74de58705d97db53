"""From training to an answer with models that are no classifiers: a regressor and an encoder.

Start modelless in another terminal with ``make up``, and run::

    .venv/bin/python examples/numbers_and_vectors.py

The regressor says how far a diabetes will be after a year (data of scikit-learn). Its
task, ``diabetes``, is judged by how many of the held-out answers are within 75 of the truth. The
encoder turns images of digits into vectors of 16 numbers. Its task, ``likeness``, is judged by
whether the nearest neighbour of an image shows the same digit. Files go to ``--folder``.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, load_digits
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import modelless

Rows = NDArray[np.float32]


def train_regressor(rows: Rows, targets: Rows) -> object:
    """A fitted scikit-learn pipeline for rows of shape ``(rows, 10)``; it answers ``(rows, 1)``."""
    return make_pipeline(StandardScaler(), Ridge()).fit(rows, targets)


def train_encoder(rows: Rows, labels: NDArray[np.int64]) -> nn.Module:
    """A PyTorch module that gives a vector ``(rows, 16)`` for images ``(rows, 64)``.

    It is trained as the body of a classifier whose head is then left out.
    """
    torch.manual_seed(0)
    body = nn.Sequential(nn.BatchNorm1d(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
    head = nn.Sequential(nn.ReLU(), nn.Linear(16, 10))
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=0.01)
    for _ in range(60):
        scores = head(body(torch.tensor(rows)))
        loss = nn.functional.cross_entropy(scores, torch.tensor(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return body.eval()


def register(model: Path, task: str, metric: str, evaluation: Path) -> None:
    """Hand a file in. ``--variants`` keeps it short here; without it all kinds are built."""
    modelless_command = Path(sys.executable).with_name("modelless")
    options = ["--task", task, "--metric", metric, "--eval", str(evaluation)]
    kinds = ["--variants", "onnx-int8"]
    subprocess.run([modelless_command, "register", str(model), *options, *kinds], check=True)


def wait_until_answered(client: modelless.Client, task: str, row: np.ndarray) -> None:
    for _ in range(60):
        try:
            client.query(task, row, latency_ms=2_000)
            return
        except modelless.ModellessError:
            time.sleep(0.5)
    raise SystemExit(f"{task} is not answered; see: modelless status")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--url", help="else MODELLESS_URL, or this machine")
    options.add_argument("--folder", type=Path, default=Path("numbers-and-vectors"))
    given = options.parse_args()
    folder = given.folder
    folder.mkdir(parents=True, exist_ok=True)

    # Every second row is held out: accuracy is measured on what the models were not trained on.
    patients, progression = load_diabetes(return_X_y=True)
    patients, progression = patients.astype(np.float32), progression.astype(np.float32)
    regressor = folder / "ridge.onnx"
    modelless.export(train_regressor(patients[::2], progression[::2]), patients[::2], regressor)
    evaluation = folder / "patients.npz"
    np.savez(evaluation, features=patients[1::2], targets=progression[1::2])
    register(regressor, "diabetes", "within:75", evaluation)

    images, digits = load_digits(return_X_y=True)
    images = images.astype(np.float32)
    encoder = folder / "encoder.pt2"
    module = train_encoder(images[::2], digits[::2])
    modelless.export(
        module, torch.tensor(images[:8]), encoder, input_names=["pixels"], output_names=["vector"]
    )
    evaluation = folder / "images.npz"
    np.savez(evaluation, pixels=images[1::2], labels=digits[1::2])
    register(encoder, "likeness", "nearest", evaluation)

    token = os.environ.get("MODELLESS_API_TOKEN", "")
    with modelless.Client(given.url, token=token) as client:
        # What runs takes a new task up within seconds.
        for task, row in (("diabetes", patients[:1]), ("likeness", images[:1])):
            wait_until_answered(client, task, row)

        reply = client.query("diabetes", patients[1:6:2], accuracy=0.5, latency_ms=2_000)
        said = ", ".join(f"{row[0]:.0f}" for row in reply.outputs)
        truth = ", ".join(f"{target:.0f}" for target in progression[1:6:2])
        print(f"diabetes: {said} where {truth} are right, from {reply.variant}")
        print(f"  {reply.accuracy:.0%} of its answers are within 75 of what is right")

        known = client.query("likeness", images[1:41:2], accuracy=0.9, latency_ms=2_000)
        asked = client.query("likeness", images[41:46:2], accuracy=0.9, latency_ms=2_000)
        nearest = cosine_similarity(asked.outputs, known.outputs).argmax(axis=1)
        pairs = zip(digits[41:46:2], digits[1:41:2][nearest], strict=True)
        print(f"likeness: {', '.join(f'{one} is like {other}' for one, other in pairs)}")


if __name__ == "__main__":
    main()
