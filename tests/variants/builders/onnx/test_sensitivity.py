"""Networks with a node that 8 bits ruin: one input is a thousand times as large as the others, and
only the others tell the class."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.variants.builders.onnx.networks import (
    Array,
    answers,
    images,
    layers,
    residual,
    weights,
)
from tests.variants.builders.onnx.quantised import to_qdq
from variants.builders.compression.scores import trial
from variants.builders.protocol import Material
from variants.builders.quantisation.qdq import Quantiser
from variants.builders.quantisation.sensitivity import Judge, describe, quantise, ranking
from variants.builders.registry import make_builder
from variants.errors import VariantNotBuilt
from variants.metrics.metric import Judged, parse_metric

PLAIN = np.eye(4, 4)
LAST = 8 * np.eye(4, 3)
QUIET = np.diag([1.0, 1.0, 1.0, 0.001])
LOUD = np.diag([1.0, 1.0, 1.0, 1000.0])


def rows(count: int = 120, *, loud: float = 1.0) -> dict[str, Array]:
    """``pixels`` ``(count, 4)`` in 0 to 1, the last one so many times as large."""
    pixels = np.random.default_rng(1).random((count, 4)).astype(np.float32)
    pixels[:, 3] *= loud
    return {"pixels": pixels}


def labels(given: dict[str, Array]) -> Array:
    return np.asarray(given["pixels"][:, :3].argmax(1))


def loud_input(path: Path) -> Path:
    """Only the first node sees the large values: it makes them small."""
    return layers(path, {"wide": QUIET, "a": PLAIN, "b": PLAIN, "c": PLAIN, "last": LAST})


def loud_inside(path: Path, *, convolutions: bool) -> Path:
    """The large values are between two nodes: one makes them, the next makes them small again."""
    matrices = {"a": PLAIN, "up": LOUD, "down": QUIET, "b": PLAIN, "c": PLAIN, "last": LAST}
    return layers(path, matrices, convolutions=convolutions)


def build(source: Path, target: Path, **material: object) -> str:
    return make_builder("onnx-int8").build(Material(source=source, **material), target).note  # type: ignore[arg-type]


@pytest.mark.parametrize("known", [True, False], ids=["labels", "agreement"])
def test_the_one_sensitive_node_stays_in_fp32_and_is_named(tmp_path: Path, known: bool) -> None:
    source, given = loud_input(tmp_path / "net.onnx"), rows(loud=1000)
    truth = labels(given) if known else None

    note = build(
        source, tmp_path / "i.onnx", calibration=given, calibration_labels=truth, floor=0.95
    )

    assert note == "1 of 5 nodes in fp32: wide"
    held = weights(tmp_path / "i.onnx")
    assert held["wide_weight"].dtype == np.float32
    assert {f"{name}_weight_quantized" for name in ("a", "b", "c", "last")} <= set(held)
    unseen = rows(400, loud=1000)
    assert np.mean(answers(tmp_path / "i.onnx", unseen).argmax(1) == labels(unseen)) >= 0.95


def test_without_a_floor_what_costs_more_than_may_be_lost_stays_in_fp32(tmp_path: Path) -> None:
    source, given = loud_input(tmp_path / "net.onnx"), rows(loud=1000)
    known = {"calibration": given, "calibration_labels": labels(given)}

    assert build(source, tmp_path / "i.onnx", **known, loss=0.05) == "1 of 5 nodes in fp32: wide"
    assert build(source, tmp_path / "all.onnx", **known, loss=1.0) == ""
    quiet = {"calibration": rows(), "calibration_labels": labels(rows())}
    assert build(source, tmp_path / "quiet.onnx", **quiet, loss=0.05) == ""


def test_without_a_floor_other_ranges_that_lose_too_much_are_not_built(tmp_path: Path) -> None:
    source, given = loud_input(tmp_path / "net.onnx"), rows(loud=1000)
    material = Material(
        source=source, calibration=given, calibration_labels=labels(given), loss=0.05
    )
    percentile = make_builder("onnx-int8-percentile")
    with pytest.raises(
        VariantNotBuilt, match=r"and 95.0 % would be the least without a floor: --a"
    ):
        percentile.build(material, tmp_path / "i.onnx")
    floored = replace(material, floor=0.9)
    assert percentile.build(floored, tmp_path / "i.onnx").note == "1 of 5 nodes in fp32: wide"


def test_without_a_floor_nothing_is_left_out(tmp_path: Path) -> None:
    source, given = loud_input(tmp_path / "net.onnx"), rows(loud=1000)

    note = build(source, tmp_path / "i.onnx", calibration=given, calibration_labels=labels(given))

    assert note == ""
    right = np.mean(answers(tmp_path / "i.onnx", given).argmax(1) == labels(given))
    assert right < 0.5  # what the test above has to mend


def test_a_floor_that_is_met_leaves_nothing_out(tmp_path: Path) -> None:
    source, given = loud_input(tmp_path / "net.onnx"), rows()
    assert build(source, tmp_path / "i.onnx", calibration=given, floor=0.95) == ""


def test_who_reads_a_sensitive_tensor_stays_in_fp32(tmp_path: Path) -> None:
    """Who makes it has 8-bit inputs and weights and an fp32 result."""
    source, given = loud_inside(tmp_path / "net.onnx", convolutions=False), rows()

    note = build(source, tmp_path / "i.onnx", calibration=given, floor=0.95)

    assert note == "1 of 6 nodes in fp32: down"


def test_both_convolutions_around_a_sensitive_tensor_stay_in_fp32(tmp_path: Path) -> None:
    """An 8-bit convolution has an 8-bit result."""
    source, given = loud_inside(tmp_path / "net.onnx", convolutions=True), rows()

    note = build(source, tmp_path / "i.onnx", calibration=given, floor=0.95)

    assert note.startswith("2 of 6 nodes in fp32: ")
    assert set(note.partition(": ")[2].split(", ")) == {"up", "down"}


def test_a_floor_out_of_reach_is_said(tmp_path: Path) -> None:
    """All values between all nodes are of both sizes, so that leaving out half of them mends
    nothing."""
    matrices = {"a": PLAIN, "b": PLAIN, "c": PLAIN, "d": PLAIN, "last": LAST}
    source = layers(tmp_path / "net.onnx", matrices)
    given = rows(loud=1000)

    note = build(source, tmp_path / "i.onnx", calibration=given, floor=0.95)

    assert "of the calibration rows, where 95.0 % are asked for" in note


def test_a_model_that_misses_the_floor_itself_is_not_searched(tmp_path: Path) -> None:
    """No node can be left out for what fp32 does not have."""
    source, given = loud_input(tmp_path / "net.onnx"), rows()
    wrong = (labels(given) + (np.arange(120) % 2)) % 3

    note = build(
        source, tmp_path / "i.onnx", calibration=given, calibration_labels=wrong, floor=0.95
    )

    assert note == ""


def test_the_ranking_begins_with_what_hurts_alone(tmp_path: Path) -> None:
    given = rows(loud=1000)
    quantiser = Quantiser(loud_input(tmp_path / "net.onnx"), rows=given)

    ranked = ranking(quantiser, Judge(quantiser.original, given, None))

    assert ranked[0] == "wide"
    assert sorted(ranked) == sorted(unit.name for unit in quantiser.units)


def test_as_few_as_possible_are_left_out(tmp_path: Path) -> None:
    given = rows()
    quantiser = Quantiser(loud_inside(tmp_path / "net.onnx", convolutions=True), rows=given)
    mixed = quantise(quantiser, given, labels(given), 0.95)
    judge = Judge(quantiser.original, given, labels(given))

    assert mixed.right == judge.share(mixed.model) >= 0.95
    for name in mixed.kept:
        fewer = quantiser.model([other for other in mixed.kept if other != name])
        assert judge.share(fewer) < 0.95


def test_scores_that_are_no_classes_are_not_judged(tmp_path: Path) -> None:
    source = layers(tmp_path / "net.onnx", {"a": PLAIN, "b": np.ones((4, 1))})
    assert build(source, tmp_path / "i.onnx", calibration=rows(), floor=0.99) == ""


def test_builders_judge_by_class_where_the_metric_does(tmp_path: Path) -> None:
    """One row in twenty is of a class that is never answered."""
    blind = LAST.copy()
    blind[:, 2] = -8.0
    given = rows(400)
    kinds = labels(given)
    kept = np.concatenate([np.flatnonzero(kinds == 2)[:3], np.flatnonzero(kinds != 2)[:57]])
    given, kinds = {"pixels": given["pixels"][kept]}, kinds[kept]
    model = onnx.load(layers(tmp_path / "net.onnx", {"a": PLAIN, "last": blind}))

    for metric, share in (("top1", 0.95), ("balanced", 2 / 3)):
        judged = Judged(metric=parse_metric(metric))
        held = trial(model, given, kinds, judged)
        assert held is not None
        assert held.right(model) == pytest.approx(share)
        assert Judge(model, given, kinds, judged).original == pytest.approx(share)


def test_quantising_nothing_is_refused(tmp_path: Path) -> None:
    given = rows()
    quantiser = Quantiser(loud_input(tmp_path / "net.onnx"), rows=given)
    with pytest.raises(VariantNotBuilt, match="nothing that can be quantised"):
        quantiser.model([unit.name for unit in quantiser.units])


def test_a_note_counts_what_it_does_not_name(tmp_path: Path) -> None:
    matrices = {f"n{index}": PLAIN for index in range(19)} | {"last": LAST}
    quantiser = Quantiser(layers(tmp_path / "net.onnx", matrices), rows=rows())
    mixed = quantise(quantiser, rows(), None, None)
    kept = tuple(f"n{index}" for index in range(9))

    note = describe(type(mixed)(model=None, kept=kept, units=20, right=0.9, wanted=0.9))

    assert note == "9 of 20 nodes in fp32: n0, n1, n2, n3, n4, n5, n6, n7, ..."


def test_convolutions_are_left_out_with_what_follows_them(tmp_path: Path) -> None:
    quantiser = Quantiser(residual(tmp_path / "net.onnx"), rows=images())

    kinds = {node.name: node.op_type for node in quantiser.original.graph.node}
    assert {unit.name: [kinds[name] for name in unit.nodes] for unit in quantiser.units} == {
        "first": ["Conv", "Relu", "MaxPool"],
        "second": ["Conv"],
        "around": ["Add", "Relu", "GlobalAveragePool", "Flatten"],
        "head": ["Gemm"],
    }


@pytest.mark.parametrize("convolutions", [True, False])
@pytest.mark.parametrize("kept", ["one", "two", "three"])
def test_an_activation_outlives_whatever_is_left_out_beside_it(
    tmp_path: Path, kept: str, convolutions: bool
) -> None:
    """Half of all values are negative in front of every ReLU."""
    random = np.random.default_rng(5)
    matrices = {name: random.standard_normal((4, 4)) for name in ("one", "two", "three")}
    source = layers(tmp_path / "net.onnx", matrices, convolutions=convolutions)
    given = {"pixels": random.standard_normal((100, 4)).astype(np.float32)}

    to_qdq(source, tmp_path / "i.onnx", rows=given, keep=(kept,))

    difference = np.abs(answers(tmp_path / "i.onnx", given) - answers(source, given))
    assert difference.max() < 0.1


@pytest.mark.parametrize("known", [True, False], ids=["targets", "agreement"])
@pytest.mark.parametrize("metric", ["within:0.02", "r2", "cosine"])
def test_of_numbers_and_vectors_the_metric_decides_what_stays_in_fp32(
    tmp_path: Path, metric: str, known: bool
) -> None:
    source, given = loud_input(tmp_path / "net.onnx"), rows(loud=1000)
    targets = answers(source, given) if known else None
    judged = Judged(metric=parse_metric(metric), output=onnx.load(source).graph.output[0].name)

    note = build(
        source, tmp_path / "i.onnx", calibration=given, calibration_labels=targets, floor=0.99,
        judged=judged,
    )  # fmt: skip

    assert note.startswith("1 of 5 nodes in fp32: wide")


def test_of_vectors_a_floor_out_of_reach_is_said_in_the_metric(tmp_path: Path) -> None:
    matrices = {"a": PLAIN, "b": PLAIN, "c": PLAIN, "d": PLAIN, "last": LAST}
    source, given = layers(tmp_path / "net.onnx", matrices), rows(loud=1000)
    judged = Judged(metric=parse_metric("within:0.0001"))

    note = build(source, tmp_path / "i.onnx", calibration=given, floor=0.95, judged=judged)

    assert "within:0.0001 of " in note
    assert note.endswith("on the calibration rows, where 95.0 % is asked for")
