"""What leaves is what matters least, in blocks, and what is left is tuned."""

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.variants.builders.compression.nets import (
    Net,
    digits,
    outputs,
    perceptron,
    residual,
    right,
    save,
    sizes,
    trained,
)
from variants.builders.compression.channel_dependencies import trace
from variants.builders.compression.graph import initialisers, multiply_adds
from variants.builders.compression.importance import importance, lightest
from variants.builders.compression.pruning import OnnxPruned
from variants.builders.compression.scores import Targets
from variants.builders.compression.surgery import separable, without
from variants.builders.compression.trainable import TrainableGraph
from variants.builders.compression.training import Tuning
from variants.builders.protocol import Material, Rows
from variants.builders.registry import make_builder
from variants.checks.onnx_check import check_model
from variants.errors import VariantNotBuilt

pytestmark = pytest.mark.slow


@cache
def convolutional() -> Any:
    return trained(residual(), epochs=5)


def parameters(model: Any) -> int:
    """Numbers in floating-point initialisers."""
    return sum(value.size for value in initialisers(model).values() if value.dtype.kind == "f")


def material(
    source: Path, *, rows: int | None = None, labelled: bool = True, held: bool = False
) -> Material:
    given, labels = digits("train")
    calibration, truth = digits("calibration")
    return Material(
        source=source,
        training={"pixels": given["pixels"][:rows]},
        training_labels=labels[:rows] if labelled else None,
        calibration=calibration if held else {},
        calibration_labels=truth if held else None,
    )


def important(net: Any) -> tuple[Any, Any]:
    """The channels of a network and what each matters for the digits."""
    channels = trace(separable(net))
    given, labels = digits("train")
    graph = TrainableGraph(separable(net))
    return channels, importance(graph, channels, given, Targets(labels=labels), limit_s=60)


def test_half_of_the_work_goes_and_the_accuracy_stays(tmp_path: Path) -> None:
    source, target = save(convolutional(), tmp_path / "net.onnx"), tmp_path / "pruned.onnx"

    built = OnnxPruned(goals=(0.5,)).build(material(source), target)

    pruned = onnx.load(target)
    left = sum(multiply_adds(pruned).values()) / sum(multiply_adds(convolutional()).values())
    assert 0.35 < left < 0.65
    assert built.note == f"{100 * (1 - left):.0f} % of the multiply-adds removed"
    assert parameters(pruned) < parameters(convolutional())
    assert right(pruned) >= right(convolutional()) - 0.02
    before, after = check_model(source), check_model(target)
    assert (before.inputs, before.outputs) == (after.inputs, after.outputs)


def test_shapes_that_an_exporter_noted_do_not_matter(tmp_path: Path) -> None:
    noted = onnx.shape_inference.infer_shapes(convolutional())
    assert noted.graph.value_info
    source, target = save(noted, tmp_path / "net.onnx"), tmp_path / "pruned.onnx"

    OnnxPruned(goals=(0.5, 0.75), loss=1.0, fine_tune=nothing).build(
        material(source, rows=64, held=True), target
    )

    onnx.checker.check_model(onnx.load(target), full_check=True)


def test_ways_around_are_as_wide_as_what_they_go_around(tmp_path: Path) -> None:
    source, target = save(convolutional(), tmp_path / "net.onnx"), tmp_path / "pruned.onnx"

    OnnxPruned(goals=(0.75,), fine_tune=nothing).build(material(source, rows=64), target)

    first, inner, around, behind, head = sizes(onnx.load(target))
    assert first[0] == around[0] == inner[1] == behind[1] < 16
    assert inner[0] == around[1]
    assert head == (10, 4 * behind[0])


def test_without_labels_the_model_teaches_itself(tmp_path: Path) -> None:
    source, target = save(convolutional(), tmp_path / "net.onnx"), tmp_path / "pruned.onnx"

    tune = Tuning(epochs=6, learning_rate=2e-3, clock=lambda: 0.0)
    OnnxPruned(goals=(0.5,), fine_tune=tune).build(material(source, labelled=False), target)

    assert right(onnx.load(target)) >= right(convolutional()) - 0.03


def test_the_same_build_gives_the_same_bytes(tmp_path: Path) -> None:
    source = save(convolutional(), tmp_path / "net.onnx")
    tune = Tuning(epochs=1, clock=lambda: 0.0)
    for name in ("one.onnx", "two.onnx"):
        OnnxPruned(fine_tune=tune).build(material(source, rows=300), tmp_path / name)

    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()


def nothing(graph: TrainableGraph, rows: Rows, targets: Targets) -> None:
    """Does not tune."""


def test_what_tunes_can_be_chosen(tmp_path: Path) -> None:
    source, target = save(convolutional(), tmp_path / "net.onnx"), tmp_path / "pruned.onnx"
    seen = []

    def note(graph: TrainableGraph, rows: Rows, targets: Targets) -> None:
        assert targets.taught is not None
        seen.append((parameters(graph.model), len(rows["pixels"]), targets.taught.shape))

    OnnxPruned(goals=(0.3, 0.6), fine_tune=note).build(
        material(source, rows=100, held=True), target
    )

    (first, *_), (second, *_) = seen
    assert parameters(convolutional()) > first > second
    assert {(count, shape) for _, count, shape in seen} == {(100, (100, 10))}


@pytest.mark.parametrize(("loss", "held"), [(1.0, True), (0.0, True), (1.0, False)])
def test_it_goes_on_only_while_answers_are_not_lost(
    loss: float, held: bool, tmp_path: Path
) -> None:
    """Nothing is tuned, so that every goal loses some; without rows to see that, it stops too."""
    source, target = save(convolutional(), tmp_path / "net.onnx"), tmp_path / "pruned.onnx"

    OnnxPruned(goals=(0.3, 0.8), loss=loss, fine_tune=nothing).build(
        material(source, rows=100, held=held), target
    )

    left = sum(multiply_adds(onnx.load(target)).values())
    share = left / sum(multiply_adds(convolutional()).values())
    assert (share < 0.4) == (loss == 1.0 and held)


def test_what_nothing_depends_on_leaves_first() -> None:
    """Half of the hidden units are connected to no score."""
    net = trained(perceptron(32), epochs=2)
    values = initialisers(net)
    head = next(name for name, value in values.items() if value.shape == (10, 32))
    idle = np.arange(32) % 2 == 0
    silent = type(net).FromString(net.SerializeToString())
    for tensor in silent.graph.initializer:
        if tensor.name == head:
            tensor.CopyFrom(onnx.numpy_helper.from_array(values[head] * ~idle, head))

    channels, scores = important(silent)
    kept = lightest(
        channels, scores, work=0.6 * channels.work(np.ones(channels.count, bool)), least=0
    )
    smaller = without(separable(silent), channels, kept)

    given, _ = digits("train")
    assert scores[channels.groups[0][idle]].max() == 0
    assert kept[channels.groups[0]].sum() == 16
    np.testing.assert_allclose(outputs(smaller, given), outputs(silent, given), atol=1e-6)


def test_channels_leave_in_whole_blocks() -> None:
    """A layer of 36 loses the 4 that are no block first, and 16 at a time from then on."""
    channels, scores = important(perceptron(36, 64))
    whole = channels.work(np.ones(channels.count, bool))

    def left(share: float, least: float = 0) -> list[int]:
        kept = lightest(channels, scores, work=share * whole, least=least)
        return [int(kept[group].sum()) for group in channels.groups]

    widths = [left(share / 20) for share in range(20, 0, -1)]

    assert {narrow for narrow, _ in widths} <= {36, 32, 16}
    assert {wide for _, wide in widths} <= {64, 48, 32, 16}
    assert widths[0] == [36, 64]
    assert left(0.0) == [16, 16]
    assert left(0.0, least=0.6) == [32, 48]


def test_importance_is_what_a_channel_changes_to_first_order() -> None:
    """Gates are moved a little, one at a time, and the loss is measured."""
    import torch
    from torch.nn import functional

    net = perceptron(8, softmax=False, seed=5)
    model = separable(net)
    channels, given = trace(model), {"pixels": digits("train")[0]["pixels"][:50]}
    labels = digits("train")[1][:50]

    def loss(gate: float, unit: int) -> float:
        mask = np.ones(channels.count)
        mask[unit] = gate
        values = initialisers(model)
        changed = type(model).FromString(model.SerializeToString())
        for tensor in changed.graph.initializer:
            for cut in channels.cuts:
                if cut.name == tensor.name and cut.maker:
                    along = [1] * values[cut.name].ndim
                    along[cut.axis] = -1
                    scaled = values[cut.name] * mask[cut.units].reshape(along).astype(np.float32)
                    tensor.CopyFrom(onnx.numpy_helper.from_array(scaled, cut.name))
        logits = torch.tensor(outputs(changed, given)).double()
        return float(functional.cross_entropy(logits, torch.tensor(labels)))

    slopes = [(loss(1.01, unit) - loss(0.99, unit)) / 0.02 for unit in channels.groups[0]]
    graph = TrainableGraph(model)
    found = importance(graph, channels, given, Targets(labels=labels), limit_s=60)

    np.testing.assert_allclose(found[channels.groups[0]], np.square(slopes), rtol=0.02, atol=1e-8)


def test_rows_are_needed(tmp_path: Path) -> None:
    source = save(perceptron(32), tmp_path / "net.onnx")
    with pytest.raises(VariantNotBuilt, match=r"^needs the rows that the model was trained on$"):
        make_builder("onnx-fp32-pruned").build(Material(source=source), tmp_path / "pruned.onnx")


def test_a_linear_model_has_nothing_to_prune(tmp_path: Path) -> None:
    source, target = save(perceptron(), tmp_path / "net.onnx"), tmp_path / "pruned.onnx"
    with pytest.raises(VariantNotBuilt, match=r"^nothing can be pruned: no layer's channels may"):
        OnnxPruned().build(material(source, rows=50), target)
    assert not target.exists()


def test_a_layer_of_one_block_is_as_narrow_as_may_be(tmp_path: Path) -> None:
    source = save(perceptron(4), tmp_path / "net.onnx")
    with pytest.raises(VariantNotBuilt, match=r"^nothing can be pruned: every layer is as narrow"):
        OnnxPruned(least=1.0).build(material(source, rows=50), tmp_path / "pruned.onnx")


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (np.arange(50), "a training label is not among the model's 10 classes"),
        (np.zeros(50), "the training rows need one whole-numbered label each"),
        (np.zeros(49, np.int64), "the training rows need one whole-numbered label each"),
    ],
)
def test_labels_have_to_be_classes(labels: Any, sentence: str, tmp_path: Path) -> None:
    source = save(perceptron(32), tmp_path / "net.onnx")
    given = {"pixels": digits("train")[0]["pixels"][:50]}
    with pytest.raises(VariantNotBuilt, match=sentence):
        OnnxPruned().build(
            Material(source=source, training=given, training_labels=labels), tmp_path / "p.onnx"
        )


def test_what_gives_no_scores_cannot_be_pruned(tmp_path: Path) -> None:
    net = Net(64)
    score = net.op("Sigmoid", net.gemm(net.op("Relu", net.gemm("pixels", 64, 32)), 32, 1))
    source = save(net.end(score, 1), tmp_path / "net.onnx")
    with pytest.raises(VariantNotBuilt, match="no output has one score per class"):
        OnnxPruned().build(material(source, rows=50), tmp_path / "pruned.onnx")


def test_torch_is_not_imported_to_say_whether_it_is_there() -> None:
    code = """
import sys
from variants.builders.registry import missing_here
for kind in ("lowrank", "pruned", "distilled"):
    missing_here(f"onnx-fp32-{kind}")
assert not {"torch", "onnx", "onnxruntime"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
