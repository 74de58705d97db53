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

from profiler.evaluation.labelled_rows import check_rows, read_rows
from variants.errors import InvalidArtifact
from variants.types import TensorSpec

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
        ({"pixels": [[1.0]]}, False, "rows.npz: lacks the array 'labels'; it has pixels"),
        ({"labels": [0]}, False, "rows.npz: lacks an array of inputs; it has labels"),
        ({}, True, "rows.npz: lacks an array of inputs; it has nothing"),
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
