"""What is right at each position of rows of several lengths: a label, or a target.

Files have one array for all rows, so there is something at positions behind the end of a row, too:
whatever it is, it is replaced by what says that the position is not judged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profiler.evaluation.right_classes import right_classes
from variants.errors import InvalidArtifact
from variants.metrics.positions import IGNORED, Flags, judged_positions, positions_first
from variants.types import FollowingAxis, OpenAxis

UNSAID = ""
"""The name of a class at a position that is not judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByPosition:
    """How a task is judged position by position."""

    axes: tuple[OpenAxis, ...]
    """Of the inputs: where a row ends."""
    first: FollowingAxis
    """How long the first output is for a row, and along which axis."""
    length: int
    """Of the first output, once rows are filled up."""

    @property
    def along(self) -> int:
        """The axis of a row of the first output."""
        return self.first.axis


def row_lengths(arrays: Mapping[str, NDArray[Any]], axes: Sequence[OpenAxis]) -> NDArray[np.int64]:
    """How long each row is, at least 1: up to its last value that is no padding, in any input."""
    return np.asarray(np.max([_lengths(arrays[axis.input], axis) for axis in axes], axis=0))


def _lengths(rows: NDArray[Any], axis: OpenAxis) -> NDArray[np.int64]:
    along = np.moveaxis(rows, axis.axis + 1, 1)
    used = (along != np.asarray(axis.pad).astype(rows.dtype)).reshape(*along.shape[:2], -1).any(2)
    ends: NDArray[np.int64] = np.where(used, np.arange(1, used.shape[1] + 1), 1).max(1, initial=1)
    return ends


def within_rows(inputs: Mapping[str, NDArray[Any]], by: ByPosition) -> Flags:
    """Which positions ``(rows, positions)`` are not behind the end of their row."""
    lengths = row_lengths(inputs, by.axes)
    ends = np.maximum(0, (lengths + by.first.offset) // by.first.step)
    return np.asarray(np.arange(by.length) < ends[:, None])


def position_labels(
    where: str,
    array: NDArray[Any],
    classes: int | None,
    names: Sequence[str],
    inside: Flags,
) -> NDArray[np.int64]:
    """Labels ``(rows, positions)`` as numbers of classes, ``IGNORED`` where nothing is judged:
    there the file has that number, no name, or anything behind the end of a row.

    Args:
        inside: which positions are not behind it, ``(rows, positions)``.

    Raises:
        InvalidArtifact: one sentence, which begins with ``where``.
    """
    if array.shape != inside.shape:
        raise InvalidArtifact(
            f"{where} has shape {array.shape}, not (rows, {inside.shape[1]}): a label for each"
            f" position of a row, {IGNORED} where there is none, as the first output is for each;"
            " --keep-outputs NAMES puts another one first"
        )
    named = array.dtype.kind == "U"
    judged = inside & (array != (UNSAID if named else IGNORED))
    _check_any(where, judged)
    rows, positions = np.nonzero(judged)
    found = np.full(array.shape, IGNORED, np.int64)
    found[judged] = right_classes(
        where,
        array[judged],
        classes,
        names,
        place=lambda at: f"row {rows[at]}, position {positions[at]}",
    )
    return found


def position_targets(
    where: str, array: NDArray[Any], by: ByPosition, inside: Flags
) -> NDArray[Any]:
    """Targets ``(rows, *shape)`` with NaN at all positions that are not judged: there the file has
    NaN, or anything behind the end of a row.

    Raises:
        InvalidArtifact: one sentence, which begins with ``where``.
    """
    found = array.copy()
    apart = positions_first(found, by.along)
    apart[~inside] = np.nan
    judged = judged_positions(found, by.along)
    _check_any(where, judged)
    if not np.isfinite(apart[judged]).all():
        wrong = judged & ~np.isfinite(apart).reshape(*judged.shape, -1).all(axis=2)
        row, position = np.argwhere(wrong)[0]
        raise InvalidArtifact(
            f"{where} is not finite in row {row}, position {position}; NaN in all of its numbers"
            " says that a position is not judged"
        )
    return found


def _check_any(where: str, judged: Flags) -> None:
    if not judged.any():
        raise InvalidArtifact(f"{where} says of no position what is right")
