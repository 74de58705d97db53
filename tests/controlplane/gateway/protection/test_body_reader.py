"""Long bodies are read in a process of their own, and say what shorter ones would say."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from controlplane.gateway.protection import body_reader
from controlplane.gateway.protection.body_reader import LONG_BYTES, UNUSUAL_BYTES, BodyReader
from controlplane.gateway.query.parsing import ParsedQuery, parse_v1
from controlplane.gateway.query.v2.parsing import parse_v2
from tests.controlplane.serving import FAST, TASK, Served, post, query, serving, until
from variants.errors import InvalidInput, ModellessError, Overloaded, PayloadTooLarge
from variants.types import TaskName

pytestmark = pytest.mark.slow

TASKS = {TASK.name: TASK}
V1 = {"task": None, "received_ms": 5.0, "draw": 9}
V2 = {"task": "letters", "pinned": "v", "json_header": None, "received_ms": 5.0, "draw": 9}
Found = ParsedQuery | ModellessError


@pytest.fixture
async def reader() -> AsyncIterator[BodyReader]:
    made = BodyReader()
    yield made
    made.close()


async def read(reader: BodyReader, body: bytes, asked: dict[str, Any]) -> Found:
    found: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
    reader.read(body, asked, TASKS, found.set_result)
    return await asyncio.wait_for(found, 90.0)


def here(body: bytes, asked: dict[str, Any]) -> Found:
    """What is found where it is read in this process."""
    try:
        if asked["task"] is None:
            return parse_v1(body, TASKS, 5.0, 9)
        return parse_v2(body, "letters", "v", TASKS, 5.0, 9)
    except ModellessError as error:
        return error


SLO = {"latency_ms": 50, "accuracy": 0.5, "cost": 1.0, "prefer": "accuracy"}
ENTRY = {"name": "x", "datatype": "FP32", "shape": [2, 4], "data": [[1, 2, 3, 4], [5, 6, 7, 8.5]]}
BODIES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (V1, {"task": "letters", "inputs": [[1, 2, 3, 4.5]] * 3}),
    (V1, {"task": "letters", "inputs": [[1, 2, 3, 4]], "slo": SLO, "variant": "v"}),
    (V1, {"task": "letters", "inputs": [[1, 2, 3]]}),
    (V1, {"task": "letters", "inputs": [[1, 2, 3, "a"]]}),
    (V1, {"task": "nobody's", "inputs": [[1, 2, 3, 4]]}),
    (V1, {"task": "letters"}),
    (V2, {"inputs": [ENTRY], "id": "7", "parameters": {"priority": 3, "timeout": 20_000}}),
    (V2, {"inputs": [ENTRY], "outputs": [{"name": "y", "parameters": {"classification": 2}}]}),
    (V2, {"inputs": [ENTRY], "parameters": {"binary_data_output": True}}),
    (V2, {"inputs": [{**ENTRY, "shape": [3, 4]}]}),
]


async def test_it_finds_what_would_be_found_here(reader: BodyReader) -> None:
    for asked, document in BODIES:
        body = orjson.dumps(document)
        found, expected = await read(reader, body, asked), here(body, asked)
        if isinstance(expected, ModellessError):
            assert (type(found), str(found)) == (type(expected), str(expected))
            continue
        assert isinstance(found, ParsedQuery)
        assert (found.task, found.query) == (
            expected.task, expected.query,
        )  # fmt: skip
        assert found.v2 == expected.v2
        for one, other in zip(found.tensors, expected.tensors, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_array_equal(one, other)


async def test_it_reads_in_the_order_of_asking(reader: BodyReader) -> None:
    bodies = [orjson.dumps({"task": "letters", "inputs": [[n, 0, 0, 0]]}) for n in range(20)]
    found = await asyncio.gather(*(read(reader, body, V1) for body in bodies))
    assert [int(one.tensors[0][0, 0]) for one in found if isinstance(one, ParsedQuery)] == [
        *range(20)
    ]


async def test_who_has_no_time_left_at_his_turn_is_not_read(
    reader: BodyReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_reader, "LOOKED_S", -1.0)  # nobody is too short there for a look
    bodies = [orjson.dumps({"task": "letters", "inputs": [[n, 0, 0, 0]]}) for n in range(4)]
    assert isinstance(await read(reader, bodies[0], V1), ParsedQuery)
    loop, asked = asyncio.get_running_loop(), list[str]()

    def says(name: str, *, refused: bool) -> bool:
        asked.append(name)
        return refused

    def fails() -> bool:
        asked.append("fails")
        raise ValueError("a fault of ours")

    questions: list[Callable[[], bool]] = [
        partial(says, "none", refused=False), partial(says, "late", refused=True), fails,
    ]  # fmt: skip
    found: list[asyncio.Future[Found]] = []
    for body, refused in zip(bodies[1:], questions, strict=True):
        found.append(loop.create_future())
        reader.read(body, V1, TASKS, found[-1].set_result, refused=refused)
    await asyncio.wait_for(found[2], 90.0)
    assert (asked, found[1].done()) == (["none", "late", "fails"], False)
    read_now = [one.result() for one in (found[0], found[2])]
    assert [int(one.tensors[0][0, 0]) for one in read_now if isinstance(one, ParsedQuery)] == [1, 3]


@pytest.mark.parametrize("piece", [b"[]", b"{}", b"[[[[]]]]", b"[1],[1,1]"])
async def test_what_would_take_too_much_memory_is_refused(reader: BodyReader, piece: bytes) -> None:
    body = b'{"task": "letters", "inputs": [' + b",".join([piece] * 400_000) + b"]}"
    found = await read(reader, body, V1)
    assert isinstance(found, PayloadTooLarge), found
    assert "lists and objects, too many for its size" in found.message
    good = orjson.dumps(BODIES[0][1])
    assert isinstance(await read(reader, good, V1), ParsedQuery)


async def test_what_takes_too_long_is_given_up_and_the_next_is_read(
    reader: BodyReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = orjson.dumps(BODIES[0][1])
    assert isinstance(await read(reader, good, V1), ParsedQuery)
    monkeypatch.setattr(body_reader, "READ_S", 0.0)
    monkeypatch.setattr(body_reader, "READ_S_PER_MIB", 0.0)
    found = await read(reader, b"[" + b"1," * 4_000_000 + b"1]", V1)
    assert isinstance(found, InvalidInput)
    assert found.message == "the body takes too long to be read"
    monkeypatch.undo()
    assert isinstance(await read(reader, good, V1), ParsedQuery)


async def test_a_reader_that_dies_costs_one_body(reader: BodyReader) -> None:
    good = orjson.dumps(BODIES[0][1])
    assert isinstance(await read(reader, good, V1), ParsedQuery)
    assert reader._process is not None
    reader._process.kill()
    await until(lambda: reader._process is None)
    assert isinstance(await read(reader, good, V1), ParsedQuery)


async def test_so_many_wait_and_no_more(
    reader: BodyReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_reader, "MOST", 2)
    good = orjson.dumps(BODIES[0][1])
    found = await asyncio.gather(*(read(reader, good, V1) for _ in range(3)))
    assert [type(one) for one in found] == [ParsedQuery, ParsedQuery, Overloaded]


async def test_who_has_waited_for_long_is_told_so(
    reader: BodyReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = orjson.dumps(BODIES[0][1])
    assert isinstance(await read(reader, good, V1), ParsedQuery)
    monkeypatch.setattr(body_reader, "WAIT_S", -1.0)
    found = await asyncio.gather(*(read(reader, good, V1) for _ in range(3)))
    assert [(type(one), str(one)) for one in found] == [
        (Overloaded, "too many long bodies are being read")
    ] * 3
    monkeypatch.undo()
    assert isinstance(await read(reader, good, V1), ParsedQuery)


# -- through the gateway --------------------------------------------------------------------------


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    async with serving(short_folder, live_url) as running:
        await running.worker("w1", FAST)
        yield running


def is_started(reader: BodyReader) -> bool:
    return reader._process is not None


async def test_long_bodies_go_to_the_reader_and_short_ones_do_not(served: Served) -> None:
    reader = served.gateway.path.reader
    assert reader is not None
    rows = [[1.5, 2.5, 3.5, 4.5]] * 4_096
    assert (await served.ask(query(inputs=rows[:8]))).status == 200
    assert (await served.ask(query(inputs=[[1, 2]] * 8))).status == 400
    assert not is_started(reader)
    unusual = query(inputs=[["a", 1, 2, 3]] * 3_000)
    assert UNUSUAL_BYTES < len(orjson.dumps(unusual)) < LONG_BYTES
    status, code, text = (await served.ask(unusual)).error
    assert (status, code) == (400, "INVALID_INPUT")
    assert "input 'x' must hold float32 numbers, not " in text
    assert is_started(reader)
    padded = orjson.dumps(query(inputs=rows[:8])) + b" " * LONG_BYTES
    client = await served.client()
    client.send(post(padded))
    assert len((await client.answer()).json["outputs"]) == 8
    status, code, text = (await served.ask(query(inputs=rows * 8))).error
    assert (status, code) == (400, "INVALID_INPUT")
    assert text == "input 'x' has 32,768 rows; a query has at most 4,096: ask in parts"
    assert TaskName("letters") in served.gateway.path.held


async def test_a_control_request_has_a_short_body(served: Served) -> None:
    body = orjson.dumps({"task": "a" * 300_000})
    status, code, text = (await served.ask(body, path="/v1/peaks")).error
    assert (status, code, text) == (413, "PAYLOAD_TOO_LARGE", "the body is larger than 0.25 MiB")
