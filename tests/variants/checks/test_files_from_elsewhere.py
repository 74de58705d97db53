"""What the reference says how to change in ONNX files that are refused, on such files."""

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from variants.checks.onnx_check import check_model
from variants.errors import InvalidArtifact

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "bringing-a-model.md"
WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3) / 10


def written(path: Path, **changes: object) -> Path:
    """A linear layer with a class and scores; ``changes`` to the shape and type of its input."""
    shape, half = changes.get("shape", ["rows", 4]), changes.get("half", False)
    assert isinstance(shape, list)
    dtype = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    weights = WEIGHTS.astype(np.float16 if half else np.float32)
    axes = numpy_helper.from_array(np.array([1]), "axes")
    nodes = [
        helper.make_node("Flatten", ["x.1"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["output_label"], axis=1, keepdims=0),
    ]
    outputs = [
        helper.make_tensor_value_info("output_label", TensorProto.INT64, shape[:1]),
        helper.make_tensor_value_info("scores", dtype, [shape[0], 3]),
    ]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x.1", dtype, shape)],
        outputs if changes.get("label", False) else outputs[1:],
        [numpy_helper.from_array(weights, "w"), axes],
    )
    if not changes.get("label", False):
        del graph.node[2]
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    beside = bool(changes.get("beside", False))
    onnx.save(model, path, save_as_external_data=beside, location="w.bin", size_threshold=0)
    return path


def recipe() -> str:
    text = REFERENCE.read_text()
    section = text[text.index("## Files from elsewhere") :]
    found = re.search(r"```python\n(import onnx\n.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [1, 4]},
        {"shape": ["rows", "sequence"]},
        {"half": True},
        {"beside": True},
        {"label": True, "shape": [1, 4], "half": True, "beside": True},
    ],
)
def test_a_changed_file_is_taken_and_answers_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]
) -> None:
    monkeypatch.chdir(tmp_path)
    exported = written(Path("exported.onnx"), **changes)
    with pytest.raises(InvalidArtifact):
        check_model(exported)
    exec(recipe().replace("= 128", "= 4"), {})
    checked = check_model(Path("model.onnx"))
    assert [(one.name, one.dtype, one.shape) for one in checked.inputs] == [
        ("x.1", "float32", (4,))
    ]
    assert [(one.name, one.dtype) for one in checked.outputs] == [("scores", "float32")]
    rows = np.eye(4, dtype=np.float32)
    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"x.1": rows})
    np.testing.assert_allclose(scores, WEIGHTS, atol=1e-3)
