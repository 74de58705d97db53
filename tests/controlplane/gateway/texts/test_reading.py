"""Texts of queries as rows: which bucket they go to, with which tensors, and what is refused."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest

from controlplane.gateway.grpc.inference import CalledInText, GrpcForm, read_query
from controlplane.gateway.grpc.messages import ModelInferRequest
from controlplane.gateway.protection.body_frames import (
    described,
    parsed_of,
    tasks_as_json,
    tasks_of,
)
from controlplane.gateway.protection.read_bodies import read
from controlplane.gateway.query.one_answer import encode
from controlplane.gateway.query.parsing import ParsedQuery, asked_v1, parse_v1
from controlplane.gateway.query.replies import AskedAs, ReplyMetadata
from controlplane.gateway.query.v2.datatypes import bytes_of
from controlplane.gateway.query.v2.parsing import parse_v2
from controlplane.gateway.texts.asked import AskedInText
from controlplane.gateway.texts.reading import Tokenisers
from tests.texts import BAD, BEGIN, END, FILM, GOOD, PAD, text_input, tokenizer_json
from tests.variants.catalog_builders import task as numbers
from variants.buckets import TaskTable
from variants.errors import (
    Internal,
    InvalidInput,
    ModellessError,
    Overloaded,
    PayloadTooLarge,
    TaskNotFound,
)
from variants.texts.inputs import packed
from variants.types import FollowingAxis, LengthBucket, OpenAxis, Task, TaskName, TensorSpec

TOKENIZER = tokenizer_json()
TEXT = text_input(TOKENIZER)
NAMES = ("input_ids", "attention_mask")


def opinions(length: int, **changes: Any) -> Task:
    """A task for texts of up to so many tokens, of two: ``opinions.4`` and ``opinions.8``."""
    given: dict[str, Any] = {
        "name": TaskName(f"opinions.{length}"),
        "inputs": tuple(TensorSpec(name=name, dtype="int64", shape=(length,)) for name in NAMES),
        "outputs": (TensorSpec(name="scores", dtype="float32", shape=(2,)),),
        "bucket": LengthBucket(
            of=TaskName("opinions"),
            length=length,
            axes=tuple(OpenAxis(input=name, axis=0) for name in NAMES),
        ),
        "text": TEXT,
    } | changes
    return Task(**given)


SIX = opinions(6, name=TaskName("six"), bucket=None, text=text_input(TOKENIZER, pad=FILM))
TAGS = opinions(
    8,
    name=TaskName("tags.8"),
    outputs=(TensorSpec(name="tags", dtype="float32", shape=(8, 3)),),
    bucket=LengthBucket(
        of=TaskName("tags"),
        length=8,
        axes=tuple(OpenAxis(input=name, axis=0) for name in NAMES),
        outputs=(FollowingAxis(output="tags", axis=0),),
    ),
)
TASKS = TaskTable(
    [opinions(4), opinions(8), SIX, TAGS, numbers("digits")], {TEXT.tokenizer: packed(TOKENIZER)}
)


@pytest.fixture(scope="module")
def tokenisers() -> Tokenisers:
    made = Tokenisers()
    made.follow([TEXT.tokenizer], {TEXT.tokenizer: packed(TOKENIZER)})
    return made


def v1(tokenisers: Tokenisers, given: Any, name: str = "opinions", **fields: Any) -> ParsedQuery:
    """As a gateway does: what it cannot read is read by who can."""
    body = bytearray(json.dumps({"task": name, "inputs": given, **fields}).encode())
    try:
        return parse_v1(body, TASKS, 5.0, 9)
    except AskedInText:
        return read(body, {"task": None, "received_ms": 5.0, "draw": 9}, TASKS, tokenisers)


def entry(shape: list[int], texts: Any, **changes: Any) -> dict[str, Any]:
    return {"name": "text", "datatype": "BYTES", "shape": shape, "data": texts} | changes


def v2(
    tokenisers: Tokenisers,
    *entries: Mapping[str, Any],
    raw: bytes | None = None,
    name: str = "opinions",
    **fields: Any,
) -> ParsedQuery:
    head = json.dumps({"inputs": list(entries), **fields}).encode()
    asked = {
        "task": name, "pinned": None, "received_ms": 5.0, "draw": 9,
        "json_header": None if raw is None else str(len(head)),
    }  # fmt: skip
    return read(bytearray(head + (raw or b"")), asked, TASKS, tokenisers)


def test_texts_go_to_the_shortest_bucket_that_holds_them(tokenisers: Tokenisers) -> None:
    short = v1(tokenisers, ["good"])
    assert (short.task.name, short.query.task, short.query.rows) == ("opinions.4", "opinions.4", 1)
    ids, mask = short.tensors
    assert ids.tolist() == [[BEGIN, GOOD, END, PAD]]
    assert mask.tolist() == [[1, 1, 1, 0]]
    both = v1(tokenisers, ["good", "bad bad film"], slo={"latency_ms": 7}, priority=3)
    assert both.task.name == "opinions.8"
    assert both.tensors[0].tolist() == [
        [BEGIN, GOOD, END, *[PAD] * 5],
        [BEGIN, BAD, BAD, FILM, END, *[PAD] * 3],
    ]
    assert (both.query.latency_ms, both.query.priority, both.lengths) == (7.0, 3, None)


def test_a_task_of_one_length_fills_up_with_what_its_tokenizer_says(
    tokenisers: Tokenisers,
) -> None:
    found = v1(tokenisers, ["bad"], "six")
    assert found.tensors[0].tolist() == [[BEGIN, BAD, END, FILM, FILM, FILM]]
    assert found.tensors[1].tolist() == [[1, 1, 1, 0, 0, 0]]


def test_pairs_are_read_together(tokenisers: Tokenisers) -> None:
    found = v1(tokenisers, [["good", "bad"], ["film", "film"]])
    assert found.tensors[0][0].tolist() == [BEGIN, GOOD, END, BAD, END, *[PAD] * 3]
    assert found.query.rows == 2


def test_outputs_as_long_as_the_rows_are_cut_back_to_the_tokens(tokenisers: Tokenisers) -> None:
    found = v1(tokenisers, ["good", "bad film"], "tags")
    assert found.lengths == (3, 4)
    # Where each token stands, of which those of the model's own stand nowhere.
    spans = [[[0, 0], [0, 4], [0, 0]], [[0, 0], [0, 3], [4, 8], [0, 0]]]
    assert found.spans == spans
    tags = np.zeros((2, 8, 3), np.float32)
    body, _ = encode(found, [tags], ReplyMetadata("v", "m-v1", "w", 2, 0.0, 1.0, 0.9, 0.1, True))
    answer = orjson.loads(body)
    assert answer["spans"] == spans
    assert [len(row) for row in answer["outputs"]] == [3, 4]
    assert v1(tokenisers, ["good"]).spans is None
    # Also of who asks one of the lengths.
    assert v1(tokenisers, ["good"], "tags.8").lengths == (3,)


def test_numbers_are_taken_as_before(tokenisers: Tokenisers) -> None:
    given = {"input_ids": [[GOOD]], "attention_mask": [[1]]}
    assert v1(tokenisers, given).tensors[0].tolist() == [[GOOD, 0, 0, 0]]


@pytest.mark.parametrize(
    ("given", "name", "fields", "reason"),
    [
        ("good", "opinions", {}, "put a single one in a list of its own"),
        (["good", 3], "opinions", {}, "'inputs' must be texts, or pairs of two, and number 1 is 3"),
        (["a", ["b", "c"]], "opinions", {}, "all texts, or all pairs"),
        ([["a", "b", "c"]], "opinions", {}, "pairs of two, and number 0 is "),
        ([["a"]], "opinions", {}, "pairs of two, and number 0 is "),
        (["good"] * 4097, "opinions", {}, "there are 4,097 texts; a query has 1 to 4,096"),
        (["good " * 7], "opinions", {}, "text 0 has 9 tokens, and at most 8 are taken; 'truncate'"),
        (["good " * 5], "six", {}, "text 0 has 7 tokens, and at most 6 are taken"),
        (["good"], "opinions", {"truncate": "perhaps"}, "truncate must be true or false"),
        (["good"], "opinions", {"trunkate": True}, "unknown field: trunkate"),
        (
            ["good"],
            "opinions",
            {"truncation": True, "truncate": True},
            "unknown field: truncation; known are: best_effort, inputs, .* task, truncate, variant",
        ),
        (["good"], "digits", {}, "input 'pixels' must hold float32 numbers, not text"),
        (["good"], "digits", {"truncate": True}, "task 'digits' takes numbers, and no texts"),
        ([[1.0] * 64], "digits", {"truncate": True}, "'truncate' is for texts"),
        (["good"], "opinions", {"slo": {"latency_ms": -1}}, "slo.latency_ms must be above 0"),
    ],
)
def test_what_is_wrong_is_said(
    tokenisers: Tokenisers, given: Any, name: str, fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        v1(tokenisers, given, name, **fields)


def test_that_nothing_is_cut_off_may_be_said_of_numbers() -> None:
    asked = {"task": "digits", "inputs": [[1.0] * 64], "truncate": False}
    parsed = parse_v1(orjson.dumps(asked), TASKS, 0.0, 0)
    assert parsed.query.rows == 1
    explained = {"task": "digits", "rows": 2, "truncate": False}
    assert asked_v1(orjson.dumps(explained), TASKS, 0.0, 0).rows == 2


def test_long_texts_are_cut_off_on_demand(tokenisers: Tokenisers) -> None:
    found = v1(tokenisers, ["good " * 30], truncate=True)
    assert found.tensors[0].tolist() == [[BEGIN, *[GOOD] * 6, END]]
    there = v2(tokenisers, entry([1], ["good " * 30]), parameters={"truncate": True})
    assert there.tensors[0].tolist() == found.tensors[0].tolist()


def test_an_unknown_task_is_told(tokenisers: Tokenisers) -> None:
    with pytest.raises(TaskNotFound, match="there is no task 'opinion'"):
        v1(tokenisers, ["good"], "opinion", truncate=True)


def test_texts_come_by_the_protocol_too(tokenisers: Tokenisers) -> None:
    expected = v1(tokenisers, ["good", "bad film"])
    raw = bytes_of(["good", "bad film"])
    by_size = {"binary_data_size": len(raw)}
    for found in (
        v2(tokenisers, entry([2], ["good", "bad film"]), id="7"),
        v2(tokenisers, entry([2, 1], [["good"], ["bad film"]])),
        v2(tokenisers, entry([2], None, parameters=by_size), raw=raw),
    ):
        assert isinstance(found.v2, AskedAs)
        assert (found.v2.face.name, found.task) == ("opinions", expected.task)
        for one, other in zip(found.tensors, expected.tensors, strict=True):
            np.testing.assert_array_equal(one, other)
    pairs = v2(tokenisers, entry([1, 2], ["good", "bad"]))
    assert pairs.tensors[0].tolist() == v1(tokenisers, [["good", "bad"]]).tensors[0].tolist()


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([entry([1], ["a"], name="words")], "the input of texts is called 'text', not 'words'"),
        ([entry([1], ["a"]), entry([1], ["b"])], "texts come alone"),
        ([entry([2], ["a"])], r"has 1 text, its shape \[2\] needs 2"),
        ([entry([1, 3], ["a"] * 3)], r"must have shape \[rows\], or \[rows, 2\] for pairs"),
        ([entry([0], [])], "must have shape"),
        ([entry([1], [5])], "must be texts"),
        ([entry([1], "a")], "needs 'data', a list of texts"),
        ([entry([5000], ["a"] * 5000)], "there are 5,000 texts"),
    ],
)
def test_what_breaks_the_protocol_is_said(
    tokenisers: Tokenisers, entries: list[Any], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        v2(tokenisers, *entries)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\x04\x00\x00\x00abc", "element 0 of BYTES is longer than what there is"),
        (b"\x01\x00", "element 0 of BYTES is longer"),
        (b"\x01\x00\x00\x00\xff", "is not UTF-8"),
    ],
)
def test_bytes_that_are_no_texts_are_said(tokenisers: Tokenisers, raw: bytes, reason: str) -> None:
    given = entry([1], None, parameters={"binary_data_size": len(raw)})
    with pytest.raises(InvalidInput, match=reason):
        v2(tokenisers, given, raw=raw)


def test_outputs_of_texts_of_several_lengths_do_not_fit_the_protocol(
    tokenisers: Tokenisers,
) -> None:
    assert v2(tokenisers, entry([1], ["good"]), name="tags").lengths == (3,)
    with pytest.raises(InvalidInput, match="ask one at a time, or over /v1/query"):
        v2(tokenisers, entry([2], ["good", "bad film"]), name="tags")


def test_nothing_is_read_where_no_tokenizer_is(tokenisers: Tokenisers) -> None:
    body = orjson.dumps({"task": "opinions", "inputs": ["good"]})
    for parse in (parse_v1, asked_v1):
        with pytest.raises(AskedInText):
            parse(body, TASKS, 5.0, 9)
    asked = {"task": None, "received_ms": 5.0, "draw": 9}
    with pytest.raises(AskedInText):
        read(bytearray(body), asked, TASKS)
    with pytest.raises(AskedInText):
        parse_v2(orjson.dumps({"inputs": [entry([1], ["a"])]}), "six", None, TASKS, 5.0, 9)
    lacking = Tokenisers()
    with pytest.raises(Overloaded, match="tokenizer is not there yet"):
        read(bytearray(body), asked, TASKS, lacking)
    lacking.follow([TEXT.tokenizer], {TEXT.tokenizer: packed(b"{}")})
    with pytest.raises(Internal, match="texts cannot be read here: the task's tokenizer is no"):
        read(bytearray(body), asked, TASKS, lacking)


def test_one_long_text_does_not_make_many_short_ones_too_large(
    tokenisers: Tokenisers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.gateway.texts.reading.MOST_BYTES", 1_000)
    with pytest.raises(PayloadTooLarge, match=r"20 texts would take .* ask in parts"):
        v1(tokenisers, ["good"] * 19 + ["good good good"])


def test_texts_are_not_read_in_any_amount(tokenisers: Tokenisers) -> None:
    with pytest.raises(PayloadTooLarge, match="have 264,000 characters, and at most 262,144 are"):
        v1(tokenisers, ["x" * 132] * 2_000)
    with pytest.raises(PayloadTooLarge, match="ask in parts"):
        v1(tokenisers, [["x" * 66, "y" * 66]] * 2_000, truncate=True)
    # Of one that is cut off no more is read, however long it is.
    why = "the text has 300,000 characters, and at most 262,144 are read in one query; 'truncate'"
    with pytest.raises(PayloadTooLarge, match=why):
        v1(tokenisers, ["good " * 60_000])
    found = v1(tokenisers, ["good " * 60_000], truncate=True)
    assert found.tensors[0].tolist() == [[BEGIN, *[GOOD] * 6, END]]


def test_the_gateway_gets_what_was_read(tokenisers: Tokenisers) -> None:
    parsed = v2(tokenisers, entry([1], ["good"]), id="7")
    answer, chunks = described(parsed)
    found = parsed_of(orjson.loads(orjson.dumps(answer)), bytearray(b"".join(chunks)), TASKS)
    assert (found.task, found.query) == (parsed.task, parsed.query)
    assert isinstance(found.v2, AskedAs)
    assert isinstance(parsed.v2, AskedAs)
    assert (found.v2.form, found.v2.face.name) == (parsed.v2.form, "opinions")
    for one, other in zip(found.tensors, parsed.tensors, strict=True):
        np.testing.assert_array_equal(one, other)
    known = tasks_of(orjson.loads(orjson.dumps(tasks_as_json(TASKS.values()))))
    assert known == TASKS
    with pytest.raises(AskedInText):
        parsed_of({"error": "AskedInText", "message": ""}, bytearray(), TASKS)


def call(*contents: bytes, raw: bool = False, shape: tuple[int, ...] = (1,)) -> bytes:
    message = ModelInferRequest(model_name="opinions", id="7")
    one = message.inputs.add(name="text", datatype="BYTES", shape=shape)
    if raw:
        message.raw_input_contents.append(
            b"".join(len(each).to_bytes(4, "little") + each for each in contents)
        )
    else:
        one.contents.bytes_contents.extend(contents)
    message.parameters["truncate"].bool_param = True
    return bytes(message.SerializeToString())


def refuse(_task: TaskName, version: str) -> str:
    raise InvalidInput(f"no version {version}")


@pytest.mark.parametrize("raw", [False, True])
def test_calls_ask_with_texts(tokenisers: Tokenisers, raw: bool) -> None:
    data = call(b"good", "süß".encode(), raw=raw, shape=(2,))
    with pytest.raises(CalledInText) as asked:
        read_query(data, TASKS, refuse, 5.0, 9)
    made = asked.value.call
    fields = {
        "task": made.task, "pinned": made.pinned, "json_header": None, "received_ms": 5.0,
        "draw": 9,
    }  # fmt: skip
    parsed = made.answered_as(read(bytearray(made.body), fields, TASKS, tokenisers))
    assert parsed.tensors[0].shape == (2, 4)
    assert isinstance(parsed.v2, AskedAs)
    assert isinstance(parsed.v2.form, GrpcForm)
    assert parsed.v2.form.id == "7"


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (call(b"\xff"), "is not UTF-8"),
        (call(b"\xff", raw=True), "is not UTF-8"),
    ],
)
def test_calls_without_texts_are_refused(data: bytes, error: str) -> None:
    with pytest.raises(ModellessError, match=error):
        read_query(data, TASKS, refuse, 5.0, 9)


def test_of_a_pair_it_is_told_in_which_text_a_token_stands(tokenisers: Tokenisers) -> None:
    found = v1(tokenisers, [["good film", "bad"]], name="tags")
    assert found.spans == [
        [[0, 0, 0], [0, 4, 0], [5, 9, 0], [0, 0, 0], [0, 3, 1], [0, 0, 0]],
    ]


@pytest.mark.parametrize("inputs", [[5], [], [None], [{"text": "good"}], {"text": ["good"]}, None])
def test_who_sends_neither_texts_nor_rows_is_told_of_both(inputs: Any) -> None:
    for name in ("opinions", "six"):
        body = orjson.dumps({"task": name, "inputs": inputs})
        with pytest.raises(InvalidInput) as raised:
            parse_v1(body, TASKS, 5.0, 9)
        assert raised.value.message.startswith(
            f"'inputs' of task '{name}' must be a list of texts, such as [\"a text\"], or an object"
            " with rows of numbers for each of: input_ids"
        )


def test_who_asks_a_task_of_pairs_with_neither_is_told_of_pairs() -> None:
    pairs = opinions(6, name="six", bucket=None, text=replace(TEXT, pairs=True))
    with pytest.raises(InvalidInput) as raised:
        parse_v1(orjson.dumps({"task": "six", "inputs": [5]}), TaskTable([pairs]), 5.0, 9)
    assert raised.value.message.startswith(
        "'inputs' of task 'six' must be a list of pairs of texts, such as [[\"a text\", \"another"
        ' one"]], or an object with rows of numbers for each of: input_ids'
    )


def test_texts_of_another_datatype_are_told_theirs() -> None:
    body = orjson.dumps({"inputs": [entry([1], ["good"]) | {"datatype": "FP32"}]})
    for name in ("opinions", "six"):
        with pytest.raises(InvalidInput, match="input 'text' has the datatype BYTES, not 'FP32'"):
            parse_v2(body, name, None, TASKS, 5.0, 9)


@pytest.mark.parametrize("pairs", [True, False, None])
def test_texts_are_as_those_by_which_the_first_model_was_judged(
    tokenisers: Tokenisers, pairs: bool | None
) -> None:
    six = opinions(6, name="six", bucket=None, text=replace(TEXT, pairs=pairs))
    asked = {"task": None, "received_ms": 5.0, "draw": 9}
    given: list[Any] = [["good"], [["good", "bad"]]]
    told = {
        "good": "task 'six' takes pairs of texts, such as ['a man eats', 'somebody eats']",
        # Of a list in a list, a mistake for two texts, one answer would be for both.
        "bad": "task 'six' takes single texts, and no pairs of two: several texts are one list,"
        " such as ['a text', 'another one']",
    }
    for inputs in given:
        body = bytearray(orjson.dumps({"task": "six", "inputs": inputs}))
        if pairs is None or pairs is (inputs != ["good"]):
            assert read(body, asked, TaskTable([six]), tokenisers).query.rows == 1
            continue
        with pytest.raises(InvalidInput) as raised:
            read(body, asked, TaskTable([six]), tokenisers)
        assert raised.value.message == told["good" if pairs else "bad"]
