"""Models as converters leave them: what is changed of them, and that their answers stay."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests import onnx_models as models
from variants.checks import onnx_plain
from variants.checks.edges import Edges
from variants.checks.onnx_check import check_model
from variants.checks.onnx_edges import change_edges
from variants.checks.onnx_plain import ADDED_OPSET, may_be_unusual, plain
from variants.errors import InvalidArtifact

ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)
CLASSIC = "ai.onnx.ml"
TREE = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [4.0, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
    "nodes_missing_value_tracks_true": [0, 0, 0], "nodes_hitrates": [1.0, 1.0, 1.0],
}  # fmt: skip
VOTES = {
    "class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [0, 1],
    "class_weights": [1.0, 1.0],
}  # fmt: skip


def tree(**changes: Any) -> Any:
    """A classifier of one tree: whether the second number is above 4. Classic operators alone."""
    node = helper.make_node(
        "TreeEnsembleClassifier", ["pixels"], ["label", "scores"], domain=CLASSIC,
        post_transform="NONE", **TREE, **VOTES,
        **changes.pop("classes", {"classlabels_int64s": [0, 1]}),
    )  # fmt: skip
    given: dict[str, Any] = {
        "nodes": [node],
        "outputs": [
            models.tensor("label", "N", kind=changes.pop("label", TensorProto.INT64)),
            models.tensor("scores", "N", 2),
        ],
        "weights": {"unused": np.zeros(1, np.float32)},
        "opsets": ((CLASSIC, 2),),
    }
    made = models.model(**given | changes)
    del made.graph.initializer[:]
    return made


def with_maps(made: Any, **classes: Any) -> Any:
    """The same with its scores as a list of maps, as converters write it."""
    made.graph.node.add().CopyFrom(
        helper.make_node("ZipMap", ["scores"], ["maps"], domain=CLASSIC, **classes)
    )
    key = TensorProto.STRING if "classlabels_strings" in classes else TensorProto.INT64
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(key, value))
    made.graph.output[1].CopyFrom(helper.make_value_info("maps", maps))
    return made


def written(tmp_path: Path, made: Any) -> tuple[Path, Path]:
    """The file as it is, and in its plain form."""
    source, target = models.write(tmp_path / "source.onnx", made), tmp_path / "plain.onnx"
    assert may_be_unusual(source)
    assert plain(source, target)
    return source, target


def answers(path: Path) -> list[Any]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return list(session.run(None, {session.get_inputs()[0].name: ROWS}))


def test_a_model_of_classic_operators_alone_needs_no_opset_of_the_others(tmp_path: Path) -> None:
    source, target = written(tmp_path, tree())
    with pytest.raises(InvalidArtifact, match="does not say which ONNX opset"):
        check_model(source)
    info = check_model(target)
    assert info.opset == ADDED_OPSET
    assert [one.name for one in info.outputs] == ["label", "scores"]
    assert np.array_equal(answers(target)[1], answers(source)[1])


def test_scores_as_maps_become_the_tensor_that_they_are_made_of(tmp_path: Path) -> None:
    source, target = written(tmp_path, with_maps(tree(), classlabels_int64s=[0, 1]))
    label, scores = check_model(target).outputs
    assert (label.name, label.dtype, label.shape) == ("label", "int64", ())
    assert (scores.name, scores.dtype, scores.shape) == ("maps", "float32", (2,))
    maps, tensor = answers(source)[1], answers(target)[1]
    assert np.array_equal([[row[0], row[1]] for row in maps], tensor)
    again = tmp_path / "again.onnx"
    plain(source, again)
    assert again.read_bytes() == target.read_bytes()


def test_names_of_classes_in_maps_are_those_of_the_scores(tmp_path: Path) -> None:
    names = {"classlabels_strings": ["leaves", "stays"]}
    made = with_maps(tree(classes=names, label=TensorProto.STRING), **names)
    info = check_model(written(tmp_path, made)[1])
    assert info.classes == ("leaves", "stays")
    assert [one.name for one in info.outputs] == ["maps"]


def test_an_output_that_is_said_to_have_one_row_has_as_many_as_come(tmp_path: Path) -> None:
    """LightGBM's converter says so of the label."""
    made = tree()
    made.graph.output[0].CopyFrom(models.tensor("label", 1, kind=TensorProto.INT64))
    _, target = written(tmp_path, made)
    assert len(answers(target)[0]) == len(ROWS)
    assert check_model(target).outputs[0].shape == ()


def test_an_output_stays_of_one_row_where_an_input_is(tmp_path: Path) -> None:
    made = tree(inputs=[models.tensor("pixels", 1, 4)])
    made.graph.output[0].CopyFrom(models.tensor("label", 1, kind=TensorProto.INT64))
    _, target = written(tmp_path, made)  # its opset was missing
    with pytest.raises(InvalidArtifact, match="input 'pixels' has a fixed batch of 1"):
        check_model(target)


def test_what_a_regressor_of_trees_gives_has_two_axes(tmp_path: Path) -> None:
    """CatBoost says that there is one."""
    node = helper.make_node(
        "TreeEnsembleRegressor", ["pixels"], ["predictions"], domain=CLASSIC, n_targets=1,
        target_treeids=[0, 0], target_nodeids=[1, 2], target_ids=[0, 0], target_weights=[3.0, 5.0],
        **TREE,
    )  # fmt: skip
    _, target = written(tmp_path, tree(nodes=[node], outputs=[models.tensor("predictions", "N")]))
    (output,) = check_model(target).outputs
    assert output.shape == (1,)
    assert answers(target)[0].tolist() == [[3.0], [5.0], [5.0]]


def test_functions_are_put_where_they_are_called(tmp_path: Path) -> None:
    own = [helper.make_opsetid("", models.OPSET)]
    body = [models.node("Add", ("a", "a"), "c")]
    made = models.model(
        nodes=[
            models.node("MatMul", ("pixels", "weight"), "product"),
            models.node("Twice", ("product",), "scores", domain="com.example"),
        ],
        opsets=(("", models.OPSET), ("com.example", 1)),
    )
    made.functions.append(helper.make_function("com.example", "Twice", ["a"], ["c"], body, own))
    source, target = written(tmp_path, made)
    with pytest.raises(InvalidArtifact, match="defines functions of its own"):
        check_model(source)
    check_model(target)
    assert np.array_equal(answers(target)[0], 2 * ROWS[:, :3])


@pytest.mark.parametrize("made", [models.model(), models.text_model()])
def test_other_models_are_left_as_they_are(tmp_path: Path, made: Any) -> None:
    source = models.write(tmp_path / "source.onnx", made)
    assert not may_be_unusual(source)
    assert not plain(source, tmp_path / "plain.onnx")
    assert not (tmp_path / "plain.onnx").exists()


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"\xca", b"\x0a\xff\xff\xff\xff\x7f", b"PK\x03\x04"]
)
def test_what_is_no_model_is_for_the_check_to_refuse(tmp_path: Path, data: bytes) -> None:
    source = tmp_path / "source.onnx"
    source.write_bytes(data)
    assert not may_be_unusual(source)


@pytest.mark.parametrize(
    ("axes", "sizes"),
    [((-1, 4), ("?", 3)), (("?", 4), (-1, "?")), (("N", 4), ()), ((-1, 4), ())],
)
def test_what_is_no_size_and_no_name_is_an_open_axis(
    tmp_path: Path, axes: tuple[int | str, ...], sizes: tuple[int | str, ...]
) -> None:
    """As PaddlePaddle's converters write them; an output of no axes is one whose are not said."""
    made = models.model(
        inputs=[models.tensor("pixels", *axes)], outputs=[models.tensor("scores", *sizes)]
    )
    source, target = written(tmp_path, made)
    info = check_model(target)
    assert [one.shape for one in info.inputs] == [(4,)]
    assert [one.shape for one in info.outputs] == [(3,)]
    with pytest.raises(InvalidArtifact):
        check_model(source)


def test_two_axes_without_a_name_are_not_one(tmp_path: Path) -> None:
    made = models.model(
        inputs=[models.tensor("pixels", "N", "?", "?")],
        outputs=[models.tensor("scores", "N", "?", 3)],
    )
    _, target = written(tmp_path, made)
    sized = tmp_path / "sized.onnx"
    change_edges(target, sized, Edges(axis_sizes=(("pixels:1", 2), ("pixels:2", 4))))
    assert [one.shape for one in check_model(sized).inputs] == [(2, 4)]
    one = tmp_path / "one.onnx"
    change_edges(target, one, Edges(axis_sizes=(("pixels:1", 2),)))
    with pytest.raises(InvalidArtifact, match="leaves axis 2 open"):
        check_model(one)


def test_a_model_that_says_its_sizes_is_not_unusual(tmp_path: Path) -> None:
    """So that no process is started for it."""
    assert not may_be_unusual(models.write(tmp_path / "m.onnx"))
    texts = models.text_model()
    assert not may_be_unusual(models.write(tmp_path / "texts.onnx", texts))


def test_a_file_of_zeros_is_no_model(tmp_path: Path) -> None:
    source = models.write(tmp_path / "m.onnx")
    with source.open("r+b") as file:
        file.truncate(2**20)
    assert not may_be_unusual(source)


def test_a_file_of_more_fields_than_any_model_is_left_to_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Walking over millions of them would take the process that was asked for minutes."""
    monkeypatch.setattr(onnx_plain, "MOST_FIELDS", 1_000)
    (tmp_path / "few.onnx").write_bytes(b"\x08\x0a" * 1_000)
    (tmp_path / "many.onnx").write_bytes(b"\x08\x0a" * 1_001)
    assert not may_be_unusual(tmp_path / "few.onnx")
    assert may_be_unusual(tmp_path / "many.onnx")
