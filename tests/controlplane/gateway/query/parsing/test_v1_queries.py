"""Parsing of ``POST /v1/query``."""

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.api.bodies.protocol import INFER
from controlplane.api.bodies.queries import QUERY
from controlplane.gateway.query.json_tensors import FRACTIONS, OBJECTS
from controlplane.gateway.query.parsing import parse_v1
from planner.types import Query
from tests.controlplane.gateway.query.parsing.asked import (
    FLOATS,
    JSON,
    ROW,
    STRICT,
    TASKS,
    assert_sound,
    entry,
    v1,
    v2_error,
)
from variants.errors import InvalidInput, TaskNotFound
from variants.types import Prefer, VariantName

NULL = "null: only finite numbers can be asked with"

TOO_MANY = "input 'x' has 4,097 rows; a query has at most 4,096: ask in parts"


def v1_error(document: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        v1(document)
    return caught.value.message


def test_a_query_takes_the_defaults_of_its_task() -> None:
    parsed = v1({"task": "strict", "inputs": ROW})
    assert parsed.query == Query(
        task=STRICT.name, rows=1, received_ms=5.0, latency_ms=7.0, accuracy=0.5, cost=2.0,
        prefer=Prefer.LATENCY, best_effort=False, variant=None, draw=9,
    )  # fmt: skip
    assert (parsed.task, parsed.v2) == (STRICT, None)


def test_a_query_says_what_it_needs() -> None:
    slo = {"latency_ms": 50, "accuracy": 0.9, "cost": 0, "prefer": "accuracy"}
    parsed = v1(
        {"task": "strict", "slo": slo, "inputs": ROW * 3, "best_effort": True, "variant": "v"}
    )
    assert parsed.query == Query(
        task=STRICT.name, rows=3, received_ms=5.0, latency_ms=50.0, accuracy=0.9, cost=0.0,
        prefer=Prefer.ACCURACY, best_effort=True, variant=VariantName("v"), draw=9,
    )  # fmt: skip


def test_nulls_ask_for_the_default() -> None:
    slo = {"latency_ms": None, "accuracy": None, "cost": None, "prefer": None}
    beside = dict.fromkeys(["best_effort", "variant", "model_version", "priority", "truncate"])
    document = {"task": "strict", "inputs": ROW}
    assert v1({**document, "slo": slo, **beside}).query == v1(document).query
    assert v1({**document, "slo": None}).query == v1(document).query


@pytest.mark.parametrize(
    ("name", "inputs", "dtype", "shape"),
    [
        ("pair", [[1, 2]], "float32", (1, 2)),
        ("pair", [[1, 2.5], [3, 4]], "float32", (2, 2)),
        ("doubles", [[1e300, 2]], "float64", (1, 2)),
        ("whole", [[1, -2]], "int32", (1, 2)),
        ("long", [[2**62, -1]], "int64", (1, 2)),
        ("bytes", [[0, 255]], "uint8", (1, 2)),
        ("flags", [[True, False]], "bool", (1, 2)),
        ("images", [[[1, 2], [3, 4]]], "float32", (1, 2, 2)),
        ("scalars", [1, 2, 3], "float32", (3,)),
    ],
)
def test_rows_become_a_tensor(name: str, inputs: Any, dtype: str, shape: tuple[int, ...]) -> None:
    (tensor,) = v1({"task": name, "inputs": inputs}).tensors
    assert (str(tensor.dtype), tensor.shape, tensor.tolist()) == (dtype, shape, inputs)


def test_several_inputs_come_by_name_in_the_order_of_the_task() -> None:
    parsed = v1({"task": "two", "inputs": {"right": [[1], [2]], "left": [[1, 2], [3, 4]]}})
    assert [tensor.tolist() for tensor in parsed.tensors] == [[[1, 2], [3, 4]], [[1], [2]]]
    assert parsed.query.rows == 2


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is empty"),
        (b"{", "the body is not valid JSON: "),
        (b"\xff\xfe{\0", "the body is not JSON but text in UTF-16: send it in UTF-8"),
        (b"\xfe\xff\0{", "the body is not JSON but text in UTF-16: send it in UTF-8"),
        (b"\x1f\x8b\x08", "the body is not JSON but compressed: say Content-Encoding: gzip"),
        (b"\x89PNG\r\n", "the body is not JSON but a picture: send it to /v1/query with its Cont"),
        (b"\xff\xd8\xff\xe0", "the body is not JSON but a picture: send it to /v1/query with it"),
        (
            b"--x\r\nContent-D",
            "the body is not JSON but a form: send JSON, or a picture alone with",
        ),
        (
            b"task=a&inputs=1",
            'the body is not JSON but a form: send JSON, such as {"task": ..., "i',
        ),
        (b'{"task":"pair","inputs":[[NaN,1]]}', "the body is not valid JSON: "),
        (b'{"task":"pair","inputs":[[1e999,1]]}', "the body is not valid JSON: "),
        (b"[" * 100_000, "the body is not valid JSON: "),
        (b"[]", "the body must be a JSON object"),
        (b"null", "the body must be a JSON object"),
        (b"3", "the body must be a JSON object"),
    ],
)
def test_a_body_that_is_no_query(body: bytes, message: str) -> None:
    assert v1_error(body).startswith(message)


@pytest.mark.parametrize(
    ("row", "word"),
    [("NaN,1", "NaN"), ("1,nan", "nan"), ("-NaN,1", "NaN"), ("1,\n-Infinity", "-Infinity")],
)
def test_a_number_that_json_lacks_is_named_with_what_to_send_instead(row: str, word: str) -> None:
    error = v1_error(f'{{"task":"pair","inputs":[[{row}]]}}'.encode())
    assert error.endswith(
        f"; JSON has no {word}, and inputs take finite numbers only: send the number that the model"
        " was trained to see in its place"
    )


@pytest.mark.parametrize("row", ["Nano,1", "1,None", "1e999,1", "1,", '"NaN,1'])
def test_other_mistakes_are_not_taken_for_such_a_number(row: str) -> None:
    assert "JSON has no" not in v1_error(f'{{"task":"pair","inputs":[[{row}]]}}'.encode())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": None}, "'task' is missing: the name of a task"),
        ({"task": 1}, "'task' must be the name of a task, not 1"),
        ({"task": ["pair"]}, "'task' must be the name of a task, not ['pair']"),
        (
            {"zz": 1, "aa": 2},
            "unknown field: aa, zz; known are: best_effort, inputs, model_version, priority, slo,"
            " task, variant",
        ),
        ({"accuracy": 0.9, "zz": 1}, "'accuracy' stands in 'slo': {\"slo\": {\"accuracy\": ...}}"),
        ({"slo": 5}, '\'slo\' must be an object such as {"latency_ms": 50, "accuracy": 0.95}'),
        (
            {"slo": {"latency": 5}},
            "unknown field of 'slo': latency; known are: accuracy, cost, latency_ms, prefer",
        ),
        ({"slo": {"latency_ms": 0}}, "slo.latency_ms must be above 0 and at most 3,600,000"),
        ({"slo": {"latency_ms": -1}}, "slo.latency_ms must be above 0 and at most 3,600,000"),
        ({"slo": {"latency_ms": 1e10}}, "slo.latency_ms must be above 0 and at most 3,600,000"),
        ({"slo": {"latency_ms": True}}, "slo.latency_ms must be a number"),
        ({"slo": {"latency_ms": [1]}}, "slo.latency_ms must be a number"),
        ({"slo": {"latency_ms": "soon"}}, "slo.latency_ms must be a number, not 'soon'"),
        ({"slo": {"latency_ms": "nan"}}, "slo.latency_ms must be a number"),
        ({"slo": {"latency_ms": "1_000"}}, "slo.latency_ms must be a number, not '1_000'"),
        ({"slo": {"accuracy": "\u0661"}}, "slo.accuracy must be a number, not '\u0661'"),
        ({"slo": {"accuracy": 95}}, "slo.accuracy must be between 0 and 1, such as 0.97 for 97 %"),
        ({"slo": {"cost": -0.1}}, "slo.cost must not be negative"),
        (
            {"slo": {"prefer": "speed"}},
            "slo.prefer must be one of: cost, accuracy, latency, energy",
        ),
        ({"slo": {"prefer": {}}}, "slo.prefer must be one of: cost, accuracy, latency, energy"),
        ({"slo": {"best_effort": True}}, "'best_effort' stands beside 'slo', not in it"),
        ({"slo": {"variant": "v", "x": 1}}, "'variant' stands beside 'slo', not in it"),
        ({"slo": {"priority": 1}}, "'priority' stands beside 'slo', not in it"),
        ({"priority": -1}, "priority must be a whole number that is not negative"),
        ({"priority": "high"}, "priority must be a number, not 'high'"),
        ({"best_effort": 1}, "best_effort must be true or false"),
        ({"variant": 3}, "'variant' must be the name of a variant"),
        ({"variant": "v" * 129}, "no variant has a name of 129 characters"),
    ],
)
def test_wrong_fields(changes: dict[str, Any], message: str) -> None:
    assert v1_error({"task": "pair", "inputs": ROW, **changes}) == message


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("pair", None, "input 'x' must be a list of at least one row"),
        ("pair", [], "input 'x' must be a list of at least one row"),
        ("pair", "12", "input 'x' must be a list of at least one row"),
        ("pair", [[]], "input 'x' must have shape [rows, 2], not [1, 0]"),
        ("pair", [[1]], "input 'x' must have shape [rows, 2], not [1, 1]"),
        ("pair", [[1, 2, 3]], "input 'x' must have shape [rows, 2], not [1, 3]"),
        ("pair", [[[1, 2]]], "input 'x' must have shape [rows, 2], not [1, 1, 2]"),
        (
            "pair",
            [1, 2],
            "input 'x' must have shape [rows, 2], not [2]; put a single row in a list of its own",
        ),
        (
            "pair",
            [[1, 2], [3]],
            "input 'x' has rows of different lengths: row 0 is 2 long, row 1 is 1",
        ),
        ("pair", [[1, [2]]], "input 'x' has rows of different lengths"),
        ("pair", [["1", "2"]], "input 'x' must hold float32 numbers, not text"),
        ("pair", ["12"], "input 'x' must hold float32 numbers, not text"),
        ("pair", [[1, "2"]], "input 'x' must hold float32 numbers, not text"),
        ("pair", [[None, 1]], f"input 'x' must hold float32 numbers, not {NULL}"),
        ("pair", [None], f"input 'x' must hold float32 numbers, not {NULL}"),
        ("pair", [{"x": 1}], f"input 'x' must hold float32 numbers, not {OBJECTS}"),
        ("pair", [[True, False]], "input 'x' must hold float32 numbers, not booleans"),
        ("pair", [[True, 1.0]], "input 'x' must hold float32 numbers, not booleans"),
        ("long", [[True, 1]], "input 'x' must hold int64 numbers, not booleans"),
        ("pair", [[1e39, 0]], "input 'x' has NaN, infinite or too large values"),
        ("pair", [[0, -1e39]], "input 'x' has NaN, infinite or too large values"),
        ("whole", [[1.0, 2]], f"input 'x' must hold int32 numbers, not {FRACTIONS}"),
        ("whole", [[2**31, 0]], "input 'x' has values outside int32"),
        ("bytes", [[-1, 0]], "input 'x' has values outside uint8"),
        ("bytes", [[0, 256]], "input 'x' has values outside uint8"),
        ("long", [[2**63, 2**63]], "input 'x' has values outside int64"),
        ("long", [[2**64, 0]], f"input 'x' must hold int64 numbers, not {FRACTIONS}"),
        ("flags", [[0, 1]], "input 'x' must hold booleans, not numbers"),
        ("scalars", [[1]], "input 'x' must have shape [rows], not [1, 1]"),
        ("pair", [[1, 2]] * 4097, TOO_MANY),
        ("scalars", [1] * 4097, TOO_MANY),
        ("two", ROW, "'inputs' must be an object with rows for each of: left, right"),
        (
            "two",
            {"left": ROW},
            "'inputs' must be an object with rows for each of: left, right",
        ),
        (
            "two",
            {"left": ROW, "right": [[1], [2]]},
            "all inputs must have the same number of rows",
        ),
        ("pair", {"z": ROW}, "'inputs' must be an object with rows for each of: x"),
    ],
)
def test_wrong_inputs(name: str, inputs: Any, message: str) -> None:
    assert v1_error({"task": name, "inputs": inputs}) == message


def test_inputs_are_missing() -> None:
    assert v1_error({"task": "pair"}) == "'inputs' is missing: a list of rows"


def test_an_unknown_task_is_named_with_those_there_are() -> None:
    with pytest.raises(TaskNotFound) as caught:
        v1({"task": "nope", "inputs": ROW})
    assert caught.value.message == (
        "there is no task 'nope'; there are: bytes, doubles, flags, images, long and 5 more"
    )
    with pytest.raises(TaskNotFound, match="there is no task 'x'; nothing is registered yet"):
        parse_v1(b'{"task":"x"}', {}, 0.0, 0)


def test_errors_repeat_little_of_what_was_sent() -> None:
    long = "z" * 100_000
    for changes in (
        {long: 1},
        {f"{n}{long}": n for n in range(100)},
        {"slo": {"latency_ms": long}},
        {"slo": {long: 1}},
    ):
        assert len(v1_error({"task": "pair", "inputs": ROW, **changes})) < 400
    for wrong in (
        entry(name=long), entry(datatype=long), entry(shape=[1] * 100_000),
        entry(parameters={"binary_data_size": long}),
    ):  # fmt: skip
        assert len(v2_error({"inputs": [wrong]})) < 400
    assert len(v2_error({"inputs": [entry()], "outputs": [{"name": long}]})) < 400


@given(task=st.sampled_from(sorted(TASKS)), inputs=JSON, slo=JSON, best_effort=JSON, variant=JSON)
def test_any_json_is_a_query_or_an_error_of_ours(
    task: str, inputs: Any, slo: Any, best_effort: Any, variant: Any
) -> None:
    document = {
        "task": task, "inputs": inputs, "slo": slo, "best_effort": best_effort, "variant": variant,
    }  # fmt: skip
    for given_ in (document, {"task": task, "inputs": inputs}, inputs):
        try:
            parsed = v1(given_)
        except (InvalidInput, TaskNotFound):
            continue
        assert_sound(parsed)


@given(rows=st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=20))
def test_float32_rows_arrive_bit_for_bit(rows: list[tuple[float, float]]) -> None:
    sent = np.array(rows, dtype=np.float32)
    body = orjson.dumps({"task": "pair", "inputs": sent}, option=orjson.OPT_SERIALIZE_NUMPY)
    (tensor,) = v1(body).tensors
    assert tensor.tobytes() == sent.tobytes()


@given(rows=st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=20), booleans=st.booleans())
def test_both_ways_to_read_rows_agree(rows: list[tuple[float, float]], booleans: bool) -> None:
    """The word makes the parser suspicious, so that it takes the long way."""
    document: dict[str, Any] = {"task": "pair", "inputs": rows}
    if booleans:
        document["best_effort"] = True
    assert v1(document).tensors[0].tobytes() == np.array(rows, dtype=np.float32).tobytes()


def test_the_longest_deadline_is_the_documented_one() -> None:
    body = QUERY["requestBody"]["content"]["application/json"]["schema"]
    parameters = INFER["requestBody"]["content"]["application/json"]["schema"]["properties"]
    most = body["properties"]["slo"]["properties"]["latency_ms"]["maximum"]
    assert most == parameters["parameters"]["properties"]["latency_slo_ms"]["maximum"]
    assert v1({"task": "pair", "inputs": ROW, "slo": {"latency_ms": most}}).query.latency_ms == most
    assert v1_error({"task": "pair", "inputs": ROW, "slo": {"latency_ms": most + 1}}) == (
        "slo.latency_ms must be above 0 and at most 3,600,000"
    )
