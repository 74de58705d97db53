"""Queries and replies of tasks whose models are no classifiers."""

from typing import Any

import numpy as np
import orjson
import pytest

from controlplane.gateway.query.replies import ReplyMetadata, encode_v1, encode_v2
from controlplane.gateway.query.v2.parsing import parse_v2
from tests.controlplane.gateway.query.parsing.asked import spec, task
from variants.errors import InvalidInput
from variants.types import TensorSpec

NUMBER = TensorSpec(name="progression", dtype="float32", shape=())
GRID = TensorSpec(name="grid", dtype="float32", shape=(2, 2))
REGRESSOR = task("regressor", outputs=(NUMBER, GRID), metric="within:0.5")
ENCODER = task("encoder", outputs=(spec("vector"),), metric="nearest")
CLASSIFIER = task("classifier", outputs=(spec("y"),))
TASKS = {one.name: one for one in (REGRESSOR, ENCODER, CLASSIFIER)}
METADATA = ReplyMetadata("m-v1-onnx-fp32", "m-v1", "w1", 1, 0.5, 2.0, 0.9, 0.001, True)
ANSWERS = [np.array([1.5, -2.0], np.float32), np.arange(8, dtype=np.float32).reshape(2, 2, 2)]


def v2(task: str, **output: Any) -> Any:
    document = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}],
        "outputs": [output],
    }
    return parse_v2(orjson.dumps(document), task, None, TASKS, 0.0, 0, None)


def test_a_v1_reply_has_all_outputs_by_name_and_no_labels() -> None:
    reply = orjson.loads(encode_v1(REGRESSOR, ANSWERS, METADATA))
    assert reply["outputs"] == {
        "progression": [1.5, -2.0],
        "grid": [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0], [6.0, 7.0]]],
    }
    assert reply.keys() & {"labels", "scores"} == set()


def test_a_v2_reply_has_the_shape_of_each_output() -> None:
    parsed = v2("regressor", name="progression")
    document, length = encode_v2(REGRESSOR, parsed.v2, ANSWERS, METADATA)
    assert length is None
    assert orjson.loads(document)["outputs"] == [
        {"name": "progression", "datatype": "FP32", "shape": [2], "data": [1.5, -2.0]}
    ]


@pytest.mark.parametrize(
    ("name", "output", "metric"),
    [("regressor", "grid", "within:0.5"), ("encoder", "vector", "nearest")],
)
def test_what_has_no_classes_cannot_be_asked_for_them(name: str, output: str, metric: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        v2(name, name=output, parameters={"classification": 2})
    assert refusal.value.message == (
        f"classification is for tasks with classes, and {name!r} has none: its accuracy is by"
        f" {metric}"
    )


def test_a_classifier_without_names_of_its_classes_is_asked_as_ever() -> None:
    parsed = v2("classifier", name="y", parameters={"classification": 2})
    assert parsed.v2.classes == {"y": 2}
