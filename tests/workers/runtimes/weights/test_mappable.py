"""Files whose weights can be mapped, and copies of those whose weights cannot."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import load, save

from tests.workers.runtimes.weights.test_onnx_weights import LOADS, answers, opened, products
from variants.onnx_wire import ALIGNMENT, LEAST_FILE_BYTES, large_weights
from workers.runtimes.onnx_providers import CPU
from workers.runtimes.weights import mappable as module
from workers.runtimes.weights.mappable import COPY, PREFIX, light_model, mappable


def as_before(path: Path) -> Path:
    """The same file as it was written before weights were aligned: none of them is."""
    model = load(products(path))
    for each in model.graph.initializer:
        each.doc_string = ""
    for spaces in range(ALIGNMENT):
        model.doc_string = " " * spaces
        save(model, path)
        weights = large_weights(path.read_bytes())
        if sum(one.start % ALIGNMENT == 0 for one in weights) < len(weights) / 4:
            return path
    raise AssertionError("they are aligned by chance")


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where copies are made."""
    folder = tmp_path / "copies"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_a_file_whose_weights_are_aligned_is_mapped_itself(tmp_path: Path) -> None:
    path = products(tmp_path / "model.onnx")
    with mappable(str(path)) as found:
        assert found == path
        assert len(light_model(path, "here")) < LEAST_FILE_BYTES / 16


def test_what_was_built_before_that_is_copied_for_the_moment_of_its_load(
    tmp_path: Path, copies: Path
) -> None:
    path = as_before(tmp_path / "model.onnx")
    with mappable(str(path)) as found:
        assert found is not None
        assert found != path
        assert len(light_model(found, "here")) < LEAST_FILE_BYTES / 16
    assert list(copies.iterdir()) == []

    session, plain = opened(path), onnxruntime.InferenceSession(path, providers=[CPU])
    assert np.array_equal(answers(session), answers(plain))
    assert list(copies.iterdir()) == []


def test_what_a_killed_process_has_left_is_removed(tmp_path: Path, copies: Path) -> None:
    path = as_before(tmp_path / "model.onnx")
    left = copies / f"{PREFIX}left"
    left.mkdir()
    (left / COPY).touch()
    with mappable(str(path)) as first, mappable(str(path)) as second:
        assert first is not None
        assert second is not None
        assert {each.name for each in copies.iterdir()} == {first.parent.name, second.parent.name}


def test_where_no_copy_can_be_written_it_is_loaded_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = as_before(tmp_path / "model.onnx")

    def full(*_: object) -> bool:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(module, "aligned", full)
    with mappable(str(path)) as found:
        assert found is None
    assert len(answers(opened(path))) == 3


@pytest.mark.slow
def test_a_load_of_it_takes_little_more_than_the_file(tmp_path: Path) -> None:
    """It took the file twice."""
    path = as_before(tmp_path / "model.onnx")
    size_mib = path.stat().st_size / 2**20
    ran = subprocess.run(
        [sys.executable, "-c", LOADS, str(path)], check=True, capture_output=True, text=True
    )
    assert size_mib < float(ran.stdout) < 1.6 * size_mib
