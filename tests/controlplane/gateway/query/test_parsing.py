"""Parsing and encoding of both dialects of the inference route."""

import json
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.api.bodies.protocol import INFER
from controlplane.api.bodies.queries import QUERY
from controlplane.gateway.query.json_tensors import FRACTIONS, OBJECTS
from controlplane.gateway.query.parsing import ParsedQuery, parse_v1
from controlplane.gateway.query.replies import ReplyMetadata, encode_v1, encode_v2
from controlplane.gateway.query.v2.datatypes import V2_NAMES, best_classes, bytes_of
from controlplane.gateway.query.v2.parsing import parse_v2
from planner.types import Query
from variants.errors import InvalidInput, TaskNotFound
from variants.types import Prefer, Slo, Task, TaskName, TensorSpec, VariantName

NULL = "null: only finite numbers can be asked with"


def spec(name: str, dtype: str = "float32", *shape: int) -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape or (2,))


def task(name: str, *inputs: TensorSpec, **changes: Any) -> Task:
    fields: dict[str, Any] = {"outputs": (spec("y"),), "slo": Slo(latency_ms=100.0), **changes}
    return Task(name=TaskName(name), inputs=inputs or (spec("x"),), **fields)


PAIR = task("pair")
WHOLE = task("whole", spec("x", "int32"))
LONG = task("long", spec("x", "int64"))
BYTES = task("bytes", spec("x", "uint8"))
FLAGS = task("flags", spec("x", "bool"))
DOUBLES = task("doubles", spec("x", "float64"))
IMAGES = task("images", spec("x", "float32", 2, 2))
SCALARS = task("scalars", TensorSpec(name="x", dtype="float32", shape=()))
TWO = task("two", spec("left"), spec("right", "int64", 1))
STRICT = task("strict", slo=Slo(latency_ms=7.0, accuracy=0.5, cost=2.0, prefer=Prefer.LATENCY))
TASKS = {
    one.name: one
    for one in (PAIR, WHOLE, LONG, BYTES, FLAGS, DOUBLES, IMAGES, SCALARS, TWO, STRICT)
}
ROW = [[1.0, 2.0]]


def v1(document: Any, *, received_ms: float = 5.0, draw: int = 9) -> ParsedQuery:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return parse_v1(body, TASKS, received_ms, draw)


def v2(
    document: Any,
    name: str = "pair",
    *,
    pinned: str | None = None,
    raw: bytes = b"",
    header: bytes | None = None,
) -> ParsedQuery:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    if raw and header is None:
        header = b"%d" % len(body)
    return parse_v2(body + raw, name, pinned, TASKS, 5.0, 9, header)


def entry(**changes: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0], **changes}


def v1_error(document: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        v1(document)
    return caught.value.message


def v2_error(document: Any, name: str = "pair", **more: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        v2(document, name, **more)
    return caught.value.message


# -- /v1/query ----------------------------------------------------------------------------------


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


def test_nulls_in_an_slo_ask_for_the_default() -> None:
    slo = {"latency_ms": None, "accuracy": None, "cost": None, "prefer": None}
    document = {"task": "strict", "inputs": ROW}
    assert v1({**document, "slo": slo}).query == v1(document).query


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
        (b"\xff\xfe", "the body is not valid JSON: "),
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
        ({"slo": {"latency_ms": 0}}, "slo.latency_ms must be above 0 and at most 3600000"),
        ({"slo": {"latency_ms": -1}}, "slo.latency_ms must be above 0 and at most 3600000"),
        ({"slo": {"latency_ms": 1e10}}, "slo.latency_ms must be above 0 and at most 3600000"),
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
        ({"best_effort": None}, "best_effort must be true or false"),
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
        ("pair", [[1, 2], [3]], "input 'x' has rows of different lengths"),
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
        ("pair", [[1, 2]] * 4097, "input 'x' has 4097 rows; at most 4096 are taken"),
        ("scalars", [1] * 4097, "input 'x' has 4097 rows; at most 4096 are taken"),
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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["task", "slo", "inputs", "name", "shape", "data", "x", "parameters"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


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
        _is_sound(parsed)


@given(document=JSON, entry_=JSON, shape=JSON, data=JSON, parameters=JSON, outputs=JSON, id_=JSON)
def test_any_json_is_a_v2_query_or_an_error_of_ours(
    document: Any, entry_: Any, shape: Any, data: Any, parameters: Any, outputs: Any, id_: Any
) -> None:
    good = {"inputs": [entry()]}
    for given_ in (
        document,
        {"inputs": [entry_]},
        {"inputs": [entry(), entry_]},
        {"inputs": [entry(name=data)]},
        {"inputs": [entry(shape=shape)]},
        {"inputs": [entry(data=data)]},
        {"inputs": [entry(parameters=parameters)]},
        {"inputs": [entry(parameters={"binary_data_size": data})]},
        {**good, "parameters": parameters},
        {**good, "parameters": {"timeout": data, "latency_slo_ms": parameters}},
        {**good, "outputs": outputs},
        {**good, "outputs": [{"name": "y", "parameters": parameters}]},
        {**good, "id": id_},
    ):
        try:
            parsed = v2(given_)
        except InvalidInput:
            continue
        _is_sound(parsed)


def _is_sound(parsed: ParsedQuery) -> None:
    """What the query path relies on."""
    query = parsed.query
    assert query.task == parsed.task.name
    assert 0 < query.latency_ms <= 3_600_000
    assert query.accuracy is None or 0 <= query.accuracy <= 1
    assert query.cost is None or query.cost >= 0
    assert 1 <= query.rows <= 4096
    for tensor, wanted in zip(parsed.tensors, parsed.task.inputs, strict=True):
        assert (str(tensor.dtype), tensor.shape) == (wanted.dtype, (query.rows, *wanted.shape))
        assert np.isfinite(tensor).all()


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


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
        "slo.latency_ms must be above 0 and at most 3600000"
    )


# -- /v2/models/.../infer -----------------------------------------------------------------------


def test_a_v2_query_takes_the_defaults_of_its_task() -> None:
    parsed = v2({"inputs": [entry()]}, "strict")
    assert parsed.query == Query(
        task=STRICT.name, rows=1, received_ms=5.0, latency_ms=7.0, accuracy=0.5, cost=2.0,
        prefer=Prefer.LATENCY, best_effort=False, variant=None, draw=9,
    )  # fmt: skip
    assert parsed.tensors[0].tolist() == ROW


def test_a_v2_query_says_what_it_needs() -> None:
    parameters = {
        "latency_slo_ms": 50, "min_accuracy": "0.9", "max_cost_usd_per_1k": 3, "prefer": "accuracy",
        "best_effort": "true",
    }  # fmt: skip
    parsed = v2({"inputs": [entry()], "parameters": parameters}, pinned="v")
    assert parsed.query == Query(
        task=PAIR.name, rows=1, received_ms=5.0, latency_ms=50.0, accuracy=0.9, cost=3.0,
        prefer=Prefer.ACCURACY, best_effort=True, variant=VariantName("v"), draw=9,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("parameters", "latency_ms"),
    [
        ({"timeout": None}, 100.0),
        ({}, 100.0),
        ({"timeout": 0}, 100.0),
        ({"timeout": "0"}, 100.0),
        ({"timeout": 20_000}, 20.0),
        ({"timeout": 500_000}, 500.0),
        ({"timeout": 20_000, "latency_slo_ms": 50}, 20.0),
        ({"timeout": 80_000, "latency_slo_ms": 50}, 50.0),
    ],
)
def test_the_standard_timeout_is_a_deadline(parameters: dict[str, Any], latency_ms: float) -> None:
    parsed = v2({"inputs": [entry()], "parameters": parameters})
    assert parsed.query.latency_ms == latency_ms


@pytest.mark.parametrize(
    ("given", "priority"), [(None, 100), (0, 100), (1, 1), ("7", 7), (2**64 - 1, 2**16 - 1)]
)
def test_a_priority_is_taken(given: Any, priority: int) -> None:
    parsed = v2({"inputs": [entry()], "parameters": {"priority": given}})
    assert parsed.query.priority == priority
    assert v1({"task": "pair", "inputs": ROW, "priority": given}).query.priority == priority


def test_an_id_that_is_too_long() -> None:
    assert v2({"inputs": [entry()], "id": "a" * 1_024}).v2 is not None
    assert v2_error({"inputs": [entry()], "id": "a" * 1_025}) == (
        "'id' must have at most 1024 characters"
    )


@pytest.mark.parametrize("given", [-1, 1.5, "high", True])
def test_a_priority_that_is_none(given: Any) -> None:
    assert v2_error({"inputs": [entry()], "parameters": {"priority": given}}).startswith("priority")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("latency_slo", "did you mean 'latency_slo_ms'? Known are:"),
        ("latency_ms_slo", "did you mean 'latency_slo_ms'? Known are:"),
        ("min_acuracy", "did you mean 'min_accuracy'? Known are:"),
        ("accuracy_min", "did you mean 'min_accuracy'? Known are:"),
        ("Max-Cost", "did you mean 'max_cost_usd_per_1k'? Known are:"),
        ("latency_ms", "it is called 'latency_slo_ms' here; known are:"),
        ("accuracy", "it is called 'min_accuracy' here; known are:"),
        ("cost", "it is called 'max_cost_usd_per_1k' here; known are:"),
        ("slo", "what it holds are parameters of their own here; known are:"),
        ("variant", "a version is named outside of the parameters here; known are:"),
    ],
)
def test_a_need_under_the_name_of_the_other_dialect_is_not_missed(name: str, advice: str) -> None:
    assert v2_error({"inputs": [entry()], "parameters": {name: 0.5}}) == (
        f"there is no parameter {name!r}: {advice} best_effort, latency_slo_ms,"
        " max_cost_usd_per_1k, min_accuracy, model_version, prefer, priority, timeout"
    )


def test_parameters_that_no_server_knows_change_nothing() -> None:
    parameters = {"sequence_id": 3, "triton_enable_empty_final_response": True, "trace": "x"}
    parsed = v2({"inputs": [entry()], "parameters": parameters})
    assert parsed.query == v2({"inputs": [entry()]}).query


@pytest.mark.parametrize("data", [[1, 2, 3, 4], [[1, 2], [3, 4]], [1.0, 2, 3, 4.0]])
def test_v2_data_may_be_flat_or_nested(data: Any) -> None:
    (tensor,) = v2({"inputs": [entry(shape=[2, 2], data=data)]}).tensors
    assert tensor.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "the body must be a JSON object with a list 'inputs'"),
        ({}, "the body must be a JSON object with a list 'inputs'"),
        ({"inputs": {}}, "the body must be a JSON object with a list 'inputs'"),
        ({"inputs": []}, "input 'x' is missing"),
        ({"inputs": [1]}, "each of 'inputs' must be an object"),
        (
            {"inputs": [entry(name="z")]},
            "input 'z' is not an input of the task; expected: x",
        ),
        (
            {"inputs": [entry(), entry(name=["x"])]},
            "each of 'inputs' must have a name, one of: x",
        ),
        ({"inputs": [entry(), entry()]}, "input 'x' appears twice"),
        (
            {"inputs": [entry(datatype="FP64")]},
            "input 'x' must have datatype FP32, not 'FP64'",
        ),
        (
            {"inputs": [entry(shape=[1, 3])]},
            "input 'x' must have shape [rows, 2], not [1, 3]",
        ),
        ({"inputs": [entry(shape=[0, 2])]}, "input 'x' must have shape [rows, 2], not [0, 2]"),
        ({"inputs": [entry(shape=[-1, 2])]}, "input 'x' must have shape [rows, 2], not [-1, 2]"),
        (
            {"inputs": [entry(shape=[True, 2])]},
            "input 'x' must have shape [rows, 2], not [true, 2]",
        ),
        (
            {"inputs": [entry(shape=[{"a": 1}, None])]},
            "input 'x' must have shape [rows, 2], not [{...}, null]",
        ),
        (
            {"inputs": [entry(datatype={"a": 1})]},
            "input 'x' must have datatype FP32, not an object",
        ),
        (
            {"inputs": [entry(parameters={"shared_memory_region": "r"})]},
            "input 'x': shared memory is not supported",
        ),
        ({"inputs": [entry(shape=[])]}, "input 'x' must have shape [rows, 2], not []"),
        ({"inputs": [entry(shape="12")]}, "input 'x' must have shape [rows, 2], not '12'"),
        (
            {"inputs": [entry(shape=[4097, 2])]},
            "input 'x' has 4097 rows; at most 4096 are taken",
        ),
        ({"inputs": [entry(data=None)]}, "input 'x' must be a list of numbers"),
        ({"inputs": [entry(data=[1])]}, "input 'x' has 1 value, its shape [1, 2] needs 2"),
        ({"inputs": [entry(data=[])]}, "input 'x' has 0 values, its shape [1, 2] needs 2"),
        (
            {"inputs": [entry(data=[True, 1.0])]},
            "input 'x' must hold float32 numbers, not booleans",
        ),
        ({"inputs": [entry(parameters=[])]}, "parameters of input 'x' must be an object"),
        ({"inputs": [entry()], "parameters": 1}, "parameters must be an object"),
        ({"inputs": [entry()], "id": 7}, "'id' must be text"),
        ({"inputs": [entry()], "outputs": 1}, "'outputs' must be a list"),
        (
            {"inputs": [entry()], "outputs": [{"name": "z"}]},
            "output 'z' is not an output of the task, or named twice",
        ),
        (
            {"inputs": [entry()], "outputs": [{"name": "y"}, {"name": "y"}]},
            "output 'y' is not an output of the task, or named twice",
        ),
        (
            {
                "inputs": [entry()],
                "outputs": [{"name": "y", "parameters": {"shared_memory_region": "r"}}],
            },
            "output 'y': shared memory is not supported",
        ),
        (
            {"inputs": [entry()], "outputs": [3]},
            "each of 'outputs' must be an object with a name of: y",
        ),
        (
            {
                "inputs": [entry()],
                "outputs": [{"name": "y", "parameters": {"classification": 1.5}}],
            },
            "classification must be a number of classes, 1 or more",
        ),
        (
            {"inputs": [entry()], "parameters": {"timeout": -5}},
            "timeout must be in microseconds, from 0 to 3600000000",
        ),
        (
            {"inputs": [entry()], "parameters": {"timeout": "now"}},
            "timeout must be a number, not 'now'",
        ),
        (
            {"inputs": [entry()], "parameters": {"min_accuracy": 2}},
            "min_accuracy must be between 0 and 1, such as 0.97 for 97 %",
        ),
        (
            {"inputs": [entry(parameters={"binary_data_size": 8})]},
            "input 'x' has 'data' and raw bytes (binary_data_size): send one",
        ),
        (
            {"inputs": [entry(data=None, parameters={"binary_data_size": 8})]},
            "input 'x' needs 8 raw bytes, binary_data_size is 8 and 0 bytes are left",
        ),
    ],
)
def test_wrong_v2_documents(document: Any, message: str) -> None:
    assert v2_error(document) == message


BINARY = {"inputs": [entry(data=None, parameters={"binary_data_size": 8})]}


@pytest.mark.parametrize(
    ("raw", "header", "message"),
    [
        (b"1234", None, "input 'x' needs 8 raw bytes, binary_data_size is 8 and 4 bytes are left"),
        (b"1" * 12, None, "4 bytes follow the last input"),
        (b"1" * 9, None, "1 byte follows the last input"),
        (b"", b"0", "Inference-Header-Content-Length is 0, the body has 120 bytes"),
        (b"", b"121", "Inference-Header-Content-Length is 121, the body has 120 bytes"),
        (b"", b"-1", "Inference-Header-Content-Length must be a number"),
        (b"", b"", "Inference-Header-Content-Length must be a number"),
        (b"", b"9" * 5_000, "Inference-Header-Content-Length must be a number"),
        (
            np.array([np.nan, 1], "<f4").tobytes(),
            None,
            "input 'x' has NaN, infinite or too large values",
        ),
        (
            np.array([1, np.inf], "<f4").tobytes(),
            None,
            "input 'x' has NaN, infinite or too large values",
        ),
    ],
)
def test_wrong_raw_bytes(raw: bytes, header: bytes | None, message: str) -> None:
    body = json.dumps(BINARY).encode().ljust(120)
    assert v2_error(body, raw=raw, header=header) == message


def test_a_boolean_is_zero_or_one_in_raw_bytes_too() -> None:
    flags = entry(datatype="BOOL", data=None, parameters={"binary_data_size": 2})
    parsed = v2({"inputs": [flags]}, "flags", raw=b"\x00\x01")
    assert parsed.tensors[0].tolist() == [[False, True]]
    message = v2_error({"inputs": [flags]}, "flags", raw=b"\x00\x02")
    assert message == "input 'x' has booleans other than 0 and 1"


@given(
    left=st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=9),
    spaces=st.integers(0, 7),
    pieces=st.booleans(),
)
def test_raw_bytes_make_the_round_trip(
    left: list[tuple[float, float]], spaces: int, pieces: bool
) -> None:
    """Whatever the JSON's length does to their alignment."""
    rows = len(left)
    sent = [np.array(left, "<f4"), np.arange(rows, dtype="<i8").reshape(rows, 1)]
    described = [
        {"name": "left", "datatype": "FP32", "shape": [rows, 2]},
        {"name": "right", "datatype": "INT64", "shape": [rows, 1]},
    ]
    inputs = [
        {**one, "parameters": {"binary_data_size": tensor.nbytes}}
        for one, tensor in zip(described, sent, strict=True)
    ]
    document = {"inputs": inputs, "parameters": {"binary_data_output": True}}
    text = json.dumps(document).encode() + b" " * spaces
    body: bytes | bytearray = text + sent[0].tobytes() + sent[1].tobytes()
    if pieces:
        body = bytearray(body)
    parsed = parse_v2(body, "two", None, TASKS, 0.0, 0, b"%d" % len(text))
    assert [tensor.tobytes() for tensor in parsed.tensors] == [one.tobytes() for one in sent]
    assert parsed.v2 is not None
    reply, length = encode_v2(parsed.task, parsed.v2, [sent[0]], METADATA)
    assert length is not None
    (output,) = json.loads(reply[:length])["outputs"]
    assert output == {
        "name": "y", "datatype": "FP32", "shape": [rows, 2],
        "parameters": {"binary_data_size": 8 * rows},
    }  # fmt: skip
    assert reply[length:] == sent[0].tobytes()


# -- datatypes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "datatype", "data"),
    [
        ("pair", "FP16", np.array([1.5, -2], "<f2").tobytes()),
        ("pair", "BF16", (np.array([1.5, -2], "<f4").view("<u4") >> 16).astype("<u2").tobytes()),
        ("pair", "INT8", np.array([1, -2], "i1").tobytes()),
        ("pair", "UINT16", np.array([1, 2], "<u2").tobytes()),
        ("doubles", "FP32", np.array([1.5, -2], "<f4").tobytes()),
        ("doubles", "BF16", (np.array([1.5, -2], "<f4").view("<u4") >> 16).astype("<u2").tobytes()),
        ("long", "UINT32", np.array([1, 2], "<u4").tobytes()),
        ("whole", "INT16", np.array([1, -2], "<i2").tobytes()),
    ],
)
def test_raw_values_of_a_narrower_type_are_widened(name: str, datatype: str, data: bytes) -> None:
    parameters = {"binary_data_size": len(data)}
    parsed = v2(
        {"inputs": [entry(datatype=datatype, data=None, parameters=parameters)]}, name, raw=data
    )
    first = 1.5 if datatype in ("FP16", "FP32", "BF16") else 1
    second = 2 if datatype.startswith("U") else -2
    assert parsed.tensors[0].tolist() == [[first, second]]
    assert parsed.tensors[0].dtype == TASKS[TaskName(name)].inputs[0].dtype


def test_listed_values_of_a_narrower_type_have_to_fit_it() -> None:
    parsed = v2({"inputs": [entry(datatype="INT8", data=[1, -128])]}, "long")
    assert parsed.tensors[0].tolist() == [[1, -128]]
    assert parsed.tensors[0].dtype == "int64"
    message = v2_error({"inputs": [entry(datatype="INT8", data=[1, 128])]}, "long")
    assert message == "input 'x' has values outside int8"


@pytest.mark.parametrize(
    ("name", "datatype"),
    [
        ("pair", "INT32"), ("pair", "FP64"), ("pair", "BOOL"), ("pair", "BYTES"), ("pair", None),
        ("whole", "FP16"), ("whole", "UINT32"), ("whole", "INT64"), ("long", "UINT64"),
        ("flags", "UINT8"), ("bytes", "INT8"), ("bytes", "BOOL"), ("pair", ["FP32"]),
    ],
)  # fmt: skip
def test_what_would_change_values_is_refused(name: str, datatype: object) -> None:
    message = v2_error({"inputs": [entry(datatype=datatype)]}, name)
    expected = V2_NAMES[TASKS[TaskName(name)].inputs[0].dtype]
    assert message.startswith(f"input 'x' must have datatype {expected}, not ")


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


# -- replies ------------------------------------------------------------------------------------

METADATA = ReplyMetadata("v", "m-v1", "w", 4, 0.5, 1.5, 0.9, 0.25, True)
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
