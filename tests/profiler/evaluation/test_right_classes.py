"""The right classes of evaluation rows, said by numbers or by names."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler.evaluation.labelled_rows import read_task_rows
from profiler.evaluation.right_classes import right_classes
from tests.variants.catalog_builders import task as digits_task
from variants.errors import InvalidArtifact

NAMES = ("leaves", "stays")


def test_names_become_the_places_that_the_classes_have() -> None:
    found = right_classes("x", np.array(["stays", "leaves", "stays"]), 2, NAMES)
    assert found.tolist() == [1, 0, 1]
    assert found.dtype == np.dtype("int64")


@pytest.mark.parametrize(
    ("labels", "names", "places"),
    [
        ([2, 1, 2], ("1", "2", "3"), [1, 0, 1]),  # also where they could be places
        ([10, 3], ("3", "10"), [1, 0]),
        ([-1, 1], ("-1", "1"), [0, 1]),
        ([0, 2], ("1", "2", "3"), [0, 2]),  # 0 is no name
        ([0, 2], ("2", "0", "1"), [0, 2]),  # as they always were
        ([1, 0], NAMES, [1, 0]),
        ([True, False], NAMES, [1, 0]),
        ([True, False], ("False", "True"), [1, 0]),
    ],
)
def test_numbers_are_names_where_the_classes_are_called_by_other_numbers(
    labels: list[int], names: tuple[str, ...], places: list[int]
) -> None:
    assert right_classes("x", np.array(labels), len(names), names).tolist() == places


def test_where_there_are_no_classes_names_tell_what_is_alike() -> None:
    assert right_classes("x", np.array(["b", "a", "b"]), None).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("labels", "names", "sentence"),
    [
        (["stays", "gone"], NAMES, "has 'gone' in row 1; the task's classes are called leaves"),
        (["stays"], (), "holds names, and the task's classes have none: --labels names them"),
        ([[0, 1]], NAMES, r"not \(rows\): of one-hot rows .argmax\(axis=1\) makes one number"),
        ([[0], [1]], NAMES, r"not \(rows\): .ravel\(\) makes one number for each row"),
        ([0.0, 1.0], NAMES, "has type float64; labels are integers, from 0, or names of classes"),
        ([1, 2], NAMES, "has 2 in row 1; the task's labels are 0 to 1"),
        ([3, 5], ("3", "10"), "has 3 in row 0; the task's labels are 0 to 1, or 3, 10"),
    ],
)
def test_what_says_no_classes(labels: Any, names: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(InvalidArtifact, match=f"^f.npz: array .labels. .*{sentence}"):
        right_classes("f.npz: array 'labels'", np.array(labels), 2, names)


def test_a_file_of_a_task_with_names_may_hold_them(tmp_path: Path) -> None:
    task = digits_task()
    size = task.inputs[0].shape
    path = tmp_path / "rows.npz"
    rows = np.zeros((2, *size), np.float32)
    np.savez(path, pixels=rows, labels=np.array(["c", "a"]))
    read = read_task_rows(path, task)
    assert read.labels is not None
    assert read.labels.tolist() == [2, 0]


def test_a_table_is_told_what_makes_a_file_of_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InvalidArtifact, match=r"numpy.savez\('rows.npz', features=table"):
        read_task_rows(path, digits_task())
