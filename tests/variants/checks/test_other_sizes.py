"""A later model of a task that takes or gives something else: the refusal says what is to do."""

import re
from dataclasses import replace

import pytest

from tests.planner.builders import task
from variants.checks.onnx_check import OnnxInfo, check_signature
from variants.errors import InvalidArtifact
from variants.types import TensorSpec

WAY = (
    r"register it for another task, or have it scale what comes as its first step: torch\.nn\."
    r"functional\.interpolate\(x, \(32, 24\), mode='bilinear'\)$"
)


def refused(ours: tuple[int, ...], theirs: tuple[int, ...], dtype: str = "float32") -> str:
    spec = TensorSpec(name="x", dtype="float32", shape=theirs)
    known = replace(task(), inputs=(spec,))
    info = OnnxInfo(
        inputs=(replace(spec, shape=ours, dtype=dtype),),
        outputs=known.outputs, opset=17, parameters=1, size_bytes=1,
    )  # fmt: skip
    with pytest.raises(InvalidArtifact) as error:
        check_signature(info, known, where="net.onnx")
    return error.value.message


def test_a_model_of_smaller_pictures_may_scale_them_itself() -> None:
    assert re.search(WAY, refused((3, 32, 24), (3, 64, 48)))


@pytest.mark.parametrize(
    ("ours", "theirs", "dtype"),
    [
        ((3, 32, 24), (1, 64, 48), "float32"),
        ((3, 32, 24), (3, 64, 48), "uint8"),
        ((32, 24, 3), (64, 48, 3), "float32"),
        ((12,), (13,), "float32"),
    ],
    ids=["channels", "types", "channels last", "no pictures"],
)
def test_what_no_step_before_it_mends_is_for_another_task(
    ours: tuple[int, ...], theirs: tuple[int, ...], dtype: str
) -> None:
    assert refused(ours, theirs, dtype).endswith("as all its models: register it for another task")


@pytest.mark.parametrize(
    ("file", "way"),
    [
        ("net.onnx", "--output-names, or output_names of modelless.export, names them"),
        ("net.pt2", "export it again with output_names=['scores']"),
    ],
)
def test_an_output_of_another_name_is_named_where_that_can_be_done(file: str, way: str) -> None:
    known = task()
    info = OnnxInfo(
        inputs=known.inputs, outputs=(replace(known.outputs[0], name="values"),),
        opset=17, parameters=1, size_bytes=1,
    )  # fmt: skip
    with pytest.raises(InvalidArtifact) as error:
        check_signature(info, known, where=file)
    assert error.value.message == (
        f"{file} gives outputs values, and lacks scores of task {known.name!r}; {way}"
    )
