"""The HTTP front, byte by byte: a real server on loopback and clients that behave in every way."""

import asyncio
import gzip
import json
import re
import sys
import time
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.gateway.http import http_protocol
from controlplane.gateway.http.client_connection import AT_ONCE
from controlplane.gateway.http.exchange import told_wait_ms
from controlplane.gateway.http.http_protocol import Front
from controlplane.gateway.http.known_head import TRIES
from controlplane.gateway.overload import repeated_refusals
from controlplane.gateway.protection import compression
from controlplane.gateway.query import query_context
from controlplane.gateway.query.query_path import monotonic_ms
from tests.controlplane.serving import (
    FAST,
    LATE,
    Served,
    chunked,
    post,
    query,
    request,
    serving,
    until,
)
from variants.types import WorkerId

MAX_BODY = 262_144


@pytest.fixture
async def served(
    short_folder: Path, live_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Served]:
    """One worker with an instant and a slow variant; bodies of at most 256 KiB."""
    # A machine may stand still for a second between two queries.
    monkeypatch.setattr(query_context, "PRESSED_MS", 3_600_000.0)
    async with serving(short_folder, live_url, max_body_mib=MAX_BODY / 2**20) as running:
        await running.worker("w1", FAST, LATE)
        yield running


def slow(*values: float) -> bytes:
    """A query that takes 150 ms."""
    return post(query(*values, variant=LATE))


async def answered_with(served: Served, data: bytes) -> tuple[int, str, str]:
    """The error that a connection ends with."""
    client = await served.client()
    client.send(data)
    answer = await client.answer()
    assert answer.headers["connection"] == "close"
    assert await client.ended() == b""
    return answer.error


# -- order --------------------------------------------------------------------------------------


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
        assert served.gateway._server is not None
        (front,) = served.gateway._server.server_state.connections
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
        assert served.gateway._server is not None
        (front,) = served.gateway._server.server_state.connections
        assert isinstance(front, Front)
        waiting.append(len(front.pipeline))
    assert max(waiting) <= AT_ONCE // len(one) + 1
    assert (await client.ask(query(5))).json["outputs"][0][0] == 5


async def test_a_connection_that_leaves_with_requests_unread_is_forgotten(served: Served) -> None:
    client = await served.client()
    client.send(request("GET", "/v2/models/letters", None) * 2_000)
    assert (await client.answer()).status == 200
    client.writer.transport.abort()
    server = served.gateway._server
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
    assert served.gateway._server is not None
    [front] = served.gateway._server.server_state.connections
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
    path, at_once = served.gateway.path, []
    refuse = path.refuse_at_once

    def counted(*arguments: Any) -> Any:
        at_once.append(refuse(*arguments))
        return at_once[-1]

    monkeypatch.setattr(path, "refuse_at_once", counted)
    monkeypatch.setattr(repeated_refusals, "LONGEST_MS", 3_600_000.0)
    monkeypatch.setattr(path.held_answers, "slows_down", lambda *_: False)
    served.gateway.known.workers[WorkerId("w1")].view.busy_until_ms = monotonic_ms() + 3_600_000.0
    path.take_demand()
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
    assert sum(path.take_demand().values()) == 8


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
    assert served.gateway._server is not None
    (front,) = served.gateway._server.server_state.connections
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
    assert served.gateway._server is not None
    (front,) = served.gateway._server.server_state.connections
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
    assert served.gateway._server is not None
    (front,) = served.gateway._server.server_state.connections
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


# -- bodies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 1_000])
async def test_a_chunked_body(served: Served, size: int) -> None:
    body = json.dumps(query(8)).encode()
    head = request("POST", "/v1/query", None, headers=[("Transfer-Encoding", "chunked")])
    client = await served.client()
    client.send(head + chunked(body, size))
    assert (await client.answer()).json["outputs"][0][0] == 8
    assert (await client.ask(query(9))).json["outputs"][0][0] == 9


async def test_a_request_may_come_byte_by_byte(served: Served) -> None:
    client = await served.client()
    for byte in post(query(6)):
        client.send(bytes([byte]))
        await asyncio.sleep(0)
    assert (await client.answer()).json["outputs"][0][0] == 6


TOO_LARGE = (413, "PAYLOAD_TOO_LARGE", "the body is larger than 0.25 MiB")


@pytest.mark.parametrize("path", ["/v1/query", "/v2/models/letters/infer"])
async def test_a_length_that_is_too_large_is_refused_before_the_body(
    served: Served, path: str
) -> None:
    head = request("POST", path, None, headers=[("Content-Length", str(MAX_BODY + 1))])
    assert await answered_with(served, head) == TOO_LARGE


async def test_a_chunked_body_that_is_too_large_is_refused(served: Served) -> None:
    head = request("POST", "/v1/query", None, headers=[("Transfer-Encoding", "chunked")])
    assert await answered_with(served, head + chunked(b"[" * (MAX_BODY + 1), 10_000)) == TOO_LARGE


async def test_the_largest_body_is_read(served: Served) -> None:
    body = json.dumps(query(3)).encode().ljust(MAX_BODY)
    assert (await served.ask(body)).json["outputs"][0][0] == 3
    assert (await served.ask(body + b" ")).error == TOO_LARGE


async def test_a_client_that_sends_everything_first_reads_the_refusal(served: Served) -> None:
    """32 MiB are far more than any socket buffers; a reset would lose the answer."""
    client = await served.client()
    client.send(post(bytes(32 * 2**20)))
    await client.writer.drain()
    assert (await client.answer()).error == TOO_LARGE


async def test_a_body_may_wait_for_100_continue(served: Served) -> None:
    body = json.dumps(query(5)).encode()
    client = await served.client()
    headers = [("Expect", "100-continue"), ("Content-Length", str(len(body)))]
    client.send(request("POST", "/v1/query", None, headers=headers))
    assert (await client.answer()).status == 100
    client.send(body)
    assert (await client.answer()).json["outputs"][0][0] == 5


# -- compressed ---------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [False, True], ids=["the short way", "the ordinary way"])
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("rows", [1, 20_000], ids=["short", "long"])
async def test_a_body_may_come_compressed(
    served: Served, coding: str, waits: bool, rows: int
) -> None:
    compress = gzip.compress if coding == "gzip" else zlib.compress
    body = compress(json.dumps(query(7)).encode() + b" " * rows * 10)
    client = await served.client()
    if waits:
        client.send(slow(1))
    for _ in range(2):
        client.send(post(body, headers=[("Content-Encoding", coding)]))
    answers = [await client.answer() for _ in range(3 if waits else 2)]
    assert [answer.json["outputs"][0][0] for answer in answers[-2:]] == [7, 7]


@pytest.mark.parametrize(
    ("body", "coding", "error"),
    [
        (gzip.compress(bytes(100 * MAX_BODY)), "gzip", (413, "PAYLOAD_TOO_LARGE")),
        (b"{}", "gzip", (400, "INVALID_INPUT")),
        (b"{}", "br", (400, "INVALID_INPUT")),
    ],
)
async def test_a_bomb_or_no_compression_gets_its_error(
    served: Served, body: bytes, coding: str, error: tuple[int, str]
) -> None:
    for before in (b"", slow(1)):
        client = await served.client()
        if before:
            client.send(before)
        client.send(post(body, headers=[("Content-Encoding", coding)]))
        if before:
            await client.answer()
        assert (await client.answer()).error[:2] == error


async def test_an_answer_is_compressed_for_who_takes_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "LEAST_PACKED", 1)
    client = await served.client()
    client.send(post(query(3), headers=[("Accept-Encoding", "gzip")]))
    assert "content-encoding" not in (await client.answer()).headers  # nobody has set it
    served.gateway.path.compresses = True
    plain = await client.ask(query(3))
    assert "content-encoding" not in plain.headers
    for _ in range(2):  # the second by a head that is known
        client.send(post(query(3), headers=[("Accept-Encoding", "gzip, deflate")]))
        answer = await client.answer()
        assert answer.headers["content-encoding"] == "gzip"
        assert json.loads(gzip.decompress(answer.body))["outputs"] == plain.json["outputs"]
    client.send(slow(1) + post(query(3), headers=[("Accept-Encoding", "deflate")]))
    await client.answer()
    answer = await client.answer()
    assert json.loads(zlib.decompress(answer.body))["outputs"] == plain.json["outputs"]


# -- not quite HTTP -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1_0\r\n\r\n",
        b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
        b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
async def test_malformed_http_is_a_typed_error(served: Served, data: bytes) -> None:
    status, code, text = await answered_with(served, data)
    assert (status, code) == (400, "INVALID_INPUT")
    assert text.startswith("the HTTP request is malformed: ")


async def test_endless_headers_are_refused(served: Served) -> None:
    client = await served.client()
    client.send(b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\n")
    for _ in range(100):
        client.send(b"X-Filler: " + b"z" * 10_000 + b"\r\n")
        await asyncio.sleep(0)
    status, code, text = (await client.answer()).error
    assert (status, code) == (400, "INVALID_INPUT")
    assert text == "the HTTP request is malformed: its headers are larger than 65536 bytes"


async def test_what_follows_a_query_cannot_take_its_answer(served: Served) -> None:
    client = await served.client()
    client.send(slow(4) + b"garbage\r\n\r\n")
    answer = await client.answer()
    assert (answer.json["outputs"][0][0], answer.headers["connection"]) == (4, "close")
    assert await client.ended() == b""


ASK = [("X-Request-Id", "trace-1")]


@pytest.mark.parametrize(
    "data",
    [
        post(query(1, task="none"), headers=ASK),
        post(query(1, variant=None, slo={"accuracy": 1.0}), headers=ASK),
        post(b"{}", path="/v2/models/letters/infer", headers=ASK),
        post(query(1, task="none"), headers=[*ASK, ("Expect", "100-continue")]),
        post(query(1), headers=[*ASK, ("Content-Encoding", "gzip")]),
    ],
)
async def test_an_error_has_the_callers_request_id(served: Served, data: bytes) -> None:
    client = await served.client()
    client.send(data)
    answer = await client.answer()
    if answer.status == 100:
        answer = await client.answer()
    assert answer.status >= 400
    assert (answer.headers["x-request-id"], answer.json["request_id"]) == ("trace-1", "trace-1")


async def test_an_error_has_an_id_of_ours_where_the_callers_is_none(served: Served) -> None:
    client = await served.client()
    client.send(post(query(1, task="none"), headers=[("X-Request-Id", 'a"b')]))
    answer = await client.answer()
    assert re.fullmatch(r"[0-9a-f]{16}", answer.json["request_id"])
    assert answer.headers["x-request-id"] == answer.json["request_id"]


async def test_a_slash_too_many_is_a_typed_error(served: Served) -> None:
    client = await served.client()
    client.send(post(query(1), path="/v1/query/"))
    assert (await client.answer()).error == (
        404, "NOT_FOUND", "there is nothing at POST /v1/query/; did you mean /v1/query?",
    )  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/v1/query", "/v2/models/letters/infer"])
async def test_another_method_is_not_allowed(served: Served, method: str, path: str) -> None:
    client = await served.client()
    client.send(request(method, path, None))
    answer = await client.answer()
    assert answer.error == (
        405, "INVALID_INPUT", f"{method} {path} is not possible; allowed: POST",
    )  # fmt: skip
    assert answer.headers["allow"] == "POST"


async def test_head_has_no_body(served: Served) -> None:
    client = await served.client()
    client.send(request("HEAD", "/v1/query", None))
    assert (await client.answer(head=True)).status == 405
    assert (await client.ask(query(1))).status == 200


@pytest.mark.parametrize("path", ["/v2/health/ready", "/v1/tasks", "/"])
async def test_head_is_answered_as_get_without_the_body(served: Served, path: str) -> None:
    """As load balancers look whether somebody is there: it was 405."""
    client = await served.client()
    client.send(request("GET", path, None))
    whole = await client.answer()
    client.send(request("HEAD", path, None))
    head = await client.answer(head=True)
    assert (head.status, head.headers["content-type"]) == (200, whole.headers["content-type"])
    assert head.headers["content-length"] == str(len(whole.body))
    assert (await client.ask(query(1))).status == 200


@pytest.mark.parametrize("split", [False, True])
async def test_an_offer_of_another_protocol_is_declined(served: Served, split: bool) -> None:
    """As Java's client and ``curl --http2`` offer it with a body."""
    offer = [
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABkAAQAoAAAAAIAAAAA"),
    ]
    data = post(query(7), headers=offer)
    cut = data.index(b"\r\n\r\n") + 4 if split else len(data)
    client = await served.client()
    client.send(data[:cut])
    await asyncio.sleep(0.01)
    client.send(data[cut:] + post(query(8), headers=offer) + post(query(9)))
    answers = [await client.answer() for _ in range(3)]
    assert [one.json["outputs"][0][0] for one in answers] == [7, 8, 9]


@pytest.mark.parametrize("headers", [[], [("Connection", "keep-alive")]])
async def test_http_1_0_is_answered_and_closed(
    served: Served, headers: list[tuple[str, str]]
) -> None:
    """Also where it is to stay: no answer says so, and such a client reads until its end then."""
    client = await served.client()
    client.send(post(query(2), headers=headers).replace(b"HTTP/1.1", b"HTTP/1.0"))
    answer = await client.answer()
    assert (answer.json["outputs"][0][0], answer.headers["connection"]) == (2, "close")
    assert await client.ended() == b""


async def test_close_is_honoured(served: Served) -> None:
    client = await served.client()
    client.send(post(query(2), headers=[("Connection", "close")]) + post(query(3)))
    assert (await client.answer()).json["outputs"][0][0] == 2
    assert await client.ended() == b""


async def test_a_query_string_changes_nothing(served: Served) -> None:
    assert (await served.ask(query(1), path="/v1/query?trace=1")).status == 200


# -- clients that go, servers that stop -----------------------------------------------------------


async def test_a_client_that_goes_while_it_sends_leaves_nothing(served: Served) -> None:
    client = await served.client()
    client.send(post(query(1))[:-5])
    await asyncio.sleep(0.02)
    client.close()
    server = served.gateway._server
    assert server is not None
    await until(lambda: not server.server_state.connections)
    assert served.in_flight == 0


async def test_a_client_that_goes_while_it_waits_leaves_nothing(served: Served) -> None:
    client = await served.client()
    client.send(slow(1))
    await until(lambda: served.in_flight == 1)
    client.close()
    await until(lambda: served.in_flight == 0)
    assert (await served.ask(query(1))).status == 200


async def test_a_connection_has_no_timer(served: Served) -> None:
    """One sweep looks after all of them: tests/controlplane/gateway/http/test_slow_clients.py."""
    client = await served.client()
    for _ in range(20):
        client.send(request("GET", "/v2/health/live", None))
        await client.answer()
        await client.ask(query(1))
    server = served.gateway._server
    assert server is not None
    (front,) = server.server_state.connections
    assert isinstance(front, Front)
    assert front.timeout_keep_alive_task is None


async def test_stopping_answers_what_is_in_flight(served: Served) -> None:
    """On the short way, on the ordinary one, and what waits behind it; then it ends."""
    short, both, idle = [await served.client() for _ in range(3)]
    await idle.ask(query(0))
    short.send(slow(1))
    both.send(slow(2) + slow(3))
    await until(lambda: served.in_flight == 2)
    stopping = asyncio.create_task(served.gateway.stop())
    answer = await short.answer()
    assert (answer.json["outputs"][0][0], answer.headers["connection"]) == (1, "close")
    assert (await both.answer()).json["outputs"][0][0] == 2
    answer = await both.answer()
    assert (answer.json["outputs"][0][0], answer.headers["connection"]) == (3, "close")
    for client in (short, both, idle):
        assert await client.ended() == b""
    await stopping
    with pytest.raises(ConnectionError):
        await served.client()


# -- access -----------------------------------------------------------------------------------


ROUTES = [
    post(query(1)),
    post(query(1), path="/v2/models/letters/infer"),
    request("GET", "/metrics", None),
    request("GET", "/v1/tasks", None),
]


@pytest.mark.parametrize("data", ROUTES)
async def test_a_wrong_host_is_forbidden(served: Served, data: bytes) -> None:
    client = await served.client()
    client.send(data.replace(b"Host: localhost", b"Host: evil.example"))
    status, code, text = (await client.answer()).error
    assert (status, code) == (403, "FORBIDDEN")
    assert text == "Host 'evil.example' is not served here; see MODELLESS_ALLOWED_HOSTS"


@pytest.mark.parametrize("data", ROUTES)
async def test_a_foreign_page_is_forbidden(served: Served, data: bytes) -> None:
    client = await served.client()
    origin = b"Host: localhost\r\nOrigin: http://evil.example"
    client.send(data.replace(b"Host: localhost", origin))
    status, code, text = (await client.answer()).error
    assert (status, code) == (403, "FORBIDDEN")
    said = "pages of 'http://evil.example' may not call this gateway; serve both from one address"
    assert text in (said, f"{said}, or see MODELLESS_CORS_ORIGINS")


async def test_the_gateways_own_page_may_ask(served: Served) -> None:
    host = f"localhost:{served.port}"
    headers = [("Origin", f"http://{host}")]
    assert (await served.ask(query(1), host=host, headers=headers)).status == 200


async def test_no_host_is_no_request(served: Served) -> None:
    answer = await served.ask(query(1), host=None)
    assert answer.error == (400, "INVALID_INPUT", "the Host header is missing")


async def test_a_token_is_asked_for(short_folder: Path, live_url: str) -> None:
    async with serving(short_folder, live_url, api_token="sesame") as served:
        await served.worker("w1", FAST)
        wrong = [("Authorization", "Bearer open")]
        right = [("Authorization", "Bearer sesame")]
        for headers in ([], wrong):
            answer = await served.ask(query(1), headers=headers)
            assert answer.error[:2] == (401, "UNAUTHENTICATED")
            assert answer.headers["www-authenticate"] == "Bearer"
            assert (await served.get("/metrics", headers=headers)).status == 401
        assert (await served.ask(query(1), headers=right)).status == 200
        assert (await served.get("/metrics", headers=right)).status == 200
