"""One file for all lengths of a model: the same bytes from any of them, and the same answers."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests import onnx_models as models
from tests.onnx_models import node, tensor
from variants.builders.onnx_open import OnnxFp32Open
from variants.builders.protocol import Material
from variants.checks.open_axis import fix_axis, open_again
from variants.errors import InvalidArtifact, VariantNotBuilt
from variants.types import FollowingAxis, LengthBucket, OpenAxis, TaskName


def tagger() -> Any:
    """Scores of each position, and their sum over the row; one constant is folded."""
    return models.text_model(
        nodes=[
            node("Mul", ("values", "mask"), "kept"),
            node("Add", ("two", "two"), "four"),
            node("Mul", ("kept", "four"), "tags"),
            node("ReduceSum", ("tags", "tokens_axis"), "sums", keepdims=0),
        ],
        outputs=[tensor("tags", "batch", "tokens", 2), tensor("sums", "batch", 2)],
        weights={"tokens_axis": np.array([1]), "two": np.array([2.0], np.float32)},
    )


def bucket(length: int) -> LengthBucket:
    return LengthBucket(
        of=TaskName("tags"),
        length=length,
        axes=(OpenAxis(input="values", axis=0), OpenAxis(input="mask", axis=0)),
        outputs=(FollowingAxis(output="tags", axis=0),),
    )


def built(folder: Path, length: int) -> Path:
    source, target = folder / f"{length}.onnx", folder / f"{length}-open.onnx"
    fixed = fix_axis(tagger().SerializeToString(), length, where="tagger.onnx")
    source.write_bytes(fixed.data)
    said = OnnxFp32Open().build(Material(source=source, bucket=bucket(length)), target)
    assert "any length" in said.note
    return target


def test_it_is_the_same_file_whatever_length_it_is_built_for(tmp_path: Path) -> None:
    first, *others = (built(tmp_path, length).read_bytes() for length in (1, 4, 7, 64))
    assert all(other == first for other in others)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".onnx"] * 8


@pytest.mark.parametrize("length", [1, 4, 9])
def test_it_answers_rows_of_any_length_as_the_model_does(tmp_path: Path, length: int) -> None:
    opened = onnxruntime.InferenceSession(built(tmp_path, 4))
    model = onnxruntime.InferenceSession(tagger().SerializeToString())
    rows = {
        "values": np.random.default_rng(0).normal(size=(3, length, 2)).astype(np.float32),
        "mask": np.ones((3, length, 1), np.float32),
    }
    for found, expected in zip(opened.run(None, rows), model.run(None, rows), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_model_of_another_length_is_refused(tmp_path: Path) -> None:
    fixed = fix_axis(tagger().SerializeToString(), 4, where="tagger.onnx")
    with pytest.raises(InvalidArtifact, match="no axis 0 of the length 8 in 'values'"):
        open_again(fixed.data, bucket(8))


def test_a_model_for_rows_of_one_length_has_none(tmp_path: Path) -> None:
    source = models.write(tmp_path / "tiny.onnx")
    with pytest.raises(VariantNotBuilt, match="needs a model for rows of several lengths"):
        OnnxFp32Open().build(Material(source=source), tmp_path / "open.onnx")
