"""What a gateway could say, at the wire's other end."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

from controlplane.client import (
    AsyncClient,
    Client,
    Cold,
    DeadlineExceeded,
    Internal,
    InvalidInput,
    ModellessError,
    Overloaded,
    RateLimited,
    ReplicaLost,
    Unreachable,
)
from tests.controlplane.client.asking.asked import TOKEN, answering, told

BODY = {
    "variant": "a-v1-onnx-fp32", "model_version": "a-v1", "worker": "w1", "batch_size": 3,
    "queue_ms": 0.5, "run_ms": 1.5, "accuracy": 0.9, "cost_usd_per_1k": 0.01, "slo_met": True,
    "outputs": {"y": [[1.0]], "z": [[2.0]]},
}  # fmt: skip


def test_a_reply_may_have_no_labels_and_more_than_is_known() -> None:
    with answering(lambda _: httpx.Response(200, json=BODY | {"news": 1})) as client:
        reply = client.query("a", [[0]])
    assert (reply.outputs, reply.labels, reply.scores) == (BODY["outputs"], (), ())


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"variant": "a"}'])
def test_what_is_no_reply_is_not_modelless(body: bytes) -> None:
    with (
        answering(lambda _: httpx.Response(200, content=body)) as client,
        pytest.raises(Unreachable, match=r"what answers at http://127.0.0.1:8000 is not modelless"),
    ):
        client.query("a", [[0]])


def error_of(
    status: int, body: dict[str, Any], headers: dict[str, str] | None = None
) -> ModellessError:
    with (
        answering(lambda _: httpx.Response(status, json=body, headers=headers)) as client,
        pytest.raises(ModellessError) as refused,
    ):
        client.query("a", [[0]])
    return refused.value


@pytest.mark.parametrize(
    ("status", "body", "header", "kind", "retry_after_s"),
    [
        (503, told("COLD", retry_after_s=0.25), "1", Cold, 0.25),
        (503, told("OVERLOADED"), None, Overloaded, None),
        (429, told("RATE_LIMITED"), "7", RateLimited, 7.0),
        (503, {"message": "from a proxy"}, "3", Overloaded, 3.0),
        (503, told("REPLICA_LOST"), "Wed, 21 Oct 2026 07:28:00 GMT", ReplicaLost, None),
        (500, told("INTERNAL"), None, Internal, None),
    ],
)
def test_an_error_says_when_to_try_again(
    status: int,
    body: dict[str, Any],
    header: str | None,
    kind: type[ModellessError],
    retry_after_s: float | None,
) -> None:
    error = error_of(status, body, {"Retry-After": header} if header else None)
    assert (type(error), error.retry_after_s) == (kind, retry_after_s)
    assert error.retryable is (kind is not Internal)


def test_a_query_waits_longer_than_its_deadline_and_no_more() -> None:
    waits = []

    def answer(request: httpx.Request) -> httpx.Response:
        waits.append(request.extensions["timeout"]["read"])
        raise httpx.ReadTimeout("late", request=request)

    with Client(transport=httpx.MockTransport(answer), timeout_s=2) as client:
        for latency_ms in (None, 60_000):
            with pytest.raises(DeadlineExceeded):
                client.query("a", [[0]], latency_ms=latency_ms)
    assert waits == [2.0, 62.0]


def test_a_connection_that_breaks_is_a_lost_replica() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("reset", request=request)

    with answering(answer) as client, pytest.raises(ReplicaLost) as refused:
        client.query("a", [[0]])
    assert refused.value.retryable


def serve(server: socket.socket, meet: Callable[[socket.socket], None]) -> None:
    """Meet at most two connections, and end each then; a client may have come once."""
    with suppress(OSError):  # the test is over, and the socket closed
        for _ in range(2):
            connection, _ = server.accept()
            with connection:
                meet(connection)


@contextmanager
def resetting() -> Iterator[str]:
    """A gateway whose connections are reset while their first request is under way, as those of a
    process that is killed; its URL."""

    def reset(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True, args=(server, reset)).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


async def test_a_connection_that_was_reset_says_why_it_broke() -> None:
    with resetting() as url:
        async with AsyncClient(url) as client:
            with pytest.raises(ReplicaLost) as lost:
                await client.query("a", [[0]])
    assert str(lost.value) == f"the connection to {url} broke: connection reset by peer"


def test_a_connection_of_which_no_library_says_anything_ended_before_the_answer() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("", request=request)

    with answering(answer) as client, pytest.raises(ReplicaLost) as lost:
        client.query("a", [[0]])
    assert str(lost.value).endswith(" broke: it ended before the answer")


def read_request(connection: socket.socket) -> bool:
    """Whether one came, of which the head says how long its body is."""
    got = b""
    while b"\r\n\r\n" not in got:
        if not (more := connection.recv(4096)):
            return False
        got += more
    head, _, body = got.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.lower().split(b"\r\n")
        if b"content-length" in line
    )
    while len(body) < length:
        body += connection.recv(4096)
    return True


@contextmanager
def closing(answered: list[int]) -> Iterator[str]:
    """A gateway that answers so many requests on each of its connections, and closes it when the
    next one has come; its URL."""
    body = json.dumps(BODY).encode()
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answers() -> None:
            with suppress(OSError):  # as in ``serve``
                for requests in answered:
                    connection, _ = server.accept()
                    with connection:
                        for _ in range(requests):
                            read_request(connection)
                            connection.sendall(reply)
                        read_request(connection)

        threading.Thread(target=answers, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_kept_connection_that_is_closed_as_a_query_is_asked_loses_no_query() -> None:
    with closing([1, 2]) as url, Client(url) as client:
        assert [client.query("a", [[0]]).worker for _ in range(3)] == ["w1"] * 3


async def test_nor_does_it_on_an_event_loop() -> None:
    with closing([1, 2]) as url:
        async with AsyncClient(url) as client:
            assert [(await client.query("a", [[0]])).worker for _ in range(3)] == ["w1"] * 3


def test_a_gateway_that_answers_nothing_is_asked_twice_and_no_more() -> None:
    with closing([0, 0]) as url, Client(url) as client, pytest.raises(ReplicaLost):
        client.query("a", [[0]])


def test_what_speaks_no_http_is_no_gateway() -> None:
    """Such as the gateway's port for gRPC."""

    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.RemoteProtocolError("illegal status line", request=request)

    with (
        answering(answer) as client,
        pytest.raises(Unreachable, match="a port of its own for gRPC"),
    ):
        client.query("a", [[0]])


@contextmanager
def saying(words: bytes) -> Iterator[str]:
    """Where something listens that answers whatever comes with these words; its address."""

    def say(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(words)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True, args=(server, say)).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_who_asks_with_tls_where_there_is_none_is_told_of_the_url() -> None:
    with (
        saying(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        Client(f"https://{address}") as asks,
        pytest.raises(Unreachable) as refused,
    ):
        asks.query("a", [[0]])
    assert refused.value.message == (
        f"no gateway answers at https://{address}: what listens there speaks no TLS; perhaps its"
        " URL is http"
    )


def test_who_asks_without_tls_what_closes_the_connection_is_told_of_the_url() -> None:
    with closing([0, 0]) as url, Client(url) as client, pytest.raises(ReplicaLost) as lost:
        client.query("a", [[0]])
    assert lost.value.message.endswith("; where the gateway speaks TLS, its URL is https")


def test_a_name_without_an_address_is_told_as_one() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        raise httpx.ConnectError(str(unknown), request=request) from unknown

    with answering(answer) as client, pytest.raises(Unreachable) as refused:
        client.query("a", [[0]])
    assert refused.value.message.endswith(
        ": no address is known for its name (name or service not known)"
    )


def heard(**options: Any) -> tuple[str, str | None]:
    """Which URL a client asks, and with which authorization."""
    asked: list[tuple[str, str | None]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((str(request.url), request.headers.get("authorization")))
        return httpx.Response(200, json=BODY)

    with Client(transport=httpx.MockTransport(answer), **options) as client:
        client.query("a", [[0]])
    return asked[0]


def test_who_names_no_gateway_asks_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MODELLESS_URL", raising=False)
    monkeypatch.delenv("MODELLESS_API_TOKEN", raising=False)
    assert heard() == ("http://127.0.0.1:8000/v1/query", None)
    monkeypatch.setenv("MODELLESS_URL", "http://gateway:9000/")
    monkeypatch.setenv("MODELLESS_API_TOKEN", TOKEN)
    assert heard() == ("http://gateway:9000/v1/query", f"Bearer {TOKEN}")
    assert heard(url="http://other", token="") == ("http://other/v1/query", None)


async def test_an_event_loop_asks_that_of_the_environment_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MODELLESS_URL", "http://gateway:9000/")
    async with AsyncClient() as client:
        assert client.url == "http://gateway:9000"


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://localhost", "http://", "http://a:b", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="no URL of a gateway"):
        Client(url)
