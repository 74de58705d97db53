"""Requests that are not quite HTTP, or not what clients usually send."""

import asyncio
import re

import orjson
import pytest

from tests.controlplane.gateway.http.protocol.asked import answered_with, slow
from tests.controlplane.serving import Served, post, query, request


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
        b"POST /v1/query HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n"
        b"Content-Length: 2\r\n\r\n{}",
        b"GET /v1/tasks HTTP/1.1\r\nHost: localhost\r\nhost: localhost\r\n\r\n",
    ],
)
async def test_malformed_http_is_a_typed_error(served: Served, data: bytes) -> None:
    status, code, text = await answered_with(served, data)
    assert (status, code) == (400, "INVALID_INPUT")
    assert text.startswith("the HTTP request is malformed: ")


@pytest.mark.parametrize("path", ["/v1/query", "/v1/explain", "/v1/models"])
async def test_a_length_may_begin_with_any_number_of_zeros(served: Served, path: str) -> None:
    """The connection was closed without an answer from 4,301 digits on."""
    body = orjson.dumps(query(1)) if path == "/v1/query" else b"{}"
    client = await served.client()
    zeros = b"0" * 5_000 + b"%d" % len(body)
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: " % path.encode()
    client.send(head + zeros + b"\r\n\r\n" + body)
    assert (await client.answer()).status == (200 if path == "/v1/query" else 400)


async def test_endless_headers_are_refused(served: Served) -> None:
    client = await served.client()
    client.send(b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\n")
    for _ in range(100):
        client.send(b"X-Filler: " + b"z" * 10_000 + b"\r\n")
        await asyncio.sleep(0)
    status, code, text = (await client.answer()).error
    assert (status, code) == (400, "INVALID_INPUT")
    assert text == "the HTTP request is malformed: its headers are larger than 65,536 bytes"


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


async def test_a_body_that_breaks_off_before_it_was_asked_for_ends_without_an_error_here(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """The application was told that its client has gone, and asked for the rest of the body."""
    for _ in range(20):
        head = b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        client = await served.client()
        client.send(head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")
        answer = await client.answer()
        if answer.status == 100:
            answer = await client.answer()
        assert answer.error[:2] == (400, "INVALID_INPUT")
        client.close()
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []
