"""Rows that are judged position by position: a label or a vector for each token of a text.

The first output is ``(rows, ...)`` with the positions along one axis of a row. What is right has as
many: labels ``(rows, positions)``, or targets of the output's shape. It also says which positions
are judged at all: not those with the label ``IGNORED``, or whose targets are all NaN. So are
positions behind the end of a row marked, and those for which nothing is right, such as the pieces
of a word behind its first one.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Flags = NDArray[np.bool_]

IGNORED = -100
"""The label of a position that is not judged, as in PyTorch's cross entropy."""


def judged_positions(truth: Array, axis: int) -> Flags:
    """Which positions ``(rows, positions)`` are judged, by labels or targets.

    Args:
        axis: of a row of the output, along which its positions are.
    """
    if truth.dtype.kind != "f":
        return np.asarray(truth != IGNORED)
    apart = positions_first(truth, axis)
    return np.asarray(~np.isnan(apart).reshape(*apart.shape[:2], -1).all(axis=2))


def positions_first(array: Array, axis: int) -> Array:
    """``(rows, *shape)`` as ``(rows, positions, *rest)``, a view."""
    return np.moveaxis(array, axis + 1, 1)


def at_positions(outputs: Array, flags: Flags, axis: int) -> Array:
    """The outputs ``(rows, *shape)`` of the positions that are judged: ``(judged, *rest)``."""
    return np.asarray(positions_first(outputs, axis)[flags])


def truth_at(truth: Array, flags: Flags, axis: int) -> Array:
    """Labels ``(rows, positions)`` or targets ``(rows, *shape)`` of the positions that are judged:
    ``(judged,)`` or ``(judged, *rest)``."""
    return truth[flags] if truth.dtype.kind != "f" else at_positions(truth, flags, axis)
