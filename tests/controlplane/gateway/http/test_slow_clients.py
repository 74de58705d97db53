"""Clients that keep the gateway waiting, on real sockets; limits are short, the sweep is quick."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from controlplane.gateway.http.client_limits import ClientLimits
from controlplane.gateway.http.http_protocol import Front
from controlplane.gateway.query import query_context
from controlplane.gateway.query.query_path import monotonic_ms
from tests.controlplane.certificates import self_signed
from tests.controlplane.fleet import fleet, gateway
from tests.controlplane.serving import (
    FAST,
    LATE,
    Client,
    Served,
    chunked,
    post,
    query,
    request,
    serving,
    until,
)
from tests.undisturbed import undisturbed
from variants.types import WorkerId

pytestmark = pytest.mark.slow

LIMITS = ClientLimits(
    head_s=1.0, least_bytes_per_s=2000.0, window_s=1.0, grace_s=0.5, idle_s=3.0, unread_s=3.0,
    ending_s=1.0, sweep_s=0.1,
)  # fmt: skip
LATE_HEAD = "the request takes too long: its headers have not come in full within 1 s"
SLOW_BODY = "the request takes too long: its body comes more slowly than 2,000 bytes per second"


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    async with serving(short_folder, live_url, limits=LIMITS) as running:
        await running.worker("w1", FAST, LATE)
        yield running


async def drip(client: Client, data: bytes, *, size: int = 1, every_s: float = 0.05) -> None:
    """Send it piece by piece, until the other side closes."""
    for at in range(0, len(data), size):
        if client.writer.is_closing() or client.reader.at_eof():
            return
        client.send(data[at : at + size])
        await asyncio.sleep(every_s)


async def refused(served: Served, data: bytes, dripped: bytes) -> tuple[int, str, str]:
    """How a connection ends that sends some data at once and the rest in drops."""
    client = await served.client()
    client.send(data)
    dripping = asyncio.create_task(drip(client, dripped))
    try:
        answer = await client.answer()
        assert answer.headers["connection"] == "close"
        assert await client.ended() == b""
    finally:
        dripping.cancel()
    return answer.error


async def closed(client: Client) -> bytes:
    """What still comes until the connection is closed; it is reset when drops cross that."""
    try:
        return await client.ended()
    except ConnectionResetError:
        return b""


HEAD = b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize("data", [b"P", HEAD])
async def test_a_head_that_drips(served: Served, data: bytes) -> None:
    dripped = (b"X-Filler: " + b"z" * 1000) if data == HEAD else b"O" * 1000
    if data == b"P":
        dripped = (HEAD + b"X-Filler: " + b"z" * 1000)[1:]
    assert await refused(served, data, dripped) == (408, "INVALID_INPUT", LATE_HEAD)


async def test_a_head_that_stops(served: Served) -> None:
    assert await refused(served, HEAD, b"") == (408, "INVALID_INPUT", LATE_HEAD)


@pytest.mark.parametrize("path", ["/v1/query", "/v2/models/letters/infer", "/v1/models"])
async def test_a_body_that_drips(served: Served, path: str) -> None:
    """On the short way and on the ordinary one."""
    kind = ("Content-Type", "multipart/form-data; boundary=b")
    head = request("POST", path, None, headers=[("Content-Length", "100000"), kind])
    begun = b'--b\r\nContent-Disposition: form-data; name="model"; filename="m"\r\n\r\n'
    assert await refused(served, head + begun, b"x" * 1000) == (408, "INVALID_INPUT", SLOW_BODY)


async def test_a_chunked_body_that_drips(served: Served) -> None:
    head = request("POST", "/v1/query", None, headers=[("Transfer-Encoding", "chunked")])
    dripped = chunked(b"[" * 1000, 1)
    assert await refused(served, head, dripped) == (408, "INVALID_INPUT", SLOW_BODY)


async def test_a_body_above_the_least_rate_passes(served: Served) -> None:
    """For three windows, at ten times that rate: a busy machine may take much of it. Its deadline,
    which counts from the first byte, is far."""
    body = json.dumps(query(5)).encode().ljust(60_000)

    async def sent() -> None:
        client = await served.client()
        client.send(request("POST", "/v1/query", None, headers=[("Content-Length", "60000")]))
        await drip(client, body, size=1_000, every_s=0.05)
        answer = await client.answer()
        assert answer.status == 200, answer
        assert answer.json["outputs"][0][0] == 5

    await undisturbed(sent, at_most_s=LIMITS.grace_s)


async def test_a_body_may_wait_for_100_continue_as_long_as_we_do(served: Served) -> None:
    """The query before it takes 150 ms, and no window begins until it may be sent."""
    body = json.dumps(query(5)).encode()
    headers = [("Expect", "100-continue"), ("Content-Length", str(len(body)))]
    client = await served.client()
    client.send(post(query(1, variant=LATE)) + request("POST", "/v1/query", None, headers=headers))
    assert (await client.answer()).status == 200
    assert (await client.answer()).status == 100
    client.send(body)
    assert (await client.answer()).json["outputs"][0][0] == 5


async def test_a_partial_head_behind_a_query_costs_the_query_nothing(served: Served) -> None:
    client = await served.client()
    client.send(post(query(1, variant=LATE)) + HEAD)
    assert (await client.answer()).json["outputs"][0][0] == 1
    assert (await client.answer()).error == (408, "INVALID_INPUT", LATE_HEAD)
    assert await client.ended() == b""


async def test_a_refused_request_whose_body_drips_is_closed(served: Served) -> None:
    head = request("POST", "/nothing", None, headers=[("Content-Length", "100000")])
    client = await served.client()
    client.send(head)
    assert (await client.answer()).status == 404
    dripping = asyncio.create_task(drip(client, b"x" * 1000))
    assert await closed(client) == b""
    dripping.cancel()


async def test_a_refusal_is_read_by_whom_sends_its_body_too_slowly(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_context, "PRESSED_MS", 3_600_000.0)
    served.gateway.known.workers[WorkerId("w1")].view.busy_until_ms = monotonic_ms() + 3_600_000.0
    client = await served.client()
    assert (await client.ask(query(1))).status == 503
    hint = [("X-Modelless-Task", "letters"), ("Content-Length", "100000")]
    client.send(request("POST", "/v1/query", None, headers=hint))
    assert served.gateway.servers.http is not None
    (front,) = served.gateway.servers.http.server_state.connections
    assert isinstance(front, Front)
    await until(lambda: front.deaf or front.transport.is_closing())
    for _ in range(3):  # would reset a connection that was closed
        client.send(b"x")
        await asyncio.sleep(0.02)
    assert (await client.answer()).error[:2] == (503, "OVERLOADED")
    assert await client.ended() == b""


@pytest.mark.parametrize("dripped", [b"", b"\r\n" * 1000])
async def test_an_idle_connection_is_closed_without_a_word(served: Served, dripped: bytes) -> None:
    """Empty lines, which may stand between requests, keep nothing open."""
    client = await served.client()
    assert (await client.ask(query(1))).status == 200
    dripping = asyncio.create_task(drip(client, dripped, size=2))
    assert await closed(client) == b""
    dripping.cancel()


async def test_the_settings_say_how_long_an_idle_connection_is_kept(
    tmp_path: Path, port: int
) -> None:
    async with fleet(tmp_path, port=port, idle_connection_s=1.0) as it, gateway(it):
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        async with asyncio.timeout(30):  # 75 s without it
            assert await client.ended() == b""


async def test_who_asks_now_and_then_is_kept(served: Served) -> None:
    """For twice as long as one that asks nothing."""

    async def kept() -> None:
        client = await served.client()
        for number in range(6):
            await asyncio.sleep(LIMITS.idle_s / 3)
            try:
                assert (await client.ask(query(number))).status == 200
            except (ConnectionError, EOFError) as error:
                raise AssertionError from error

    await undisturbed(kept, at_most_s=LIMITS.idle_s / 3)


async def test_answers_that_are_never_read_are_given_up(served: Served) -> None:
    """The sockets of this machine take some MiB; what is beyond must not stay for ever."""
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(deaf, ("127.0.0.1", served.port))
        await loop.sock_sendall(deaf, request("GET", "/openapi.json", None) * 100)
        server = served.gateway.servers.http
        assert server is not None
        await until(lambda: len(server.server_state.connections) == 1)
        await until(lambda: not server.server_state.connections)


async def test_a_handshake_that_never_ends(live_url: str) -> None:
    with TemporaryDirectory(prefix="ml-", dir="/tmp") as name:
        pair = self_signed(Path(name))
        async with serving(
            Path(name), live_url, limits=LIMITS, tls_cert=pair.certificate, tls_key=pair.key
        ) as served:
            client = await served.client()
            client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
            assert b"HTTP" not in await client.ended()


async def test_uploads_that_drip_keep_nobody_out(served: Served) -> None:
    """Ten of them, and a registration is received nevertheless."""
    kind = ("Content-Type", "multipart/form-data; boundary=b")
    head = request("POST", "/v1/models", None, headers=[("Content-Length", "100000"), kind])
    begun = b'--b\r\nContent-Disposition: form-data; name="model"; filename="m"\r\n\r\n'
    slow = [await served.client() for _ in range(10)]
    for client in slow:
        client.send(head + begun)
    uploads = served.gateway.settings.state_dir / "uploads"
    await until(lambda: uploads.exists() and len(list(uploads.iterdir())) == 10)
    client = await served.client()
    form = b'--b\r\nContent-Disposition: form-data; name="task"\r\n\r\nx\r\n--b--\r\n'
    client.send(request("POST", "/v1/models", form, headers=[kind]))
    assert (await client.answer()).error == (
        400, "INVALID_INPUT", "the form lacks the file 'model'",
    )  # fmt: skip
    for client in slow:
        assert (await client.answer()).error == (408, "INVALID_INPUT", SLOW_BODY)
    await until(lambda: not list(uploads.iterdir()))


async def test_many_may_connect_at_one_moment(served: Served) -> None:
    """The event loop takes none of them meanwhile, so all wait with the kernel."""
    address = ("127.0.0.1", served.port)
    waiting = [socket.create_connection(address, timeout=10.0) for _ in range(300)]
    try:
        assert (await served.ask()).status == 200
    finally:
        for each in waiting:
            each.close()
