"""Outputs that are as long as the rows: each row gets its own part of them, however it asked."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest

from controlplane.gateway.grpc.inference import read_query
from controlplane.gateway.grpc.messages import ModelInferRequest, ModelInferResponse
from controlplane.gateway.protection.body_frames import described, parsed_of
from controlplane.gateway.query.one_answer import encode
from controlplane.gateway.query.parsing import ParsedQuery, parse_v1
from controlplane.gateway.query.v2.parsing import parse_v2
from tests.controlplane.gateway.lengths.test_asked_by_length import METADATA, inputs, listed
from tests.variants.buckets import bucket
from tests.variants.tagging import tagging
from variants.buckets import TaskTable
from variants.types import FollowingAxis, LengthBucket, Task, TaskName, TensorSpec

TASKS = TaskTable([tagging(4), tagging(8), bucket(4)])
ALONE = TaskTable(
    [
        tagging(
            4,
            labels=(),
            metric="cosine",
            outputs=(TensorSpec(name="vectors", dtype="float32", shape=(4, 2)),),
            bucket=LengthBucket(
                of=TaskName("tags"),
                length=4,
                axes=(tagging(4).bucket or pytest.fail("no bucket")).axes,
                outputs=(FollowingAxis(output="vectors", axis=0),),
            ),
        )
    ]
)


def v1(given: Any, name: str = "tags", tasks: TaskTable = TASKS) -> ParsedQuery:
    return parse_v1(json.dumps({"task": name, "inputs": given}).encode(), tasks, 5.0, 9)


def v2(given: Any, name: str = "tags", **fields: Any) -> ParsedQuery:
    body = json.dumps({"inputs": listed(given), **fields}).encode()
    return parse_v2(body, name, None, TASKS, 5.0, 9)


def grpc(given: Any, classes: int = 0) -> ParsedQuery:
    message = ModelInferRequest(model_name="tags")
    for entry in listed(given):
        added = message.inputs.add(
            name=entry["name"], datatype=entry["datatype"], shape=entry["shape"]
        )
        field = "int64_contents" if entry["datatype"] == "INT64" else "fp32_contents"
        getattr(added.contents, field).extend(entry["data"])
    if classes:
        wanted = message.outputs.add(name="scores")
        wanted.parameters["classification"].int64_param = classes
    return read_query(message.SerializeToString(), TASKS, lambda _, one: one, 5.0, 9)


def outputs(rows: int, length: int) -> list[Any]:
    """As a worker gives them: position ``p`` of row ``r`` is of class ``(r + p) % 3``, and what is
    behind the end of a row is no different."""
    places = np.add.outer(np.arange(rows), np.arange(length))
    scores = np.eye(3, dtype=np.float32)[places % 3] * (1 + places[:, :, None]).astype(np.float32)
    turned = np.stack([places, -places], axis=1).astype(np.float32)
    return [scores, np.arange(rows, dtype=np.float32)[:, None], turned]


def said(parsed: ParsedQuery, given: Sequence[Any]) -> Any:
    body, _ = encode(parsed, given, METADATA)
    return json.loads(body)


def test_rows_of_one_query_get_answers_of_their_own_lengths() -> None:
    parsed = v1(inputs([5], [5, 6, 7, 8, 9], [5, 6, 7]))
    assert (parsed.task.name, parsed.lengths) == ("tags.8", (1, 5, 3))
    answer = said(parsed, outputs(3, 8))
    assert answer["labels"] == [["O"], ["B", "I", "O", "B", "I"], ["I", "O", "B"]]
    assert answer["scores"] == [[1.0], [2.0, 3.0, 4.0, 5.0, 6.0], [3.0, 4.0, 5.0]]
    found = answer["outputs"]
    assert [len(row) for row in found["scores"]] == [1, 5, 3]
    assert found["scores"][2] == [[0.0, 0.0, 3.0], [4.0, 0.0, 0.0], [0.0, 5.0, 0.0]]
    assert found["whole"] == [[0.0], [1.0], [2.0]]
    assert found["turned"][2] == [[2.0, 3.0, 4.0], [-2.0, -3.0, -4.0]]


def test_an_output_alone_has_no_name() -> None:
    parsed = v1(inputs([5], [5, 6]), tasks=ALONE)
    given = np.arange(16, dtype=np.float32).reshape(2, 4, 2)
    answer = said(parsed, [given])
    assert answer["outputs"] == [[[0.0, 1.0]], [[8.0, 9.0], [10.0, 11.0]]]
    assert answer.keys().isdisjoint({"labels", "scores"})


def test_rows_that_are_labelled_as_a_whole_keep_their_labels() -> None:
    known = tagging(4).bucket
    assert known is not None
    scores, _, turned = tagging(4).outputs
    whole = replace(tagging(4).outputs[1], shape=(3,))
    own = replace(known, outputs=known.outputs[1:])
    tasks = TaskTable([tagging(4, outputs=(whole, turned), bucket=own)])
    answer = said(
        v1(inputs([5], [5, 6]), tasks=tasks),
        [np.array([[1, 3, 2], [6, 5, 4]], np.float32), outputs(2, 4)[2]],
    )
    assert (answer["labels"], answer["scores"]) == (["B", "O"], [3.0, 6.0])
    assert [np.shape(one) for one in answer["outputs"]["turned"]] == [(2, 1), (2, 2)]
    assert scores.name not in answer["outputs"]


@pytest.mark.parametrize("length", [1, 3, 4])
def test_a_row_that_is_alone_is_cut_as_well(length: int) -> None:
    answer = said(v1(inputs([7] * length)), outputs(1, 4))
    assert answer["labels"] == [["O", "B", "I", "O"][:length]]
    assert np.shape(answer["outputs"]["turned"]) == (1, 2, length)


def test_the_protocol_has_the_length_in_its_shapes() -> None:
    answer = said(v2(inputs([5, 6, 7], [8, 9, 1])), outputs(2, 4))
    assert answer["model_name"] == "tags"
    scores, whole, turned = answer["outputs"]
    assert [one["shape"] for one in (scores, whole, turned)] == [[2, 3, 3], [2, 1], [2, 2, 3]]
    assert scores["data"] == outputs(2, 4)[0][:, :3].ravel().tolist()
    assert turned["data"] == outputs(2, 4)[2][:, :, :3].ravel().tolist()


def test_raw_bytes_are_of_what_is_left() -> None:
    parsed = v2(inputs([5, 6, 7]), parameters={"binary_data_output": True})
    body, headers = encode(parsed, outputs(1, 4), METADATA)
    head = int(headers.rpartition(b": ")[2])
    listed_ = json.loads(body[:head])["outputs"]
    assert [one["parameters"]["binary_data_size"] for one in listed_] == [36, 4, 24]
    values = np.frombuffer(body[head:], np.float32)
    assert values[:9].tolist() == outputs(1, 4)[0][:, :3].ravel().tolist()
    assert values[10:].tolist() == outputs(1, 4)[2][:, :, :3].ravel().tolist()


def test_grpc_gives_the_same() -> None:
    body, _ = encode(grpc(inputs([5, 6, 7])), outputs(1, 4), METADATA)
    message = ModelInferResponse.FromString(body)
    assert [list(one.shape) for one in message.outputs] == [[1, 3, 3], [1, 1], [1, 2, 3]]
    turned = np.frombuffer(message.raw_output_contents[2], np.float32)
    assert turned.tolist() == outputs(1, 4)[2][:, :, :3].ravel().tolist()


def test_the_best_classes_are_those_of_each_position() -> None:
    asked = [{"name": "scores", "parameters": {"classification": 2}}]
    answer = said(v2(inputs([5, 6], [7, 8]), outputs=asked), outputs(2, 4))
    (best,) = answer["outputs"]
    assert (best["datatype"], best["shape"]) == ("BYTES", [2, 2, 2])
    assert best["data"][:4] == ["1.000000:0:O", "0.000000:1:B", "2.000000:1:B", "0.000000:0:O"]
    body, _ = encode(grpc(inputs([5, 6]), classes=1), outputs(1, 4), METADATA)
    message = ModelInferResponse.FromString(body)
    assert list(message.outputs[0].shape) == [1, 2, 1]
    assert message.raw_output_contents[0].endswith(b"2.000000:1:B")


def test_a_bucket_that_is_asked_itself_is_not_cut() -> None:
    parsed = v1(inputs([5, 6, 1, 1]), "tags.4")
    assert parsed.lengths is None
    assert said(parsed, outputs(1, 4))["labels"] == [["O", "B", "I", "O"]]
    answer = said(v2(inputs([5, 6, 1, 1]), "tags.4"), outputs(1, 4))
    assert answer["outputs"][0]["shape"] == [1, 4, 3]
    asked = [{"name": "scores", "parameters": {"classification": 1}}]
    answer = said(v2(inputs([5, 6, 1, 1]), "tags.4", outputs=asked), outputs(1, 4))
    assert answer["outputs"][0]["shape"] == [1, 4, 1]


def test_where_no_output_is_as_long_nothing_is_cut() -> None:
    given = inputs([5, 6])
    assert v1(given, "texts").lengths is None
    assert v2(given, "texts").lengths is None


@pytest.mark.parametrize("ask", [v1, v2])
def test_a_query_that_was_read_elsewhere_is_cut_as_well(ask: Any) -> None:
    parsed = ask(inputs([5, 6, 7]))
    answer, chunks = described(parsed)
    there = orjson.loads(orjson.dumps(answer))
    found = parsed_of(there, bytearray().join(chunks), TASKS)
    assert found.lengths == parsed.lengths == (3,)
    assert said(found, outputs(1, 4)) == said(parsed, outputs(1, 4))


def test_metadata_have_the_open_axis_in_outputs() -> None:
    face = TASKS.bucketed[TaskName("tags")].face
    assert [spec.shape for spec in face.outputs] == [(-1, 3), (1,), (2, -1)]


def parts(length: int) -> Task:
    """Gives scores for each two positions of a row, the last one alone left out."""
    halves = FollowingAxis(output="scores", axis=0, step=2)
    own = tagging(length, of="parts").bucket
    assert own is not None
    return tagging(
        length,
        of="parts",
        outputs=(TensorSpec(name="scores", dtype="float32", shape=(length // 2, 3)),),
        bucket=replace(own, of=TaskName("parts"), outputs=(halves,)),
    )


PARTS = TaskTable([parts(4), parts(8)])


def test_outputs_that_are_a_part_of_the_rows_are_cut_back_to_theirs() -> None:
    given = inputs([5, 6, 1], [7, 1, 1, 8, 9], [5])
    parsed = v1(given, "parts", PARTS)
    assert (parsed.task.name, parsed.lengths) == ("parts.8", (3, 5, 1))
    scores = np.tile(np.eye(4, 3, dtype=np.float32), (3, 1, 1))
    body, _ = encode(parsed, [scores], METADATA)
    answer = orjson.loads(body)
    assert [len(row) for row in answer["outputs"]] == [1, 2, 0]
    assert answer["labels"] == [["O"], ["O", "B"], []]
    for classes in (0, 2):
        body = json.dumps(
            {
                "inputs": listed(inputs([5])),
                "outputs": [{"name": "scores", "parameters": {"classification": classes}}],
            }
        ).encode()
        parsed = parse_v2(body, "parts", None, PARTS, 5.0, 9)
        [output] = orjson.loads(encode(parsed, [scores[:1, :2]], METADATA)[0])["outputs"]
        assert (output["shape"], output["data"]) == ([1, 0, 2 if classes else 3], [])
