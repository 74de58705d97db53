"""What is noted of the values in a model that is made ready to be rewritten."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, shape_inference

from tests.onnx_models import model, node, tensor, write
from tests.variants.builders.onnx.networks import residual
from variants.builders.prepared import prepared
from variants.checks.onnx_light import MOST_VALUES

WIDE = MOST_VALUES // 4 + 1
"""Columns of a weight of four rows that is too large to say a shape."""


def branches() -> Any:
    """Sums of a product with a large weight, in a way that the sign of the first number decides."""
    ways = [
        helper.make_graph(
            [
                helper.make_node(kind, ["pixels", "large"], ["wide"]),
                helper.make_node("ReduceSum", ["wide", "axis"], ["sums"]),
            ],
            kind,
            [],
            [tensor("sums", "batch", 1)],
        )
        for kind in ("MatMul", "Gemm")
    ]
    return model(
        outputs=[tensor("scores", "batch", 1)],
        nodes=[
            node("ReduceMax", ("pixels",), "most", keepdims=0),
            node("Greater", ("most", "zero"), "positive"),
            helper.make_node(
                "If", ["positive"], ["both"], then_branch=ways[0], else_branch=ways[1]
            ),
            node("MatMul", ("pixels", "large"), "wide_too"),
            node("ReduceMean", ("wide_too", "axis"), "mean"),
            node("Add", ("both", "mean"), "scores"),
        ],
        weights={
            "large": np.ones((4, WIDE), np.float32),
            "zero": np.array(0, np.float32),
            "axis": np.array([1]),
        },
    )


@pytest.mark.parametrize("kind", ["residual", "branches"])
def test_types_and_shapes_are_those_that_follow_from_the_model_with_its_weights(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    if kind == "residual":
        residual(path, channels=64)
    else:
        write(path, branches())
    found = prepared(path)
    assert any(np.prod(weight.dims) > MOST_VALUES for weight in found.graph.initializer)
    known = shape_inference.infer_shapes(found)
    assert found.graph.value_info
    assert found.graph.node == known.graph.node  # with the graphs within them
    assert found.graph.output == known.graph.output
    given = {name for each in known.graph.node for name in each.output}
    assert {each.name: each.type for each in found.graph.value_info} == {
        each.name: each.type for each in known.graph.value_info if each.name in given
    }
    onnx.checker.check_model(found, full_check=True)


def test_a_large_weight_that_the_model_has_as_an_input_too_stays_one(tmp_path: Path) -> None:
    """As files before version 4 of ONNX's format have all of their weights."""
    made = model(
        inputs=[tensor("pixels", "batch", 4), tensor("large", 4, WIDE)],
        outputs=[tensor("scores", "batch", WIDE)],
        nodes=[node("MatMul", ("pixels", "large"), "wide"), node("Relu", ("wide",), "scores")],
        weights={"large": np.ones((4, WIDE), np.float32)},
    )
    found = prepared(write(tmp_path / "model.onnx", made))
    assert [each.name for each in found.graph.initializer] == ["large"]
    (noted,) = (each for each in found.graph.value_info if each.name == "wide")
    assert noted.type.tensor_type.elem_type == TensorProto.FLOAT
    assert [axis.dim_value for axis in noted.type.tensor_type.shape.dim] == [0, WIDE]
