"""The row that the example task is asked with where somebody names none: a handwritten 3."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

EXAMPLE = "digits"
"""The task of ``modelless up --example digits``."""
THREE = (
    0, 0, 7, 15, 13, 1, 0, 0,
    0, 8, 13, 6, 15, 4, 0, 0,
    0, 2, 1, 13, 13, 0, 0, 0,
    0, 0, 2, 15, 11, 1, 0, 0,
    0, 0, 0, 1, 12, 12, 1, 0,
    0, 0, 0, 0, 1, 10, 8, 0,
    0, 0, 8, 4, 5, 14, 9, 0,
    0, 0, 7, 13, 13, 9, 0, 0,
)  # fmt: skip
"""8 x 8 pixels, from 0 to 16, of scikit-learn's ``load_digits``."""


def is_example(task: str, inputs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a task is the example by its name, and takes such rows."""
    return task == EXAMPLE and len(inputs) == 1 and prod(inputs[0]["shape"]) == len(THREE)
