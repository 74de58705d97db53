"""Refusals that come before the body was read, or again at once."""

import asyncio
import json
import struct
from typing import Any

import pytest

from controlplane.gateway.http.exchange import told_wait_ms
from controlplane.gateway.http.http_protocol import Front
from controlplane.gateway.overload import repeated_refusals
from controlplane.gateway.query.query_path import monotonic_ms
from tests.controlplane.serving import FAST, Served, chunked, infer, post, query, request, until
from variants.types import WorkerId


def refusing_for_an_hour(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Have the worker full for so long, and refusals kept; what each try to refuse at once gave."""
    path, at_once = served.gateway.path, list[bool]()
    refuse = path.refuse_at_once

    def counted(*arguments: Any) -> bool:
        at_once.append(refuse(*arguments))
        return at_once[-1]

    monkeypatch.setattr(path, "refuse_at_once", counted)
    monkeypatch.setattr(repeated_refusals, "LONGEST_MS", 3_600_000.0)
    monkeypatch.setattr(path.held_answers, "slows_down", lambda *_: False)
    served.gateway.known.workers[WorkerId("w1")].view.busy_until_ms = monotonic_ms() + 3_600_000.0
    return at_once


async def test_who_asks_again_at_once_gets_every_refusal_and_then_an_answer(served: Served) -> None:
    view = served.gateway.known.workers[WorkerId("w1")].view
    view.busy_until_ms = monotonic_ms() + 3_600_000.0
    client = await served.client()
    for _ in range(3):
        answer = await client.ask(query(1))
        assert answer.error[:2] == (503, "OVERLOADED")
        wait_s = answer.json["retry_after_s"]
        assert 0 <= int(answer.headers["retry-after-ms"]) - 1_000 * wait_s <= 1
        assert int(answer.headers["retry-after"]) >= wait_s
    client.send(post(query(2)) + post(query(3)))
    assert [(await client.answer()).status for _ in range(2)] == [503, 503]
    view.busy_until_ms = 0.0
    served.gateway.path.repeated.forget()  # as with the reply that says so
    assert (await client.ask(query(4))).json["outputs"][0][0] == 4


async def test_what_was_refused_a_moment_ago_is_refused_at_once_in_the_same_words(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, at_once = served.gateway.path, refusing_for_an_hour(served, monkeypatch)
    path.demand.take()
    before = path.counters.task("letters").errors.get("OVERLOADED", 0)
    named = [("X-Request-Id", "mine")]
    answers = []
    for headers in ([], [], named, named):
        client = await served.client()
        for number in range(2):
            body = query(number, slo={"latency_ms": 60_000})
            client.send(post(body, headers=headers))
            answers.append(await client.answer())
    # The very first head is parsed, and one that has an id for its answer is not plain. What the
    # first client asks for is known from its second query on, and of the second from its first one.
    assert at_once == [False, True, True]
    assert len({frozenset(each.headers) for each in answers}) == 1
    assert [each.headers["x-request-id"] == "mine" for each in answers] == [False] * 4 + [True] * 4
    assert len({each.headers["x-request-id"] for each in answers}) == 5
    told = [each.json for each in answers]
    for answer, each in zip(answers, told, strict=True):
        assert each.pop("request_id") == answer.headers["x-request-id"]
        wait_s = each.pop("retry_after_s")
        assert 0 <= int(answer.headers["retry-after-ms"]) - 1_000 * wait_s <= 1
    assert told == [told[0]] * 8
    assert path.counters.task("letters").errors["OVERLOADED"] == before + 8
    assert sum(path.demand.take().values()) == 8


@pytest.mark.parametrize("raw", [False, True], ids=["JSON", "raw bytes"])
async def test_so_is_what_is_asked_by_a_path_that_names_the_task(
    served: Served, monkeypatch: pytest.MonkeyPatch, raw: bool
) -> None:
    """Not by one that names a variant too, which may be meant by its number."""
    path, at_once = served.gateway.path, refusing_for_an_hour(served, monkeypatch)

    def asked(number: int, where: str) -> bytes:
        asks = infer(parameters={"latency_slo_ms": 60_000})
        if not raw:
            asks["inputs"][0]["data"][0] = number
            return post(asks, path=where)
        del asks["inputs"][0]["data"]
        asks["inputs"][0]["parameters"] = {"binary_data_size": 16}
        head = json.dumps(asks).encode()
        headers = [("Inference-Header-Content-Length", str(len(head)))]
        return post(head + struct.pack("<4f", number, 2, 3, 4), path=where, headers=headers)

    by_task, by_variant = "/v2/models/letters/infer", f"/v2/models/letters/versions/{FAST}/infer"
    answers = []
    for where in (by_task, by_task, by_variant, by_variant):
        client = await served.client()
        for number in range(2):
            client.send(asked(number, where))
            answers.append(await client.answer())
    assert at_once == [False, True, True]
    assert {answer.error[:2] for answer in answers} == {(503, "OVERLOADED")}
    assert len({answer.error[2] for answer in answers[:4]}) == 1
    assert path.counters.task("letters").errors["OVERLOADED"] == 8


HINTS = {
    "/v1/query": [("X-Modelless-Task", "letters"), ("X-Modelless-Slo", '{"latency_ms": 60000}')],
    "/v2/models/letters/infer": [("X-Modelless-Slo", "null")],
}


@pytest.mark.parametrize("path", HINTS)
async def test_what_headers_ask_for_is_refused_before_the_body_and_the_connection_goes_on(
    served: Served, path: str
) -> None:
    view = served.gateway.known.workers[WorkerId("w1")].view
    view.busy_until_ms = monotonic_ms() + 3_600_000.0
    hint = [*HINTS[path], ("Content-Length", "20")]
    client = await served.client()
    client.send(request("POST", path, None, headers=hint) + b"x" * 20)
    assert (await client.answer()).error[:2] == (400, "INVALID_INPUT")  # none was refused yet
    assert (await client.ask(query(1))).error[:2] == (503, "OVERLOADED")
    for sent in (b"", b"x" * 7):
        client.send(request("POST", path, None, headers=hint) + sent)
        answer = await client.answer()
        assert answer.error[:2] == (503, "OVERLOADED")
        assert "connection" not in answer.headers
        client.send(b"x" * (20 - len(sent)))
    view.busy_until_ms = 0.0
    client.send(request("POST", path, None, headers=hint) + b"x" * 20 + post(query(4)))
    assert (await client.answer()).status == 400
    assert (await client.answer()).json["outputs"][0][0] == 4
    assert served.in_flight == 0


async def test_headers_that_say_what_is_asked_are_not_parsed_again_where_the_body_is_there(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = []
    begin = Front.on_message_begin

    def counted(self: Front) -> None:
        parsed.append(1)
        begin(self)

    monkeypatch.setattr(Front, "on_message_begin", counted)
    view = served.gateway.known.workers[WorkerId("w1")].view
    view.busy_until_ms = monotonic_ms() + 3_600_000.0
    client = await served.client()
    for number in range(4):
        client.send(post(query(number), headers=HINTS["/v1/query"]))
        assert (await client.answer()).error[:2] == (503, "OVERLOADED")
        assert len(parsed) == 1
    whole = post(query(4), headers=HINTS["/v1/query"])
    client.send(whole[:-9])  # the headers are enough
    assert (await client.answer()).error[:2] == (503, "OVERLOADED")
    client.send(whole[-9:])
    assert len(parsed) == 2


async def test_a_body_of_unknown_length_is_read_before_it_is_refused(served: Served) -> None:
    served.gateway.known.workers[WorkerId("w1")].view.busy_until_ms = monotonic_ms() + 3_600_000.0
    client = await served.client()
    assert (await client.ask(query(1))).status == 503
    hint = [*HINTS["/v1/query"], ("Transfer-Encoding", "chunked")]
    client.send(request("POST", "/v1/query", None, headers=hint) + chunked(b"{", 1))
    assert (await client.answer()).error[:2] == (400, "INVALID_INPUT")


async def test_a_refusal_before_the_body_of_a_last_request_is_read_whole(served: Served) -> None:
    served.gateway.known.workers[WorkerId("w1")].view.busy_until_ms = monotonic_ms() + 3_600_000.0
    client = await served.client()
    assert (await client.ask(query(1))).status == 503
    hint = [*HINTS["/v1/query"], ("Content-Length", "200000"), ("Connection", "close")]
    client.send(request("POST", "/v1/query", None, headers=hint) + b"x" * 200_000)
    assert (await client.answer()).error[:2] == (503, "OVERLOADED")
    assert await client.ended() == b""


async def test_a_client_that_goes_while_its_refusal_is_held_leaves_nothing(served: Served) -> None:
    served.gateway.known.workers[WorkerId("w1")].view.busy_until_ms = monotonic_ms() + 3_600_000.0
    client = await served.client()
    assert (await client.ask(query(1))).status == 503
    client.send(post(query(2)))
    client.close()
    errors = served.gateway.path.counters.task("letters").errors
    await until(lambda: errors.get("OVERLOADED") == 2)
    assert served.in_flight == 0


async def test_a_refusal_that_is_held_keeps_no_body(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.gateway.known.workers[WorkerId("w1")].view.busy_until_ms = monotonic_ms() + 3_600_000.0
    client = await served.client()
    assert (await client.ask(query(1))).status == 503
    assert served.gateway.servers.http is not None
    (front,) = served.gateway.servers.http.server_state.connections
    assert isinstance(front, Front)
    front.told_ms = monotonic_ms() + 60_000.0
    client.send(post(json.dumps(query(2, slo={"latency_ms": 60_000})).encode().ljust(200_000)))
    await until(lambda: front.exchange is not None and not front.reading)
    assert front.exchange is not None
    assert front.exchange.body == b""
    client.close()


async def test_stopping_lets_a_client_read_a_refusal_while_it_sends_the_body(
    served: Served,
) -> None:
    """Closing would reset the connection at the next byte, and take the refusal with it."""
    served.gateway.known.workers[WorkerId("w1")].view.busy_until_ms = monotonic_ms() + 3_600_000.0
    client = await served.client()
    assert (await client.ask(query(1))).status == 503
    hint = [*HINTS["/v1/query"], ("Content-Length", "200000")]
    client.send(request("POST", "/v1/query", None, headers=hint))
    errors = served.gateway.path.counters.task("letters").errors
    await until(lambda: errors.get("OVERLOADED") == 2)
    assert served.gateway.servers.http is not None
    (front,) = served.gateway.servers.http.server_state.connections
    assert isinstance(front, Front)
    front.shutdown()
    for _ in range(3):
        client.send(b"x" * 1_000)
        await asyncio.sleep(0.02)
    assert (await client.answer()).error[:2] == (503, "OVERLOADED")
    assert await client.ended() == b""


@pytest.mark.parametrize("name", ["Forwarded", "X-Forwarded-For", "Via", "X-Other"])
async def test_a_connection_of_a_proxy_is_no_client(served: Served, name: str) -> None:
    view = served.gateway.known.workers[WorkerId("w1")].view
    view.busy_until_ms = monotonic_ms() + 3_600_000.0
    client = await served.client()
    assert (await client.ask(query(1), headers=[(name, "a")])).status == 503
    assert served.gateway.servers.http is not None
    (front,) = served.gateway.servers.http.server_state.connections
    assert isinstance(front, Front)
    assert (front.told_ms > 0.0) == (name == "X-Other")


@pytest.mark.parametrize(
    ("headers", "wait_ms"),
    [
        (b"", 0.0),
        (b"retry-after: 3\r\n", 0.0),
        (b"retry-after: 1\r\nretry-after-ms: 43\r\nx: y\r\n", 43.0),
    ],
)
def test_what_an_answer_tells_its_reader(headers: bytes, wait_ms: float) -> None:
    assert told_wait_ms(503, headers) == wait_ms
    assert told_wait_ms(200, headers) == 0.0
