"""What commands say where no gateway answers, or the command line is wrong."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import grpc

from tests.controlplane.cli.gateway import Gateway
from tests.controlplane.cli.shell import Ended, Shell


def test_nothing_running_is_exit_code_3(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"

    assert shell("tasks", "list", url=url) == Ended(
        3, "", f"error: modelless is not running at {url}; start it with `modelless up`\n"
    )


@contextmanager
def closing_at_once() -> Iterator[int]:
    """A port on which each connection is closed without a word, as TLS does with plain HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def close() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connection.recv(65536)
                    connection.close()

        thread = threading.Thread(target=close)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_port_of_grpc_is_told(shell: Shell) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        ended = shell("status", url=f"http://127.0.0.1:{port}")
    finally:
        server.stop(None)
    assert ended.code == 1
    assert ended.err.endswith(
        "; what answers there speaks no HTTP: a gateway has a port of its own for gRPC\n"
    )


def test_http_where_tls_is_spoken_is_told_with_what_to_look_at(shell: Shell) -> None:
    with closing_at_once() as port:
        ended = shell("status", url=f"http://127.0.0.1:{port}")
    assert ended.code == 1
    assert ended.err.endswith("; where the gateway speaks TLS, its URL is https\n")


def test_https_where_no_tls_is_spoken_is_told_too(gateway: Gateway, shell: Shell) -> None:
    ended = shell("status", url=gateway.url.replace("http://", "https://"))
    assert ended.code == 3
    assert ended.err.endswith("; perhaps its URL is http\n")


def test_a_name_without_an_address_is_told_as_such(shell: Shell) -> None:
    ended = shell("status", url="http://nowhere.invalid:8000")
    assert ended.code == 3
    assert "http://nowhere.invalid:8000 is not reached: no address is known for its name" in (
        ended.err
    )


def test_the_option_wins_over_the_environment(gateway: Gateway, shell: Shell) -> None:
    assert shell("tasks", "list", "--url", gateway.url, url="http://127.0.0.1:1").code == 0


def test_a_url_that_is_none_is_exit_code_2(shell: Shell) -> None:
    ended = shell("tasks", "list", url="localhost:8000")

    assert ended.code == 2
    assert "must start with http:// or https://" in ended.err
    assert ended.err.rstrip().endswith("'localhost:8000'; did you mean http://localhost:8000?")
