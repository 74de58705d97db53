"""Lean JSON: what comes of a body is what the ordinary way makes of it, wrong bodies included."""

import resource
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.gateway.query.lean_json import Lean, Numbers, lean_v1, lean_v2
from controlplane.gateway.query.parsing import ParsedQuery, parse_v1
from controlplane.gateway.query.v2.datatypes import V2_NAMES
from controlplane.gateway.query.v2.parsing import parse_v2
from tests.controlplane.gateway.query.test_json_tensors import SHAPES, TASKS, asked, task
from variants.errors import ModellessError
from variants.types import Task

ALWAYS, NEVER = 0, 2**40


def outcome(body: bytes, one: Task, v2: bool, least: int) -> object:
    """All that comes of a body, or the error."""
    try:
        if v2:
            found = parse_v2(body, one.name, None, TASKS, 0.0, 0, None, least)
        else:
            found = parse_v1(bytearray(body), TASKS, 0.0, 0, least)
    except ModellessError as error:
        return error.code, error.message
    return _plain(found)


def _plain(found: ParsedQuery) -> object:
    tensors = [(t.dtype.str, t.shape, t.tobytes()) for t in found.tensors]
    return found.task.name, found.query, tensors, found.v2


def v1_body(one: Task, inputs: Any) -> bytes:
    return orjson.dumps({"task": one.name, "inputs": inputs, "slo": {"latency_ms": 50}})


def v2_body(one: Task, inputs: Any) -> bytes:
    (spec,) = one.inputs
    data = inputs.get("x") if isinstance(inputs, dict) else inputs
    rows = len(data) if isinstance(data, list) else 1
    entry = {"name": "x", "datatype": V2_NAMES[spec.dtype], "shape": [rows, *spec.shape]}
    return orjson.dumps({"inputs": [{**entry, "data": data}], "id": "[a]"})


PIECES = st.sampled_from(
    [b"[", b"]", b",", b"1", b"-0", b"1e400", b"99999999999999999999", b"NaN", b"null", b"true",
     b'"', b"\\u005b", b"\xff", b"\x00", b" ", b"0.5",
     b'"inputs":[[1,2]],', b'"data":1,', b"{}", b"[2]"]
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, body: bytes) -> bytes:
    """A body with some bytes taken away and others put in their place."""
    for _ in range(draw(st.integers(0, 2))):
        begin = draw(st.integers(0, len(body)))
        body = body[:begin] + draw(PIECES) + body[begin + draw(st.integers(0, 3)) :]
    return body


@settings(deadline=None)
@given(st.data(), st.booleans())
def test_a_body_becomes_what_the_ordinary_way_makes_of_it(data: st.DataObject, v2: bool) -> None:
    one, inputs = data.draw(asked())
    body = data.draw(damaged(v2_body(one, inputs) if v2 else v1_body(one, inputs)))
    assert outcome(body, one, v2, ALWAYS) == outcome(body, one, v2, NEVER)


@settings(deadline=None)
@given(st.data(), st.sampled_from(SHAPES), st.booleans())
def test_numbers_that_fit_are_read_from_the_buffer(
    data: st.DataObject, shape: tuple[int, ...], flat: bool
) -> None:
    """And not by the ordinary way, which would hide what the lean one cannot do."""
    dtype = data.draw(st.sampled_from(["int8", "uint8", "int64", "float16", "float32", "float64"]))
    small = st.integers(0, 100)
    numbers = data.draw(st.lists(small, min_size=2 * int(np.prod(shape)), max_size=200))
    array = np.array(numbers[: 2 * int(np.prod(shape))], dtype).reshape(2, *shape)
    one = task(dtype, *shape)
    lean = lean_v1(v1_body(one, array.tolist()), ALWAYS)
    assert lean is not None
    assert_reads(lean, lean.fields["inputs"], array)
    del lean
    written = {"inputs": [{"name": "x", "data": (array.reshape(-1) if flat else array).tolist()}]}
    lean = lean_v2(orjson.dumps(written), ALWAYS)
    assert lean is not None
    read_as = array.reshape(-1) if flat else array
    assert_reads(lean, lean.fields["inputs"][0]["data"], read_as)


def assert_reads(lean: Lean, numbers: Numbers, wanted: np.ndarray[Any, Any]) -> None:
    assert not lean.whole()
    found = numbers.tensor(wanted.shape, wanted.dtype.name)
    assert found is not None
    assert lean.whole()
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    "rows", ["[[1,[2]]]", "[[1,2],[3]]", "[[1,true]]", "[[1,null]]", '[[1,"2"]]', "[[1,{}]]", "[]"]
)
def test_what_is_no_row_of_numbers_is_not_read_as_one(rows: str) -> None:
    lean = lean_v1(b'{"inputs":%s}' % rows.encode(), ALWAYS)
    assert lean is not None
    numbers = lean.fields["inputs"]
    assert numbers.tensor((1, 2), "float32") is None or not lean.whole()


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs":[[1]],"inputs":[[2]]}',
        b'{"inputs":[[1]],"task":"\\u005b"}',
        b'\xef\xbb\xbf{"inputs":[[1]]}',
        b'{"inputs":{"x":[[1]],"x":[[2]]}}',
        b"[[1]]",
        b'{"inputs":[[1e400]]}',
        b'{"inputs":[[1]]',
        b"",
    ],
)
def test_what_two_parsers_may_understand_in_two_ways_is_left_to_one(body: bytes) -> None:
    lean = lean_v1(body, ALWAYS)
    assert lean is None or not isinstance(lean.fields["inputs"], Numbers)


def test_while_a_body_is_held_the_next_is_read_in_the_ordinary_way() -> None:
    first = lean_v1(b'{"inputs":[[1,2]]}', ALWAYS)
    assert first is not None
    assert lean_v1(b'{"inputs":[[3,4]]}', ALWAYS) is None
    assert first.fields["inputs"].tensor((1, 2), "int32").tolist() == [[1, 2]]
    del first
    assert lean_v1(b'{"inputs":[[5,6]]}', ALWAYS) is not None


def test_what_was_read_is_let_go_without_a_search_for_circles() -> None:
    """The gateway collects garbage rarely, and the parser would wait for it."""
    body = b'{"inputs":[[1,2]]}'
    for _ in range(100):
        lean = lean_v1(body, ALWAYS)
        assert lean is not None
        del lean


@pytest.mark.parametrize("leaf", [b"1", b"1.25"])
@pytest.mark.parametrize("ending", [b"]]}", b'],"x"]}'])
def test_a_long_body_takes_memory_in_proportion_to_its_size(leaf: bytes, ending: bytes) -> None:
    """At most 20 times as much, in the parser, which no tracing of Python's memory sees, too."""
    one = task("float32", 1)
    body = b'{"task":"%s","inputs":[[' % one.name.encode() + b",".join([leaf] * 2_000_000) + ending
    before = _resident()
    peak_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    outcome(body, one, False, ALWAYS)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    # A process that was larger before says nothing, but is no failure either.
    assert peak == peak_before or peak - before < 20 * len(body) + 2**24


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
