"""Rows of several lengths for a bucket: which are kept, and what they look like."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler.evaluation.rows_by_length import fit_rows
from variants.errors import InvalidArtifact
from variants.types import OpenAxis

AXES = (OpenAxis(input="ids", axis=0, pad=9.0), OpenAxis(input="mask", axis=0))
IDS = np.array([[1, 2, 9, 9], [9, 9, 9, 9], [1, 2, 3, 4], [1, 9, 9, 9]])
MASK = np.array([[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
LABELS = np.array([0, 1, 2, 3])


def fitted(folder: Path, length: int, **arrays: Any) -> dict[str, Any]:
    given = {"ids": IDS, "mask": MASK, "labels": LABELS} | arrays
    np.savez(folder / "rows.npz", **given)
    fit_rows(folder / "rows.npz", folder / "fitted.npz", AXES, length)
    with np.load(folder / "fitted.npz", allow_pickle=False) as found:
        return {name: found[name].tolist() for name in found.files}


def test_longer_rows_are_left_out_and_shorter_ones_cut(tmp_path: Path) -> None:
    # The first row is 3 long by its mask, though its third id is what fills up.
    assert fitted(tmp_path, 3) == {
        "ids": [[1, 2, 9], [9, 9, 9], [1, 9, 9]],
        "mask": [[1, 1, 1], [0, 0, 0], [1, 0, 0]],
        "labels": [0, 1, 3],
    }


def test_rows_are_filled_up_with_what_their_input_says(tmp_path: Path) -> None:
    found = fitted(tmp_path, 6)
    assert found["ids"][2] == [1, 2, 3, 4, 9, 9]
    assert found["mask"][2] == [1, 1, 1, 1, 0, 0]
    assert found["labels"] == [0, 1, 2, 3]


def test_a_length_that_no_row_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArtifact, match=r"shortest of its 1 row has the length 4, so none"):
        fitted(tmp_path, 2, ids=IDS[2:3], mask=MASK[2:3], labels=LABELS[2:3])


def test_what_is_wrong_with_a_file_is_left_for_the_reader_of_rows(tmp_path: Path) -> None:
    found = fitted(tmp_path, 3, mask=np.array(1))
    assert found["mask"] == 1
    assert fitted(tmp_path, 3, ids=IDS[:2])["mask"] == MASK.tolist()


def test_arrays_along_another_axis(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=np.array([[[1.0, 0.0], [0.0, 0.0]]]))
    axes = (OpenAxis(input="x", axis=1),)
    fit_rows(tmp_path / "rows.npz", tmp_path / "fitted.npz", axes, 3)
    with np.load(tmp_path / "fitted.npz") as found:
        assert found["x"].tolist() == [[[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]
