"""Queries for a task of several lengths: which bucket they go to, and with which tensors."""

import json
from typing import Any

import numpy as np
import orjson
import pytest

from controlplane.gateway.grpc.inference import read_query
from controlplane.gateway.grpc.messages import ModelInferRequest
from controlplane.gateway.protection.body_frames import (
    described,
    parsed_of,
    tasks_as_json,
    tasks_of,
)
from controlplane.gateway.query.lean_json import LongBody
from controlplane.gateway.query.parsing import ParsedQuery, asked_v1, parse_v1
from controlplane.gateway.query.replies import ReplyMetadata
from controlplane.gateway.query.skimming import asked_by_headers, skim_v1, skim_v2
from controlplane.gateway.query.v2.parsing import parse_v2
from tests.variants.buckets import bucket
from tests.variants.catalog_builders import task
from variants.buckets import TaskTable
from variants.errors import InvalidInput, TaskNotFound
from variants.types import LengthBucket, OpenAxis, Task, TaskName, TensorSpec

ALONE = Task(
    name=TaskName("alone.6"),
    inputs=(TensorSpec(name="x", dtype="float32", shape=(2, 6)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=(1,)),),
    bucket=LengthBucket(
        of=TaskName("alone"), length=6, axes=(OpenAxis(input="x", axis=1, pad=-1.0),)
    ),
)
TASKS = TaskTable([bucket(4), bucket(8), task("digits"), ALONE])
WEIGHT = [0.5, 1.0]
METADATA = ReplyMetadata("v", "m-v1", "w", 1, 0.0, 1.0, 0.9, 0.1, True)


def inputs(*ids: list[Any]) -> dict[str, Any]:
    """Rows of these ids, all of them asked for by the mask."""
    return {
        "ids": list(ids),
        "mask": [[1] * len(row) for row in ids],
        "weight": [WEIGHT for _ in ids],
    }


def v1(given: Any, name: str = "texts", **fields: Any) -> ParsedQuery:
    body = json.dumps({"task": name, "inputs": given, **fields}).encode()
    return parse_v1(body, TASKS, 5.0, 9)


def listed(given: dict[str, Any]) -> list[dict[str, Any]]:
    types = {"ids": "INT64", "mask": "INT64", "weight": "FP32", "x": "FP32"}
    return [
        {
            "name": name,
            "datatype": types[name],
            "shape": list(np.shape(rows)),
            "data": np.ravel(rows).tolist(),
        }
        for name, rows in given.items()
    ]


def v2(given: dict[str, Any], name: str = "texts") -> ParsedQuery:
    body = json.dumps({"inputs": listed(given)}).encode()
    return parse_v2(body, name, None, TASKS, 5.0, 9)


def binary(given: dict[str, Any], name: str = "texts") -> ParsedQuery:
    entries, raw = [], b""
    for entry in listed(given):
        dtype = np.int64 if entry["datatype"] == "INT64" else np.float32
        data = np.array(entry.pop("data"), dtype).tobytes()
        entries.append({**entry, "parameters": {"binary_data_size": len(data)}})
        raw += data
    head = json.dumps({"inputs": entries}).encode()
    return parse_v2(head + raw, name, None, TASKS, 5.0, 9, b"%d" % len(head))


def grpc(given: dict[str, Any], name: str = "texts") -> ParsedQuery:
    message = ModelInferRequest(model_name=name)
    for entry in listed(given):
        added = message.inputs.add(
            name=entry["name"], datatype=entry["datatype"], shape=entry["shape"]
        )
        field = "int64_contents" if entry["datatype"] == "INT64" else "fp32_contents"
        getattr(added.contents, field).extend(entry["data"])
    return read_query(message.SerializeToString(), TASKS, lambda _, one: one, 5.0, 9)


WAYS = pytest.mark.parametrize("ask", [v1, v2, binary, grpc])


@WAYS
def test_rows_are_filled_up_for_the_shortest_bucket_that_holds_them(ask: Any) -> None:
    parsed = ask(inputs([5, 6, 7]))
    assert (parsed.query.task, parsed.task.name, parsed.query.rows) == ("texts.4", "texts.4", 1)
    ids, mask, weight = parsed.tensors
    assert (ids.dtype, mask.dtype) == (np.int64, np.int64)
    assert (ids.tolist(), mask.tolist()) == ([[5, 6, 7, 1]], [[1, 1, 1, 0]])
    assert weight.tolist() == [WEIGHT]
    assert parsed.query.latency_ms == 50.0  # the bucket's own default


@WAYS
@pytest.mark.parametrize(("length", "of"), [(1, 4), (4, 4), (5, 8), (8, 8)])
def test_the_bucket_follows_from_the_length(ask: Any, length: int, of: int) -> None:
    parsed = ask(inputs([2] * length, [3] * length))
    assert parsed.query.task == f"texts.{of}"
    assert [tensor.shape for tensor in parsed.tensors] == [(2, of), (2, of), (2, 2)]
    assert parsed.tensors[0][:, :length].tolist() == [[2] * length, [3] * length]


@WAYS
def test_too_long_a_row_is_told_the_longest(ask: Any) -> None:
    with pytest.raises(InvalidInput, match="the length 9, and task 'texts' takes rows of up to 8"):
        ask(inputs([1] * 9))


@WAYS
def test_another_axis_than_the_first_is_filled_up(ask: Any) -> None:
    parsed = ask({"x": [[[1.0, 2.0], [3.0, 4.0]]]}, "alone")
    pad = [-1.0] * 4
    assert parsed.tensors[0].tolist() == [[[1.0, 2.0, *pad], [3.0, 4.0, *pad]]]


@WAYS
def test_inputs_have_one_length(ask: Any) -> None:
    wrong = inputs([5, 6, 7]) | {"mask": [[1, 1]]}
    with pytest.raises(InvalidInput, match="length"):
        ask(wrong)


@WAYS
def test_rows_are_counted_for_every_input(ask: Any) -> None:
    with pytest.raises(InvalidInput, match="all inputs must have the same number of rows"):
        ask(inputs([5, 6, 7]) | {"weight": [WEIGHT, WEIGHT]})


# -- JSON, where rows may differ ---------------------------------------------------------------


def test_rows_of_one_query_may_differ_and_the_longest_decides() -> None:
    parsed = v1(inputs([5], [5, 6, 7, 8, 9], [7]))
    assert parsed.query.task == "texts.8"
    assert parsed.tensors[0].tolist() == [
        [5, *[1] * 7],
        [5, 6, 7, 8, 9, 1, 1, 1],
        [7, *[1] * 7],
    ]
    assert parsed.tensors[1].sum(axis=1).tolist() == [1, 5, 1]


def test_a_single_input_needs_no_name() -> None:
    parsed = v1([[[1.0], [2.0]], [[3.0, 4.0], [5.0, 6.0]]], "alone")
    assert parsed.tensors[0][:, :, 0].tolist() == [[1.0, 2.0], [3.0, 5.0]]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (inputs([]), "row 0 of input 'ids' is empty"),
        ({**inputs([1]), "ids": [1]}, "put a single row in a list of its own"),
        ({**inputs([1]), "ids": []}, "at least one row"),
        ({**inputs([1]), "ids": "text"}, "at least one row"),
        (inputs(["a"]), "must hold int64 numbers, not text"),
        (inputs([1.5]), "must hold int64 numbers, not fractions"),
        (inputs([2**63]), "outside int64"),
        ({"ids": [[1]]}, "must be an object with rows for each of: ids, mask, weight"),
        ([[1]], "must be an object with rows for each of: ids, mask, weight"),
        (inputs([1], [[2]]), "must have shape|different lengths"),
    ],
)
def test_what_is_wrong_with_rows_is_said(given: Any, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        v1(given)


def test_parts_of_one_row_have_one_length() -> None:
    with pytest.raises(InvalidInput, match="row 0 of input 'x' has parts of different lengths"):
        v1([[[1.0], [2.0, 3.0]]], "alone")
    with pytest.raises(InvalidInput, match="row 0 of input 'x' is no list of 2 levels"):
        v1([[1.0, 2.0]], "alone")


def test_one_long_row_among_many_does_not_take_all_memory() -> None:
    long = Task(
        name=TaskName("long.100000"),
        inputs=(TensorSpec(name="x", dtype="int64", shape=(100_000,)),),
        outputs=ALONE.outputs,
        bucket=LengthBucket(
            of=TaskName("long"), length=100_000, axes=(OpenAxis(input="x", axis=0),)
        ),
    )
    body = json.dumps({"task": "long", "inputs": [[1]] * 200}).encode()
    with pytest.raises(InvalidInput, match=r"would have 153 MiB .* ask in parts"):
        parse_v1(body, TaskTable([long]), 5.0, 9)


def test_long_bodies_are_read_elsewhere_and_read_the_same() -> None:
    given = inputs(*[[7] * 8 for _ in range(300)])
    body = json.dumps({"task": "texts", "inputs": given}).encode()
    with pytest.raises(LongBody):
        parse_v1(body, TASKS, 5.0, 9, most_bytes=1_000)
    head = json.dumps({"inputs": listed(given)}).encode()
    with pytest.raises(LongBody):
        parse_v2(head, "texts", None, TASKS, 5.0, 9, most_bytes=1_000)
    assert parse_v1(body, TASKS, 5.0, 9).tensors[0].tolist() == [[7] * 8] * 300


@pytest.mark.parametrize("ask", [v1, v2])
def test_a_query_that_was_read_elsewhere_is_the_same(ask: Any) -> None:
    there = tasks_of(orjson.loads(orjson.dumps(tasks_as_json(TASKS.values()))))
    assert there == TASKS
    assert there.bucketed == TASKS.bucketed
    parsed = ask(inputs([5, 6, 7]))
    answer, chunks = described(parsed)
    data = bytearray().join(chunks)
    found = parsed_of(orjson.loads(orjson.dumps(answer)), data, TASKS)
    assert (found.task, found.query) == (parsed.task, parsed.query)
    assert [one.tolist() for one in found.tensors] == [one.tolist() for one in parsed.tensors]
    if parsed.v2 is not None:
        assert found.v2 is not None
        outputs = [np.array([[0.1, 0.2, 0.7]], np.float32)]
        assert json.loads(found.v2.encode(found.task, outputs, METADATA)[0]) == json.loads(
            parsed.v2.encode(parsed.task, outputs, METADATA)[0]
        )


# -- the reply, and what is known before the body is ----------------------------------------------


@pytest.mark.parametrize("ask", [v2, binary])
def test_the_reply_names_the_task_as_it_was_asked(ask: Any) -> None:
    parsed = ask(inputs([5, 6, 7]))
    assert parsed.v2 is not None
    body, _ = parsed.v2.encode(parsed.task, [np.array([[1, 0, 0]], np.float32)], METADATA)
    document = json.loads(body)
    assert (document["model_name"], document["model_version"]) == ("texts", "v")
    assert document["outputs"][0]["shape"] == [1, 3]


def test_before_its_rows_are_read_nothing_is_known_of_such_a_query() -> None:
    body = json.dumps({"task": "texts", "inputs": inputs([7] * 8, [7] * 8)}).encode()
    assert skim_v1(body, TASKS, 5.0, 9, 1) is None
    body = json.dumps({"inputs": listed(inputs([7] * 8))}).encode()
    assert skim_v2(body, "texts", None, TASKS, 5.0, 9, 1) is None
    assert asked_by_headers("texts", None, None, TASKS, 5.0, 9) is None
    assert asked_by_headers("texts.4", None, None, TASKS, 5.0, 9) is not None


@pytest.mark.parametrize(
    ("about", "task_name", "rows"),
    [
        ({}, "texts.8", 1),
        ({"length": 3, "rows": 2}, "texts.4", 2),
        ({"inputs": inputs([1] * 5)}, "texts.8", 1),
    ],
)
def test_an_explanation_is_of_a_bucket(about: Any, task_name: str, rows: int) -> None:
    query = asked_v1(json.dumps({"task": "texts", **about}).encode(), TASKS, 5.0, 9)
    assert (query.task, query.rows) == (task_name, rows)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"task": "texts", "length": 9}, "rows of up to 8"),
        ({"task": "texts", "length": 0}, "'length' must be a whole number"),
        ({"task": "texts", "length": "4"}, "'length' must be a whole number"),
        ({"task": "digits", "length": 4}, "leave 'length' out"),
    ],
)
def test_a_length_that_cannot_be_is_refused(document: Any, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        asked_v1(json.dumps(document).encode(), TASKS, 5.0, 9)


def test_who_mistypes_the_name_is_told_it() -> None:
    with pytest.raises(TaskNotFound, match="texts"):
        v1(inputs([1]), "text")


@pytest.mark.parametrize("missing", ["inputs", "task"])
def test_what_is_missing_is_said(missing: str) -> None:
    document = {"task": "texts", "inputs": inputs([1])}
    del document[missing]
    with pytest.raises(InvalidInput, match=f"'{missing}' is missing"):
        parse_v1(json.dumps(document).encode(), TASKS, 5.0, 9)


@pytest.mark.parametrize(
    "wrong", [b"[]", b'{"inputs": 3}', b'{"inputs": [3]}', b'{"inputs": [{"name": "ids"}]}']
)
def test_bodies_of_v2_that_hold_no_inputs_are_refused_as_ever(wrong: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse_v2(wrong, "texts", None, TASKS, 5.0, 9)
