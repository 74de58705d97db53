"""Labelled rows from files that are not to be trusted."""

import io
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.lib import format as npy

from profiler.evaluation.labelled_rows import (
    LabelledRows,
    check_rows,
    read_rows,
    read_task_rows,
    split_for_calibration,
)
from variants.errors import InvalidArtifact
from variants.types import Task, TaskName, TensorSpec

PIXELS = TensorSpec(name="pixels", dtype="float32", shape=(4,))


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


WHOLE = npz(pixels=np.arange(80, dtype="float32").reshape(20, 4), labels=np.arange(20) % 2)


def read(folder: Path, content: bytes) -> int:
    path = folder / "rows.npz"
    path.write_bytes(content)
    return len(read_rows(path, (PIXELS,), classes=2))


def test_compressed_rows_are_read(tmp_path: Path) -> None:
    assert read(tmp_path, WHOLE) == 20


@given(place=st.integers(0, len(WHOLE) - 1), value=st.integers(0, 255))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_damaged_byte_is_refused_or_harmless(tmp_path: Path, place: int, value: int) -> None:
    content = bytearray(WHOLE)
    content[place] = value
    with suppress(InvalidArtifact):  # and nothing else
        assert read(tmp_path, bytes(content)) == 20


@pytest.mark.parametrize(
    ("arrays", "unlabelled", "sentence"),
    [
        ({"pixels": [[1.0]], "labels": [0]}, False, ""),
        ({"pixels": [[1.0]]}, True, ""),
        ({"pixels": [[1.0]]}, False, "rows.npz lacks the array 'labels'; it has pixels"),
        ({"labels": [0]}, False, "rows.npz lacks an array of inputs; it has labels"),
        ({}, True, "rows.npz lacks an array of inputs; it has nothing"),
    ],
)
def test_of_no_task_are_rows_without_inputs_or_labels(
    tmp_path: Path, arrays: dict[str, Any], unlabelled: bool, sentence: str
) -> None:
    path = tmp_path / "rows.npz"
    path.write_bytes(npz(**arrays))
    said = ""
    try:
        check_rows(path, unlabelled=unlabelled)
    except InvalidArtifact as error:
        said = error.message
    assert said == sentence


def test_damaged_compression_is_refused(tmp_path: Path) -> None:
    content = bytearray(WHOLE)
    start = WHOLE.index(b"pixels.npy") + len(b"pixels.npy") + 20
    content[start : start + 8] = b"\xff" * 8

    with pytest.raises(InvalidArtifact, match=r"^rows.npz: array 'pixels' cannot be read$"):
        read(tmp_path, bytes(content))


def test_a_header_that_is_no_python_is_refused(tmp_path: Path) -> None:
    header = b"{'descr': ((((" + b" " * 49 + b"\n"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("pixels.npy", b"\x93NUMPY\x01\x00" + bytes([len(header), 0]) + header)

    with pytest.raises(InvalidArtifact, match=r"^rows.npz: array 'pixels' cannot be read$"):
        read(tmp_path, file.getvalue())


def rows_of(
    folder: Path, metric: str, *inputs: str, unlabelled: bool = False, **arrays: Any
) -> Any:
    """Rows of a task of that metric, whose first output is one number a row."""
    path = folder / "rows.npz"
    path.write_bytes(npz(**arrays))
    task = Task(
        name=TaskName("t"),
        inputs=tuple(TensorSpec(name=name, dtype="float32", shape=(1,)) for name in inputs),
        outputs=(TensorSpec(name="value", dtype="float32", shape=()),),
        metric=metric,
    )
    return read_task_rows(path, task, unlabelled=unlabelled)


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_targets_of_one_number_may_have_an_axis_for_it(
    tmp_path: Path, shape: tuple[int, ...], dtype: str
) -> None:
    targets = np.arange(3, dtype=dtype).reshape(shape)
    found = rows_of(tmp_path, "r2", "x", x=np.zeros((3, 1)), targets=targets)
    assert (found.targets.dtype, found.targets.tolist()) == (np.float32, [0.0, 1.0, 2.0])
    assert found.truth is found.targets
    assert found.take(np.array([2, 0])).targets.tolist() == [2.0, 0.0]
    found.save(tmp_path / "again.npz")
    with np.load(tmp_path / "again.npz") as again:
        assert sorted(again.files) == ["targets", "x"]


def test_an_input_may_be_called_targets_where_none_are_wanted(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"targets": np.zeros((2, 1)), "labels": np.array([2**40, -1])}
    found = rows_of(tmp_path, "nearest", "targets", **arrays)
    assert (list(found.inputs), found.labels.tolist()) == (["targets"], [2**40, -1])
    with pytest.raises(InvalidArtifact, match="an input is called 'targets', where the targets go"):
        rows_of(tmp_path, "r2", "targets", **arrays)
    with pytest.raises(
        InvalidArtifact, match=r"lacks the array 'targets'; it has labels: arrays a"
    ):
        rows_of(tmp_path, "nearest", "targets", labels=np.zeros(2, np.int64))


def test_rows_to_calibrate_with_may_come_without_targets(tmp_path: Path) -> None:
    found = rows_of(tmp_path, "r2", "x", unlabelled=True, x=np.zeros((3, 1)))
    assert (len(found), found.truth) == (3, None)


def test_before_the_task_is_known_its_metric_says_what_rows_need(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    path.write_bytes(npz(x=[[1.0]], targets=[1.0]))
    check_rows(path, truth="targets")
    with pytest.raises(InvalidArtifact, match="lacks the array 'labels'; it has targets, x"):
        check_rows(path)


WIDE = TensorSpec(name="pixels", dtype="float64", shape=(4,))


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_rows_are_measured_by_what_they_become(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """Zeros take next to nothing in a file, and one byte each in a narrow type."""
    path, rows = tmp_path / "rows.npz", 2**18
    path.write_bytes(npz(pixels=np.zeros((rows, 4), dtype), labels=np.zeros(rows, "uint8")))
    assert len(read_rows(path, (WIDE,), classes=2, max_mib=10.5)) == rows
    monkeypatch.setattr(npy, "read_array", None)  # nothing is read
    unpacks = "unpacks to 8.3 MiB" if dtype == "float64" else "takes 10 MiB in the task's types"
    with pytest.raises(InvalidArtifact, match=f"^rows.npz {unpacks}, more than the 8 allowed$"):
        read_rows(path, (WIDE,), classes=2, max_mib=8.0)


def rows_like(numbers: Any) -> LabelledRows:
    inputs: dict[str, Any] = {"x": np.array(numbers)[:, None], "y": np.zeros((len(numbers), 2))}
    return LabelledRows(inputs=inputs, labels=np.arange(len(numbers)) % 2)


def test_copies_of_evaluation_rows_do_not_calibrate() -> None:
    """Accuracy would be of rows that the variants were fitted to."""
    numbers = [*range(900), *range(100)]
    calibration, evaluation = split_for_calibration(rows_like(numbers), Path("rows.npz"))
    assert len(evaluation) == 800
    assert 100 <= len(calibration) < 200
    assert not np.isin(calibration.inputs["x"], evaluation.inputs["x"]).any()


def test_rows_of_which_there_are_few_calibrate_as_they_are() -> None:
    calibration, evaluation = split_for_calibration(rows_like([1, 2] * 50), Path("rows.npz"))
    assert (len(calibration), len(evaluation)) == (20, 80)


def test_rows_without_others_differ_from_them_in_an_input() -> None:
    kept = rows_like([1, 2, 2, 3]).without(rows_like([3, 1]))
    assert kept.inputs["x"].ravel().tolist() == [2.0, 2.0]
    assert kept.labels is not None
    assert kept.labels.tolist() == [1, 0]
    other = LabelledRows(inputs={**kept.inputs, "y": np.ones((2, 2))}, labels=kept.labels)
    assert len(kept.without(other)) == 2
