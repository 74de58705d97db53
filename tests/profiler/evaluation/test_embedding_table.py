"""How many numbers of tokens a model has embeddings for, as exporters write the lookup."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from profiler.evaluation.embedding_table import rows_of_table
from tests import onnx_models
from tests.onnx_models import node, tensor

IDS = [tensor("ids", "batch", "tokens", kind=TensorProto.INT64)]
OUT = [tensor("out", "a", "b", "c")]
TABLE = np.zeros((30, 4), np.float32)


def rows(nodes: list[Any], **weights: Any) -> int | None:
    made = onnx_models.model(
        inputs=IDS, nodes=nodes, outputs=OUT, weights={"table": TABLE} | weights
    )
    return rows_of_table(made, "ids")


def test_a_lookup_by_the_input_says_it() -> None:
    assert rows([node("Gather", ("table", "ids"), "out")]) == 30


def test_what_changes_types_and_shapes_of_numbers_is_followed() -> None:
    nodes = [
        node("Cast", ("ids",), "whole", to=TensorProto.INT32),
        node("Unsqueeze", ("whole", "axis"), "more"),
        node("Reshape", ("more", "shape"), "flat"),
        node("Gather", ("table", "flat"), "out"),
    ]
    assert rows(nodes, axis=np.array([0]), shape=np.array([-1])) == 30


def test_a_table_may_be_kept_in_another_form() -> None:
    other = np.zeros((4, 9), np.uint8)
    nodes = [
        node("DequantizeLinear", ("other", "scale"), "real"),
        node("Transpose", ("real",), "turned", perm=[1, 0]),
        node("Gather", ("turned", "ids"), "out"),
    ]
    assert rows(nodes, other=other, scale=np.array(1.0, np.float32)) == 9
    along = node("Gather", ("other", "ids"), "out", axis=1)
    assert rows([along], other=other) == 9
    held = helper.make_tensor("t", TensorProto.FLOAT, (5, 2), [0.0] * 10)
    nodes = [node("Constant", (), "made", value=held), node("Gather", ("made", "ids"), "out")]
    assert rows(nodes) == 5


def test_branches_are_followed_in_and_out() -> None:
    def branch(name: str, *inner: Any) -> Any:
        return helper.make_graph(list(inner), name, [], [tensor(name, "a", "b")])

    chosen = helper.make_node(
        "If",
        ["which"],
        ["chosen"],
        then_branch=branch("same", node("Identity", ("ids",), "same")),
        else_branch=branch("other", node("Squeeze", ("ids",), "other")),
    )
    nodes = [chosen, node("Gather", ("table", "chosen"), "out")]
    assert rows(nodes, which=np.array(True)) == 30
    inside = helper.make_node(
        "If",
        ["which"],
        ["out"],
        then_branch=branch("a", node("Gather", ("table", "ids"), "a")),
        else_branch=branch("b", node("Gather", ("table", "ids"), "b")),
    )
    assert rows([inside], which=np.array(True)) == 30


def test_of_several_tables_the_smallest_counts() -> None:
    nodes = [
        node("Gather", ("table", "ids"), "one"),
        node("Gather", ("small", "ids"), "two"),
        node("Add", ("one", "two"), "out"),
    ]
    assert rows(nodes, small=np.zeros((20, 4), np.float32)) == 20


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Mod", ("ids", "ten"), "less"), node("Gather", ("table", "less"), "out")],
        [node("Gather", ("ids", "ten"), "out")],
        [node("Shape", ("ids",), "sizes"), node("Gather", ("table", "sizes"), "out")],
        [node("Exp", ("table",), "made"), node("Gather", ("made", "ids"), "out")],
    ],
)
def test_what_cannot_be_followed_says_nothing(nodes: list[Any]) -> None:
    assert rows(nodes, ten=np.array(10)) is None
