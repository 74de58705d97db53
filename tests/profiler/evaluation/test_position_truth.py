"""Rows of files whose positions are judged one by one: labels and targets as they are read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler.evaluation.labelled_rows import LabelledRows, read_task_rows
from profiler.evaluation.rows_by_length import fit_rows
from tests.variants.tagging import tagging
from variants.errors import InvalidArtifact
from variants.metrics.positions import IGNORED
from variants.types import FollowingAxis, LengthBucket, Task, TaskName, TensorSpec

TAGS = tagging(4)
IDS = np.array([[5, 6, 1, 1], [7, 1, 1, 1], [5, 6, 7, 8]])
MASK = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]])
WEIGHT = np.ones((3, 2), np.float32)
LABELS = np.array([[0, 1, 2, 2], [2, 9, 9, 9], [0, IGNORED, 1, 0]])


def vectors(length: int, metric: str = "cosine", along: int = 0) -> Task:
    shape = (length, 2) if along == 0 else (2, length)
    axes = TAGS.bucket.axes if TAGS.bucket else ()
    return tagging(
        length,
        labels=(),
        metric=metric,
        outputs=(TensorSpec(name="y", dtype="float32", shape=shape),),
        bucket=LengthBucket(
            of=TaskName("tags"),
            length=length,
            axes=axes,
            outputs=(FollowingAxis(output="y", axis=along),),
        ),
    )


def read(folder: Path, task: Task = TAGS, *, unlabelled: bool = False, **truth: Any) -> Any:
    path = folder / "rows.npz"
    np.savez(path, ids=IDS, mask=MASK, weight=WEIGHT, **truth)
    return read_task_rows(path, task, unlabelled=unlabelled)


def test_behind_the_end_of_a_row_nothing_is_judged(tmp_path: Path) -> None:
    found = read(tmp_path, labels=LABELS)
    assert found.labels.tolist() == [
        [0, 1, 2, IGNORED],
        [2, IGNORED, IGNORED, IGNORED],
        [0, IGNORED, 1, 0],
    ]


def test_labels_may_be_names_and_no_name_says_nothing(tmp_path: Path) -> None:
    names = np.array([["O", "B", "", ""], ["I", "?", "?", "?"], ["O", "O", "B", "I"]])
    found = read(tmp_path, labels=names)
    assert found.labels.tolist() == [
        [0, 1, IGNORED, IGNORED],
        [2, IGNORED, IGNORED, IGNORED],
        [0, 0, 1, 2],
    ]


@pytest.mark.parametrize("along", [0, 1])
def test_targets_are_nan_where_nothing_is_judged(tmp_path: Path, along: int) -> None:
    given = np.arange(24.0).reshape(3, 4, 2) + 1
    given[2, 1] = np.nan
    given[1, 3] = np.inf  # behind its end
    found = read(tmp_path, vectors(4, along=along), targets=np.moveaxis(given, 1, along + 1))
    assert found.targets.dtype == np.float32
    by_position = np.moveaxis(found.targets, along + 1, 1)
    missing = np.isnan(by_position).all(axis=2).tolist()
    assert missing == [
        [False, False, False, True],
        [False, True, True, True],
        [False, True, False, False],
    ]
    assert by_position[0, 1].tolist() == [3.0, 4.0]


def test_neighbours_have_any_labels(tmp_path: Path) -> None:
    found = read(tmp_path, vectors(4, "nearest"), labels=LABELS + 50)
    assert found.labels[0].tolist() == [50, 51, 52, IGNORED]


def test_rows_to_calibrate_with_need_none(tmp_path: Path) -> None:
    assert read(tmp_path, unlabelled=True).labels is None


@pytest.mark.parametrize(
    ("task", "truth", "why"),
    [
        (
            TAGS,
            {"labels": np.array([0, 1, 2])},
            r"array 'labels' has shape \(3,\), not \(rows, 4\): a label for each position of a row,"
            r" -100 where there is none",
        ),
        (
            TAGS,
            {"labels": np.where(LABELS == 2, 3, LABELS)},
            "has 3 in row 0, position 2; the task's labels are 0 to 2",
        ),
        (
            TAGS,
            {"labels": np.where(LABELS == 2, "X", "B")},
            "has 'X' in row 0, position 2; the task's classes are called O, B, I",
        ),
        (TAGS, {"labels": np.full((3, 4), IGNORED)}, "says of no position what is right"),
        (TAGS, {"labels": LABELS[:2]}, "differ in their number of rows: .* labels 2"),
        (TAGS, {"labels": np.array(3)}, r"array 'labels' has shape \(\)"),
        (vectors(4), {"targets": np.ones((3, 4, 3))}, r"has shape \(3, 4, 3\), not \(rows, 4, 2\)"),
        (
            vectors(4),
            {"targets": np.where(np.arange(24).reshape(3, 4, 2) == 2, np.nan, 1.0)},
            "is not finite in row 0, position 1; NaN in all of its numbers says",
        ),
        (
            vectors(4),
            {"targets": np.where(np.arange(24).reshape(3, 4, 2) // 2 == 1, 0.0, 1.0)},
            "is all zeros in row 0, position 1",
        ),
        (vectors(4), {"targets": np.full((3, 4, 2), np.nan)}, "says of no position"),
    ],
)
def test_what_is_no_truth_of_positions_is_refused(
    tmp_path: Path, task: Task, truth: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidArtifact, match=f"^rows.npz: .*{why}"):
        read(tmp_path, task, **truth)


def test_rows_are_saved_and_read_as_they_were(tmp_path: Path) -> None:
    for task, truth in (
        (TAGS, {"labels": LABELS}),
        (vectors(4), {"targets": np.ones((3, 4, 2))}),
    ):
        found: LabelledRows = read(tmp_path, task, **truth)
        found.save(tmp_path / "again.npz")
        assert read_task_rows(tmp_path / "again.npz", task).digest == found.digest


def follows(axis: int, **how: int) -> FollowingAxis:
    return FollowingAxis(output="tags", axis=axis, **how)


@pytest.mark.parametrize(("length", "kept"), [(3, [0, 1]), (4, [0, 1, 2]), (6, [0, 1, 2])])
def test_what_is_right_is_cut_and_filled_up_with_the_rows(
    tmp_path: Path, length: int, kept: list[int]
) -> None:
    task = tagging(length)
    assert task.bucket is not None
    turned = np.arange(24.0).reshape(3, 2, 4) + 1
    cases: list[tuple[Task, str, Any, int]] = [
        (task, "labels", LABELS.astype(np.uint8) % 3, 0),
        (task, "labels", np.where(MASK == 1, "B", ""), 0),
        (vectors(length, along=1), "targets", turned, 1),
    ]
    for one, name, truth, along in cases:
        given = tmp_path / "given.npz"
        np.savez(given, ids=IDS, mask=MASK, weight=WEIGHT, **{name: truth})
        fit_rows(given, tmp_path / "fitted.npz", task.bucket.axes, length, (name, follows(along)))
        found = read_task_rows(tmp_path / "fitted.npz", one)
        assert len(found) == len(kept)
        right = found.truth
        assert right is not None
        assert right.shape[along + 1] == length
        known = ~np.isnan(right).all(axis=1) if right.dtype.kind == "f" else right != IGNORED
        assert known.sum(axis=1).tolist() == [3, 1, 4][: len(kept)]


def test_labels_of_whole_rows_are_left_as_they_are(tmp_path: Path) -> None:
    given = tmp_path / "given.npz"
    np.savez(given, ids=IDS, mask=MASK, labels=np.array([0, 1, 2]))
    assert TAGS.bucket is not None
    fit_rows(given, tmp_path / "fitted.npz", TAGS.bucket.axes, 6, ("labels", follows(0)))
    with np.load(tmp_path / "fitted.npz") as found:
        assert found["labels"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("length", [4, 6])
def test_outputs_that_are_a_part_of_the_rows_are_judged_by_their_own_positions(
    tmp_path: Path, length: int
) -> None:
    halves = FollowingAxis(output="scores", axis=0, step=2, offset=1)  # of 4 two, of 1 one
    scores = TensorSpec(name="scores", dtype="float32", shape=(halves.size(length), 3))
    task = tagging(length)
    assert task.bucket is not None
    task = replace(task, outputs=(scores,), bucket=replace(task.bucket, outputs=(halves,)))
    assert task.bucket is not None
    given = tmp_path / "given.npz"
    labels = np.array([[0, 1], [2, 0], [1, 1]])
    np.savez(given, ids=IDS, mask=MASK, weight=WEIGHT, labels=labels)
    fit_rows(given, tmp_path / "fitted.npz", task.bucket.axes, length, ("labels", halves))
    right = read_task_rows(tmp_path / "fitted.npz", task).truth
    assert right is not None
    expected = [[0, 1], [2, IGNORED], [1, 1]]
    assert right.tolist() == [row + [IGNORED] * (halves.size(length) - 2) for row in expected]
