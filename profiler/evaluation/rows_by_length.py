"""Rows of several lengths, as a file has them, for a bucket of one length.

In a file all rows are equally long: short ones are filled up behind their end. So the length of a
row is where its last value stands that is no padding, in any of the inputs that have such an axis.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profiler.evaluation.npz_arrays import read_arrays
from profiler.evaluation.position_truth import UNSAID, row_lengths
from variants.errors import InvalidArtifact
from variants.figures import counted
from variants.metrics.positions import IGNORED
from variants.types import FollowingAxis, OpenAxis


def fit_rows(
    path: Path,
    target: Path,
    axes: Sequence[OpenAxis],
    length: int,
    truth: tuple[str, FollowingAxis] | None = None,
) -> None:
    """Write the rows of a file that are not longer than this, each exactly so long.

    What is wrong with the file is left as it is, for whoever reads the rows of a task to refuse.

    Args:
        truth: where positions are judged one by one, the array with what is right, and how many of
            them a row has along which of its axes.

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
        lengths = row_lengths(arrays, list(open_axes.values()))
        kept = np.flatnonzero(lengths <= length)
        if not len(kept):
            raise InvalidArtifact(
                f"{path.name}: the shortest of its {counted(len(lengths), 'row')} has the length"
                f" {int(lengths.min())}, so none is left for rows of up to {length}: add shorter"
                " ones, or leave that length out"
            )
        arrays = {
            name: array[kept] if array.ndim and len(array) == len(lengths) else array
            for name, array in arrays.items()
        }
        for name, axis in open_axes.items():
            pad = np.asarray(axis.pad).astype(arrays[name].dtype)
            arrays[name] = _of_length(arrays[name], axis.axis, length, pad)
        if truth is not None and truth[0] in arrays and arrays[truth[0]].ndim > truth[1].axis + 1:
            name, along = truth
            arrays[name] = _truth_of_length(arrays[name], along.axis, along.size(length))
    np.savez(target, **arrays)  # type: ignore[arg-type]


def _truth_of_length(rows: NDArray[Any], along: int, length: int) -> NDArray[Any]:
    """Labels or targets cut off or filled up with what says that nothing is judged."""
    match rows.dtype.kind:
        case "i" | "u":
            return _of_length(rows.astype(np.int64), along, length, IGNORED)
        case "f":
            return _of_length(rows, along, length, np.nan)
        case "U":
            return _of_length(rows, along, length, UNSAID)
        case _:  # is refused where rows are read
            return rows


def _of_length(rows: NDArray[Any], axis: int, length: int, pad: Any) -> NDArray[Any]:
    """The rows cut off or filled up along an axis of theirs; what is cut off is padding."""
    at = axis + 1
    cut = rows[(slice(None),) * at + (slice(length),)]
    missing = length - cut.shape[at]
    if not missing:
        return cut
    widths = [(0, missing if one == at else 0) for one in range(rows.ndim)]
    return np.pad(cut, widths, constant_values=pad)
