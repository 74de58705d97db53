"""Of how many models that are used rightly, and are just not good, a registration says that they
would be better otherwise.

    python -m tests.bench.building.suspected [--models 2000]

Classes are points with noise, of pictures or of features. Half of the models are the nearest mean
of a few rows of each class, and half have random weights.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from profiler.evaluation.suspicions import GOOD, suspicion
from variants.metrics.metric import TOP1
from workers.runtimes.protocol import Tensor

SHAPES = ((3, 8, 8), (1, 8, 8), (24,))
CLASSES, ROWS = (2, 3, 10, 50), (60, 100, 200, 600)
FEW = 20
"""Rows of each class that means are of."""


def flat(rows: Tensor) -> Tensor:
    return rows.reshape(len(rows), -1)


def tried(seed: int) -> tuple[str, float, str]:
    """What kind of model it is, its accuracy, and what is said."""
    rng = np.random.default_rng(seed)
    shape, classes, count = SHAPES[seed % 3], int(rng.choice(CLASSES)), int(rng.choice(ROWS))
    noise, middles = float(rng.uniform(0.15, 1.8)), rng.random((classes, *shape))

    def drawn(rows: int) -> tuple[Tensor, Tensor]:
        labels = rng.integers(0, classes, rows)
        beside = noise * rng.standard_normal((rows, *shape))
        return (middles[labels] + beside).astype(np.float32), labels

    rows, labels = drawn(count)
    kind = "random" if seed % 2 else "means"
    answer: Callable[[Sequence[Tensor]], Tensor]
    if kind == "random":
        weights = rng.standard_normal((flat(rows).shape[1], classes))

        def answer(given: Sequence[Tensor]) -> Tensor:
            return np.asarray(np.maximum(flat(given[0]), 0) @ weights)
    else:
        known, of = drawn(FEW * classes)
        means = np.stack(
            [flat(known)[of == each].mean(axis=0) for each in range(classes) if (of == each).any()]
        )

        def answer(given: Sequence[Tensor]) -> Tensor:
            found = -((flat(given[0])[:, None] - means[None]) ** 2).sum(axis=2)
            return np.pad(found, ((0, 0), (0, classes - len(means))), constant_values=-1e9)

    outputs = answer([rows])
    accuracy = float((outputs.argmax(axis=1) == labels).mean())
    return kind, accuracy, suspicion(TOP1, outputs, labels, [rows], answer)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=2_000)
    found = [tried(seed) for seed in range(parser.parse_args().models)]
    for kind in ("means", "random"):
        own = [(accuracy, said) for each, accuracy, said in found if each == kind]
        words = Counter(
            "one answer" if said.startswith("it answers") else said.split(", ", 2)[-1].split(":")[0]
            for _, said in own
            if said
        )
        looked_at = sum(accuracy < GOOD for accuracy, _ in own)
        print(f"{kind}: {len(own)} models, {looked_at} below {GOOD}; said: {dict(words)}")


if __name__ == "__main__":
    main()
