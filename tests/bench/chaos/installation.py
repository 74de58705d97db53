"""The installation under test: Ray's nodes, a Valkey of its own and ``modelless up``.

All of it runs in a namespace with its own processes and loopback, so that nothing outside is met
and nothing is left. Each Ray node has an address of its own in 127.0.0.0/8.
"""

import http.client
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from controlplane.startup.valkey import EmbeddedValkey
from tests.bench.chaos import models
from tests.integration.deployment import CLI, environment

RAY = str(Path(sys.executable).with_name("ray"))
START_S = 300.0
CONTROL_STORE = 6379
NODE_CORES = 2
"""More than a node's part of the workers needs, so that a worker finds room elsewhere."""


class Shape(NamedTuple):
    """What is started."""

    raylets: int
    """Ray nodes with workers, besides the head; 0: one machine with a Ray of its own."""
    workers: int
    port: int


class Installation:
    """A started installation, its processes, and what it says of itself."""

    def __init__(self, shape: Shape, home: Path, state: Path) -> None:
        self.shape = shape
        self.home = home
        self.state = state
        self.valkey = EmbeddedValkey(home / "v", patience_s=1.0)
        packages = models.install(home, state)
        # For the command that registers and measures; all run the sources that this bench does.
        sources = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(packages), sources)))
        self._plain = environment(state, shape.port)
        self._up: subprocess.Popen[bytes] | None = None
        self.gateways = 0
        """Processes that answer queries when all is well."""

    # -- starting and stopping --------------------------------------------------------------------

    def start(self) -> None:
        """Start everything and return when it is whole."""
        if self.valkey.pid is None or not self.valkey.alive():
            self.valkey.start()
        # Where every node finds it: settings that may be secret are not sent along.
        (self.state / "settings.env").write_text(f"redis_url={self.valkey.url}\n")
        settings: dict[str, object] = {
            "slices": f"{self.shape.workers}xcpu-1",
            "worker_memory_mib": 1024,
        }
        if self.shape.raylets:
            self._start_nodes()
            settings["ray_address"] = f"127.0.0.1:{CONTROL_STORE}"
            settings["listen_channel"] = "tcp:0.0.0.0"
        ready = self.state / "run" / "ready"
        ready.unlink(missing_ok=True)
        with (self.state / "chaos.log").open("ab") as log:
            self._up = subprocess.Popen(
                [*CLI, "up"],
                env=environment(self.state, self.shape.port, **settings),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline_s = time.monotonic() + START_S
        while not (ready.exists() and ready.read_text() == str(self._up.pid)):
            if self._up.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"modelless did not start:\n{self.log}")
            time.sleep(0.2)
        self.gateways = self.gateways or len(self.replicas("modelless-gateway"))
        self.until_whole(START_S)

    def _start_nodes(self) -> None:
        token = self.state / "ray.token"
        token.write_text("5" * 64)
        token.chmod(0o600)
        self.node(1, "--head", f"--port={CONTROL_STORE}", "--dashboard-host=127.0.0.1")
        for number in range(2, self.shape.raylets + 2):
            self.node(number)

    def node(self, number: int, *head: str) -> None:
        """Start a Ray node; the first is the head, which has no workers."""
        joins = head or (f"--address=127.0.0.1:{CONTROL_STORE}",)
        cores = 0 if head else NODE_CORES
        options = [f"--node-ip-address=127.0.0.{number}", f"--num-cpus={cores}"]
        options += ["--object-store-memory=83886080", "--disable-usage-stats"]
        folder = [f"--temp-dir={self.home / 'ray'}"] if head else []
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.state / "ray.token")}
        ran = subprocess.run(
            [RAY, "start", *joins, *options, *folder],
            env=self._plain | token,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if ran.returncode:
            raise RuntimeError(f"a Ray node did not start:\n{ran.stdout}")

    def stop(self) -> None:
        """End all that was started, gently if it can be; nothing else runs in this namespace."""
        self.valkey.stop()
        if self._up is not None and self._up.poll() is None:
            self._up.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._up.wait(60)
        self.kill_all()

    def kill_all(self) -> None:
        """End what is left of Ray and of the command."""
        if self._up is not None and self._up.poll() is None:
            self._up.kill()
            self._up.wait()
        for process in psutil.process_iter(["pid", "cmdline"]):
            words = " ".join(process.info["cmdline"] or ())
            if "ray" in words and process.pid not in (1, os.getpid(), os.getppid()):
                with suppress(psutil.Error):
                    process.kill()

    def copy_catalog(self, to: Path) -> None:
        """Copy all that a start with the same models needs."""
        to.mkdir(parents=True)
        for source in self.state.glob("*.txt"):
            shutil.copy(source, to)
        shutil.copytree(self.state / "artifacts", to / "artifacts")
        with (
            closing(sqlite3.connect(self.state / "catalog.db")) as whole,
            closing(sqlite3.connect(to / "catalog.db")) as copy,
        ):
            whole.backup(copy)

    @property
    def log(self) -> str:
        return (self.state / "chaos.log").read_text(errors="replace")[-4000:]

    # -- processes --------------------------------------------------------------------------------

    def replicas(self, application: str) -> list[psutil.Process]:
        """The processes of a Serve application that run."""
        return [p for p, words in _running() if f":{application}:" in words and "Replica" in words]

    def serve_controller(self) -> list[psutil.Process]:
        return [p for p, words in _running() if words.startswith("ray::ServeController")]

    def raylets(self) -> dict[str, psutil.Process]:
        """The raylet of each node, by address."""
        found = {}
        for process, words in _running():
            if "raylet/raylet" in words:
                where = words.partition("--node_ip_address=")[2].split(" ", 1)[0]
                found[where] = process
        return found

    def control_store(self) -> list[psutil.Process]:
        return [p for p, words in _running() if "gcs/gcs_server" in words]

    # -- what it says -----------------------------------------------------------------------------

    def request(self, method: str, path: str, body: Any = None, timeout_s: float = 2.0) -> Any:
        """The status and the JSON of an answer.

        Raises:
            OSError, http.client.HTTPException: there was none.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.shape.port, timeout=timeout_s)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"content-type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def get(self, path: str) -> Mapping[str, Any]:
        """An answer, or nothing where there was none."""
        try:
            status, told = self.request("GET", path)
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        return told if status == 200 and isinstance(told, dict) else {}

    def workers(self) -> list[dict[str, Any]]:
        """The workers that are listed and whose process runs."""
        alive = {process.pid for process, _ in _running()}
        return [w for w in self.get("/v1/workers").get("workers", []) if w["pid"] in alive]

    def missing(self) -> str:
        """What is not as it should be, in words; empty when all is well."""
        gateways = len(self.replicas("modelless-gateway"))
        if gateways < self.gateways:
            return f"{gateways} of {self.gateways} gateways"
        if not self.replicas("modelless-controller"):
            return "no control loop"
        listed = self.get("/v1/workers").get("workers")
        if listed is None:
            return "workers are not listed"
        workers = self.workers()
        if not len(workers) == len(listed) == self.shape.workers:
            return f"{len(workers)} of {len(listed)} listed workers, {self.shape.workers} wanted"
        if (complete := self.complete(workers)) < self.shape.workers:
            return f"{complete} of {self.shape.workers} workers hold all variants"
        return ""

    def complete(self, workers: Sequence[Mapping[str, Any]] | None = None) -> int:
        """How many workers hold all variants, of these or of those that are there."""
        return sum(
            not worker["draining"]
            and {(r["task"], r["variant"]) for r in worker["replicas"] if r["state"] == "ready"}
            >= models.VARIANTS
            for worker in (self.workers() if workers is None else workers)
        )

    def until_whole(self, patience_s: float) -> None:
        deadline_s = time.monotonic() + patience_s
        while missing := self.missing():
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"not whole after {patience_s:g} s: {missing}\n{self.log}")
            time.sleep(0.2)


def _running() -> Iterator[tuple[psutil.Process, str]]:
    for process in psutil.process_iter(["cmdline", "status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE and process.info["cmdline"]:
            yield process, " ".join(process.info["cmdline"])


@contextmanager
def started(
    shape: Shape, home: Path, state: Path, measured: Path | None = None
) -> Iterator[Installation]:
    """Register the models, start everything, and end it afterwards.

    ``measured``: a folder where the catalog with what was measured is kept, from run to run.
    """
    made = Installation(shape, home, state)
    if measured is not None and measured.exists():
        shutil.copytree(measured, state, dirs_exist_ok=True)
    else:
        models.register(state)
    try:
        made.start()
        if measured is not None and not measured.exists():
            made.copy_catalog(measured)
        yield made
    finally:
        made.stop()
