"""Weights that are mapped while a session is made, and then are its own."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from tests import onnx_models as models
from tests.onnx_models import node, tensor
from tests.workers.builders import onnx_spec
from variants.errors import RuntimeFailed
from variants.onnx_wire import LEAST_FILE_BYTES, align_weights
from variants.types import TensorSpec
from workers.runtimes.onnx import OnnxRuntime
from workers.runtimes.onnx_providers import CPU
from workers.runtimes.weights.onnx_weights import mapped_session

WIDTH, LAYERS = 1_024, 6
"""Six weights of 4 MiB."""

LOADS = """
import ctypes, gc, sys
from pathlib import Path
import onnxruntime
from tests.workers.runtimes.weights.test_onnx_weights import runtime
from profiler.sandbox.measure import forget_highest, highest_mib, resident_mib

one = runtime(Path(sys.argv[1]))
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
before = resident_mib()
forget_highest()
one.load()
print(highest_mib() - before)
"""


def products(path: Path, dtype: type[np.generic] = np.float32, words: int = 5_000) -> Path:
    """A file of ``LAYERS`` products, one after the other, with a table of ids before them."""
    draw = np.random.default_rng(0)
    weights = {
        f"w{at}": (draw.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(dtype)
        for at in range(LAYERS)
    }
    table = draw.standard_normal((words, WIDTH), np.float32).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [helper.make_node("Gather", ["table", "ids"], ["p0"])]
    for at in range(LAYERS):
        nodes.append(helper.make_node("MatMul", [f"p{at}", f"w{at}"], [f"p{at + 1}"]))
    nodes.append(helper.make_node("Cast", [f"p{LAYERS}"], ["y"], to=TensorProto.FLOAT))
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", WIDTH])],
        [numpy_helper.from_array(one, name) for name, one in {**weights, "table": table}.items()],
    )
    assert all(one.data_type == kind for one in graph.initializer)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    align_weights(path)
    return path


def runtime(path: Path) -> OnnxRuntime:
    inputs = (TensorSpec(name="ids", dtype="int64", shape=()),)
    outputs = (TensorSpec(name="y", dtype="float32", shape=(WIDTH,)),)
    return OnnxRuntime(onnx_spec(path, inputs=inputs, outputs=outputs), 1)


def answers(session: Any) -> Any:
    return session.run(["y"], {"ids": np.array([3, 4_999, 0])})[0]


def opened(path: Path) -> Any:
    return mapped_session(onnxruntime, str(path), onnxruntime.SessionOptions(), [CPU], [])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_answers_are_those_of_a_session_that_reads_the_file(
    tmp_path: Path, dtype: type[np.generic]
) -> None:
    path = products(tmp_path / "model.onnx", dtype)

    found, plain = opened(path), onnxruntime.InferenceSession(path, providers=[CPU])

    assert np.array_equal(answers(found), answers(plain))


@pytest.mark.slow
def test_a_load_takes_little_more_than_the_file(tmp_path: Path) -> None:
    """It took the file twice, and what a worker reserves is about the file."""
    path = products(tmp_path / "model.onnx", words=40_000)
    size_mib = path.stat().st_size / 2**20

    ran = subprocess.run(
        [sys.executable, "-c", LOADS, str(path)], check=True, capture_output=True, text=True
    )

    assert size_mib < float(ran.stdout) < 1.5 * size_mib


def test_the_file_may_be_cut_short_afterwards(tmp_path: Path) -> None:
    path = products(tmp_path / "model.onnx")
    found = opened(path)
    before = answers(found)

    with path.open("r+b") as file:
        file.truncate(0)

    assert np.array_equal(answers(found), before)


def test_small_files_and_what_is_no_model_are_left_to_onnx_runtime(tmp_path: Path) -> None:
    small = models.write(
        tmp_path / "small.onnx",
        models.model(
            nodes=[node("MatMul", ("x", "w"), "y")],
            inputs=[tensor("x", "batch", 3)],
            outputs=[tensor("y", "batch", 3)],
            weights={"w": np.eye(3, dtype=np.float32)},
        ),
    )
    assert opened(small).run(None, {"x": np.ones((1, 3), np.float32)})[0].tolist() == [[1.0] * 3]

    (tmp_path / "none.onnx").write_bytes(b"\xff" * LEAST_FILE_BYTES)
    with pytest.raises(RuntimeFailed, match="cannot be loaded"):
        runtime(tmp_path / "none.onnx").load()
