"""``modelless register`` for a gateway elsewhere: what of its options is sent there."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from pathlib import Path
from threading import Thread, Timer
from time import monotonic

import orjson
import pytest

from controlplane.cli.outcome import INTERRUPTED
from tests.controlplane.cli.shell import Shell

RESULT = {
    "task": "churn", "versions": [], "variants": [], "skipped": [], "unchanged": [], "doubts": [],
    "repaired": [], "said": [], "seconds": 1.0,
}  # fmt: skip


AGAIN_S = 20.0


class There(BaseHTTPRequestHandler):
    """A gateway at which every registration has succeeded at once."""

    fields: dict[str, str]
    """Of the form that was sent, without its files."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        parts = message_from_bytes(head + body, policy=policy.HTTP).iter_parts()
        sent = {
            part.get_param("name", header="content-disposition"): part.get_content().strip()
            for part in parts
            if part.get_filename() is None
        }
        There.fields = {str(name): text for name, text in sent.items()}
        answer = orjson.dumps({"id": "ab", "state": "succeeded", "result": RESULT})
        self.send_response(202)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


@contextmanager
def gateway(kind: type[There] = There) -> Iterator[str]:
    """Its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ((), {}),
        (("--image-mean", "0.5", "--image-std=0.2,0.3,0.4"), {
            "image_mean": "0.5", "image_std": "0.2,0.3,0.4",
        }),
        (("--labels", "no, yes", "--variants", "onnx-int8,onnx-fp16", "--stage", "canary"), {
            "labels": "no,yes", "variants": "onnx-int8,onnx-fp16", "stage": "canary",
        }),
        (("--lengths", "16,64", "--pad", "ids=1", "--quick", "--measure", "full"), {
            "lengths": "16,64", "pad": "ids=1", "quick": "true", "measure": "full",
        }),
        (("--axis-sizes", "h=8,w=8", "--fix-inputs", "sr=16000", "--free-batch"), {
            "axis_sizes": "h=8,w=8", "fix_inputs": "sr=16000", "free_batch": "true",
        }),
        (("--latency-ms", "50", "--prefer", "latency", "--input-names", "a,b"), {
            "latency_ms": "50.0", "prefer": "latency", "input_names": "a,b",
        }),
    ],
)  # fmt: skip
def test_options_are_sent_as_they_were_given(
    shell: Shell, tmp_path: Path, options: tuple[str, ...], fields: dict[str, str]
) -> None:
    """``--image-mean`` and ``--image-std`` ended with an internal error."""
    model, rows = tmp_path / "forest.onnx", tmp_path / "rows.npz"
    for file in (model, rows):
        file.write_bytes(b"-")
    line = ("register", str(model), "--task", "churn", "--eval", str(rows), "-o", "json")
    with gateway() as url:
        ended = shell(*line, *options, url=url)
        assert ended.code == 0, ended.err
    assert ended.json() == RESULT
    assert There.fields == {"task": "churn", "name": "forest"} | fields


class Interrupted(There):
    """One that is at work when Ctrl-C is pressed, and may be done when it is told to end.

    Python loses an interrupt that comes while it drops an object; then it is pressed again.
    """

    ends: str
    """As what it ends then."""
    told_to_end = False
    pressed_s = -inf

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._tell({"id": "ab", "state": "running"}, 202)

    def do_GET(self) -> None:
        if Interrupted.told_to_end:
            self._tell({"id": "ab", "state": Interrupted.ends})
            return
        progress = {"step": "build", "done": 1, "total": 5, "message": "building forest"}
        self._tell({"id": "ab", "state": "running", "progress": progress})
        if monotonic() > Interrupted.pressed_s + AGAIN_S:
            Interrupted.pressed_s = monotonic()
            Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()

    def do_DELETE(self) -> None:
        Interrupted.told_to_end = True
        over = Interrupted.ends == "succeeded"
        conflict = {
            "error": "it is over",
            "code": "CONFLICT",
            "retryable": False,
            "request_id": "-",
        }
        self._tell(conflict if over else {"id": "ab", "state": "running"}, 409 if over else 202)

    def _tell(self, document: object, status: int = 200) -> None:
        answer = orjson.dumps(document)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        ("failed", "nothing was registered at {url}, and the same command goes on there"),
        ("succeeded", "{url} had registered it already"),
    ],
)
def test_an_interrupt_ends_it_there_too(shell: Shell, tmp_path: Path, ends: str, says: str) -> None:
    """The gateway went on, and a version became live that somebody had stopped."""
    Interrupted.ends, Interrupted.told_to_end, Interrupted.pressed_s = ends, False, -inf
    model = tmp_path / "forest.onnx"
    model.write_bytes(b"-")
    with gateway(Interrupted) as url:
        ended = shell("register", str(model), "--task", "churn", "--eval", str(model), url=url)
        assert ended.code == INTERRUPTED
        assert f"interrupted: {says.format(url=url)}\n" in ended.err
    assert Interrupted.told_to_end


def test_options_that_cannot_be_read_are_refused_before_anything_is_sent(
    shell: Shell, tmp_path: Path
) -> None:
    model = tmp_path / "forest.onnx"
    model.write_bytes(b"-")
    line = ("register", str(model), "--task", "churn", "--eval", str(model))
    wrong = ("--text-inputs", "nothing")
    ended = shell(*line, *wrong, url="http://127.0.0.1:9")
    assert (ended.code, "sending" in ended.err) == (2, False), ended.err
