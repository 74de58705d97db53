"""Models that leave an axis open: which are taken, and what becomes of them."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

from profiler.evaluation.output_sizes import sizes_by_length
from tests import onnx_models as models
from tests.onnx_models import node, tensor
from variants.checks.onnx_check import check_model_bytes
from variants.checks.open_axis import fix_axis, open_again
from variants.errors import InvalidArtifact
from variants.types import FollowingAxis, LengthBucket, OpenAxis, TaskName

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
    with pytest.raises(InvalidArtifact, match=f"^text.onnx:? .*{why}"):
        fix_axis(text_model(**changes), 7, where="text.onnx")


@pytest.mark.parametrize("called", ["tokens", "Multags_dim_1", None])
def test_an_output_as_long_as_the_rows_is_found_whatever_its_axis_is_called(called: str) -> None:
    tagging = text_model(
        nodes=LABELLING, outputs=[tensor("tags", "batch", called, 2), tensor("wide", "batch", "w")]
    )
    for length in (1, 2, 7, 8):
        fixed = fix_axis(tagging, length, where="text.onnx")
        assert (fixed.outputs, fixed.first) == ([FollowingAxis(output="tags", axis=0)], "tags")
        info = check_model_bytes(fixed.data, where="text.onnx")
        assert [spec.shape for spec in info.outputs] == [(length, 2), (2,)]


def convolved(*layers: dict[str, Any], called: str = "steps") -> bytes:
    """A model of frames ``[batch, 2, frames]`` with a convolution after the other."""
    nodes, weights, before = [], {}, "frames"
    for number, layer in enumerate(layers):
        given = dict(layer)
        size = given.pop("size")
        after = "steps" if number == len(layers) - 1 else f"layer_{number}"
        weights[f"w{number}"] = np.ones((2, 2, size), np.float32)
        nodes.append(node("Conv", (before, f"w{number}"), after, **given))
        before = after
    made = models.model(
        inputs=[tensor("frames", "batch", 2, "length")],
        nodes=nodes,
        outputs=[tensor("steps", "batch", 2, called)],
        weights=weights,
    )
    return made.SerializeToString()  # type: ignore[no-any-return]


HALVES = {"size": 3, "strides": [2], "pads": [1, 1]}


@pytest.mark.parametrize(
    ("layers", "step", "offset"),
    [
        ([{"size": 2, "strides": [2]}], 2, 0),
        ([HALVES], 2, 1),  # rounds up
        ([HALVES] * 3, 8, 7),
        ([{"size": 10, "strides": [5]}, {"size": 3, "strides": [2]}], 10, -10),
        ([{"size": 3}], 1, -2),  # not a part, but shorter by two
    ],
)
@pytest.mark.parametrize("length", [64, 97])
def test_an_output_may_be_a_fixed_part_of_the_rows(
    layers: list[dict[str, Any]], step: int, offset: int, length: int
) -> None:
    fixed = fix_axis(convolved(*layers), length, where="speech.onnx", longest=256)
    follows = FollowingAxis(output="steps", axis=1, step=step, offset=offset)
    assert fixed.outputs == [follows]
    session = onnxruntime.InferenceSession(fixed.data)
    [found] = session.run(None, {"frames": np.ones((1, 2, length), np.float32)})
    assert found.shape == (1, 2, follows.size(length))
    info = check_model_bytes(fixed.data, where="speech.onnx")
    assert info.outputs[0].shape == (2, follows.size(length))
    # And it is open again for all lengths.
    bucket = LengthBucket(
        of=TaskName("speech"),
        length=length,
        axes=(OpenAxis(input="frames", axis=1),),
        outputs=(follows,),
    )
    opened = onnxruntime.InferenceSession(open_again(fixed.data, bucket))
    [found] = opened.run(None, {"frames": np.ones((1, 2, 40), np.float32)})
    assert found.shape == (1, 2, follows.size(40))


def test_a_length_of_one_step_is_told_by_longer_ones() -> None:
    for length in (8, 11):
        fixed = fix_axis(convolved(*[HALVES] * 3), length, where="speech.onnx", longest=length)
        assert fixed.outputs == [FollowingAxis(output="steps", axis=1, step=8, offset=7)]


def test_rows_shorter_than_a_step_are_refused() -> None:
    with pytest.raises(InvalidArtifact, match="a fixed part of that, at least 1"):
        fix_axis(convolved({"size": 9, "strides": [9]}), 7, where="speech.onnx", longest=90)


def test_where_no_shape_says_it_the_model_is_run(tmp_path: Path) -> None:
    model = models.model(
        inputs=[tensor("frames", "batch", "length", 2)],
        nodes=[
            node("Shape", ("frames",), "shape"),
            node("Gather", ("shape", "one"), "length"),
            node("Cast", ("length",), "real", to=TensorProto.FLOAT),
            node("Mul", ("real", "half"), "part"),
            node("Floor", ("part",), "whole"),
            node("Cast", ("whole",), "end", to=TensorProto.INT64),
            node("Slice", ("frames", "zero", "end", "one"), "steps"),
        ],
        outputs=[tensor("steps", "batch", "steps", 2)],
        weights={
            "one": np.array([1]), "zero": np.array([0]), "half": np.array([0.5], np.float32),
        },
    )  # fmt: skip
    path = models.write(tmp_path / "m.onnx", model)
    given: dict[str, Any] = {"where": "m.onnx", "longest": 32}
    with pytest.raises(InvalidArtifact, match="whose size cannot be told"):
        fix_axis(path.read_bytes(), 16, **given)
    fixed = fix_axis(path.read_bytes(), 16, run=sizes_by_length(path), **given)
    assert fixed.outputs == [FollowingAxis(output="steps", axis=0, step=2, offset=0)]


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(InvalidArtifact, match=r"^text\.onnx is a pickle, "):
        fix_axis(b"\x80pickle", 7, where="text.onnx")


def test_the_check_of_an_open_model_says_what_to_do() -> None:
    with pytest.raises(InvalidArtifact, match="register it with --lengths 16,64,256"):
        check_model_bytes(text_model(), where="text.onnx")
