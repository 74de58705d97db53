"""Layers are split where few directions do, and only where that saves something."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import threadpoolctl  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.variants.builders.compression.nets import (
    Array,
    Net,
    digits,
    outputs,
    perceptron,
    right,
    rows,
    save,
    sizes,
    trained,
)
from variants.builders.compression import factors
from variants.builders.compression.factors import Layer, layers, split
from variants.builders.compression.graph import initialisers, multiply_adds
from variants.builders.compression.lowrank import OnnxLowRank, least_ranks, worthwhile
from variants.builders.compression.scores import trial
from variants.builders.protocol import Material
from variants.builders.registry import make_builder
from variants.checks.onnx_check import check_model
from variants.errors import VariantNotBuilt

pytestmark = pytest.mark.slow


def linear(weight: Array, *, bias: Array | None = None, kind: str = "Gemm") -> Any:
    """One layer; ``weight`` is ``(m, n)``."""
    net = Net(len(weight))
    given = [net.const(weight)] + ([] if bias is None else [net.const(bias)])
    return net.end(net.op(kind, "pixels", *given), weight.shape[1])


def product(m: int, rank: int, n: int, *, seed: int = 0) -> Array:
    """A matrix of that rank."""
    random = np.random.default_rng(seed)
    return (random.standard_normal((m, rank)) @ random.standard_normal((rank, n))) / m


def in_two(net: Any, rank: int, given: dict[str, Array]) -> Any:
    found = layers(net, given)
    return split(net, {layer.output: rank for layer in found}, found)


LAYERS = {
    "Conv": lambda n, x: n.conv(x, 6, 8, strides=[2, 1]),
    "Conv without bias": lambda n, x: n.conv(x, 6, 8, bias=False, dilations=[1, 2]),
    "Gemm": lambda n, x: n.gemm(n.op("Flatten", x), 150, 8),
    "Gemm, not turned": lambda n, x: n.gemm(n.op("Flatten", x), 150, 8, turned=False),
    "Gemm, scaled": lambda n, x: n.op(
        "Gemm", n.op("Flatten", x), n.draw(150, 8), n.draw(1, 8), alpha=0.3, beta=2.0
    ),
    "Gemm without bias": lambda n, x: n.op("Gemm", n.op("Flatten", x), n.draw(150, 8)),
    "MatMul": lambda n, x: n.matmul(x, 5, 8),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_at_full_rank_nothing_changes(kind: str) -> None:
    net = Net(6, 5, 5)
    whole = net.end(LAYERS[kind](net, "pixels"))
    given = rows(20, 6, 5, 5)

    two = in_two(whole, 8, given)

    assert len(two.graph.node) == len(whole.graph.node) + 1
    np.testing.assert_allclose(outputs(two, given), outputs(whole, given), rtol=1e-3, atol=1e-4)


@given(rank=st.integers(1, 11), seed=st.integers(0, 99), kind=st.sampled_from(["Gemm", "MatMul"]))
@settings(max_examples=20, deadline=None)
def test_no_map_of_the_rank_is_nearer_to_the_outputs(rank: int, seed: int, kind: str) -> None:
    """The error is what Eckart and Young say it is, with little added for directions unseen."""
    random = np.random.default_rng(seed)
    weight = random.standard_normal((12, 12)) * np.geomspace(1, 0.01, 12)
    given = {"pixels": (random.standard_normal((60, 12)) * 3 + 2).astype(np.float32)}
    bias = random.standard_normal(12) if kind == "Gemm" else None
    net = linear(weight, bias=bias, kind=kind)
    whole = outputs(net, given)
    centred = whole - whole.mean(0) if kind == "Gemm" else whole

    error = np.linalg.norm(outputs(in_two(net, rank, given), given) - whole)

    least = np.sqrt((np.linalg.svd(centred, compute_uv=False)[rank:] ** 2).sum())
    assert least * 0.999 <= error <= least * 1.05 + 1e-3


def test_without_rows_it_is_the_truncated_svd() -> None:
    weight = np.random.default_rng(0).standard_normal((20, 12))
    left, strength, right_ = np.linalg.svd(weight)
    nearest = (left[:, :5] * strength[:5]) @ right_[:5]

    two = in_two(linear(weight, kind="MatMul"), 5, {})

    first, second = initialisers(two).values()
    np.testing.assert_allclose(first @ second, nearest, atol=1e-5)


def test_a_layer_of_low_rank_is_found_out(tmp_path: Path) -> None:
    """Two layers of 256, one of rank 16, the other of full rank: one is split, and all is kept."""
    net = Net(256)
    full = np.random.default_rng(0).standard_normal((256, 256)) / 16
    hidden = net.op("Relu", net.op("Gemm", "pixels", net.const(product(256, 16, 256))))
    hidden = net.op("Relu", net.op("Gemm", hidden, net.const(full)))
    scores = net.op("MatMul", hidden, net.draw(256, 8))
    whole = net.end(net.op("Softmax", scores), 8)
    source, target = save(whole, tmp_path / "net.onnx"), tmp_path / "low.onnx"

    built = OnnxLowRank(loss=0.0).build(Material(source=source, calibration=rows(400, 256)), target)

    assert built.note == "1 layer to rank 16, 43 % of the multiply-adds removed"
    assert sorted(sizes(onnx.load(target))) == [(16, 256), (256, 8), (256, 16), (256, 256)]
    fresh = rows(100, 256, seed=9)
    np.testing.assert_allclose(outputs(target, fresh), outputs(whole, fresh), atol=1e-4)
    before, after = check_model(source), check_model(target)
    assert (before.inputs, before.outputs) == (after.inputs, after.outputs)


def test_a_trained_network_keeps_its_accuracy(tmp_path: Path) -> None:
    whole = trained(perceptron(256, 128), epochs=4)
    source, target = save(whole, tmp_path / "net.onnx"), tmp_path / "low.onnx"
    given, labels = digits("calibration")

    OnnxLowRank().build(
        Material(source=source, calibration=given, calibration_labels=labels), target
    )

    left = sum(multiply_adds(onnx.load(target)).values())
    assert left < 0.5 * sum(multiply_adds(whole).values())
    assert right(onnx.load(target)) >= right(whole) - 0.02


def test_tuning_wins_back_what_was_lost(tmp_path: Path) -> None:
    whole = trained(perceptron(256, 128), epochs=4)
    source, target = save(whole, tmp_path / "net.onnx"), tmp_path / "low.onnx"
    given, labels = digits("train")
    found = layers(whole, given)
    ranks = least_ranks(whole, found, trial(whole, given, labels), loss=0.3)
    untuned = right(split(whole, ranks, found), "train")

    OnnxLowRank(loss_before_tuning=0.3).build(
        Material(source=source, training=given, training_labels=labels), target
    )

    assert right(onnx.load(target), "train") > untuned


def test_convolutions_are_split_by_channels(tmp_path: Path) -> None:
    """64 channels that mix 16 patterns."""
    net = Net(32, 8, 8)
    weight = product(32 * 9, 16, 64).T.reshape(64, 32, 3, 3) * 16
    made = net.op("Conv", "pixels", net.const(weight), net.draw(64), pads=[1, 1, 1, 1])
    flat = net.op("Flatten", net.op("GlobalMaxPool", net.op("Relu", made)))
    whole = net.end(net.gemm(flat, 64, 10), 10)
    source, target = save(whole, tmp_path / "net.onnx"), tmp_path / "low.onnx"

    OnnxLowRank(loss=0.0).build(Material(source=source, calibration=rows(64, 32, 8, 8)), target)

    assert [shape for shape in sizes(onnx.load(target)) if len(shape) == 4] == [
        (16, 32, 3, 3),
        (64, 16, 1, 1),
    ]
    fresh = rows(3, 32, 8, 8, seed=5)
    np.testing.assert_allclose(outputs(target, fresh), outputs(whole, fresh), atol=1e-3)


def test_a_model_without_a_linear_layer_is_refused(tmp_path: Path) -> None:
    net = Net(30)
    source = save(net.end(net.op("Relu", "pixels"), 30), tmp_path / "net.onnx")
    with pytest.raises(VariantNotBuilt, match="no linear layer that could be split"):
        make_builder("onnx-fp32-lowrank").build(Material(source=source), tmp_path / "low.onnx")


@pytest.mark.parametrize("given", [{}, rows(300, 256)], ids=["no rows", "rows"])
def test_full_rank_is_refused(given: dict[str, Array], tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((256, 256)) / 16
    source, target = save(linear(weight), tmp_path / "net.onnx"), tmp_path / "low.onnx"
    with pytest.raises(VariantNotBuilt, match=r"^low rank would save 0 % of the multiply-adds"):
        make_builder("onnx-fp32-lowrank").build(Material(source=source, calibration=given), target)
    assert not target.exists()


def test_small_layers_are_left_alone() -> None:
    """Rank 16 would halve the multiply-adds of 64 x 64, and take no less time."""
    small, large = (layers(linear(product(size, 16, size)), {})[0] for size in (64, 256))
    assert small.saved(small.rank(0.99)) == 2048
    assert worthwhile([small, large], 0.99) == {large.output: 16}


def test_the_same_build_gives_the_same_bytes(tmp_path: Path) -> None:
    source = save(perceptron(256, 128), tmp_path / "net.onnx")
    given, labels = digits("calibration")
    material = Material(source=source, calibration=given, calibration_labels=labels)
    for name in ("one.onnx", "two.onnx"):
        OnnxLowRank(loss=0.1).build(material, tmp_path / name)
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()


def test_layers_are_analysed_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of linear algebra wait by spinning, and slow each other where others compute too."""
    seen: list[int] = []

    def watched(model: onnx.ModelProto, rows: dict[str, Array]) -> list[Layer]:
        pools = threadpoolctl.threadpool_info()
        seen.extend(pool["num_threads"] for pool in pools if pool["user_api"] == "blas")
        return []

    monkeypatch.setattr(factors, "_layers", watched)
    layers(linear(product(64, 16, 64)), {})
    assert seen
    assert set(seen) == {1}
