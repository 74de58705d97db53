"""Regressors and encoders are compressed too: judged, trained and taught by their metric."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.variants.builders.compression.nets import Array, Net, outputs, save, sizes
from variants.builders.compression.distillation import OnnxDistilled
from variants.builders.compression.graph import multiply_adds
from variants.builders.compression.lowrank import OnnxLowRank
from variants.builders.compression.pruning import OnnxPruned
from variants.builders.compression.scores import Targets, training_targets, trial
from variants.builders.compression.trainable import TrainableGraph
from variants.builders.compression.training import Tuning
from variants.builders.protocol import Material, Rows
from variants.errors import VariantNotBuilt
from variants.metrics.metric import Judged, parse_metric
from variants.metrics.scoring import score

pytestmark = pytest.mark.slow

R2, COSINE, NEAREST, WITHIN, LOOSE = (
    Judged(metric=parse_metric(text))
    for text in ("r2", "cosine", "nearest", "within:0.5", "within:10")
)


def rows(count: int, *, seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {"pixels": random.standard_normal((count, 8)).astype(np.float32)}


def targets(given: Rows) -> Array:
    """Two numbers ``(rows, 2)`` of very different size, which follow from the row."""
    x = given["pixels"]
    return np.stack([x[:, 0] * x[:, 1] + x[:, 2], 100 * np.abs(x[:, 3]) - 50], 1).astype(np.float32)


def network(*hidden: int, outer: int = 2, seed: int = 0) -> Any:
    """An untrained network of linear layers, its last one behind a way to large numbers."""
    net = Net(8, seed=seed)
    last, width = "pixels", 8
    for size in hidden:
        last, width = net.op("Relu", net.gemm(last, width, size)), size
    last = net.gemm(last, width, outer)
    return net.end(net.op("Mul", last, net.const([1.0, 50.0])) if outer == 2 else last, outer)


def trained(net: Any, *, epochs: int, count: int = 1_000, judged: Judged = R2) -> Any:
    given = rows(count)
    graph = TrainableGraph(net)
    wanted = targets(given)
    deviation = wanted.std(axis=0)
    tuning = Tuning(epochs=epochs, learning_rate=1e-2, clock=lambda: 0.0)
    tuning(graph, given, Targets(labels=wanted, deviation=deviation, judged=judged))
    return graph.trained()


@cache
def regressor() -> Any:
    return trained(network(64, 64), epochs=25)


def r2_of(net: Any) -> float:
    held = rows(500, seed=9)
    return score(R2.metric, outputs(net, held), targets(held)).accuracy


def material(folder: Path, **changes: Any) -> Material:
    given, held = rows(1_000), rows(200, seed=5)
    whole: dict[str, Any] = {
        "source": save(regressor(), folder / "net.onnx"),
        "training": given,
        "training_labels": targets(given),
        "calibration": held,
        "calibration_labels": targets(held),
        "judged": R2,
    }
    return Material(**(whole | changes))


def unhurried(builder: Any) -> Any:
    builder.limit_s = 3_600.0
    return builder


@pytest.mark.parametrize("judged", [R2, LOOSE, COSINE], ids=lambda one: str(one.metric))
def test_training_brings_answers_to_their_targets(judged: Judged) -> None:
    held = rows(500, seed=9)
    before = network(64, 64)
    after = trained(before, epochs=15, judged=judged)
    found = [score(judged.metric, outputs(net, held), targets(held)) for net in (before, after)]
    assert found[1].accuracy > max(0.5, found[0].accuracy + 0.1)


def test_a_pruned_regressor_is_nearly_as_good(tmp_path: Path) -> None:
    built = unhurried(OnnxPruned(goals=(0.5,))).build(material(tmp_path), tmp_path / "p.onnx")
    pruned = onnx.load(tmp_path / "p.onnx")
    left = sum(multiply_adds(pruned).values()) / sum(multiply_adds(regressor()).values())
    assert left < 0.65
    assert built.note.endswith("of the multiply-adds removed")
    assert r2_of(pruned) > r2_of(regressor()) - 0.05


def test_without_targets_nothing_says_which_channels_matter(tmp_path: Path) -> None:
    labelled = {"training_labels": np.zeros(1_000, np.int64), "judged": NEAREST, "calibration": {}}
    given = material(tmp_path, **labelled)
    with pytest.raises(VariantNotBuilt, match="the metric nearest has no targets to tell what mat"):
        unhurried(OnnxPruned(goals=(0.5,))).build(given, tmp_path / "p.onnx")


def test_a_student_regresses_onto_what_its_teacher_answers(tmp_path: Path) -> None:
    student = trained(network(24, seed=3), epochs=10, count=60)
    given = material(
        tmp_path,
        source=save(student, tmp_path / "student.onnx"),
        teacher=save(regressor(), tmp_path / "teacher.onnx"),
    )
    built = unhurried(OnnxDistilled()).build(given, tmp_path / "d.onnx")
    taught = onnx.load(tmp_path / "d.onnx")
    assert built.note == "taught by a larger model"
    assert r2_of(taught) > r2_of(student) + 0.02
    assert sizes(taught) == sizes(student)


def test_an_encoder_learns_the_directions_of_its_teacher_without_targets(tmp_path: Path) -> None:
    teacher, student = network(64, 64, outer=6), network(32, outer=6, seed=3)
    given = material(
        tmp_path,
        source=save(student, tmp_path / "student.onnx"),
        teacher=save(teacher, tmp_path / "teacher.onnx"),
        training_labels=np.zeros(1_000, np.int64),
        calibration={},
        judged=NEAREST,
    )
    unhurried(OnnxDistilled()).build(given, tmp_path / "d.onnx")
    held = rows(300, seed=9)
    wanted = outputs(teacher, held)
    before = score(COSINE.metric, outputs(student, held), wanted).accuracy
    after = score(COSINE.metric, outputs(onnx.load(tmp_path / "d.onnx"), held), wanted).accuracy
    assert after > max(0.8, before + 0.2)


def test_what_a_lesson_makes_worse_is_refused(tmp_path: Path) -> None:
    def spoil(graph: TrainableGraph, rows: Rows, targets: Targets) -> None:
        for weight in graph.parameters():
            weight.data.zero_()

    teacher = save(regressor(), tmp_path / "teacher.onnx")
    with pytest.raises(
        VariantNotBuilt, match=r"^taught, its r2 on the calibration rows is 0.0 %, a"
    ):
        OnnxDistilled(fine_tune=spoil).build(
            material(tmp_path, teacher=teacher), tmp_path / "d.onnx"
        )


def test_a_teacher_of_other_numbers_is_refused(tmp_path: Path) -> None:
    teacher = save(network(64, outer=6), tmp_path / "teacher.onnx")
    with pytest.raises(VariantNotBuilt, match=r"the teacher gives \(6,\) for a row, and the model"):
        unhurried(OnnxDistilled()).build(material(tmp_path, teacher=teacher), tmp_path / "d.onnx")


@pytest.mark.parametrize("known", [True, False], ids=["targets", "agreement"])
@pytest.mark.parametrize("judged", [R2, WITHIN, COSINE], ids=lambda one: str(one.metric))
def test_layers_are_split_as_far_as_the_metric_allows(
    tmp_path: Path, judged: Judged, known: bool
) -> None:
    """The two wide layers have rank 4, so splitting them loses nothing."""
    net, random = Net(8), np.random.default_rng(0)
    low = [random.standard_normal((160, 4)) @ random.standard_normal((4, 160)) / 100 for _ in "ab"]
    last = net.gemm("pixels", 8, 160)
    for matrix in low:
        last = net.op("Tanh", net.op("Gemm", last, net.const(matrix)))
    source = save(net.end(net.gemm(last, 160, 3), 3), tmp_path / "net.onnx")
    held = rows(100, seed=5)
    labels = outputs(source, held) if known else None
    given = Material(source=source, calibration=held, calibration_labels=labels, judged=judged)

    built = OnnxLowRank().build(given, tmp_path / "low.onnx")

    assert built.note.startswith("2 layers to rank ")
    fresh = rows(200, seed=6)
    found = score(COSINE.metric, outputs(tmp_path / "low.onnx", fresh), outputs(source, fresh))
    assert found.accuracy > 0.97


def test_a_named_output_is_the_one_that_is_judged() -> None:
    net = Net(8)
    first, second = net.gemm("pixels", 8, 3), net.gemm("pixels", 8, 5)
    model = net.end(first, 3)
    model.graph.output.add().CopyFrom(model.graph.output[0])
    model.graph.output[1].name = second
    model.graph.output[1].type.tensor_type.shape.dim[1].dim_value = 5
    judged = Judged(metric=R2.metric, output=second)
    held = trial(model, rows(20), None, judged)
    assert held is not None
    assert held.truth.shape == (20, 5)
    assert held.right(model) == 1.0
    _, taught = training_targets(model, rows(20), None, limit_s=60.0, judged=judged)
    assert taught.taught is not None
    assert taught.taught.shape == (20, 5)
