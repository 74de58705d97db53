"""Skimming: what is found without reading the numbers is what reading finds."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.query.parsing import parse_v1
from controlplane.gateway.query.skimming import skim_v1, skim_v2
from controlplane.gateway.query.v2.parsing import parse_v2
from planner.types import Query
from tests.controlplane.gateway.query.test_json_tensors import SHAPES, TASKS, regular, task
from variants.errors import ModellessError

SHAPED = st.sampled_from(SHAPES)
SLO = st.fixed_dictionaries(
    {},
    optional={
        "latency_ms": st.integers(1, 1_000),
        "accuracy": st.floats(0, 1),
        "cost": st.floats(0, 9),
        "prefer": st.sampled_from(["cost", "accuracy", "latency", "other"]),
    },
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "slo": SLO,
        "best_effort": st.booleans(),
        "priority": st.integers(-1, 9),
        "variant": st.sampled_from(["a", '"inputs"', "]", '"slo":', "[1]"]),
    },
)


def v1(body: bytes) -> Query | None:
    """What reading finds, if the body is right."""
    try:
        return parse_v1(body, TASKS, 7.0, 3).query
    except ModellessError:
        return None


@given(st.data(), SHAPED, FIELDS)
def test_what_a_body_asks_for_is_found_around_its_numbers(
    data: st.DataObject, shape: tuple[int, ...], fields: dict[str, Any]
) -> None:
    one = task("float32", *shape)
    whole = {"task": one.name, "inputs": data.draw(regular(shape, st.integers(0, 9))), **fields}
    order = data.draw(st.permutations(sorted(whole)))
    body = orjson.dumps({name: whole[name] for name in order})
    found = skim_v1(body, TASKS, 7.0, 3, 0)
    assert found in (None, v1(body))
    # What is inside a name may be unusual. What is not, is found.
    if fields.get("variant", "a") == "a":
        assert found == v1(body)


@given(st.data(), SHAPED, SLO, st.booleans())
def test_what_an_inference_request_asks_for_is_found_around_its_numbers(
    data: st.DataObject, shape: tuple[int, ...], slo: dict[str, Any], outputs: bool
) -> None:
    one = task("float32", *shape)
    rows = data.draw(regular(shape, st.integers(0, 9)))
    names = {"latency_ms": "latency_slo_ms", "accuracy": "min_accuracy", "prefer": "prefer"}
    parameters = {names[name]: value for name, value in slo.items() if name in names}
    entry = {"name": "x", "datatype": "FP32", "shape": [len(rows), *shape], "data": rows}
    whole: dict[str, Any] = {"inputs": [entry], "parameters": parameters, "id": "1"}
    if outputs:
        whole["outputs"] = [{"name": "y"}]
    order = data.draw(st.permutations(sorted(whole)))
    body = orjson.dumps({name: whole[name] for name in order})
    try:
        wanted = parse_v2(body, one.name, None, TASKS, 7.0, 3).query
    except ModellessError:
        wanted = None
    found = skim_v2(body, one.name, None, TASKS, 7.0, 3, 0)
    assert found in (None, wanted)
    if not outputs:
        assert found == wanted


@pytest.mark.parametrize(
    "body",
    [
        b'{"task":"float32-2","inputs":{"x":[[1,2]]}}',
        b'{"task":"float32-2","inputs":[["1","2"]]}',
        b'{"task":"float32-2","inputs":[[1,2]],"slo":{"latency_ms":0}}',
        b'{"task":"float32-2","inputs":[[1,2]',
        b'{"task":"float32-2","inputs":[[1,2]]}}',
        b'{"task":"none","inputs":[[1,2]]}',
        b'{"task":"float32-2","inputs":[[1,2],[3,4],[]]}',
        b'{"task":"float32-2","inputs":' + b"[" * 10_000 + b"]]}",
        b'{"task":"inputs"}',
        b'"inputs"]',
        b"[[1,2]]",
        b"",
    ],
)
def test_what_is_unusual_is_left_to_reading(body: bytes) -> None:
    found = skim_v1(body, TASKS, 0.0, 0, 0)
    assert found is None or found.rows == 3


def test_a_short_body_is_read_at_once() -> None:
    body = b'{"task":"float32-2","inputs":[[1,2]]}'
    assert skim_v1(body, TASKS, 0.0, 0) is None
    assert skim_v1(body, TASKS, 0.0, 0, 0) is not None
    assert skim_v1(body.replace(b"[[", b"[" + b" " * 1_000 + b"["), TASKS, 0.0, 0) is not None
