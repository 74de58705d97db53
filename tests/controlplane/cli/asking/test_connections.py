"""Connections to a gateway that closes them, breaks them, and does not answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controlplane.access.tls import server_context
from controlplane.cli.asking.connections import BROKEN, UNANSWERED, UNREACHABLE, Connections
from controlplane.cli.gateway_client import Access
from tests.controlplane.certificates import Pair, self_signed
from variants.errors import InvalidInput

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
LONG_S = 300.0
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-said: yes\r\n\r\nok"


@asynccontextmanager
async def served(
    handle: Handler, most: int = 2, tls: Pair | None = None
) -> AsyncIterator[Connections]:
    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handle(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            writer.close()

    context = None if tls is None else server_context(*tls)
    server = await asyncio.start_server(closing, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    scheme, certificate = ("http", "") if tls is None else ("https", tls.certificate)
    url = f"{scheme}://127.0.0.1:{port}/at"
    access = Access(url=url, token="secret", certificate=certificate)
    connections = Connections(access, most, headers={"Via": "1.1 test"})
    try:
        yield connections
    finally:
        await connections.close()
        server.close()
        await server.wait_closed()


async def head_of(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(4)
    return head


async def test_an_answer_comes_with_its_headers_and_the_connection_is_used_again() -> None:
    heads: list[bytes] = []
    opened: list[int] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(1)
        while True:
            heads.append(await head_of(reader))
            writer.write(OK[:10])
            await writer.drain()
            writer.write(OK[10:])

    async with served(handle) as connections:
        head = connections.head("/v1/query", Content_Type="text/plain")
        for _ in range(3):
            answer = await connections.ask(head, b"body", LONG_S)
            assert (answer.status, answer.body, answer.failure) == (200, b"ok", "")
            assert answer.headers[b"x-said"] == b"yes"
            assert answer.done_s >= answer.sent_s

    lines = heads[0].decode().split("\r\n")
    assert lines[0] == "POST /at/v1/query HTTP/1.1"
    assert {"Content-Type: text/plain", "Authorization: Bearer secret", "Via: 1.1 test"} < set(
        lines
    )
    assert sum(opened) == 1


async def test_a_gateway_with_tls_is_asked_where_its_certificate_is_known(tmp_path: Path) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(OK)
        await writer.drain()

    (tmp_path / "other").mkdir()
    other = self_signed(tmp_path / "other").certificate
    async with served(handle, tls=self_signed(tmp_path)) as connections:
        head = connections.head("/")
        assert (await connections.ask(head, b"body", LONG_S)).status == 200
        strange = Connections(Access(url=connections.url, certificate=other), 1)
        assert (await strange.ask(head, b"body", LONG_S)).failure == UNREACHABLE
        await strange.close()


async def test_answers_in_chunks_are_read() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 503 No\r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n")

    async with served(handle) as connections:
        answer = await connections.ask(connections.head("/"), b"body", LONG_S)
        assert (answer.status, answer.body) == (503, b"no")


async def test_who_finds_an_idle_connection_closed_is_sent_again() -> None:
    """The gateway closes what was idle for long, and cannot tell before."""
    asked: list[int] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        asked.append(1)
        writer.write(OK)
        if len(asked) == 1:
            await head_of(reader)  # it was closed while this was on its way

    async with served(handle, most=1) as connections:
        head = connections.head("/")
        for _ in range(2):
            assert (await connections.ask(head, b"body", LONG_S)).status == 200
    assert len(asked) == 2


async def test_an_answer_that_breaks_off_is_not_asked_for_again() -> None:
    asked: list[int] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        asked.append(1)
        writer.write(OK[:-1])

    async with served(handle) as connections:
        answer = await connections.ask(connections.head("/"), b"body", LONG_S)
        assert (answer.status, answer.failure) == (0, BROKEN)
    assert len(asked) == 1


async def test_what_is_not_answered_in_its_time_frees_the_connection_for_who_waits() -> None:
    asked: list[int] = []
    over = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        asked.append(1)
        if len(asked) == 1:
            await over.wait()
        writer.write(OK)

    async with served(handle, most=1) as connections:
        head = connections.head("/")
        first, second = await asyncio.gather(
            connections.ask(head, b"body", 0.05), connections.ask(head, b"body", LONG_S)
        )
        over.set()
    assert (first.failure, first.waited) == (UNANSWERED, False)
    assert (second.status, second.waited) == (200, True)


async def test_without_a_server_everybody_is_told() -> None:
    connections = Connections(Access(url="http://127.0.0.1:1"), 1)
    head = connections.head("/")
    asked = [connections.ask(head, b"body", LONG_S) for _ in range(3)]
    found = await asyncio.gather(*asked)
    await connections.close()
    assert [one.failure for one in found] == [UNREACHABLE] * 3


async def test_what_does_not_speak_http_is_a_broken_connection() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"SSH-2.0-none\r\n")
        await writer.drain()
        await reader.read()

    async with served(handle) as connections:
        assert (await connections.ask(connections.head("/"), b"body", LONG_S)).failure == BROKEN


async def test_a_url_that_is_none_is_refused() -> None:
    for url in ("ftp://host", "http://", "http://host:port"):
        with pytest.raises(InvalidInput, match="must start with http"):
            Connections(Access(url=url), 1)
