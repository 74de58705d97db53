"""Models that leave an axis open: which are taken, and what becomes of them."""

from typing import Any

import onnx
import pytest
from onnx import TensorProto

from tests import onnx_models as models
from tests.onnx_models import node, tensor
from variants.checks.onnx_check import check_model_bytes
from variants.checks.open_axis import fix_axis
from variants.errors import InvalidArtifact

LABELLING = [
    node("Mul", ("values", "mask"), "kept"),
    node("Identity", ("kept",), "tags"),
    node("ReduceSum", ("kept", "tokens_axis"), "wide", keepdims=0),
]
"""Of a model whose output ``tags`` is as long as its rows, and ``wide`` is not."""


def text_model(**changes: Any) -> bytes:
    return models.text_model(**changes).SerializeToString()  # type: ignore[no-any-return]


def test_the_open_axis_gets_its_size_everywhere() -> None:
    fixed = fix_axis(text_model(), 7, where="text.onnx")
    assert (fixed.inputs, fixed.outputs) == ([("values", 0), ("mask", 0)], [])
    assert fixed.first == "scores"
    info = check_model_bytes(fixed.data, where="text.onnx")
    assert [spec.shape for spec in info.inputs] == [(7, 2), (7, 1)]
    assert [spec.shape for spec in info.outputs] == [(2,)]


def test_the_same_model_and_length_give_the_same_bytes() -> None:
    assert fix_axis(text_model(), 7, where="x") == fix_axis(text_model(), 7, where="x")


def test_what_was_inferred_for_the_open_axis_is_forgotten() -> None:
    inferred = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(text_model()))
    fixed = fix_axis(inferred.SerializeToString(), 7, where="text.onnx").data
    assert b"tokens\x12" not in fixed
    check_model_bytes(fixed, where="text.onnx")


def test_an_axis_of_the_only_input_needs_no_name() -> None:
    one = text_model(
        inputs=[tensor("values", "batch", None, 2)],  # type: ignore[arg-type]
        nodes=[node("ReduceSum", ("values", "tokens_axis"), "scores", keepdims=0)],
    )
    fixed = fix_axis(one, 5, where="text.onnx")
    assert fixed.inputs == [("values", 0)]
    assert check_model_bytes(fixed.data, where="text.onnx").inputs[0].shape == (5, 2)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"inputs": [tensor("values", "batch", 4, 2), tensor("mask", "batch", 4, 1)]},
            "leaves no axis open but the batch",
        ),
        (
            {"inputs": [tensor("values", "batch", "a", "b"), tensor("mask", "batch", "a", 1)]},
            "input 'values' leaves 2 axes open",
        ),
        (
            {"inputs": [tensor("values", "batch", "a", 2), tensor("mask", "batch", "b", 1)]},
            "different axes open: 'values' a, 'mask' b; give that axis the same name",
        ),
        (
            {
                "outputs": [
                    tensor("scores", "batch", 2),
                    tensor("kept", "batch", "tokens", "tokens"),
                ]
            },
            "output 'kept' is as long as the rows along 2 axes, and one is possible",
        ),
        (
            {
                "nodes": [*LABELLING[:1], node("Concat", ("kept", "kept"), "tags", axis=1)],
                "outputs": [tensor("tags", "batch", "twice", 2)],
            },
            "'tags' leaves axis 1 open, whose size is 14 for rows of 7 and 16 for rows of 8",
        ),
        (
            {
                "nodes": [*LABELLING[:1], node("NonZero", ("kept",), "places")],
                "outputs": [tensor("places", "batch", "many", kind=TensorProto.INT64)],
            },
            "'places' leaves axis 1 open, whose size cannot be told; .* give that axis the name",
        ),
    ],
)
def test_models_that_cannot_be_served_at_several_lengths_are_refused(
    changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidArtifact, match=f"^text.onnx: .*{why}"):
        fix_axis(text_model(**changes), 7, where="text.onnx")


@pytest.mark.parametrize("called", ["tokens", "Multags_dim_1", None])
def test_an_output_as_long_as_the_rows_is_found_whatever_its_axis_is_called(called: str) -> None:
    tagging = text_model(
        nodes=LABELLING, outputs=[tensor("tags", "batch", called, 2), tensor("wide", "batch", "w")]
    )
    for length in (1, 2, 7, 8):
        fixed = fix_axis(tagging, length, where="text.onnx")
        assert (fixed.outputs, fixed.first) == ([("tags", 0)], "tags")
        info = check_model_bytes(fixed.data, where="text.onnx")
        assert [spec.shape for spec in info.outputs] == [(length, 2), (2,)]


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(InvalidArtifact, match=r"^text\.onnx: "):
        fix_axis(b"\x80pickle", 7, where="text.onnx")


def test_the_check_of_an_open_model_says_what_to_do() -> None:
    with pytest.raises(InvalidArtifact, match="register it with --lengths 16,64,256"):
        check_model_bytes(text_model(), where="text.onnx")
