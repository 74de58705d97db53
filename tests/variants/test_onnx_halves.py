"""Files with weights in half precision, which ONNX Runtime may crash on."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.workers.builders import onnx_spec
from variants.onnx_halves import crashing_optimisers, has_halves
from variants.types import TensorSpec
from workers.runtimes.onnx import OnnxRuntime

WIDTH = 8


def transposing(path: Path, dtype: type[np.floating]) -> Path:
    """Computes (x transposed) @ w: a product behind a transposition, as encoders have it."""
    kind = TensorProto.FLOAT16 if dtype is np.float16 else TensorProto.FLOAT
    nodes = [
        helper.make_node("Cast", ["x"], ["narrow"], to=kind),
        helper.make_node("Transpose", ["narrow"], ["there"], perm=[1, 0, 2]),
        helper.make_node("MatMul", ["there", "weight"], ["product"]),
        helper.make_node("Transpose", ["product"], ["back"], perm=[1, 0, 2]),
        helper.make_node("Cast", ["back"], ["y"], to=TensorProto.FLOAT),
    ]
    shape = ["batch", 4, WIDTH]
    graph = helper.make_graph(
        nodes,
        "transposing",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.eye(WIDTH, dtype=dtype), "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, str(path))
    return path


def test_a_product_of_halves_behind_a_transposition_is_loaded_and_right(tmp_path: Path) -> None:
    """ONNX Runtime ended the process with SIGSEGV while it made the session."""
    tensors = [TensorSpec(name=name, dtype="float32", shape=(4, WIDTH)) for name in "xy"]
    path = transposing(tmp_path / "half.onnx", np.float16)
    runtime = OnnxRuntime(onnx_spec(path, inputs=(tensors[0],), outputs=(tensors[1],)), 1)
    runtime.load()
    rows = np.arange(3 * 4 * WIDTH, dtype=np.float32).reshape(3, 4, WIDTH)
    [answers] = runtime.run([rows])
    runtime.close()
    np.testing.assert_allclose(answers, rows)


def test_other_files_keep_all_optimisations(tmp_path: Path) -> None:
    assert crashing_optimisers(transposing(tmp_path / "half.onnx", np.float16)) != []
    assert crashing_optimisers(transposing(tmp_path / "single.onnx", np.float32)) == []


@pytest.mark.parametrize(
    "data", [b"", b"no model", b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"]
)
def test_what_is_no_model_has_no_halves(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "any").write_bytes(data)
    assert not has_halves(tmp_path / "any")
    assert not has_halves(tmp_path / "none")
