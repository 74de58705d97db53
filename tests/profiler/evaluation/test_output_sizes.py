"""Sizes of outputs that are found by a trial, of models whose exporters did not see them."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

from profiler.evaluation.output_sizes import say_output_sizes, with_other_rows
from tests import onnx_models as models
from variants.checks.onnx_check import check_model
from variants.errors import InvalidArtifact

ROWS = np.arange(24, dtype=np.float32).reshape(3, 8)


def computed(*axes: int | str) -> Any:
    """Halves of each row, whose number is computed in floating point, as converters of Paddle
    write it: no inference of shapes follows that. Its output says ``axes``."""
    return models.model(
        inputs=[models.tensor("pixels", "batch", 8)],
        outputs=[models.tensor("scores", *axes)],
        nodes=[
            models.node("Shape", ("pixels",), "shape", start=1),
            models.node("Cast", ("shape",), "wide", to=TensorProto.FLOAT),
            models.node("Div", ("wide", "two"), "half"),
            models.node("Cast", ("half",), "size", to=TensorProto.INT64),
            models.node("Concat", ("any", "size", "pair"), "sizes", axis=0),
            models.node("Reshape", ("pixels", "sizes"), "scores"),
        ],
        weights={
            "two": np.array(2, np.float32), "any": np.array([-1]), "pair": np.array([2]),
        },
    )  # fmt: skip


def squeezed(*axes: int | str) -> Any:
    """The sum of each row, without any axis of size 1."""
    return models.model(
        inputs=[models.tensor("pixels", "batch", 8)],
        outputs=[models.tensor("scores", *axes)],
        nodes=[
            models.node("ReduceSum", ("pixels", "axis"), "sums"),
            models.node("Squeeze", ("sums",), "scores"),
        ],
        weights={"axis": np.array([1])},
    )


def said(folder: Path, model: Any) -> Path | None:
    source = models.write(folder / "source.onnx", model)
    target = folder / "said.onnx"
    return target if say_output_sizes(source, target) else None


def answers(path: Path, rows: int) -> Any:
    return onnxruntime.InferenceSession(str(path)).run(None, {"pixels": ROWS[:rows]})[0]


@pytest.mark.parametrize("axes", [("batch", "half", 2), ("other", "half", "pair"), (1, "half", 2)])
def test_a_size_that_is_computed_in_the_graph_is_found(
    tmp_path: Path, axes: tuple[int | str, ...]
) -> None:
    path = said(tmp_path, computed(*axes))
    assert path is not None
    (output,) = check_model(path).outputs
    assert output.shape == (4, 2)
    assert np.array_equal(answers(path, 3), ROWS.reshape(3, 4, 2))
    with pytest.raises(InvalidArtifact, match="'scores'"):
        check_model(tmp_path / "source.onnx")


@pytest.mark.parametrize("axes", [("batch",), ()])
def test_an_output_without_axes_of_size_1_keeps_that_of_a_single_row(
    tmp_path: Path, axes: tuple[str, ...]
) -> None:
    path = said(tmp_path, squeezed(*axes))
    assert path is not None
    assert [output.shape for output in check_model(path).outputs] == [()]
    for rows in (1, 3):
        assert np.array_equal(answers(path, rows), ROWS[:rows].sum(1))
    assert said(tmp_path / "again", squeezed(*axes)).read_bytes() == path.read_bytes()  # type: ignore[union-attr]


def test_what_is_not_one_answer_for_each_row_stays_unsaid(tmp_path: Path) -> None:
    """The numbers above a threshold, however many: it is refused as before."""
    found = models.model(
        nodes=[models.node("NonZero", ("pixels",), "scores")],
        inputs=[models.tensor("pixels", "batch", 8)],
        outputs=[models.tensor("scores", 2, "found", kind=TensorProto.INT64)],
        weights={"unused": np.zeros(1, np.float32)},
    )
    assert said(tmp_path, found) is None


@pytest.mark.parametrize(
    "model",
    [
        models.model(),
        models.model(outputs=[models.tensor("scores", "batch", "classes")]),  # that is inferred
        models.model(inputs=[models.tensor("pixels", "batch", "values")]),
        models.model(inputs=[models.tensor("pixels", 1, 4)]),
    ],
    ids=["says all", "is inferred", "open inputs", "a fixed batch"],
)
def test_other_models_are_left_as_they_are(tmp_path: Path, model: Any) -> None:
    assert said(tmp_path, model) is None


def found() -> Any:
    """The positive numbers of all rows, and beside them the doubles of each row."""
    return models.model(
        inputs=[models.tensor("pixels", "batch", 8)],
        outputs=[models.tensor("numbers", "found"), models.tensor("doubles", "rows", 8)],
        nodes=[
            models.node("Greater", ("pixels", "zero"), "positive"),
            models.node("Reshape", ("positive", "all"), "flags"),
            models.node("Compress", ("pixels", "flags"), "numbers"),
            models.node("Add", ("pixels", "pixels"), "doubles"),
        ],
        weights={"zero": np.array(0, np.float32), "all": np.array([-1])},
    )


def test_outputs_with_other_rows_than_came_in_are_found_by_running_the_model(
    tmp_path: Path,
) -> None:
    path = models.write(tmp_path / "model.onnx", found())
    info = check_model(path)
    assert info.uneven == ("numbers", "doubles")
    assert with_other_rows(path, info.uneven) == ("numbers",)


def test_a_model_that_does_not_run_is_not_said_to_have_other_rows(tmp_path: Path) -> None:
    path = models.write(tmp_path / "model.onnx", computed("rows", 4))
    assert with_other_rows(path, ["scores"]) == ()
    path.write_bytes(b"no model")
    assert with_other_rows(path, ["scores"]) == ()
