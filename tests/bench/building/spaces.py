"""Whether vectors of different models can be compared: ``python -m tests.bench.building.spaces``.

The encoder of ``examples/numbers_and_vectors.py`` is trained twice, from different random numbers,
and each is rounded to half precision. Of held-out images it prints the share whose nearest other
image shows the same digit, where an image's vector is by one model and those of the others by
another one. Within one model that is its accuracy by ``nearest``.
"""

from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import nn

Vectors = NDArray[np.float32]


def encoder(rows: Vectors, labels: NDArray[np.int64], seed: int) -> nn.Module:
    """A module that gives ``(rows, 16)``, trained as the body of a classifier."""
    torch.manual_seed(seed)
    body = nn.Sequential(nn.BatchNorm1d(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
    head = nn.Sequential(nn.ReLU(), nn.Linear(16, 10))
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=0.01)
    for _ in range(60):
        loss = nn.functional.cross_entropy(head(body(torch.tensor(rows))), torch.tensor(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return body.eval()


def vectors(module: nn.Module, rows: Vectors, *, half: bool) -> Vectors:
    """Unit vectors of some rows; ``half``: by weights of half precision."""
    if half:
        for weights in (*module.parameters(), *module.buffers()):
            if weights.is_floating_point():
                weights.data = weights.data.half().float()
    found: Vectors = module(torch.tensor(rows)).detach().numpy()
    unit: Vectors = found / np.linalg.norm(found, axis=1, keepdims=True)
    return unit


def nearest(asked: Vectors, known: Vectors, labels: NDArray[np.int64]) -> float:
    """The share of rows whose nearest other row has the same label."""
    likeness = asked @ known.T
    np.fill_diagonal(likeness, -np.inf)
    return float((labels[likeness.argmax(axis=1)] == labels).mean())


def main() -> None:
    images, digits = load_digits(return_X_y=True)
    images = images.astype(np.float32)
    trained, labels, held_out = images[::2], digits[1::2], images[1::2]
    made = {}
    for seed, half in product((0, 1), (False, True)):
        module = encoder(trained, digits[::2], seed)
        made[f"model {seed}{', half' if half else ''}"] = vectors(module, held_out, half=half)
    print(f"{'asked by':<16}{''.join(f'{name:>16}' for name in made)}")
    for name, asked in made.items():
        shares = [nearest(asked, known, labels) for known in made.values()]
        print(f"{name:<16}{''.join(f'{share:>16.4f}' for share in shares)}")


if __name__ == "__main__":
    main()
