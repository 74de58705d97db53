"""The client for an event loop, and both clients alike."""

import asyncio
import math
import subprocess
import sys
from typing import Any

import httpx
import numpy as np
import orjson
import pytest

from controlplane.client import (
    AsyncClient,
    Client,
    Cold,
    InvalidInput,
    TaskNotFound,
    Unreachable,
)
from tests.controlplane.client.asking.asked import TOKEN, told
from tests.controlplane.serving import FAST, Served
from tests.ports import free_port


async def test_an_event_loop_asks_many_at_once(served: Served) -> None:
    """Each reply is that of its own row, with fewer connections than queries."""
    url = f"http://127.0.0.1:{served.port}/"
    rows = [[float(number)] * 4 for number in range(12)]
    async with AsyncClient(url, token=TOKEN, connections=3) as client:
        replies = await asyncio.gather(
            *(client.query("letters", [row], variant=FAST, latency_ms=20_000) for row in rows)
        )
    assert [reply.outputs for reply in replies] == [[row] for row in rows]
    assert {reply.variant for reply in replies} == {FAST}


class Held(httpx.AsyncBaseTransport):
    """Answers what it was given once it is let go."""

    def __init__(self) -> None:
        self.given = 0
        self.let_go = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.given += 1
        await self.let_go.wait()
        return httpx.Response(404, json=told("TASK_NOT_FOUND"))


async def test_a_query_s_time_counts_from_when_it_is_sent() -> None:
    """Not from when it was asked: of a batch of many thousands most wait for a connection for
    longer than any time-out, and were told that the gateway had not answered."""
    transport = Held()
    async with AsyncClient(transport=transport, connections=2) as client:
        asked = [asyncio.create_task(client.query("a", [[0]])) for _ in range(5)]
        asked[4].cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert transport.given == 2
        transport.let_go.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in found] == [*[TaskNotFound] * 4, asyncio.CancelledError]
    assert transport.given == 4


async def test_both_clients_send_and_raise_the_same() -> None:
    asked: dict[str, Any] = {
        "accuracy": 0.9, "cost": 0.5, "prefer": "latency", "best_effort": True, "variant": "a-v1",
        "latency_ms": 250.0, "priority": 7,
    }  # fmt: skip
    sent: list[tuple[str, bytes, Any, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        headers = (request.headers["authorization"], request.headers["content-type"])
        sent.append((str(request.url), request.content, headers, request.extensions["timeout"]))
        return httpx.Response(503, json=told("COLD", retry_after_s=0.25))

    transport = httpx.MockTransport(answer)
    url = "http://gateway:8000/"
    with Client(url, token=TOKEN, transport=transport) as client, pytest.raises(Cold) as first:
        client.query("a", [[0]], **asked)
    async with AsyncClient(url, token=TOKEN, transport=transport) as asynchronous:
        with pytest.raises(Cold) as second:
            await asynchronous.query("a", [[0]], **asked)
    assert sent[0] == sent[1]
    assert b'"priority":7' in sent[0][1]
    assert first.value.retry_after_s == second.value.retry_after_s == 0.25


@pytest.mark.parametrize("name", ["latency_ms", "accuracy", "cost", "priority"])
@pytest.mark.parametrize("number", [math.nan, math.inf, np.float32("nan")])
async def test_a_need_that_is_no_number_is_refused_and_not_left_out(name: str, number: Any) -> None:
    """JSON has null for it, by which a query had no floor, ceiling or deadline of its own."""
    transport = httpx.MockTransport(lambda _: httpx.Response(500))
    asked: dict[str, Any] = {name: number}
    with Client(transport=transport) as client:
        for inputs in ([[0]], np.zeros((64, 1_000), np.float32)):
            with pytest.raises(InvalidInput, match=f"{name} must be a finite number, not "):
                client.query("a", inputs, **asked)
        with pytest.raises(InvalidInput, match="must be a finite number"):
            client.explain("a", **asked)
    async with AsyncClient(transport=transport) as asynchronous:
        with pytest.raises(InvalidInput, match="must be a finite number"):
            await asynchronous.query("a", [[0]], **asked)


def test_a_deadline_that_is_no_number_is_the_gateway_s_to_refuse() -> None:
    sent: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append((orjson.loads(request.content)["slo"], request.extensions["timeout"]["read"]))
        return httpx.Response(400, json=told("INVALID_INPUT"))

    with Client(transport=httpx.MockTransport(answer), timeout_s=2) as client:
        for latency_ms in ("fast", np.float32(500), np.int64(500)):
            with pytest.raises(InvalidInput):
                client.query("a", [[0]], latency_ms=latency_ms)  # type: ignore[arg-type]
    assert sent == [
        ({"latency_ms": "fast"}, 2), ({"latency_ms": 500.0}, 2.5), ({"latency_ms": 500}, 2.5),
    ]  # fmt: skip


@pytest.mark.parametrize("labels", ["3", 3, np.int64(3), ["3"], [3], np.array([3])])
def test_the_right_class_of_a_single_row_may_stand_alone(labels: Any) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=orjson.loads(request.content))

    with Client(transport=httpx.MockTransport(answer)) as client:
        assert client.feedback("r-1", labels) == {"request_id": "r-1", "labels": ["3"]}


FORKED = """
import os, sys
from modelless import Client
client = Client("http://127.0.0.1:9")
parents = client._http
child = os.fork()
if child == 0:
    os._exit(0 if client._http is not parents and client._http is client._http else 1)
_, status = os.waitpid(child, 0)
sys.exit(status != 0 or client._http is not parents)
"""


def test_a_process_that_was_forked_asks_over_connections_of_its_own() -> None:
    """It shared its parent's, and each could read what was answered to the other."""
    assert subprocess.run([sys.executable, "-c", FORKED], check=False).returncode == 0


async def test_an_event_loop_hears_that_nothing_listens() -> None:
    async with AsyncClient(f"http://127.0.0.1:{free_port()}") as client:
        with pytest.raises(Unreachable):
            await client.query("letters", [[0]])


def test_what_is_no_url_is_refused_for_an_event_loop_too() -> None:
    with pytest.raises(InvalidInput, match="no URL of a gateway"):
        AsyncClient("localhost:8000")
