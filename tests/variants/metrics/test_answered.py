"""Into which classes answers fall."""

from dataclasses import replace

import numpy as np
import pytest

from tests.planner.builders import task
from variants.metrics.answered import (
    MOST_CELLS,
    cell_counts,
    cells_of,
    classes_in,
    classes_of,
    count_into,
)
from variants.types import TensorSpec


def test_each_row_counts_for_the_class_with_the_highest_score() -> None:
    scores = np.array([[0.1, 0.9, 0.0], [0.8, 0.1, 0.1], [0.2, 0.5, 0.3]], np.float32)
    assert cell_counts(scores).tolist() == [1, 2, 0]
    counts = np.zeros(3, np.int64)
    for rows in (scores, scores[:1], scores[1:2]):
        count_into(counts, rows)
    assert counts.tolist() == [2, 3, 0]


@pytest.mark.parametrize("classes", [2, MOST_CELLS, MOST_CELLS + 1, 1_000, 100_000])
def test_each_class_is_counted_in_the_one_cell_that_says_so(classes: int) -> None:
    cells = [classes_in(cell, classes) for cell in range(cells_of(classes))]
    assert [at for each in cells for at in each] == list(range(classes))
    for at in {0, classes // 3, classes - 1}:
        scores = np.zeros((2, classes), np.float32)
        scores[:, at] = 1.0
        (cell,) = np.flatnonzero(cell_counts(scores))
        assert at in cells[cell]
        assert cell_counts(scores).sum() == 2


@pytest.mark.parametrize(
    ("metric", "shape", "classes"),
    [("top1", (10,), 10), ("f1", (2,), 2), ("top1", (16, 5), 0), ("within:0.5", (10,), 0)],
    ids=["classes", "rare ones", "each position", "numbers"],
)
def test_only_classes_of_whole_rows_are_counted(
    metric: str, shape: tuple[int, ...], classes: int
) -> None:
    outputs = (TensorSpec(name="scores", dtype="float32", shape=shape),)
    assert classes_of(replace(task(), metric=metric, outputs=outputs)) == classes
