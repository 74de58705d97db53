from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests.onnx_models import model, node, tensor, write
from tests.variants.builders.onnx.networks import (
    Array,
    answers,
    images,
    layers,
    nodes,
    residual,
    weights,
)
from variants.builders.float16 import halved
from variants.builders.onnx_fp16 import to_fp16
from variants.builders.prepared import prepared
from variants.builders.protocol import Material
from variants.builders.registry import make_builder
from variants.errors import VariantNotBuilt

TOLERANCE = 0.005
"""Of probabilities: fp16 has 11 significant bits, 0.05 % of a value, through three layers."""


def pixels(count: int = 50) -> dict[str, Array]:
    return {"pixels": np.random.default_rng(0).random((count, 4)).astype(np.float32)}


def test_answers_are_near_fp32_and_the_file_is_half(tmp_path: Path) -> None:
    source, target = residual(tmp_path / "net.onnx"), tmp_path / "half.onnx"

    built = make_builder("onnx-fp16").build(Material(source=source, calibration=images()), target)

    assert built.note == ""
    unseen = images(200, seed=9)
    error = np.abs(answers(target, unseen) - answers(source, unseen))
    assert 0 < error.max() < TOLERANCE
    assert {array.dtype for array in weights(target).values()} == {np.dtype(np.float16)}


def test_the_file_is_valid_onnx_in_order_with_fp32_at_its_ends(tmp_path: Path) -> None:
    source, target = residual(tmp_path / "net.onnx"), tmp_path / "half.onnx"
    to_fp16(source, target)

    onnx.checker.check_model(str(target), full_check=True)
    before, after = onnx.load(source).graph, onnx.load(target).graph
    assert list(after.input) == list(before.input)
    assert list(after.output) == list(before.output)
    assert [n.op_type for n in after.node].count("Cast") == 2


def test_any_batch_runs(tmp_path: Path) -> None:
    source, target = residual(tmp_path / "net.onnx"), tmp_path / "half.onnx"
    to_fp16(source, target)
    rows = images(9, seed=4)["images"]
    whole = answers(target, {"images": rows})
    np.testing.assert_allclose(answers(target, {"images": rows[3:4]}), whole[3:4], atol=2e-3)


def overflowing(path: Path) -> Path:
    """Between its two middle nodes values reach 10 million."""
    matrices = {"a": np.eye(4), "up": 1e7 * np.eye(4), "down": 1e-7 * np.eye(4), "last": np.eye(4)}
    return layers(path, matrices)


def test_nodes_around_values_that_overflow_stay_in_fp32_and_are_named(tmp_path: Path) -> None:
    source, target = overflowing(tmp_path / "net.onnx"), tmp_path / "half.onnx"

    built = make_builder("onnx-fp16").build(Material(source=source, calibration=pixels()), target)

    kept, _, names = built.note.partition(", out of the range of fp16: ")
    assert kept == "3 nodes in fp32"
    assert {"up", "down"} < set(names.split(", "))  # and the ReLU between them
    held = weights(target)
    assert held["up_weight"].dtype == held["down_weight"].dtype == np.float32
    assert held["a_weight_fp16"].dtype == held["last_weight_fp16"].dtype == np.float16
    error = np.abs(answers(target, pixels()) - answers(source, pixels()))
    assert error.max() < TOLERANCE


def test_weights_out_of_range_are_known_without_rows(tmp_path: Path) -> None:
    source, target = overflowing(tmp_path / "net.onnx"), tmp_path / "half.onnx"

    kept = to_fp16(source, target)

    assert kept == ("up", "down")
    assert np.isfinite(answers(target, {"pixels": np.full((1, 4), 1e-3, np.float32)})).all()


def test_between_two_nodes_in_fp32_nothing_is_rounded(tmp_path: Path) -> None:
    proto = prepared(overflowing(tmp_path / "net.onnx"))
    between = [n.name for n in proto.graph.node if n.name not in ("a", "last")]

    half, count = halved(proto, between)

    assert count == 2
    casts = [n for n in half.graph.node if n.op_type == "Cast"]
    assert len(casts) == 4  # in and out of each half node, none between the others
    path = write(tmp_path / "half.onnx", half)
    assert np.isfinite(answers(path, pixels())).all()


def test_sums_and_powers_stay_in_fp32(tmp_path: Path) -> None:
    """The root of a mean of squares overflows in fp16 where its result does not."""
    proto = model(
        nodes=[
            node("MatMul", ("pixels", "weight"), "product"),
            node("Pow", ("product", "two"), "square"),
            node("ReduceMean", ("square",), "mean", keepdims=1),
            node("Sqrt", ("mean",), "size"),
            node("Div", ("product", "size"), "scores"),
        ],
        weights={
            "weight": 300 * np.eye(4, 3, dtype=np.float32),
            "two": np.array([2.0], np.float32),
        },
    )
    source, target = write(tmp_path / "net.onnx", proto), tmp_path / "half.onnx"

    to_fp16(source, target)

    error = np.abs(answers(target, pixels()) - answers(source, pixels()))
    assert error.max() < TOLERANCE


def test_a_graph_within_the_graph_sees_fp32(tmp_path: Path) -> None:
    """``If`` reads a tensor of the outer graph that other nodes read in fp16."""

    def branch(name: str, kind: str) -> Any:
        out = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, ["batch", 3])
        one = helper.make_node(kind, ["product"], [f"{name}_out"])
        return helper.make_graph([one], name, [], [out])

    proto = model(
        nodes=[
            node("MatMul", ("pixels", "weight"), "product"),
            node("Relu", ("product",), "relu"),
            node(
                "If",
                ("yes",),
                "chosen",
                then_branch=branch("a", "Neg"),
                else_branch=branch("b", "Abs"),
            ),
            node("Add", ("relu", "chosen"), "scores"),
        ],
        weights={"weight": np.eye(4, 3, dtype=np.float32)},
        inputs=[tensor("pixels", "batch", 4), tensor("yes", kind=TensorProto.BOOL)],
    )
    source, target = write(tmp_path / "net.onnx", proto), tmp_path / "half.onnx"

    to_fp16(source, target)

    onnx.checker.check_model(str(target), full_check=True)
    for yes in (True, False):
        given = pixels() | {"yes": np.array(yes)}
        assert np.abs(answers(target, given) - answers(source, given)).max() < TOLERANCE


def test_inputs_that_have_to_be_fp32_are(tmp_path: Path) -> None:
    """The scales of ``Resize`` are fp32 in every version of ONNX; what it resizes need not be."""
    proto = model(
        nodes=[
            node("Resize", ("pixels", "", "scales"), "larger", mode="linear"),
            node("MatMul", ("larger", "weight"), "scores"),
        ],
        weights={"scales": np.array([1, 2], np.float32), "weight": np.ones((8, 3), np.float32)},
    )
    source, target = write(tmp_path / "net.onnx", proto), tmp_path / "half.onnx"

    to_fp16(source, target)

    assert weights(target)["scales"].dtype == np.float32
    (resize,) = nodes(target, "Resize")
    assert resize.input[0].endswith("_fp16")
    assert np.abs(answers(target, pixels()) - answers(source, pixels())).max() < 8 * TOLERANCE


def test_a_model_of_whole_numbers_is_refused(tmp_path: Path) -> None:
    proto = model(
        nodes=[node("Add", ("x", "one"), "y")],
        inputs=[tensor("x", "batch", 3, kind=TensorProto.INT64)],
        outputs=[tensor("y", "batch", 3, kind=TensorProto.INT64)],
        weights={"one": np.ones(3, np.int64)},
    )
    source = write(tmp_path / "net.onnx", proto)
    with pytest.raises(VariantNotBuilt, match="nothing that can be fp16"):
        to_fp16(source, tmp_path / "half.onnx")
    assert not (tmp_path / "half.onnx").exists()


KINDS = ("Relu", "Neg", "Sigmoid", "Exp", "ReduceMean", "MatMul", "Add", "Concat", "Transpose")


@settings(max_examples=25, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=8),
    keep=st.sets(st.integers(0, 8)),
)
def test_whatever_stays_in_fp32_the_model_is_valid_and_says_the_same(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], keep: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("chain")
    proto = prepared(write(folder / "net.onnx", chain(kinds)))
    names = [n.name for n in proto.graph.node]

    half, _ = halved(proto, {names[i] for i in keep if i < len(names)})

    target = write(folder / "half.onnx", half)
    onnx.checker.check_model(str(target), full_check=True)
    rows = {"x": np.random.default_rng(0).random((3, 4, 4)).astype(np.float32)}
    true = answers(folder / "net.onnx", rows)
    np.testing.assert_allclose(answers(target, rows), true, rtol=0.02, atol=0.02)


def chain(kinds: list[str]) -> Any:
    """One node after the other on ``x`` ``[batch, 4, 4]``, values kept near one."""
    found, last = [], "x"
    for index, kind in enumerate(kinds):
        out = f"t{index}"
        if kind == "Concat":
            found.append(node("Concat", (last, "x"), f"{out}_wide", axis=1))
            found.append(node("MatMul", ("narrow", f"{out}_wide"), out))
        elif kind == "Exp":
            found.append(node("Sigmoid", (last,), f"{out}_small"))
            found.append(node("Exp", (f"{out}_small",), out))
        elif kind == "ReduceMean":
            found.append(node("ReduceMean", (last, "axis"), f"{out}_mean", keepdims=1))
            found.append(node("Add", (f"{out}_mean", "x"), out))
        elif kind == "Transpose":
            found.append(node("Transpose", (last,), out, perm=[0, 2, 1]))
        else:
            given = (last, "weight") if kind in ("MatMul", "Add") else (last,)
            found.append(node(kind, given, out))
        last = out
    found.append(node("Identity", (last,), "y"))
    return model(
        nodes=found,
        inputs=[tensor("x", "batch", 4, 4)],
        outputs=[tensor("y", "batch", 4, 4)],
        weights={
            "weight": np.full((4, 4), 0.25, np.float32),
            "narrow": np.full((4, 8), 0.125, np.float32),
            "axis": np.array([2]),
        },
    )


def test_old_operators_stay_as_old_as_they_are(tmp_path: Path) -> None:
    source, target = residual(tmp_path / "old.onnx", opset=9), tmp_path / "half.onnx"

    to_fp16(source, target)

    assert {o.version for o in onnx.load(target).opset_import if not o.domain} == {9}
    unseen = images(50, seed=9)
    assert np.abs(answers(target, unseen) - answers(source, unseen)).max() < TOLERANCE


def test_a_mask_of_infinities_is_no_obstacle(tmp_path: Path) -> None:
    """PyTorch's transformers add minus infinity to what is masked; fp16 has that, too."""
    masked = model(
        nodes=[
            node("MatMul", ("pixels", "weight"), "product"),
            node("Less", ("product", "least"), "small"),
            node("Where", ("small", "never", "none"), "mask"),
            node("Add", ("product", "mask"), "open"),
            node("Softmax", ("open",), "scores"),
        ],
        weights={
            "weight": np.eye(4, 3, dtype=np.float32),
            "least": np.array([0.05], np.float32),
            "never": np.array([-np.inf], np.float32),
            "none": np.array([0.0], np.float32),
        },
    )
    source, target = write(tmp_path / "net.onnx", masked), tmp_path / "half.onnx"
    made = pixels()
    made["pixels"][:, 3] = 1.0
    built = make_builder("onnx-fp16").build(Material(source=source, calibration=made), target)
    assert built.note == ""
    assert (answers(source, made) == 0.0).any()
    assert np.abs(answers(target, made) - answers(source, made)).max() < TOLERANCE


def test_what_is_not_a_number_still_is_one(tmp_path: Path) -> None:
    broken = model(
        nodes=[
            node("MatMul", ("pixels", "weight"), "product"),
            node("Sqrt", ("product",), "root"),
            node("Softmax", ("root",), "scores"),
        ],
        weights={"weight": -np.eye(4, 3, dtype=np.float32)},
    )
    source = write(tmp_path / "net.onnx", broken)
    with pytest.raises(VariantNotBuilt, match="is not finite"):
        to_fp16(source, tmp_path / "half.onnx", rows=pixels())
