"""Bodies in every way that HTTP knows, and those that are too large."""

import asyncio
import gzip
import json
import zlib

import pytest

from controlplane.gateway.protection import compression
from tests.controlplane.gateway.http.protocol.asked import MAX_BODY, answered_with, slow
from tests.controlplane.serving import Served, chunked, post, query, request


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
        (b"{}", "br", (415, "INVALID_INPUT")),
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
        answer = await client.answer()
        assert answer.error[:2] == error
        taken = "gzip, deflate" if error[0] == 415 else None
        assert answer.headers.get("accept-encoding") == taken


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
