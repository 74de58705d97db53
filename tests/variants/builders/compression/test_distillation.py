"""A model learns from a larger one what it could not learn from its rows alone."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.variants.builders.compression.nets import (
    Net,
    digits,
    perceptron,
    right,
    save,
    sizes,
    trained,
)
from variants.builders.compression.distillation import OnnxDistilled
from variants.builders.compression.graph import initialisers
from variants.builders.compression.scores import Targets
from variants.builders.compression.trainable import TrainableGraph
from variants.builders.protocol import Material, Rows
from variants.builders.registry import make_builder
from variants.checks.onnx_check import check_model
from variants.errors import VariantNotBuilt

pytestmark = pytest.mark.slow


def unhurried() -> OnnxDistilled:
    """With so much time that a machine that others keep busy does not shorten the training."""
    return OnnxDistilled(limit_s=3_600.0)


@cache
def teacher() -> Any:
    return trained(perceptron(128, 64), epochs=8)


@cache
def student() -> Any:
    """Has seen 100 rows only."""
    return trained(perceptron(24), epochs=20, most=100)


def material(folder: Path, **changes: Any) -> Material:
    given, labels = digits("train")
    whole: dict[str, Any] = {
        "source": save(student(), folder / "student.onnx"),
        "teacher": save(teacher(), folder / "teacher.onnx"),
        "training": given,
        "training_labels": labels,
    }
    return Material(**(whole | changes))


def test_the_student_gets_better_and_stays_as_it_is(tmp_path: Path) -> None:
    target = tmp_path / "distilled.onnx"

    built = make_builder("onnx-fp32-distilled").build(material(tmp_path), target)

    assert built.note == "taught by a larger model"
    assert right(teacher()) > right(student()) + 0.02
    assert right(onnx.load(target)) > right(student()) + 0.02
    assert sizes(onnx.load(target)) == sizes(student())
    before, after = check_model(tmp_path / "student.onnx"), check_model(target)
    assert (before.inputs, before.outputs) == (after.inputs, after.outputs)


def test_no_labels_are_needed(tmp_path: Path) -> None:
    target = tmp_path / "distilled.onnx"
    unhurried().build(material(tmp_path, training_labels=None), target)
    assert right(onnx.load(target)) > right(student()) + 0.02


def test_the_same_build_gives_the_same_bytes(tmp_path: Path) -> None:
    few = {"training": {"pixels": digits("train")[0]["pixels"][:200]}, "training_labels": None}
    for name in ("one.onnx", "two.onnx"):
        unhurried().build(material(tmp_path, **few), tmp_path / name)
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()


def test_constants_that_an_exporter_stored_once_are_trained_apart(tmp_path: Path) -> None:
    net = Net(64, seed=1)
    shared = net.const(np.zeros(10))
    hidden = net.op("Relu", net.op("Gemm", "pixels", net.draw(64, 10, deviation=0.01), shared))
    model = net.end(net.op("Gemm", hidden, net.draw(10, 10), shared), 10)
    target = tmp_path / "distilled.onnx"

    unhurried().build(material(tmp_path, source=save(model, tmp_path / "net.onnx")), target)

    one, other = (value for value in initialisers(onnx.load(target)).values() if value.ndim == 1)
    assert abs(one - other).max() > 1e-3


def test_what_does_not_get_better_is_refused(tmp_path: Path) -> None:
    given, labels = digits("calibration")

    def spoil(graph: TrainableGraph, rows: Rows, targets: Targets) -> None:
        for weight in graph.parameters():
            weight.data.zero_()

    with pytest.raises(
        VariantNotBuilt, match=r"^taught, it answers 10.0 % of the calibration rows"
    ):
        OnnxDistilled(fine_tune=spoil).build(
            material(tmp_path, calibration=given, calibration_labels=labels),
            tmp_path / "distilled.onnx",
        )
    assert not (tmp_path / "distilled.onnx").exists()


@pytest.mark.parametrize(
    ("lacking", "sentence"),
    [
        ({"teacher": None}, "needs a larger model of the task to learn from"),
        ({"training": {}}, "needs the rows that the model was trained on"),
    ],
)
def test_teacher_and_rows_are_needed(
    lacking: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(VariantNotBuilt, match=f"^{sentence}$"):
        unhurried().build(material(tmp_path, **lacking), tmp_path / "distilled.onnx")


def test_a_teacher_of_other_classes_is_refused(tmp_path: Path) -> None:
    net = Net(64)
    other = save(net.end(net.gemm("pixels", 64, 3), 3), tmp_path / "other.onnx")
    with pytest.raises(VariantNotBuilt, match="the teacher has 3 classes, and the model 10"):
        unhurried().build(material(tmp_path, teacher=other), tmp_path / "distilled.onnx")


def test_a_teacher_of_other_inputs_is_refused(tmp_path: Path) -> None:
    net = Net(8, 8)
    scores = net.gemm(net.op("Flatten", "pixels"), 64, 10)
    other = save(net.end(scores, 10), tmp_path / "other.onnx")
    with pytest.raises(VariantNotBuilt, match="the teacher takes other inputs than the model"):
        unhurried().build(material(tmp_path, teacher=other), tmp_path / "distilled.onnx")


def test_what_the_teacher_says_counts_for_more_than_labels(tmp_path: Path) -> None:
    """With labels drawn at random the student still follows the teacher."""
    target = tmp_path / "distilled.onnx"
    wrong = np.random.default_rng(0).integers(0, 10, len(digits("train")[1]))
    unhurried().build(material(tmp_path, training_labels=wrong), target)
    assert right(onnx.load(target)) > 0.8
