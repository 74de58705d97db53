"""Parsing of the Open Inference Protocol's route for queries, with JSON."""

from typing import Any

import pytest
from hypothesis import given

from planner.types import Query
from tests.controlplane.gateway.query.parsing.asked import (
    JSON,
    PAIR,
    ROW,
    STRICT,
    assert_sound,
    entry,
    v1,
    v2,
    v2_error,
)
from variants.errors import InvalidInput
from variants.types import Prefer, VariantName


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
        assert_sound(parsed)


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
            "input 'x' has 4,097 rows; a query has at most 4,096: ask in parts",
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
            "output 'z' is not an output of the task, which has: y",
        ),
        (
            {"inputs": [entry()], "outputs": [{"name": "y"}, {"name": "y"}]},
            "output 'y' is asked for twice",
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
            "timeout must be in microseconds, from 0 to 3,600,000,000",
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
