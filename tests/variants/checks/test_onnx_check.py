"""Whatever the bytes are, a check answers with what they say or with one typed sentence."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from profiler.evaluation.labelled_rows import LabelledRows, read_rows, split_for_calibration
from tests import onnx_models as models
from tests.onnx_models import node, tensor
from tests.variants.checks.refusals import refusal_of
from variants.checks.onnx_check import OnnxInfo, check_model
from variants.errors import InvalidArtifact
from variants.types import TensorSpec

PIXELS = TensorSpec(name="pixels", dtype="float32", shape=(4,))
SCORES = TensorSpec(name="scores", dtype="float32", shape=(3,))

changes = st.lists(
    st.tuples(st.integers(min_value=0, max_value=10_000), st.integers(0, 255)), max_size=8
)
fuzzed = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def changed(data: bytes, edits: list[tuple[int, int]], length: float) -> bytes:
    mutable = bytearray(data)
    for position, value in edits:
        mutable[position % len(mutable)] = value
    return bytes(mutable[: max(1, int(len(mutable) * length))])


def test_a_right_model_says_what_it_is(tmp_path: Path) -> None:
    path = models.write(tmp_path / "tiny.onnx")
    assert check_model(path) == OnnxInfo(
        inputs=(PIXELS,),
        outputs=(SCORES,),
        opset=20,
        parameters=12,
        size_bytes=path.stat().st_size,
    )


def taking(*shape: int | str, kind: int = TensorProto.FLOAT) -> Any:
    return models.model(
        nodes=[node("Cast", ("pixels",), "scores", to=TensorProto.FLOAT)],
        inputs=[tensor("pixels", *shape, kind=kind)],
        outputs=[tensor("scores", *shape)],
    )


def sequence() -> Any:
    value = helper.make_tensor_sequence_value_info("list", TensorProto.FLOAT, ["batch", 3])
    return models.model(
        nodes=[
            node("MatMul", ("pixels", "weight"), "scores"),
            node("SequenceConstruct", ("scores", "scores"), "list"),
        ],
        outputs=[tensor("scores", "batch", 3), value],
    )


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            taking(12, "batch", 4),
            "leaves axis 1 open, but its first has the size 12; .* export it with the batch first",
        ),
        (
            models.model(
                nodes=[
                    node("Abs", ("pixels",), "scores"),
                    node("MatMul", ("pixels", "weight"), "scores"),
                ]
            ),
            r"single static assignment .*\(.*: export it with other output_names\)$",
        ),
        (taking(2, "batch", 4), r": --batch-axes pixels=1 puts them there, or export it with the"),
        (
            taking(1, 3, "width"),
            r"--batch-axes pixels=2 puts them there, if .*; --free-batch with --axis-sizes, if",
        ),
        (taking(), r"is a scalar; .*: --fix-inputs pixels=NUMBER gives it one value for good"),
        (
            taking("batch", "height", "width"),
            r"axis 1 open; .* with --lengths 16,64,256 or --axis-sizes height=SIZE, or export it",
        ),
        (
            taking("batch", 3, -1),
            r"axis 2 open; .* --axis-sizes pixels:2=SIZE",
        ),
        (
            models.model(
                nodes=[node("NonZero", ("pixels",), "found")],
                outputs=[tensor("found", 2, "count", kind=TensorProto.INT64)],
            ),
            "has a fixed batch of 2 however many rows come in, .* --keep-outputs NAMES leaves it",
        ),
        (
            models.model(
                nodes=[
                    node("NonZero", ("pixels",), "found"),
                    node("Transpose", ("found",), "places", perm=[1, 0]),
                    node("MatMulInteger", ("places", "found"), "scores"),
                ],
                outputs=[tensor("scores", "count", "others", kind=TensorProto.INT32)],
            ),
            "axis 1 open, and its size does not follow .* --keep-outputs NAMES leaves it out",
        ),
        (sequence(), "output 'list' is not a tensor; --keep-outputs NAMES leaves it out"),
        (
            taking("batch", 4, kind=TensorProto.STRING),
            "has type string; .* export what comes after the tokenizer, and give that by",
        ),
        (
            taking("batch", 4, kind=TensorProto.BFLOAT16),
            "has type bfloat16; .* export it with inputs and outputs of float32",
        ),
        (
            models.model(
                nodes=[node("FusedMatMul", ("pixels", "weight"), "scores", domain="com.microsoft")],
                opsets=(("", models.OPSET), ("com.microsoft", 1)),
            ),
            "it was optimised for ONNX Runtime, .* register the model as it was exported",
        ),
    ],
)
def test_a_refusal_says_what_to_do(tmp_path: Path, made: Any, words: str) -> None:
    with pytest.raises(InvalidArtifact, match=words) as refused:
        check_model(models.write(tmp_path / "tiny.onnx", made))
    assert len(refused.value.message) < 400


@fuzzed
@given(edits=changes, length=st.floats(0.0, 1.0))
def test_any_model_file_is_read_or_refused(
    tmp_path: Path, edits: list[tuple[int, int]], length: float
) -> None:
    path = tmp_path / "fuzzed.onnx"
    path.write_bytes(changed(models.model().SerializeToString(), edits, length))
    said = refusal_of(lambda: check_model(path))
    if said is not None:
        assert re.match(r"fuzzed\.onnx:? ", said)
        assert said.isprintable()
        return
    info = check_model(path)
    assert all(spec.name and min(spec.shape, default=1) > 0 for spec in info.inputs + info.outputs)


@fuzzed
@given(edits=changes, length=st.floats(0.0, 1.0))
def test_any_file_of_rows_is_read_or_refused(
    tmp_path: Path, edits: list[tuple[int, int]], length: float
) -> None:
    right = models.write_rows(tmp_path / "rows.npz").read_bytes()
    path = tmp_path / "fuzzed.npz"
    path.write_bytes(changed(right, edits, length))
    said = refusal_of(lambda: read_rows(path, (PIXELS,), classes=3))
    if said is not None:
        assert re.match(r"fuzzed\.npz:? ", said)
        assert said.isprintable()
        return
    rows = read_rows(path, (PIXELS,), classes=3)
    assert rows.labels is not None
    assert rows.inputs["pixels"].shape == (len(rows.labels), 4)
    assert np.isfinite(rows.inputs["pixels"]).all()
    assert set(rows.labels) <= {0, 1, 2}


@given(count=st.integers(10, 3_000))
@settings(deadline=None)
def test_a_split_shares_no_row_and_loses_none(count: int) -> None:
    rows = LabelledRows(inputs={"x": np.arange(count)}, labels=np.zeros(count, np.int64))
    calibration, evaluation = split_for_calibration(rows, Path("rows.npz"))
    both = np.concatenate([calibration.inputs["x"], evaluation.inputs["x"]])
    assert sorted(both) == list(range(count))
    assert 0 < len(calibration) <= 200
    assert calibration.labels is not None
    assert len(calibration.labels) == len(calibration)


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.float64])
def test_numbers_of_other_types_become_the_task_s(tmp_path: Path, kind: type) -> None:
    path = models.write_rows(tmp_path / "rows.npz", pixels=np.ones((30, 4), kind))
    assert read_rows(path, (PIXELS,), classes=3).inputs["pixels"].dtype == np.float32
