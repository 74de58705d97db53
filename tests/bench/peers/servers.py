"""Both servers, started and stopped, with the processor time of all of their processes."""

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil

from tests.bench.peers.models import Model
from tests.clients import program
from tests.integration.deployment import CLI, deployed, environment
from tests.ports import free_port

HERE = Path(__file__).parent
START_S = 60.0
PATIENT_MS = 5_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that runs, as the client needs to know it."""

    name: str
    port: int
    grpc_port: int
    path: str
    flat: bool
    """Whether a body is ``{"x": [numbers]}``, and not a query of ours."""
    processes: Callable[[], Sequence[psutil.Process]]

    def cpu_s(self) -> float:
        """Processor time of all its processes since they began."""
        used = 0.0
        for process in self.processes():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            used += times.user + times.system
        return used


@contextmanager
def ours(state: Path, slices: str = "") -> Iterator[Server]:
    """``modelless up`` on a state directory with the models registered."""
    with deployed(state, **_divided(slices)) as running:
        yield Server(
            name="modelless",
            port=running.port,
            grpc_port=running.grpc_port,
            path="/v1/query",
            flat=False,
            processes=running.processes,
        )


def _divided(slices: str) -> dict[str, Any]:
    return {"slices": slices} if slices else {}


def register(state: Path, model: Model, files: tuple[Path, Path], slices: str = "") -> None:
    """One variant of the model, as it is: no other server has a choice."""
    state.mkdir(exist_ok=True)
    path, rows = files
    command = [*CLI, "register", str(path), "--task", model.name, "--eval", str(rows)]
    # Clients that cannot say what they need wait for every answer.
    command += ["--variants", "onnx-fp32", "--latency-ms", f"{PATIENT_MS:g}"]
    subprocess.run(
        command,
        env=environment(state, free_port(), **_divided(slices)),
        check=True,
        stdout=subprocess.DEVNULL,
    )


@contextmanager
def mosec(model: Model, path: Path) -> Iterator[Server]:
    """Mosec with one model, set up as it did best."""
    port = free_port()
    python = program("mosec", "python")
    command = [str(python), str(HERE / "mosec_server.py"), "--address", "127.0.0.1"]
    command += ["--port", str(port), "--log-level", "error", "--capacity", "4096"]
    own = {
        "PEER_MODEL": str(path),
        "PEER_SHAPE": ",".join(map(str, model.shape)),
        "PEER_WORKERS": str(model.workers),
        "PEER_THREADS": str(model.threads),
        "PEER_BATCH": str(model.batch),
    }
    with subprocess.Popen(command, env={**os.environ, **own}) as process:
        root = psutil.Process(process.pid)
        try:
            _wait(port, model)
            yield Server(
                name="mosec",
                port=port,
                grpc_port=0,
                path="/inference",
                flat=True,
                processes=lambda: [root, *root.children(recursive=True)],
            )
        finally:
            process.terminate()
            process.wait(START_S)


def _wait(port: int, model: Model) -> None:
    deadline_s = time.monotonic() + START_S
    body = orjson.dumps({"x": [0.0] * model.width})
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/inference", body, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)
