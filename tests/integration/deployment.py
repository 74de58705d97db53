"""A whole modelless on this machine, started and stopped through its command line."""

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.ports import free_port

START_S = 600.0
PATIENCE_S = 600.0
"""A start, and anything else that is waited for, may take so long on a machine that others keep
busy."""
ANSWER_S = 120.0
"""How long a client waits for an answer: more than any query may take, though nothing runs for a
while."""
REFUSED_S = 0.05
"""How long clients of a load wait after a refusal."""
BUSY = ("OVERLOADED", "DEADLINE_EXCEEDED")
"""What may be answered besides on a machine that does other things as well: no time was left."""
PATIENT = {"latency_ms": 10_000.0}
"""The SLO of queries that are to be answered however busy the machine is."""
CLI = [sys.executable, "-P", "-m", "controlplane.cli.main"]


MEANWHILE, UNMEASURED = "measured while queries are answered", "yet to be measured"
FOLLOW, ALL_THERE = "follow: trained and", "example: all of its models are there"
"""What a start and the state say of variants without a profile."""


class Answer(NamedTuple):
    status: int
    body: Any
    headers: Mapping[str, str]


class Service:
    """A gateway that is somewhere. Talks HTTP with the standard library, as any client may."""

    @property
    def log(self) -> str:
        """What to show when it does not do what it should."""
        return ""

    def connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """A connection to it, which opens when it is used."""
        raise NotImplementedError

    def headers(self) -> dict[str, str]:
        """What every request carries."""
        return {}

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = ANSWER_S,
    ) -> Answer:
        connection = self.connection(timeout_s)
        try:
            return ask(connection, method, path, body, {**self.headers(), **(headers or {})})
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        answer = self.request("GET", path)
        assert answer.status == 200, answer
        return answer.body

    def query(self, rows: Any, **fields: Any) -> Answer:
        """Ask with these rows; patiently unless ``slo`` says something else."""
        body = {"task": "digits", "inputs": rows, "slo": PATIENT, **fields}
        return self.request("POST", "/v1/query", body)

    def workers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/v1/workers")["workers"]
        return found

    def variants(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/v1/tasks/digits/variants")["variants"]
        return found

    def ready(self, worker: Mapping[str, Any]) -> set[str]:
        return {r["variant"] for r in worker["replicas"] if r["state"] == "ready"}

    def until(self, condition: Any, what: str, timeout_s: float = PATIENCE_S) -> Any:
        """The first true value of ``condition()``; refused connections count as false."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                if found := condition():
                    return found
            except (OSError, AssertionError, http.client.HTTPException):
                pass
            time.sleep(0.1)
        raise AssertionError(f"{what}: not within {timeout_s} s\n{self.log}")


class Local(Service):
    """A gateway on this machine."""

    def __init__(self, state_dir: Path, port: int) -> None:
        self.state_dir = state_dir
        self.port = port

    @property
    def log(self) -> str:
        return (self.state_dir / "test.log").read_text(errors="replace")

    def connection(self, timeout_s: float) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)


class Deployment(Local):
    """One running ``modelless up`` on this machine."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", state_dir: Path, port: int, grpc_port: int
    ) -> None:
        super().__init__(state_dir, port)
        self.process = process
        self.grpc_port = grpc_port

    def processes(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def stop(self, number: int = signal.SIGINT) -> int:
        """End it and wait; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    connection.request(method, path, body, dict(headers or {}))
    response = connection.getresponse()
    data = response.read()
    kind = response.headers.get("content-type", "")
    found = json.loads(data) if kind.startswith("application/json") else data
    return Answer(response.status, found, {k.lower(): v for k, v in response.getheaders()})


def title(process: psutil.Process) -> str:
    """How a process was started, or what it calls itself; empty of one that has ended meanwhile."""
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def environment(state_dir: Path, port: int, **settings: object) -> dict[str, str]:
    """The environment of a command on a state directory, without settings of the caller's.

    There is no gRPC unless ``settings`` have a port for it: its default is one and the same. On a
    machine of many cores there is one worker as well, unless they say what workers there are.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MODELLESS_", "RAY_")) and name != "REDIS_URL"
    }
    own = {"MODELLESS_STATE_DIR": str(state_dir), "MODELLESS_PORT": str(port)}
    own["MODELLESS_GRPC_PORT"] = "0"
    if not settings.keys() & {"workers", "slices", "ray_address"}:
        own["MODELLESS_WORKERS"] = "1"
    return kept | own | {f"MODELLESS_{k.upper()}": str(v) for k, v in settings.items()}


def command(running: Deployment, *arguments: str | Path) -> str:
    """What a command on that deployment prints."""
    return printed(running, [*CLI, *arguments])


def printed(running: Deployment, line: Sequence[str | Path]) -> str:
    """What a program prints that finds that deployment by its settings."""
    ran = subprocess.run(
        line,
        env=environment(running.state_dir, running.port),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@contextmanager
def deployed(
    state_dir: Path,
    *,
    arguments: Sequence[str] = (),
    start_s: float = START_S,
    meanwhile: Callable[["Deployment"], None] = lambda _: None,
    measured: bool = True,
    typed_in: Path | None = None,
    **settings: object,
) -> Iterator[Deployment]:
    """Start ``modelless up`` on a state directory; afterwards nothing of it may be left.

    ``meanwhile`` is called once, when the command runs and is not ready yet. With ``measured`` it
    is waited for what is measured while queries are answered. ``typed_in`` is the folder in which
    the command is typed.
    """
    port, grpc_port = free_port(), free_port()
    settings = {"grpc_port": grpc_port, **settings}
    state_dir.mkdir(parents=True, exist_ok=True)
    with (state_dir / "test.log").open("ab") as log:
        process = subprocess.Popen(
            [*CLI, "up", *arguments],
            env=environment(state_dir, port, **settings),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=typed_in,
        )
    deployment = Deployment(process, state_dir, port, grpc_port)
    started: list[psutil.Process] = []
    try:
        meanwhile(deployment)
        _wait_until_ready(deployment, start_s)
        if measured and FOLLOW in deployment.log:
            deployment.until(lambda: ALL_THERE in deployment.log, "the example is made", start_s)
        if measured and MEANWHILE in deployment.log:
            deployment.until(lambda: all_measured(deployment), "all is measured", start_s)
        yield deployment
        if process.poll() is None:
            started = deployment.processes()
            code = deployment.stop()
            assert code in (0, 130), deployment.log
            left = [p for p in started if p.is_running() and p.status() != "zombie"]
            assert left == [], f"left running: {left}"
    finally:
        if process.poll() is None:
            for child in deployment.processes():
                child.kill()
            process.kill()
            process.wait()


def all_measured(running: Service) -> bool:
    """Whether each variant has a profile on each kind that runs."""
    return UNMEASURED not in running.get("/v1/plan")["standing"]["sentence"]


def _wait_until_ready(deployment: Deployment, start_s: float) -> None:
    ready = deployment.state_dir / "run" / "ready"
    deadline = time.monotonic() + start_s
    mine = str(deployment.process.pid)
    while not (ready.exists() and ready.read_text() == mine):
        assert deployment.process.poll() is None, deployment.log
        assert time.monotonic() < deadline, deployment.log
        time.sleep(0.1)


@contextmanager
def short_directory() -> Iterator[Path]:
    """A fresh directory with a path short enough for Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="mls-", ignore_cleanup_errors=True) as path:
        yield Path(path)


class Load:
    """Closed-loop clients in threads; every answer is counted, nothing may go without one.

    Who is refused waits a moment before asking again, so that the processors are left to what comes
    back meanwhile.
    """

    def __init__(self, deployment: Service, body: Any, clients: int, pause_s: float = 0.0) -> None:
        """
        Args:
            pause_s: how long a client waits after an answer, where load goes on for long.
        """
        self._deployment = deployment
        self._body = json.dumps(body).encode()
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.outcomes: Counter[str] = Counter()
        self.untyped: list[str] = []
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(clients)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * ANSWER_S)
            assert not thread.is_alive(), "a query was never answered"

    def snapshot(self) -> Counter[str]:
        with self._lock:
            return Counter(self.outcomes)

    def _run(self) -> None:
        connection = self._deployment.connection(ANSWER_S)
        while not self._stop.is_set():
            try:
                headers = self._deployment.headers()
                answer = ask(connection, "POST", "/v1/query", self._body, headers)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._count(f"broken: {error!r}", repr(error))
                connection.close()
                self._stop.wait(REFUSED_S)
                continue
            if answer.status == 200:
                self._count("200")
                if self._pause_s:
                    self._stop.wait(self._pause_s)
                continue
            if isinstance(answer.body, dict) and "code" in answer.body:
                self._count(answer.body["code"])
            else:
                self._count(f"untyped {answer.status}", repr(answer))
            self._stop.wait(REFUSED_S)
        connection.close()

    def _count(self, outcome: str, wrong: str | None = None) -> None:
        with self._lock:
            self.outcomes[outcome] += 1
            if wrong is not None:
                self.untyped.append(wrong)
