"""Whether numbers are finite: asked of every tensor that a client sends or a model gives."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

FEW = 4_096
"""Up to so many are looked at as bytes, which takes a tenth of asking NumPy whether all are true:
that is a function in Python around another one."""


def all_finite(numbers: NDArray[Any]) -> bool:
    """Whether an array of floating-point numbers holds no NaN and no infinite value."""
    found = np.isfinite(numbers)
    return bool(found.all()) if found.size > FEW else found.tobytes().find(b"\0") < 0
