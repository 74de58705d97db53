"""Rows of several lengths, as a file has them, for a bucket of one length.

In a file all rows are equally long: short ones are filled up behind their end. So the length of a
row is where its last value stands that is no padding, in any of the inputs that have such an axis.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profiler.evaluation.labelled_rows import read_arrays
from variants.errors import InvalidArtifact
from variants.types import OpenAxis


def fit_rows(path: Path, target: Path, axes: Sequence[OpenAxis], length: int) -> None:
    """Write the rows of a file that are not longer than this, each exactly so long.

    What is wrong with the file is left as it is, for whoever reads the rows of a task to refuse.

    Raises:
        InvalidArtifact: the file is no such file, or all its rows are longer.
    """
    arrays = read_arrays(path)
    open_axes = {
        axis.input: axis
        for axis in axes
        if axis.input in arrays and arrays[axis.input].ndim > axis.axis + 1
    }
    counts = {len(arrays[name]) for name in open_axes}
    if len(counts) == 1 and counts != {0}:
        lengths = np.max([_lengths(arrays[name], axis) for name, axis in open_axes.items()], axis=0)
        kept = np.flatnonzero(lengths <= length)
        if not len(kept):
            raise InvalidArtifact(
                f"{path.name}: the shortest of its {len(lengths)} rows has the length"
                f" {int(lengths.min())}, so none is left for rows of up to {length}: add shorter"
                " ones, or leave that length out"
            )
        arrays = {
            name: array[kept] if array.ndim and len(array) == len(lengths) else array
            for name, array in arrays.items()
        }
        for name, axis in open_axes.items():
            arrays[name] = _of_length(arrays[name], axis, length)
    np.savez(target, **arrays)  # type: ignore[arg-type]


def _lengths(rows: NDArray[Any], axis: OpenAxis) -> NDArray[np.int64]:
    """How long each row is, at least 1."""
    along = np.moveaxis(rows, axis.axis + 1, 1)
    used = (along != np.asarray(axis.pad).astype(rows.dtype)).reshape(*along.shape[:2], -1).any(2)
    ends: NDArray[np.int64] = np.where(used, np.arange(1, used.shape[1] + 1), 1).max(1, initial=1)
    return ends


def _of_length(rows: NDArray[Any], axis: OpenAxis, length: int) -> NDArray[Any]:
    """The rows cut off or filled up; what is cut off is padding."""
    at = axis.axis + 1
    cut = rows[(slice(None),) * at + (slice(length),)]
    missing = length - cut.shape[at]
    if not missing:
        return cut
    widths = [(0, missing if one == at else 0) for one in range(rows.ndim)]
    return np.pad(cut, widths, constant_values=np.asarray(axis.pad).astype(rows.dtype))
