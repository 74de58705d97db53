"""Weights that OpenVINO maps while a model is compiled, and then are its own."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.services import missing
from tests.workers.builders import onnx_spec
from tests.workers.runtimes.weights.test_mappable import as_before
from tests.workers.runtimes.weights.test_onnx_weights import WIDTH, products
from variants.types import TensorSpec
from workers.runtimes.openvino import OpenVinoRuntime
from workers.runtimes.weights import openvino_weights as module

pytestmark = pytest.mark.slow

LOADS = """
import ctypes, gc, sys
from pathlib import Path
from tests.workers.runtimes.weights.test_openvino_weights import runtime
from workers.runtimes.openvino import import_openvino
from profiler.sandbox.measure import forget_highest, highest_mib, resident_mib

import_openvino()
one = runtime(Path(sys.argv[1]))
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
before = resident_mib()
forget_highest()
one.load()
print(highest_mib() - before)
"""


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    if find_spec("openvino") is None:
        missing("openvino")


def runtime(path: Path) -> OpenVinoRuntime:
    inputs = (TensorSpec(name="ids", dtype="int64", shape=()),)
    outputs = (TensorSpec(name="y", dtype="float32", shape=(WIDTH,)),)
    return OpenVinoRuntime(onnx_spec(path, inputs=inputs, outputs=outputs), 1)


def answers(path: Path) -> np.ndarray:
    one = runtime(path)
    one.load()
    try:
        return one.run([np.array([3, 4_999, 0])])[0]
    finally:
        one.close()


def test_answers_are_those_of_a_model_that_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, before = products(tmp_path / "model.onnx"), Path.cwd()
    mapped = answers(path)
    assert Path.cwd() == before
    monkeypatch.setattr(module, "_at_root", lambda read: None)  # as in a container that forbids it
    assert np.array_equal(mapped, answers(path))
    assert np.array_equal(mapped, answers(as_before(tmp_path / "before.onnx")))


def test_the_file_may_be_cut_short_afterwards(tmp_path: Path) -> None:
    path = products(tmp_path / "model.onnx")
    one = runtime(path)
    one.load()
    rows = [np.array([3, 4_999, 0])]
    before = one.run(rows)[0]
    os.truncate(path, 0)
    assert np.array_equal(one.run(rows)[0], before)


def test_a_load_does_not_take_a_table_twice(tmp_path: Path) -> None:
    """It took the file twice, of which the table of words stayed once."""
    path = products(tmp_path / "model.onnx", words=40_000)
    size_mib = path.stat().st_size / 2**20
    ran = subprocess.run(
        [sys.executable, "-c", LOADS, str(path)], check=True, capture_output=True, text=True
    )
    assert size_mib < float(ran.stdout) < 1.6 * size_mib
