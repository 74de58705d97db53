from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.onnx_models import model, node, tensor, write
from tests.variants.builders.onnx.networks import Array, answers, kernels, layers, residual, weights
from variants.builders.protocol import Material
from variants.builders.registry import make_builder
from variants.errors import VariantNotBuilt

RANDOM = np.random.default_rng(0)


def pixels(count: int = 200, *, seed: int = 0) -> dict[str, Array]:
    return {"pixels": np.random.default_rng(seed).random((count, 4)).astype(np.float32)}


def normalised() -> onnx.ModelProto:
    """A convolution, its normalisation, and a constant computed from constants."""
    found: onnx.ModelProto = model(
        nodes=[
            node("Conv", ("x", "w"), "c", pads=[1, 1, 1, 1]),
            node("BatchNormalization", ("c", "scale", "bias", "mean", "variance"), "n"),
            node("Add", ("two", "two"), "four"),
            node("Mul", ("n", "four"), "m"),
            node("Identity", ("m",), "y"),
        ],
        inputs=[tensor("x", "batch", 2, 4, 4)],
        outputs=[tensor("y", "batch", 2, 4, 4)],
        weights={
            "w": RANDOM.standard_normal((2, 2, 3, 3)).astype(np.float32),
            **{n: np.array([0.5, 2], np.float32) for n in ("scale", "bias", "mean", "variance")},
            "two": np.array([2], np.float32),
        },
    )
    return found


def test_fp32_merges_what_is_the_same_on_every_machine(tmp_path: Path) -> None:
    source, target = write(tmp_path / "net.onnx", normalised()), tmp_path / "fp32.onnx"

    built = make_builder("onnx-fp32").build(Material(source=source), target)

    assert built.note == ""
    graph = onnx.load(target).graph
    assert [n.op_type for n in graph.node] == ["Conv", "Mul"]
    assert {n.domain for n in graph.node} <= {"", "ai.onnx"}
    rows = {"x": RANDOM.standard_normal((3, 2, 4, 4)).astype(np.float32)}
    np.testing.assert_allclose(answers(target, rows), answers(source, rows), rtol=1e-4, atol=1e-5)


def test_fp32_gives_the_same_bytes_again(tmp_path: Path) -> None:
    source = residual(tmp_path / "net.onnx")
    for name in ("a", "b"):
        make_builder("onnx-fp32").build(Material(source=source), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_fp32_does_not_write_tables_that_a_formula_stands_for(tmp_path: Path) -> None:
    proto = model(
        nodes=[
            node("ConstantOfShape", ("shape",), "zeros"),
            node("ReduceSum", ("zeros",), "zero", keepdims=0),
            node("Slice", ("zeros", "from", "to"), "few"),
            node("Add", ("pixels", "few"), "sum"),
            node("Gather", ("zeros", "index"), "one"),
            node("Add", ("sum", "one"), "moved"),
            node("MatMul", ("moved", "weight"), "scores"),
        ],
        inputs=[tensor("pixels", "batch", 4), tensor("index", kind=onnx.TensorProto.INT64)],
        weights={
            "shape": np.array([2**21]),
            "from": np.array([0]),
            "to": np.array([4]),
            "weight": np.eye(4, 3, dtype=np.float32),
        },
    )
    source, target = write(tmp_path / "net.onnx", proto), tmp_path / "fp32.onnx"

    built = make_builder("onnx-fp32").build(Material(source=source), target)

    assert built.note == "as handed in: folding its constants takes 8 MiB"
    assert target.read_bytes() == source.read_bytes()


@pytest.mark.parametrize("kind", ["onnx-fp32", "onnx-fp16", "onnx-int8-dynamic"])
def test_what_is_no_model_is_refused_in_one_sentence(tmp_path: Path, kind: str) -> None:
    source = tmp_path / "net.onnx"
    source.write_bytes(b"no model")
    with pytest.raises(VariantNotBuilt, match="ONNX Runtime refuses the model: ") as caught:
        make_builder(kind).build(Material(source=source), tmp_path / "out.onnx")
    assert "\n" not in caught.value.message


def test_dynamic_needs_no_rows_and_is_near_fp32(tmp_path: Path) -> None:
    matrices = {
        "one": RANDOM.standard_normal((4, 32)) * np.geomspace(0.01, 1, 32),
        "two": RANDOM.standard_normal((32, 3)),
    }
    source, target = layers(tmp_path / "net.onnx", matrices), tmp_path / "int8.onnx"

    make_builder("onnx-int8-dynamic").build(Material(source=source), target)

    error = np.abs(answers(target, pixels()) - answers(source, pixels()))
    assert 0 < error.max() < 0.05
    assert kernels(target, tmp_path)["DynamicQuantizeMatMul"] == 2
    held = weights(target)
    scales = {name: array.shape for name, array in held.items() if name.endswith("weight_scale")}
    assert scales == {"one_weight_scale": (32,), "two_weight_scale": (3,)}
    assert all(
        np.abs(array).max() <= 64 for name, array in held.items() if name.endswith("_quantized")
    )


def test_dynamic_quantises_recurrent_layers(tmp_path: Path) -> None:
    size = 8
    proto = model(
        nodes=[
            node("LSTM", ("x", "w", "r"), "all", hidden_size=size),
            node("Squeeze", ("all", "second"), "states"),
            node("Transpose", ("states",), "y", perm=[1, 0, 2]),
        ],
        inputs=[tensor("x", 5, "batch", 4)],
        outputs=[tensor("y", "batch", 5, size)],
        weights={
            "w": RANDOM.standard_normal((1, 4 * size, 4)).astype(np.float32),
            "r": RANDOM.standard_normal((1, 4 * size, size)).astype(np.float32),
            "second": np.array([1]),
        },
    )
    source, target = write(tmp_path / "net.onnx", proto), tmp_path / "int8.onnx"

    make_builder("onnx-int8-dynamic").build(Material(source=source), target)

    rows = {"x": RANDOM.standard_normal((5, 6, 4)).astype(np.float32)}
    assert kernels(target, tmp_path)["DynamicQuantizeLSTM"] == 1
    assert np.abs(answers(target, rows) - answers(source, rows)).max() < 0.1


@pytest.mark.parametrize("opset", [8, 10, 13, 20])
def test_rows_far_from_the_calibration_rows_leave_the_others_their_digits(
    tmp_path: Path, opset: int
) -> None:
    """All rows of a batch share scales: beside pixels up to 255 others were answered at random."""
    proto = model(
        nodes=[
            node("MatMul", ("pixels", "one"), "product"),
            node("Relu", ("product",), "positive"),
            node("MatMul", ("positive", "two"), "scores"),
        ],
        weights={
            "one": RANDOM.standard_normal((4, 32)).astype(np.float32),
            "two": RANDOM.standard_normal((32, 3)).astype(np.float32),
        },
        opsets=[("", opset)],
    )
    source, target = write(tmp_path / "net.onnx", proto), tmp_path / "int8.onnx"
    material = Material(source=source, calibration=pixels())
    make_builder("onnx-int8-dynamic").build(material, target)

    typical = pixels(50, seed=1)["pixels"]
    exact = answers(source, {"pixels": typical})
    assert kernels(target, tmp_path)["DynamicQuantizeMatMul"] == 2
    alone = np.abs(answers(target, {"pixels": typical}) - exact).max()
    assert 0 < alone < 0.05 * np.abs(exact).max()
    for far in (255.0, -255.0, 1e30):
        beside = np.concatenate([typical[:1] * np.float32(far), typical])
        error = np.abs(answers(target, {"pixels": beside})[1:] - exact).max()
        assert error < 3 * alone


def test_rows_on_the_other_side_of_nought_than_the_calibration_rows_are_answered(
    tmp_path: Path,
) -> None:
    proto = model(
        nodes=[node("MatMul", ("pixels", "one"), "scores")],
        weights={"one": RANDOM.standard_normal((4, 3)).astype(np.float32)},
    )
    source, target = write(tmp_path / "net.onnx", proto), tmp_path / "int8.onnx"
    above = np.abs(pixels()["pixels"])
    material = Material(source=source, calibration={"pixels": above})
    make_builder("onnx-int8-dynamic").build(material, target)

    below = {"pixels": -above[:20]}
    exact = answers(source, below)
    error = np.abs(answers(target, below) - exact).max()
    assert error < 0.05 * np.abs(exact).max()


def test_the_state_that_a_recurrent_layer_begins_with_is_bounded_too(tmp_path: Path) -> None:
    size = 8
    proto = model(
        nodes=[
            node("Transpose", ("x",), "steps", perm=[1, 0, 2]),
            node("Unsqueeze", ("h", "first"), "state"),
            node("LSTM", ("steps", "w", "r", "", "", "state", "state"), "all", hidden_size=size),
            node("Squeeze", ("all", "second"), "states"),
            node("Transpose", ("states",), "y", perm=[1, 0, 2]),
        ],
        inputs=[tensor("x", "batch", 5, 4), tensor("h", "batch", size)],
        outputs=[tensor("y", "batch", 5, size)],
        weights={
            "w": RANDOM.standard_normal((1, 4 * size, 4)).astype(np.float32),
            "r": RANDOM.standard_normal((1, 4 * size, size)).astype(np.float32),
            "first": np.array([0]),
            "second": np.array([1]),
        },
    )
    source, target = write(tmp_path / "net.onnx", proto), tmp_path / "int8.onnx"
    random = np.random.default_rng(5)
    rows = {
        "x": random.standard_normal((60, 5, 4)).astype(np.float32),
        "h": random.uniform(-1, 1, (60, size)).astype(np.float32),
    }
    material = Material(source=source, calibration=rows)
    make_builder("onnx-int8-dynamic").build(material, target)

    assert kernels(target, tmp_path)["DynamicQuantizeLSTM"] == 1
    alone = np.abs(answers(target, rows) - answers(source, rows)).max()
    far = {name: np.concatenate([1e4 * array[:1], array]) for name, array in rows.items()}
    beside = np.abs(answers(target, far)[1:] - answers(source, rows)).max()
    assert beside < 3 * alone


@pytest.mark.parametrize(
    ("limits", "built"),
    [({"loss": 0.05}, False), ({"loss": None}, True), ({"loss": 0.05, "floor": 0.9}, True)],
)
def test_dynamic_refuses_what_loses_much_where_no_floor_keeps_queries_from_it(
    tmp_path: Path, limits: dict[str, float | None], built: bool
) -> None:
    """One of 32 numbers between two products is thousands of times as large as the others, as after
    training without a normalisation: it takes all levels."""
    random = np.random.default_rng(2)
    one, two = random.standard_normal((4, 32)), random.standard_normal((32, 3))
    one[:, 0], two[0] = 3_000 * one[:, 0], two[0] / 3_000
    source, target = layers(tmp_path / "net.onnx", {"one": one, "two": two}), tmp_path / "int8.onnx"
    material = Material(source=source, calibration=pixels(), **limits)  # type: ignore[arg-type]

    if built:
        make_builder("onnx-int8-dynamic").build(material, target)
    else:
        sentence = r"on the calibration rows is .* %, and 95.0 % would be the least without a floor"
        with pytest.raises(VariantNotBuilt, match=sentence):
            make_builder("onnx-int8-dynamic").build(material, target)
    assert target.exists() == built


def test_dynamic_refuses_convolutions(tmp_path: Path) -> None:
    source = residual(tmp_path / "net.onnx")
    with pytest.raises(VariantNotBuilt, match="% of its weights are in matrix products"):
        make_builder("onnx-int8-dynamic").build(Material(source=source), tmp_path / "int8.onnx")
    assert not (tmp_path / "int8.onnx").exists()


def test_dynamic_says_that_a_gru_keeps_its_weights(tmp_path: Path) -> None:
    size = 8
    proto = model(
        nodes=[
            node("Transpose", ("x",), "steps", perm=[1, 0, 2]),
            onnx.helper.make_node(
                "GRU", ["steps", "w", "r"], ["", "last"], hidden_size=size, linear_before_reset=1
            ),
            node("Squeeze", ("last", "first"), "state"),
            node("MatMul", ("state", "head"), "scores"),
        ],
        inputs=[tensor("x", "batch", 5, 4)],
        outputs=[tensor("scores", "batch", 3)],
        weights={
            "w": RANDOM.standard_normal((1, 3 * size, 4)).astype(np.float32),
            "r": RANDOM.standard_normal((1, 3 * size, size)).astype(np.float32),
            "head": RANDOM.standard_normal((size, 3)).astype(np.float32),
            "first": np.array([0]),
        },
    )
    source = write(tmp_path / "net.onnx", proto)
    with pytest.raises(
        VariantNotBuilt, match=r"8 % of its weights .*; ONNX Runtime has no GRU with"
    ):
        make_builder("onnx-int8-dynamic").build(Material(source=source), tmp_path / "int8.onnx")


def test_dynamic_does_not_speak_of_convolutions_where_there_are_none(tmp_path: Path) -> None:
    proto = model(
        nodes=[node("Relu", ("pixels",), "scores")], outputs=[tensor("scores", "batch", 4)]
    )
    source = write(tmp_path / "net.onnx", proto)
    with pytest.raises(VariantNotBuilt, match=r"no matrix product with weights of its own$"):
        make_builder("onnx-int8-dynamic").build(Material(source=source), tmp_path / "int8.onnx")


def test_dynamic_turns_a_matrix_that_layers_share_once_for_each(tmp_path: Path) -> None:
    matrix = RANDOM.standard_normal((4, 4)).astype(np.float32)
    proto = model(
        nodes=[
            node("Gemm", ("pixels", "shared"), "first", transB=1),
            node("Relu", ("first",), "positive"),
            node("Gemm", ("positive", "shared"), "scores", transB=1),
        ],
        outputs=[tensor("scores", "batch", 4)],
        weights={"shared": matrix},
    )
    source, target = write(tmp_path / "net.onnx", proto), tmp_path / "int8.onnx"

    make_builder("onnx-int8-dynamic").build(Material(source=source), target)

    assert np.abs(answers(target, pixels()) - answers(source, pixels())).max() < 0.1


def test_tables_that_are_looked_up_do_not_count_as_weights(tmp_path: Path) -> None:
    """Half of a small language model is its words' vectors, and they take no time."""
    words = model(
        nodes=[
            node("Gather", ("table", "ids"), "vectors"),
            node("ReduceMean", ("vectors", "axis"), "mean", keepdims=0),
            node("MatMul", ("mean", "matrix"), "scores"),
        ],
        inputs=[tensor("ids", "batch", 5, kind=onnx.TensorProto.INT64)],
        outputs=[tensor("scores", "batch", 3)],
        weights={
            "table": RANDOM.standard_normal((500, 16)).astype(np.float32),
            "matrix": RANDOM.standard_normal((16, 3)).astype(np.float32),
            "axis": np.array([1]),
        },
    )
    source, target = write(tmp_path / "net.onnx", words), tmp_path / "int8.onnx"
    make_builder("onnx-int8-dynamic").build(Material(source=source), target)
    rows = {"ids": RANDOM.integers(0, 500, (20, 5))}
    assert np.abs(answers(target, rows) - answers(source, rows)).max() < 0.1


def noted(path: Path) -> Path:
    """As PyTorch's exporter writes models: types are noted of weights too, and of values that are
    gone once the model is simplified."""
    made = model(
        nodes=[
            node("Identity", ("pixels",), "same"),
            node("Gemm", ("same", "weight"), "product", transB=1),
            node("Relu", ("product",), "positive"),
            node("Gemm", ("positive", "more"), "scores", transB=1),
        ],
        weights={
            "weight": RANDOM.standard_normal((32, 4)).astype(np.float32),
            "more": RANDOM.standard_normal((3, 32)).astype(np.float32),
        },
    )
    made.graph.value_info.extend(
        [
            tensor("weight", 32, 4),
            tensor("more", 3, 32),
            tensor("same", "batch", 4),
            tensor("product", "batch", 32),
        ]
    )
    return write(path, made)


@pytest.mark.parametrize("kind", ["onnx-int8-dynamic", "onnx-fp16", "onnx-int8"])
def test_notes_of_types_that_hold_no_more_are_forgotten(tmp_path: Path, kind: str) -> None:
    """Quantisers stumbled over the shape of a matrix that is transposed, and fp16 over a value that
    is gone."""
    source, target = noted(tmp_path / "net.onnx"), tmp_path / "built.onnx"
    calibration = pixels(50)
    make_builder(kind).build(Material(source=source, calibration=calibration), target)
    exact = answers(source, calibration)
    assert np.abs(answers(target, calibration) - exact).max() < 0.1 * np.abs(exact).max()
