"""Encoding of replies in both dialects."""

import json
from typing import Any

import numpy as np
import pytest

from controlplane.gateway.query.replies import encode_v1, encode_v2
from controlplane.gateway.query.v2.datatypes import best_classes, bytes_of
from controlplane.gateway.query.v2.parsing import parse_v2
from tests.controlplane.gateway.query.parsing.asked import METADATA, entry, spec, task, v2


@pytest.mark.parametrize(
    ("labels", "count", "expected"),
    [
        (("a", "b", "c"), 2, [["0.500000:1:b", "0.300000:2:c"], ["0.400000:0:a", "0.400000:1:b"]]),
        ((), 1, [["0.500000:1"], ["0.400000:0"]]),
        (
            ("a", "b", "c"),
            9,
            [
                ["0.500000:1:b", "0.300000:2:c", "0.200000:0:a"],
                ["0.400000:0:a", "0.400000:1:b", "0.200000:2:c"],
            ],
        ),
    ],
)
def test_the_best_classes(labels: tuple[str, ...], count: int, expected: list[list[str]]) -> None:
    table = np.array([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]])
    assert best_classes(table, count, labels) == expected


def test_texts_stand_behind_their_lengths() -> None:
    assert bytes_of(["ab", ""]) == b"\x02\0\0\0ab\0\0\0\0"


FIELDS = {
    "variant": "v", "model_version": "m-v1", "worker": "w", "batch_size": 4, "queue_ms": 0.5,
    "run_ms": 1.5, "accuracy": 0.9, "cost_usd_per_1k": 0.25, "slo_met": True,
}  # fmt: skip


def scores(*rows: list[float]) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize(
    ("labels", "outputs", "expected"),
    [
        ((), scores([0.1, 0.9]), {"outputs": [[0.1, 0.9]]}),
        (
            ("no", "yes"),
            scores([0.1, 0.9]),
            {"outputs": [[0.1, 0.9]], "labels": ["yes"], "scores": [0.9]},
        ),
        (
            ("no", "yes"),
            scores([0.1, 0.9], [0.7, 0.3], [0.5, 0.5]),
            {
                "outputs": [[0.1, 0.9], [0.7, 0.3], [0.5, 0.5]],
                "labels": ["yes", "no", "no"],
                "scores": [0.9, 0.7, 0.5],
            },
        ),
        (
            ("only",),
            np.array([0.5, 0.25], dtype=np.float32),
            {"outputs": [0.5, 0.25], "labels": ["only", "only"], "scores": [0.5, 0.25]},
        ),
    ],
)
def test_a_v1_reply(labels: tuple[str, ...], outputs: Any, expected: dict[str, Any]) -> None:
    body = json.loads(encode_v1(task("t", labels=labels), [outputs], METADATA))
    assert body == FIELDS | expected


def test_a_v1_reply_of_several_outputs_names_them() -> None:
    two = task("t", outputs=(spec("y"), spec("z", "int64", 1)))
    body = json.loads(encode_v1(two, [scores([1, 2]), np.array([[3]])], METADATA))
    assert body == FIELDS | {"outputs": {"y": [[1, 2]], "z": [[3]]}}


def test_a_v2_reply() -> None:
    parsed = v2({"inputs": [entry()], "id": "7"})
    assert parsed.v2 is not None
    body, length = encode_v2(parsed.task, parsed.v2, [scores([1, 2])], METADATA)
    assert length is None
    assert json.loads(body) == {
        "model_name": "pair",
        "model_version": "v",
        "id": "7",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}],
        "parameters": FIELDS,
    }


def test_only_the_outputs_asked_for_are_sent() -> None:
    two = task("t", outputs=(spec("y"), spec("z", "int64", 1)))
    outputs = [{"name": "z", "parameters": {"binary_data": True}}]
    body = json.dumps({"inputs": [entry()], "outputs": outputs}).encode()
    parsed = parse_v2(body, "t", None, {two.name: two}, 0.0, 0)
    assert parsed.v2 is not None
    reply, length = encode_v2(parsed.task, parsed.v2, [scores([1, 2]), np.array([[3]])], METADATA)
    assert length is not None
    assert [one["name"] for one in json.loads(reply[:length])["outputs"]] == ["z"]
    assert reply[length:] == np.array([[3]]).tobytes()
