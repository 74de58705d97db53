"""Where commands ask, on a cluster of which several machines have a gateway."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from controlplane.settings import load_settings
from controlplane.startup.reached_gateway import LOOK_S, ReachedGateway, answering

A, B, C = (f"http://10.0.0.{number}:8000" for number in (1, 2, 3))


def test_commands_ask_another_machine_once_the_first_is_gone_and_stay_there() -> None:
    now_s, up, asked = 0.0, {A, B, C}, list[str]()

    def answers(url: str) -> bool:
        asked.append(url)
        return url in up

    reached = ReachedGateway([A, B, C], answers, lambda: now_s)
    assert (reached.look(A), asked) == (A, [])  # not all the time
    now_s += LOOK_S
    assert (reached.look(A), asked) == (A, [A])
    up -= {A, B}
    now_s += LOOK_S
    assert reached.look(A) == C
    up |= {A, B}
    now_s += LOOK_S
    assert reached.look(C) == C
    up.clear()
    now_s += LOOK_S
    assert reached.look(C) == C


def test_of_one_gateway_nothing_is_asked() -> None:
    def never(url: str) -> bool:
        raise AssertionError(url)

    now_s = 0.0
    reached = ReachedGateway([A], never, lambda: now_s)
    now_s += LOOK_S
    assert reached.look(A) == A


@contextmanager
def gateway(status: int) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b'{"ready": true}')

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "found"), [(200, True), (503, False)])
def test_one_that_takes_requests_answers(tmp_path: Path, status: int, found: bool) -> None:
    answers = answering(load_settings(state_dir=tmp_path))
    with gateway(status) as url:
        assert answers(url) is found
    assert not answers(url)
