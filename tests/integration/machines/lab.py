"""What several machines share in a test of ``deploy/``: database, live state, a first model."""

import http.client
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import redis

from tests.deploy.files import ROOT
from tests.integration.deployment import Service
from tests.integration.machines.network import PATH, Machine, Network, network
from tests.services import Prepared, missing, prepared_postgres, prepared_redis, wait_for

PASSWORD = "not-a-secret"
REDIS_PORT = 6380
"""Ray's control store has 6379 on all addresses."""
HOME = "/tmp/home"
PORTS = (
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "runtime-env-agent-port",
    "metrics-export-port",
    "node-manager-port",
    "object-manager-port",
)
"""Of a Ray node, besides those of its workers."""


class Lab:
    """A network with a database and a live state on it, for machines that share no directory."""

    def __init__(self, net: Network) -> None:
        self.network = net
        self._start_postgres()
        self._start_redis()

    def machine(
        self,
        number: int,
        name: str,
        disks: Mapping[Path, str] | None = None,
        *,
        read_only: bool = False,
    ) -> Machine:
        """Switch on a machine where modelless is installed as the documents say.

        ``disks`` are folders that it sees, and where.
        """
        made = self.network.add(number, name, disks or {}, read_only=read_only)
        home = made.folder / "tmp" / "home"
        home.mkdir()
        (home / "modelless-env").symlink_to(sys.prefix)
        (home / "modelless-src").symlink_to(ROOT)
        return made

    @staticmethod
    def addressed(text: str) -> str:
        """Addresses of the documents' services, as this network has them."""
        text = text.replace("PASSWORD@db/", f"{PASSWORD}@127.0.0.1/")
        text = text.replace("redis_password=PASSWORD", f"redis_password={PASSWORD}")
        text = text.replace("rediss://redis:6379", f"redis://127.0.0.1:{REDIS_PORT}")
        return text.replace(
            "rediss://:PASSWORD@redis:6379", f"redis://:{PASSWORD}@127.0.0.1:{REDIS_PORT}"
        )

    def _start_postgres(self) -> None:
        folder = self.network.folder / "postgres"
        folder.mkdir()
        prepared = prepared_postgres(folder, "127.0.0.1", PASSWORD)
        url = f"postgresql://modelless:{PASSWORD}@/postgres?host={folder}"
        self._serve(prepared, lambda: psycopg.connect(url).close())
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE DATABASE modelless")

    def _start_redis(self) -> None:
        folder = self.network.folder / "redis"
        folder.mkdir()

        def ping() -> None:
            with self.network.connect("127.0.0.1", REDIS_PORT) as connection:
                connection.sendall(b"PING\r\n")
                if not connection.recv(64):
                    raise redis.ConnectionError

        self._serve(prepared_redis(folder, "127.0.0.1", REDIS_PORT, PASSWORD), ping)

    def _serve(self, prepared: Prepared, probe: Any) -> None:
        program = self.network.start(prepared.command, user=prepared.user)
        wait_for(probe, lambda: program.poll() is not None, lambda: program.output)


@contextmanager
def lab() -> Iterator[Lab]:
    """A new lab. Where something is missing for it, the test skips; with CI=true it fails."""
    for program in ("bash", "openssl", "wget"):
        if shutil.which(program) is None:
            missing(program)
    with network() as made:
        yield Lab(made)


def user_environment() -> dict[str, str]:
    """What a login shell has, and nothing of the test's."""
    return {"HOME": HOME, "USER": "modelless", "PATH": PATH, "LANG": "C.UTF-8"}


class Reached(Service):
    """A gateway as a client on one of the machines reaches it: by a name, at an address."""

    def __init__(
        self,
        client: Machine,
        host: str,
        port: int,
        *,
        at: str = "",
        token: str = "",
        logs: Callable[[], str] | None = None,
    ) -> None:
        self.client = client
        self.host = host
        self.port = port
        self.at = at or host
        """Where the name leads to; it may come to lead elsewhere."""
        self._token = token
        self._logs = logs or client.logs

    @property
    def log(self) -> str:
        return self._logs()

    def connection(self, timeout_s: float) -> http.client.HTTPConnection:
        return Connection(self, timeout_s)

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}


class Connection(http.client.HTTPConnection):
    """HTTP over a connection that a machine opens."""

    def __init__(self, to: Reached, timeout_s: float) -> None:
        super().__init__(to.host, to.port, timeout=timeout_s)
        self._to = to

    def connect(self) -> None:
        self.sock = self._to.client.connect(self._to.at, self._to.port)
        self.sock.settimeout(self.timeout)


def register(gateway: Service, family: Path, model: str) -> dict[str, Any]:
    """Register a model of the digits family over REST; the operation when it is over."""
    [file] = (family / model).rglob("*.onnx")
    fields = {"task": "digits", "name": model, "variants": "onnx-int8", "measure": "sampled"}
    body, content_type = form(fields, {"model": file, "evaluation": family / "evaluation.npz"})
    started = gateway.request("POST", "/v1/models", body, {"Content-Type": content_type})
    assert started.status == 202, started
    where = started.headers["location"]

    def over() -> Any:
        operation = gateway.get(where)
        return operation if operation["state"] != "running" else None

    operation: dict[str, Any] = gateway.until(over, "the registration")
    return operation


def form(fields: Mapping[str, str], files: Mapping[str, Path]) -> tuple[bytes, str]:
    """A multipart form and its content type."""
    boundary = uuid4().hex
    parts = [
        f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}'.encode()
        for name, value in fields.items()
    ]
    parts += [
        f'Content-Disposition: form-data; name="{name}"; filename="{path.name}"\r\n\r\n'.encode()
        + path.read_bytes()
        for name, path in files.items()
    ]
    body = b"".join(b"--%s\r\n%s\r\n" % (boundary.encode(), part) for part in parts)
    return body + b"--%s--\r\n" % boundary.encode(), f"multipart/form-data; boundary={boundary}"


def placed(command: str, machine: Machine) -> str:
    """A command that starts Ray, with the addresses and ports that this machine has.

    All machines share one loopback, which no two can tell apart by looking, and its ports. So each
    has its own thousand, below those that connections take.
    """
    options = {"node-ip-address": machine.address}
    first = first_port(machine)
    options |= {name: str(first + number) for number, name in enumerate(PORTS)}
    options |= {"min-worker-port": str(first + 100), "max-worker-port": str(first + 999)}
    words = " ".join(f"--{name}={value}" for name, value in options.items())
    return re.sub(r"\bray start\b", f"ray start {words}", command)


def first_port(machine: Machine) -> int:
    """The first of a machine's own ports; it is that of the agent that Serve's node probes ask."""
    return 20_000 + 1_000 * int(machine.address.rpartition(".")[2])
