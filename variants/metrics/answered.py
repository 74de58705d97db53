"""Answered: into which classes answers fall, whatever is right.

That needs nobody's word, so it is known of every row that is answered. Classes are counted in
cells: one for each, or one for several neighbouring classes where there are more than
``MOST_CELLS``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from variants.metrics.metric import parse_metric
from variants.types import Task

MOST_CELLS = 256


def classes_of(task: Task) -> int:
    """Into how many classes the answers to a task's rows fall; 0 where they are no classes, or
    where each position of a row has one."""
    shape = task.outputs[0].shape
    return shape[0] if parse_metric(task.metric).classifies and len(shape) == 1 else 0


def cells_of(classes: int) -> int:
    """In how many cells so many classes are counted."""
    return min(classes, MOST_CELLS)


def cell_counts(scores: NDArray[Any]) -> NDArray[np.int64]:
    """How many rows of scores ``(rows, classes)`` are answered by a class of each cell,
    ``(cells,)``."""
    classes = scores.shape[1]
    best = scores.argmax(axis=1)
    if classes > MOST_CELLS:
        best = best * MOST_CELLS // classes
    return np.bincount(best, minlength=cells_of(classes))


def count_into(counts: NDArray[np.int64], scores: NDArray[Any]) -> None:
    """Add ``cell_counts`` of scores to what was counted, which for one row takes a third of the
    time so: every batch of a worker passes here."""
    classes = scores.shape[1]
    if len(scores) == 1 and classes <= MOST_CELLS:
        counts[scores.argmax()] += 1
    else:
        counts += cell_counts(scores)


def found_counts(scores: NDArray[Any], labels: NDArray[Any]) -> list[list[int]]:
    """For each cell, how many rows of its classes are answered by their own one, and how many rows
    there are.

    Args:
        scores: ``(rows, classes)``.
        labels: the right class of each, ``(rows,)``.
    """
    classes = scores.shape[1]
    cells = labels * MOST_CELLS // classes if classes > MOST_CELLS else labels
    right = scores.argmax(axis=1) == labels
    found, rows = (np.bincount(each, minlength=cells_of(classes)) for each in (cells[right], cells))
    return [[int(one), int(of)] for one, of in zip(found, rows, strict=True)]


def classes_in(cell: int, classes: int) -> range:
    """The classes that are counted in a cell."""
    if classes <= MOST_CELLS:
        return range(cell, cell + 1)
    begin, end = (-(-classes * each // MOST_CELLS) for each in (cell, cell + 1))
    return range(begin, end)
