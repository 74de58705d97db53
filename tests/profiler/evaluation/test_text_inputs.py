"""What a model says of the inputs that texts fill."""

from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto

from profiler.evaluation.text_inputs import FilledInputs, inputs_for_texts
from tests import onnx_models
from tests.onnx_models import tensor
from tests.texts import opinion_model
from variants.errors import InvalidArtifact, InvalidInput

WHOLE = TensorProto.INT64


@pytest.mark.parametrize(("length", "found"), [("tokens", None), (12, 12)])
def test_a_model_of_texts_says_what_it_takes(
    tmp_path: Path, length: int | str, found: int | None
) -> None:
    path = onnx_models.write(tmp_path / "m.onnx", opinion_model(length))
    assert inputs_for_texts(path, {}, where="m.onnx") == FilledInputs(
        ids="input_ids",
        mask="attention_mask",
        types=None,
        dtypes={"input_ids": "int64", "attention_mask": "int64"},
        length=found,
        table=8,
    )


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ([tensor("input_ids", "batch", "tokens")], "input 'input_ids' is float32 of 2 axes"),
        ([tensor("input_ids", "batch", 4, 2, kind=WHOLE)], "is int64 of 3 axes"),
        (
            [
                tensor("input_ids", "batch", 4, kind=WHOLE),
                tensor("attention_mask", "batch", 5, kind=WHOLE),
            ],
            "its inputs input_ids, attention_mask have different lengths",
        ),
    ],
)
def test_other_inputs_are_refused(tmp_path: Path, inputs: list[Any], reason: str) -> None:
    path = onnx_models.write(tmp_path / "m.onnx", opinion_model(inputs=inputs))
    with pytest.raises(InvalidArtifact, match=reason):
        inputs_for_texts(path, {}, where="m.onnx")


def test_inputs_whose_names_tell_nothing_are_asked_for(tmp_path: Path) -> None:
    inputs = [tensor(name, "batch", 4, kind=WHOLE) for name in ("a", "b")]
    path = onnx_models.write(tmp_path / "m.onnx", opinion_model(inputs=inputs))
    with pytest.raises(InvalidInput, match="--text-inputs"):
        inputs_for_texts(path, {}, where="m.onnx")
    found = inputs_for_texts(path, {"ids": "b", "mask": "a"}, where="m.onnx")
    assert (found.ids, found.mask) == ("b", "a")
