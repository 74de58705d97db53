"""A model without the numbers in its weights: what is left of it, and what follows from that."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from variants.checks import onnx_check
from variants.checks.onnx_check import check_model_bytes
from variants.checks.onnx_light import without_weights
from variants.errors import InvalidArtifact

WIDE = 8_192


def reshaped(weight: np.ndarray, *, declared: bool = False) -> onnx.ModelProto:
    """Scores of 4 features by a large weight, reshaped to 2 x half of them by a small constant."""
    value = helper.make_tensor_value_info
    inputs = [value("features", TensorProto.FLOAT, ["rows", 4])]
    if declared:
        inputs.append(value("weight", TensorProto.FLOAT, weight.shape))
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["features", "weight"], ["flat"]),
            helper.make_node("Reshape", ["flat", "shape"], ["scores"]),
        ],
        "graph",
        inputs,
        [value("scores", TensorProto.FLOAT, ["rows", None, None])],
        [
            numpy_helper.from_array(weight, "weight"),
            numpy_helper.from_array(np.array([-1, 2, WIDE // 2]), "shape"),
        ],
        doc_string="a note",
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.metadata_props.add(key="modelless.classes", value='["no", "yes"]')
    return model


def test_weights_become_inputs_and_all_else_stays() -> None:
    model = reshaped(np.zeros((4, WIDE), np.float32))
    light = without_weights(model)
    assert [one.name for one in light.graph.initializer] == ["shape"]
    assert [one.name for one in light.graph.input] == ["features", "weight"]
    assert light.ByteSize() < 1_000
    del light.graph.input[1:]
    light.graph.initializer.insert(0, model.graph.initializer[0])
    assert light == model


def test_a_weight_that_is_an_input_already_and_a_large_list_of_texts_stay() -> None:
    model = reshaped(np.zeros((4, WIDE), np.float32), declared=True)
    names = helper.make_tensor("names", TensorProto.STRING, [WIDE], [b"one"] * WIDE)
    model.graph.initializer.append(names)
    assert without_weights(model) == model


@pytest.mark.parametrize("declared", [False, True])
def test_the_check_finds_the_same_shapes_and_counts_all_parameters(declared: bool) -> None:
    model = reshaped(np.zeros((4, WIDE), np.float32), declared=declared)
    info = check_model_bytes(model.SerializeToString(), where="model.onnx")
    assert [(spec.name, spec.shape) for spec in info.inputs] == [("features", (4,))]
    assert [(spec.name, spec.shape) for spec in info.outputs] == [("scores", (2, WIDE // 2))]
    assert (info.parameters, info.size_bytes) == (4 * WIDE + 3, model.ByteSize())
    assert info.classes == ("no", "yes")


def test_the_check_still_reads_every_weight() -> None:
    weight = np.zeros((4, WIDE), np.float32)
    weight[3, -1] = np.nan
    with pytest.raises(InvalidArtifact, match="'weight' contains NaN"):
        check_model_bytes(reshaped(weight).SerializeToString(), where="model.onnx")


def test_a_weight_that_does_not_fit_is_still_refused() -> None:
    wrong = reshaped(np.zeros((5, WIDE), np.float32))
    with pytest.raises(InvalidArtifact, match=r"not a valid ONNX model.*ncompatible dimensions"):
        check_model_bytes(wrong.SerializeToString(), where="model.onnx")


def test_native_code_is_given_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    inferred = onnx_check._inferred

    def noted(where: str, model: Any) -> Any:
        given.append(model.ByteSize())
        return inferred(where, model)

    monkeypatch.setattr(onnx_check, "_inferred", noted)
    data = reshaped(np.zeros((4, WIDE), np.float32)).SerializeToString()
    check_model_bytes(data, where="model.onnx")
    assert (len(data) > 100_000, given[0] < 1_000) == (True, True)
