"""Connections that are kept, and requests that come one behind another."""

import asyncio
import json
import sys
import time
from typing import Any

import pytest

from controlplane.gateway.http import http_protocol
from controlplane.gateway.http.client_connection import AT_ONCE
from controlplane.gateway.http.http_protocol import Front
from controlplane.gateway.http.known_head import TRIES
from tests.controlplane.gateway.http.protocol.asked import MAX_BODY, slow
from tests.controlplane.serving import LATE, Served, chunked, post, query, request, until


async def test_a_connection_is_kept(served: Served) -> None:
    client = await served.client()
    for number in range(3):
        answer = await client.ask(query(number))
        assert answer.json["outputs"] == [[number, 0, 0, 0]]
        assert "connection" not in answer.headers


async def test_a_head_that_was_seen_is_not_parsed_again_and_all_else_is(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = []
    begin = Front.on_message_begin

    def counted(self: Front) -> None:
        parsed.append(1)
        begin(self)

    monkeypatch.setattr(Front, "on_message_begin", counted)
    client = await served.client()

    async def asked(number: float, times: int, *pieces: bytes) -> None:
        before = len(parsed)
        for piece in pieces:
            client.send(piece)
            await asyncio.sleep(0.02)
        assert (await client.answer()).json["outputs"][0][0] == number
        assert len(parsed) - before == times

    await asked(1, 1, post(query(1)))
    await asked(2, 0, post(query(2)))
    await asked(1234567, 0, post(query(1234567)))
    whole = post(query(4))
    await asked(4, 1, whole[:-9], whole[-9:])
    await asked(5, 1, whole[:20], post(query(5))[20:])
    await asked(6, 0, post(query(6)))
    body = json.dumps(query(7)).encode()
    fields = [("Transfer-Encoding", "chunked")]
    await asked(7, 1, request("POST", "/v1/query", None, headers=fields) + chunked(body))
    await asked(8, 1, post(query(8), headers=[("X-Request-Id", "mine")]))
    await asked(9, 0, post(query(9), headers=[("X-Request-Id", "mine")]))
    client.send(request("GET", "/v2/health/live", None))
    assert (await client.answer()).status == 200
    await asked(10, 0, post(query(10), headers=[("X-Request-Id", "mine")]))
    client.send(post(b"{", headers=[("X-Request-Id", "mine")]))
    answer = await client.answer()
    assert answer.error[:2] == (400, "INVALID_INPUT")
    assert answer.headers["x-request-id"] == "mine"
    client.send(post(b"x" * (MAX_BODY + 1), headers=[("X-Request-Id", "mine")]))
    assert (await client.answer()).status == 413


async def test_no_more_is_read_while_requests_wait_on_a_connection(served: Served) -> None:
    """Of what a client sends ahead, the gateway holds what came in a read or two: it read on after
    each answer, and a single connection filled its memory."""
    count, padding = 1_000, [("X-Padding", "x" * 1_500)]
    data = b"".join(post(query(number), headers=padding) for number in range(count))
    client = await served.client()
    client.send(data)
    waiting = []
    for _ in range(count):
        await client.answer()
        assert served.gateway.servers.http is not None
        (front,) = served.gateway.servers.http.server_state.connections
        assert isinstance(front, Front)
        waiting.append(len(front.pipeline))

    a_read = 256 * 1_024 // (len(data) // count)
    assert max(waiting) <= 2 * a_read


async def test_many_small_requests_at_once_are_read_a_few_at_a_time(served: Served) -> None:
    """Else a hundred connections with hundreds of requests each hold up all others for seconds."""
    one = request("GET", "/v2/models/letters", None)
    client = await served.client()
    client.send(one * 400)
    waiting = []
    for _ in range(400):
        assert (await client.answer()).status == 200
        assert served.gateway.servers.http is not None
        (front,) = served.gateway.servers.http.server_state.connections
        assert isinstance(front, Front)
        waiting.append(len(front.pipeline))
    assert max(waiting) <= AT_ONCE // len(one) + 1
    assert (await client.ask(query(5))).json["outputs"][0][0] == 5


async def test_a_connection_that_leaves_with_requests_unread_is_forgotten(served: Served) -> None:
    client = await served.client()
    client.send(request("GET", "/v2/models/letters", None) * 2_000)
    assert (await client.answer()).status == 200
    client.writer.transport.abort()
    server = served.gateway.servers.http
    assert server is not None
    await until(lambda: not server.server_state.connections)
    assert (await served.ask(query(5))).json["outputs"][0][0] == 5


async def test_requests_behind_a_head_that_was_split_are_no_part_of_it(served: Served) -> None:
    """A read may end within a head and the next one bring more than a head may have."""
    many = [post(query(number), headers=[("X-Padding", "x" * 1_500)]) for number in range(60)]
    data = b"".join(many)
    for cut in (40, len(many[0]) - len(many[0].split(b"\r\n\r\n", 1)[1]) - 2):
        client = await served.client()
        client.send(data[:cut])
        await asyncio.sleep(0.02)
        client.send(data[cut:])
        answers = [await client.answer() for _ in many]
        assert [one.json["outputs"][0][0] for one in answers] == [*range(60)]


async def test_a_client_whose_heads_all_differ_is_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    monkeypatch.setattr(http_protocol, "known_head", lambda *seen: looks.append(seen))
    client = await served.client()
    for number in range(12):
        headers = [("X-Request-Id", f"id-{number}")]
        answer = await client.ask(query(number), headers=headers)
        assert answer.json["outputs"][0][0] == number
        answer = await client.ask(b"{", headers=headers)
        assert answer.headers["x-request-id"] == f"id-{number}"
    assert len(looks) == TRIES


async def test_what_one_connection_has_sent_is_known_of_the_first_query_of_the_next(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some clients open a connection for each query."""
    assert (await served.ask(query(1))).status == 200
    parsed = []
    begin = http_protocol.Front._begin

    def counted(*seen: Any) -> None:
        parsed.append(seen)
        begin(*seen)

    monkeypatch.setattr(http_protocol.Front, "_begin", counted)
    for number in range(3):
        assert (await served.ask(query(number))).json["outputs"][0][0] == number
    assert not parsed
    for name in ("Authorization", "X-Request-Id"):  # those are never taken from others
        for _ in range(2):
            assert (await served.ask(query(5), headers=[(name, "Bearer a")])).status == 200
    assert len(parsed) == 4


async def test_an_ordinary_request_knows_both_ends_of_its_connection(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    client = await served.client()
    assert served.gateway.servers.http is not None
    [front] = served.gateway.servers.http.server_state.connections
    assert isinstance(front, http_protocol.Front)
    app = front.app

    async def looked_at(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["client"], scope["server"], scope["scheme"]))
        await app(scope, receive, send)

    monkeypatch.setattr(front, "app", looked_at)
    assert (await client.ask(query(1))).status == 200
    client.send(request("GET", "/v2/health/live", None))
    assert (await client.answer()).status == 200
    own = client.writer.get_extra_info("sockname")
    assert seen == [(own, ("127.0.0.1", served.port), "http")]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux's kernel tells")
@pytest.mark.parametrize("known", [True, False], ids=["known head", "new head"])
async def test_while_queries_are_refused_their_time_counts_from_when_the_kernel_had_them(
    served: Served, known: bool
) -> None:
    client = await served.client()
    for _ in range(2):
        assert (await client.ask(query(1))).status == 200
    assert (await client.ask(query(2, variant=LATE, slo={"latency_ms": 20}))).status == 504
    assert served.gateway.path.under_pressure()
    headers = []
    if not known:
        client, headers = await served.client(), [("X-New", "1")]
    client.send(post(query(3, slo={"latency_ms": 150}), headers=headers))
    time.sleep(0.3)  # noqa: ASYNC251
    assert (await client.answer()).error[:2] == (504, "DEADLINE_EXCEEDED")
    assert (await client.ask(query(4, slo={"latency_ms": 150}))).status == 200


async def test_pipelined_queries_are_answered_in_their_order(served: Served) -> None:
    client = await served.client()
    client.send(slow(1) + post(query(2)) + post(query(3)))
    answers = [await client.answer() for _ in range(3)]
    assert [one.json["outputs"][0][0] for one in answers] == [1, 2, 3]


async def test_queries_and_other_requests_keep_their_order(served: Served) -> None:
    client = await served.client()
    metadata = request("GET", "/v2/models/letters", None)
    missing = request("GET", "/nothing", None)
    client.send(slow(1) + metadata + post(query(2)) + missing + slow(3) + post(query(4)) + metadata)
    answers = [await client.answer() for _ in range(7)]
    assert [one.status for one in answers] == [200, 200, 200, 404, 200, 200, 200]
    assert [answers[at].json["outputs"][0][0] for at in (0, 2, 4, 5)] == [1, 2, 3, 4]
    assert answers[1].json["name"] == answers[6].json["name"] == "letters"
    assert (await client.ask(query(5))).json["outputs"][0][0] == 5


async def test_time_in_line_counts(served: Served) -> None:
    """The second waits 150 ms for the first on its connection and has 100."""
    client = await served.client()
    client.send(slow(1) + post(query(2, slo={"latency_ms": 100})))
    assert (await client.answer()).status == 200
    assert (await client.answer()).error[:2] == (504, "DEADLINE_EXCEEDED")


async def test_time_in_line_makes_a_best_effort_late(served: Served) -> None:
    client = await served.client()
    client.send(slow(1) + post(query(2, slo={"latency_ms": 140}, best_effort=True)))
    assert (await client.answer()).json["slo_met"] is True
    answer = await client.answer()
    assert answer.status == 504 or answer.json["slo_met"] is False


async def test_many_pipelined_requests_with_a_reader_that_comes_late(served: Served) -> None:
    client = await served.client()
    client.send(b"".join(post(query(n, slo={"latency_ms": 60_000})) for n in range(500)))
    await asyncio.sleep(0.05)
    answers = [await client.answer() for _ in range(500)]
    assert [one.json["outputs"][0][0] for one in answers] == list(range(500))
