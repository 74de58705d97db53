"""A changed graph as it is written: with the sets of operators that it uses, and no others."""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

from tests.onnx_models import tensor
from variants.builders.compression.graph import drop_unused, save


def test_sets_of_operators_that_are_used_stay_and_others_go(tmp_path: Path) -> None:
    """A scikit-learn pipeline scales by an operator of ``ai.onnx.ml``."""
    scaled = helper.make_node(
        "Scaler", ["x"], ["scaled"], domain="ai.onnx.ml", offset=[0.0], scale=[2.0]
    )
    nodes = [scaled, helper.make_node("Relu", ["scaled"], ["y"])]
    graph = helper.make_graph(nodes, "scaled", [tensor("x", "batch", 4)], [tensor("y", "batch", 4)])
    sets = [("", 17), ("ai.onnx.ml", 3), ("com.microsoft", 1)]
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*each) for each in sets], ir_version=10
    )

    save(model, tmp_path / "changed.onnx")

    written = onnx.load(tmp_path / "changed.onnx")
    assert [(each.domain, each.version) for each in written.opset_import] == sets[:2]


def test_what_only_a_branch_reads_is_used() -> None:
    """Such as the layer before the ``If`` of a detector of speech."""
    branch = helper.make_graph(
        [helper.make_node("Neg", ["less"], ["negative"])],
        "branch",
        [],
        [tensor("negative", "n", 4)],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Abs", ["pixels"], ["less"]),
            helper.make_node("Abs", ["pixels"], ["unused"]),
            helper.make_node("If", ["yes"], ["scores"], then_branch=branch, else_branch=branch),
        ],
        "g",
        [tensor("pixels", "n", 4)],
        [tensor("scores", "n", 4)],
        [helper.make_tensor("yes", TensorProto.BOOL, [], [True])],
    )
    model = helper.make_model(graph)
    drop_unused(model)
    assert [node.output[0] for node in model.graph.node] == ["less", "scores"]
    assert [held.name for held in model.graph.initializer] == ["yes"]
