from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.onnx_models import model, node, tensor, write
from tests.variants.builders.onnx.networks import (
    CLASSES,
    answers,
    images,
    kernels,
    nodes,
    residual,
    weights,
)
from tests.variants.builders.onnx.quantised import to_qdq
from variants.builders.calibration import Calibration
from variants.builders.protocol import Material
from variants.builders.quantisation.qdq import CPU, TENSORRT
from variants.builders.registry import make_builder
from variants.errors import VariantNotBuilt

STATIC = ("onnx-int8", "onnx-int8-entropy", "onnx-int8-percentile")
TOLERANCE = {"onnx-int8": 0.06, "onnx-int8-percentile": 0.06, "onnx-int8-entropy": 0.2}
"""Largest error of a probability: a score is a sum over 8 features of steps of 1/256 each, times
1.5. Entropy cuts what is rare, here the one channel of eight that is large."""


def build(kind: str, source: Path, target: Path, **material: object) -> str:
    given = {"source": source, "calibration": images()} | material
    return make_builder(kind).build(Material(**given), target).note  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", STATIC)
def test_answers_are_near_fp32(tmp_path: Path, kind: str) -> None:
    source, target = residual(tmp_path / "net.onnx"), tmp_path / "int8.onnx"

    note = build(kind, source, target)

    unseen = images(200, seed=9)
    true, found = answers(source, unseen), answers(target, unseen)
    assert note == ""
    assert np.abs(found - true).max() < TOLERANCE[kind]
    assert np.abs(found - true).mean() > 0
    assert np.mean(found.argmax(1) == true.argmax(1)) > 0.95


def test_two_nodes_may_share_a_bias_whatever_others_are_called(tmp_path: Path) -> None:
    """As networks of TensorFlow do; the quantiser calls the second one ``bias0``."""
    random = np.random.default_rng(3)
    made = model(
        nodes=[
            node("Conv", ("pixels", "first", "bias"), "bias0"),
            node("Relu", ("bias0",), "between"),
            node("Conv", ("between", "second", "bias"), "after"),
            node("Transpose", ("after",), "turned", perm=[0, 2, 3, 1]),
            node("Neg", ("bias0",), "less"),
            node("Transpose", ("less",), "other", perm=[0, 2, 3, 1]),
            node("Add", ("turned", "other"), "scores"),
        ],
        inputs=[tensor("pixels", "batch", 8, 4, 4)],
        outputs=[tensor("scores", "batch", 4, 4, 8)],
        weights={
            "first": random.standard_normal((8, 8, 1, 1)).astype(np.float32),
            "second": random.standard_normal((8, 8, 1, 1)).astype(np.float32),
            "bias": random.standard_normal(8).astype(np.float32),
        },
    )
    source, target = write(tmp_path / "net.onnx", made), tmp_path / "int8.onnx"
    rows = {"pixels": random.random((40, 8, 4, 4)).astype(np.float32)}
    build("onnx-int8", source, target, calibration=rows)
    true, found = answers(source, rows), answers(target, rows)
    assert np.abs(found - true).mean() < 0.02 * np.abs(true).max()


def test_weights_are_per_channel_in_seven_bits(tmp_path: Path) -> None:
    source, target = residual(tmp_path / "net.onnx"), tmp_path / "int8.onnx"
    build("onnx-int8", source, target)

    held = weights(target)
    for name, channels in (("w1", 8), ("w2", 8), ("w3", CLASSES)):
        assert held[f"{name}_scale"].shape == (channels,)
        assert not held[f"{name}_zero_point"].any()
        quantised = held[f"{name}_quantized"]
        assert quantised.dtype == np.int8
        # Every channel uses its whole range, however small its weights are.
        assert (np.abs(quantised).reshape(channels, -1).max(1) == 64).all()
    scales = held["w1_scale"]
    assert scales.max() / scales.min() > 100


def test_the_file_is_standard_onnx_and_keeps_its_signature(tmp_path: Path) -> None:
    source, target = residual(tmp_path / "net.onnx"), tmp_path / "int8.onnx"
    build("onnx-int8", source, target)

    onnx.checker.check_model(str(target), full_check=True)
    before, after = onnx.load(source).graph, onnx.load(target).graph
    assert list(after.input) == list(before.input)
    assert list(after.output) == list(before.output)
    assert {n.domain for n in after.node} <= {"", "ai.onnx"}


def test_any_batch_runs_and_a_row_does_not_know_its_neighbours(tmp_path: Path) -> None:
    source, target = residual(tmp_path / "net.onnx"), tmp_path / "int8.onnx"
    build("onnx-int8", source, target)

    rows = images(17, seed=4)["images"]
    whole = answers(target, {"images": rows})
    for start, size in ((0, 1), (1, 3), (4, 13)):
        part = answers(target, {"images": rows[start : start + size]})
        np.testing.assert_allclose(part, whole[start : start + size], atol=1e-6)


def test_between_the_first_and_the_last_node_all_stays_in_8_bits(tmp_path: Path) -> None:
    source, target = residual(tmp_path / "net.onnx"), tmp_path / "int8.onnx"
    build("onnx-int8", source, target)

    found = kernels(target, tmp_path)
    assert (found["QLinearConv"], found["QLinearAdd"], found["QGemm"]) == (2, 1, 1)
    assert (found["QuantizeLinear"], found["DequantizeLinear"]) == (1, 0)
    assert not {"Conv", "Add", "Gemm", "Relu", "GlobalAveragePool"} & set(found)


def test_scores_keep_their_full_resolution(tmp_path: Path) -> None:
    source = residual(tmp_path / "net.onnx", softmax=False)
    build("onnx-int8", source, tmp_path / "int8.onnx")

    logits = answers(tmp_path / "int8.onnx", images(200, seed=9))
    assert len(np.unique(logits)) > 512


def test_a_shallow_convolution_stays_in_fp32_because_that_is_quicker(tmp_path: Path) -> None:
    source, target = residual(tmp_path / "net.onnx", channels=3), tmp_path / "int8.onnx"

    note = build("onnx-int8", source, target, calibration=images(channels=3))

    assert note == "1 of 4 nodes in fp32: first, quicker so"
    found = kernels(target, tmp_path)
    assert (found["Conv"], found["QLinearConv"]) == (1, 1)
    # Pooled before it is quantised: ONNX Runtime would pull the quantising in front of it.
    order = [n.op_type for n in onnx.load(tmp_path / "optimised.onnx").graph.node]
    assert order.index("MaxPool") < order.index("QuantizeLinear")
    unseen = images(200, channels=3, seed=9)
    assert np.abs(answers(target, unseen) - answers(source, unseen)).max() < TOLERANCE["onnx-int8"]


def test_old_operators_are_carried_over(tmp_path: Path) -> None:
    source = residual(tmp_path / "old.onnx", opset=11)
    build("onnx-int8", source, tmp_path / "int8.onnx")

    unseen = images(50, seed=9)
    difference = answers(tmp_path / "int8.onnx", unseen) - answers(source, unseen)
    assert np.abs(difference).max() < TOLERANCE["onnx-int8"]


def test_nodes_without_names_are_named(tmp_path: Path) -> None:
    proto = onnx.load(residual(tmp_path / "net.onnx"))
    for one in proto.graph.node:
        one.name = ""
    source = write(tmp_path / "nameless.onnx", proto)
    build("onnx-int8", source, tmp_path / "int8.onnx")
    assert len(nodes(tmp_path / "int8.onnx", "Conv")) == 2
    assert kernels(tmp_path / "int8.onnx", tmp_path)["QLinearConv"] == 2


def test_kept_nodes_stay_in_fp32(tmp_path: Path) -> None:
    source, target = residual(tmp_path / "net.onnx"), tmp_path / "int8.onnx"

    to_qdq(source, target, rows=images(), keep=("second",))

    held = weights(target)
    assert "w2_quantized" not in held
    assert held["w2"].dtype == np.float32
    assert "w1_quantized" in held


def test_the_form_for_tensorrt_has_no_zero_points_and_no_integer_biases(tmp_path: Path) -> None:
    source, target = residual(tmp_path / "net.onnx", channels=3), tmp_path / "trt.onnx"

    to_qdq(source, target, rows=images(channels=3), form=TENSORRT)

    onnx.checker.check_model(str(target), full_check=True)
    held = weights(target)
    points = {name: array for name, array in held.items() if name.endswith("zero_point")}
    assert points
    assert all(a.dtype == np.int8 and not a.any() for a in points.values())
    assert not [name for name, array in held.items() if array.dtype == np.int32]
    assert {n.op_type for n in onnx.load(target).graph.node} >= {"Add", "Relu", "MaxPool"}
    makers = {o: n for n in onnx.load(target).graph.node for o in n.output}
    for kind in ("Conv", "Gemm"):
        for one in nodes(target, kind):
            assert {makers[name].op_type for name in one.input[:2]} == {"DequantizeLinear"}
    unseen = images(200, channels=3, seed=9)
    assert np.abs(answers(target, unseen) - answers(source, unseen)).max() < TOLERANCE["onnx-int8"]


@pytest.mark.parametrize("form", [CPU, TENSORRT])
def test_calibrations_give_different_models_where_there_are_outliers(
    tmp_path: Path, form: object
) -> None:
    source, rows = residual(tmp_path / "net.onnx"), images(100)
    rows["images"][50, 0, 0, 0] = 200.0

    steps = {}
    for how in Calibration:
        target = tmp_path / f"{how}.onnx"
        to_qdq(source, target, rows=rows, how=how, form=form)  # type: ignore[arg-type]
        steps[how] = float(weights(target)["images_scale"])

    assert steps[Calibration.MIN_MAX] > 10 * steps[Calibration.ENTROPY]
    assert len(set(steps.values())) == 3


@pytest.mark.parametrize("kind", STATIC)
def test_a_model_without_arithmetic_is_refused(tmp_path: Path, kind: str) -> None:
    source = write(tmp_path / "net.onnx", model(nodes=[node("Softmax", ("pixels",), "scores")]))
    rows = {"pixels": np.ones((4, 4), np.float32)}
    with pytest.raises(VariantNotBuilt, match="nothing that can be quantised"):
        build(kind, source, tmp_path / "int8.onnx", calibration=rows)
    assert not (tmp_path / "int8.onnx").exists()


def recurrent(path: Path, kind: str, gates: int, *, convolution: bool = False) -> Path:
    """A recurrent layer of 8 numbers over 5 steps of 4, and a small matrix behind it."""
    random, size = np.random.default_rng(5), 8
    first = node("Conv", ("x", "kernel"), "seen") if convolution else node("Relu", ("x",), "seen")
    made = model(
        nodes=[
            first,
            node("Transpose", ("seen",), "steps", perm=[2, 0, 1]),
            onnx.helper.make_node(kind, ["steps", "w", "r"], ["", "last"], hidden_size=size),
            node("Squeeze", ("last", "first"), "state"),
            node("MatMul", ("state", "head"), "scores"),
        ],
        inputs=[tensor("x", "batch", 4, 5)],
        outputs=[tensor("scores", "batch", 3)],
        weights={
            "kernel": random.standard_normal((4, 4, 1)).astype(np.float32),
            "w": random.standard_normal((1, gates * size, 4)).astype(np.float32),
            "r": random.standard_normal((1, gates * size, size)).astype(np.float32),
            "head": random.standard_normal((size, 3)).astype(np.float32),
            "first": np.array([0]),
        },
    )
    return write(path, made)


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_a_recurrent_network_of_which_only_the_last_layer_would_have_8_bits_is_refused(
    tmp_path: Path, kind: str, gates: int
) -> None:
    source = recurrent(tmp_path / "net.onnx", kind, gates)
    rows = {"x": np.random.default_rng(6).standard_normal((20, 4, 5)).astype(np.float32)}
    with pytest.raises(VariantNotBuilt, match=f"of its weights are in layers of {kind}, which"):
        build("onnx-int8", source, tmp_path / "int8.onnx", calibration=rows)


def test_a_recurrent_layer_behind_convolutions_leaves_these_8_bits(tmp_path: Path) -> None:
    source = recurrent(tmp_path / "net.onnx", "GRU", 3, convolution=True)
    rows = {"x": np.random.default_rng(6).standard_normal((20, 4, 5)).astype(np.float32)}
    build("onnx-int8", source, tmp_path / "int8.onnx", calibration=rows)
    assert "kernel_quantized" in weights(tmp_path / "int8.onnx")


def test_a_model_that_was_quantised_before_or_is_in_float16_is_refused_for_that(
    tmp_path: Path,
) -> None:
    """Such files come from elsewhere, and have little that could be made smaller."""
    source, rows = residual(tmp_path / "net.onnx"), images(40)
    for kind, reason in (
        ("onnx-int8", "the model is quantised already"),
        ("onnx-fp16", "the model computes in float16, and what is quantised is float32"),
    ):
        made = tmp_path / f"{kind}.onnx"
        build(kind, source, made, calibration=rows)
        with pytest.raises(VariantNotBuilt, match=reason):
            build("onnx-int8", made, tmp_path / "again.onnx", calibration=rows)


@pytest.mark.parametrize("kind", STATIC)
def test_without_calibration_rows_nothing_is_built(tmp_path: Path, kind: str) -> None:
    source = residual(tmp_path / "net.onnx")
    with pytest.raises(VariantNotBuilt, match="needs calibration rows, and there are none"):
        build(kind, source, tmp_path / "int8.onnx", calibration={})
    assert not (tmp_path / "int8.onnx").exists()


def test_a_product_of_two_activations_stays_as_it_is(tmp_path: Path) -> None:
    proto = model(
        nodes=[
            node("MatMul", ("pixels", "weight"), "queries", name="queries"),
            node("Transpose", ("queries",), "keys", perm=[1, 0]),
            node("MatMul", ("queries", "keys"), "alike", name="attention"),
            node("MatMul", ("alike", "queries"), "scores", name="mixing"),
        ],
        outputs=[tensor("scores", "batch", 3)],
    )
    source = write(tmp_path / "net.onnx", proto)
    rows = {"pixels": np.random.default_rng(0).random((8, 4)).astype(np.float32)}

    to_qdq(source, tmp_path / "int8.onnx", rows=rows)

    quantised = {name for name in weights(tmp_path / "int8.onnx") if name.endswith("_quantized")}
    assert quantised == {"weight_quantized"}
    found = kernels(tmp_path / "int8.onnx", tmp_path)
    assert found["MatMul"] + found["FusedMatMul"] == 2


@pytest.mark.parametrize(("low", "high"), [(0.0, 6.0), (0.5, 1.0), (-1.0, -0.5)])
def test_what_is_clipped_stays_clipped(tmp_path: Path, low: float, high: float) -> None:
    proto = model(
        nodes=[
            node("Gemm", ("pixels", "one"), "product", name="one"),
            node("Clip", ("product", "low", "high"), "clipped"),
            node("Gemm", ("clipped", "two"), "scores", name="two"),
        ],
        weights={
            "one": np.eye(4, dtype=np.float32) * 4,
            "two": np.eye(4, 3, dtype=np.float32),
            "low": np.array(low, np.float32),
            "high": np.array(high, np.float32),
        },
    )
    source = write(tmp_path / "net.onnx", proto)
    rows = {"pixels": np.random.default_rng(0).standard_normal((200, 4)).astype(np.float32)}

    to_qdq(source, tmp_path / "int8.onnx", rows=rows)

    found = answers(tmp_path / "int8.onnx", rows)
    assert np.abs(found - answers(source, rows)).max() < 0.1


@pytest.mark.parametrize("shape", [(4,), (2, 4, 3)])
def test_products_that_no_8_bit_kernel_knows_stay_in_fp32(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    proto = model(
        nodes=[
            node("MatMul", ("pixels", "plain"), "product", name="plain"),
            node("MatMul", ("product", "odd"), "scores", name="odd"),
        ],
        outputs=[tensor("scores", *(["batch"] if len(shape) == 1 else [2, "batch", 3]))],
        weights={
            "plain": np.eye(4, dtype=np.float32),
            "odd": np.random.default_rng(0).random(shape).astype(np.float32),
        },
    )
    source = write(tmp_path / "net.onnx", proto)
    rows = {"pixels": np.random.default_rng(0).random((8, 4)).astype(np.float32)}

    to_qdq(source, tmp_path / "int8.onnx", rows=rows)

    held = weights(tmp_path / "int8.onnx")
    assert "plain_quantized" in held
    assert held["odd"].dtype == np.float32
    difference = answers(tmp_path / "int8.onnx", rows) - answers(source, rows)
    assert np.abs(difference).max() < 0.05
