"""Freeing a batch of one: what exporters write into nodes for it, and what cannot be freed."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from profiler.evaluation.freed_batch import check_freed, try_rows
from tests import onnx_models as models
from variants.checks.edges import Edges
from variants.checks.onnx_check import OnnxLimits, check_model
from variants.checks.onnx_edges import change_edges
from variants.errors import InvalidArtifact

RANDOM = np.random.default_rng(0)


def drawn(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def answers(path: Path, rows: Any) -> Any:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: rows})[0]


def patches() -> Any:
    """A vision transformer's beginning: patches, the token of a class before them, two heads."""
    nodes = [
        models.node("Reshape", ("pixels", "as_patches"), "patches", allowzero=1),
        models.node("Transpose", ("patches",), "places", perm=[0, 2, 1]),
        models.node("Concat", ("token", "places"), "all", axis=1),
        models.node("Reshape", ("all", "as_heads"), "heads", allowzero=1),
        models.node("Transpose", ("heads",), "turned", perm=[0, 2, 1, 3]),
        models.node("Reshape", ("turned", "as_many"), "many"),
        models.node("MatMul", ("many", "weight"), "product"),
        models.node("Reshape", ("product", "as_they_were"), "again"),
        models.node("ReduceMean", ("again", "axes"), "scores", keepdims=0),
    ]
    return models.model(
        nodes=nodes,
        inputs=[models.tensor("pixels", 1, 4, 2, 3)],
        outputs=[models.tensor("scores", 1, 3)],
        weights={
            "token": drawn(1, 1, 4),
            "weight": drawn(2, 3),
            "as_patches": np.array([1, 4, 6]),
            "as_heads": np.array([1, 7, -1, 2]),
            "as_many": np.array([-1, 7, 2]),
            "as_they_were": np.array([1, 2, 7, 3]),
            "axes": np.array([1, 2]),
        },
    )


def recurrent() -> Any:
    """Two layers as exporters write them: time first, and a state of one row to begin with."""
    nodes = [
        models.node("Transpose", ("steps",), "times", perm=[1, 0, 2]),
        models.node("GRU", ("times", "w", "r", "b", "", "state"), "y", hidden_size=2),
        models.node("Transpose", ("y",), "turned", perm=[0, 2, 1, 3]),
        models.node("Reshape", ("turned", "flat"), "between"),
        models.node("GRU", ("between", "w", "r", "b", "", "state"), "z", hidden_size=2),
        models.node("Reshape", ("z", "flat"), "last"),
        models.node("Gather", ("last", "end"), "scores", axis=0),
    ]
    return models.model(
        nodes=nodes,
        inputs=[models.tensor("steps", 1, 5, 2)],
        outputs=[models.tensor("scores", 1, 2)],
        weights={
            "w": drawn(1, 6, 2),
            "r": drawn(1, 6, 2),
            "b": drawn(1, 12),
            "state": drawn(1, 1, 2),
            "flat": np.array([5, 1, 2]),
            "end": np.array(4),
        },
    )


def said_to_be_free(model: Any) -> Any:
    """The same whose exporter was told that the batch is free, and wrote nodes for one row."""
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    return model


def pictures() -> Any:
    """Made larger by a size of four numbers, and a mean that is looked up value by value."""
    nodes = [
        models.node("Resize", ("pixels", "", "", "sizes"), "large", mode="nearest"),
        models.node("Add", ("large", "pixels"), "sum"),
        models.node("ReduceMean", ("sum", "axes"), "mean", keepdims=0),
        models.node("Reshape", ("mean", "all"), "flat"),
        models.node("Gather", ("flat", "order"), "places"),
        models.node("Reshape", ("places", "row"), "scores"),
    ]
    return models.model(
        nodes=nodes,
        inputs=[models.tensor("pixels", 1, 3, 4, 4)],
        outputs=[models.tensor("scores", 1, 3)],
        weights={
            "sizes": np.array([1, 3, 4, 4]),
            "axes": np.array([2, 3]),
            "all": np.array([-1]),
            "order": np.arange(3).reshape(1, 3, 1, 1),
            "row": np.array([1, 3]),
        },
    )


@pytest.mark.parametrize(
    ("made", "row"),
    [
        (patches(), (4, 2, 3)),
        (recurrent(), (5, 2)),
        (said_to_be_free(recurrent()), (5, 2)),
        (pictures(), (3, 4, 4)),
    ],
)
def test_what_was_made_for_one_row_answers_several_as_each_alone(
    tmp_path: Path, made: Any, row: tuple[int, ...]
) -> None:
    source, target = models.write(tmp_path / "one.onnx", made), tmp_path / "any.onnx"
    change_edges(source, target, Edges(free_batch=True))
    check_freed(target, limits=OnnxLimits())
    try_rows("m", target)
    rows = drawn(4, *row)
    alone = np.concatenate([answers(source, rows[i : i + 1]) for i in range(4)])
    np.testing.assert_allclose(answers(target, rows), alone, rtol=1e-4, atol=1e-5)
    again = tmp_path / "again.onnx"
    change_edges(source, again, Edges(free_batch=True))
    assert again.read_bytes() == target.read_bytes()


def test_a_model_that_masks_all_rows_as_the_first_is_refused(tmp_path: Path) -> None:
    """By little: the mask of another row changes its scores by less than a thousandth."""
    nodes = [
        models.node("Gather", ("pixels", "first"), "of_one", axis=0),
        models.node("Mul", ("of_one", "little"), "mask"),
        models.node("Add", ("pixels", "mask"), "masked"),
        models.node("MatMul", ("masked", "weight"), "scores"),
    ]
    made = models.model(
        nodes=nodes,
        inputs=[models.tensor("pixels", 1, 4)],
        outputs=[models.tensor("scores", 1, 3)],
        weights={
            "weight": models.WEIGHT * np.float32(0.02),
            "first": np.array([0]),
            "little": np.array(0.01, np.float32),
        },
    )
    source, target = models.write(tmp_path / "one.onnx", made), tmp_path / "any.onnx"
    change_edges(source, target, Edges(free_batch=True))
    with pytest.raises(InvalidArtifact, match="answers a row otherwise beside others than alone"):
        try_rows("m", target)


def test_an_output_that_stays_of_one_row_is_not_told_to_try_what_was_tried(tmp_path: Path) -> None:
    nodes = [
        models.node("ReduceMax", ("pixels", "axis"), "most", keepdims=1),
        models.node("MatMul", ("most", "weight"), "scores"),
    ]
    made = models.model(
        nodes=nodes,
        inputs=[models.tensor("pixels", 1, 4)],
        outputs=[models.tensor("scores", 1, 3)],
        weights={"weight": models.WEIGHT, "axis": np.array([0])},
    )
    source, target = models.write(tmp_path / "one.onnx", made), tmp_path / "any.onnx"
    change_edges(source, target, Edges(free_batch=True))
    with pytest.raises(
        InvalidArtifact,
        match=r"output 'scores' keeps one size with its batch freed: .* it was made$",
    ):
        check_freed(target, limits=OnnxLimits())


def sized(output: Any, **changes: Any) -> Any:
    """Rows that are made twice as large, by a size that is computed."""
    nodes = [
        models.node("Shape", ("pixels",), "sizes"),
        models.node("Mul", ("sizes", "factors"), "doubled"),
        models.node("ConstantOfShape", ("doubled",), "zeros"),
        models.node("Add", ("zeros", "one"), "scores"),
    ]
    given: dict[str, Any] = {
        "nodes": nodes,
        "outputs": [output],
        "weights": {"factors": np.array([1, 2]), "one": np.array(1, np.float32)},
    }
    return models.model(**given | changes)


@pytest.mark.parametrize(
    "output",
    [
        models.tensor("scores", "batch", "Resizescores_dim_1"),
        models.tensor("scores", 1, 8),
        models.tensor("scores", "Shapescores_dim_0", "Shapescores_dim_1"),
    ],
)
def test_sizes_of_outputs_that_follow_from_the_inputs_are_found(
    tmp_path: Path, output: Any
) -> None:
    """PyTorch's older exporter names what it does not see, and fixes what it was not told of."""
    info = check_model(models.write(tmp_path / "m.onnx", sized(output)))
    assert [one.shape for one in info.outputs] == [(8,)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weights": {"factors": np.array([2, 2]), "one": np.array(1, np.float32)}}, "axis 1 open"),
        ({"inputs": [models.tensor("pixels", "batch", "tokens")]}, "'pixels' leaves axis 1 open"),
    ],
)
def test_sizes_that_do_not_follow_are_not_guessed(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    made = sized(models.tensor("scores", "batch", "size"), **changes)
    with pytest.raises(InvalidArtifact, match=words):
        check_model(models.write(tmp_path / "m.onnx", made))
