"""What a refusal takes, in instructions of the processor and in system calls.

``python -m tests.bench.fronts.refusals`` counts how many instructions a gateway's front runs for
a refused query of 3,072 numbers, in each of several ways to be refused, and a worker for a query
that it refuses. ``valgrind`` has to be installed. Eight clients ask at once, so what a turn of the
event loop takes is shared, as it is in an overload. System calls are counted where ``strace`` is.
``--beside FOLDER`` counts another version of the sources as well, which has to have this module.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from shutil import which
from typing import Any, NamedTuple

import numpy as np

from tests.bench.fronts.instructions import VALGRIND, counting, total
from tests.bench.fronts.refusing import LATENCY_MS, WIDTH, Scripted
from tests.workers.builders import config, echo_spec, secret_of, tensor, vid
from workers.channel.client import WorkerConnection
from workers.channel.reply import Reply
from workers.types import ReplyCode

CLIENTS = 8
WARM = 5
"""Rounds of all clients before those that count."""


class Asking(NamedTuple):
    """A row of the table."""

    name: str
    way: str
    """One of ``refusing.WAYS``."""
    headers: bytes = b""
    numbered: bool = False
    """Whether each query has a header of its own, so that its head is not known."""
    v2: str = ""
    """By a path that names the task: with its numbers as JSON or as bytes."""
    anew: bool = False
    """Whether each query has a connection of its own."""
    alone: bool = False
    """Whether one client asks after the other."""
    status: int = 503


ASKED = (
    Asking("given again, at once", "standing"),
    Asking("the same, a connection for each", "standing", anew=True),
    Asking("given again, with headers that an answer is made by", "standing",
           b"x-request-id: mine\r\n"),
    Asking("given again, at once, of a path that names the task", "standing", v2="JSON"),
    Asking("the same, with numbers as bytes", "standing", v2="bytes"),
    Asking("given again, behind a head that is parsed", "standing", numbered=True),
    Asking("given again, by headers", "standing",
           b'x-modelless-task: %s\r\nx-modelless-slo: {"latency_ms": 30}\r\n'),
    Asking("held, as it came too soon", "too soon"),
    Asking("its workers would still say it", "no room still"),
    Asking("after a look: the queue is too long", "too long a queue"),
    Asking("after a look: the worker would refuse", "no room"),
    Asking("sent, and refused by the worker", "refused by the worker", alone=True),
    Asking("sent, and answered too late", "too late", alone=True, status=504),
)  # fmt: skip


def request(asking: Asking, task: str, number: int) -> bytes:
    row = [(at * 7 % 1_000 + number % 10) / 1_000 for at in range(WIDTH)]
    headers = asking.headers % task.encode() if b"%s" in asking.headers else asking.headers
    path = f"/v2/models/{task}/infer".encode() if asking.v2 else b"/v1/query"
    asked: dict[str, Any]
    if asking.v2:
        raw = np.array(row, "<f4").tobytes() if asking.v2 == "bytes" else b""
        values: dict[str, Any] = (
            {"parameters": {"binary_data_size": len(raw)}} if raw else {"data": row}
        )
        entry = {"name": "x", "shape": [1, WIDTH], "datatype": "FP32", **values}
        asked = {"inputs": [entry], "parameters": {"latency_slo_ms": LATENCY_MS}}
        body = json.dumps(asked).encode()
        headers += b"inference-header-content-length: %d\r\n" % len(body) if raw else b""
        body += raw
    else:
        asked = {"task": task, "inputs": [row], "slo": {"latency_ms": LATENCY_MS}}
        body = json.dumps(asked).encode()
    if asking.numbered:
        headers += b"x-number: %d\r\n" % number
    head = b"POST %s HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n" % path
    return head + headers + b"content-length: %d\r\n\r\n%s" % (len(body), body)


def read(connection: socket.socket, status: int) -> None:
    """An answer with this status."""
    data = connection.recv(65_536)
    while (at := data.find(b"\r\n\r\n")) < 0:
        data += connection.recv(65_536)
    begin = data.index(b"content-length: ") + 16
    length = int(data[begin : data.index(b"\r", begin)])
    while len(data) < at + 4 + length:
        data += connection.recv(65_536)
    assert int(data[9:12]) == status, data


def connected(port: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(CLIENTS)]


def asked(asking: Asking, task: str, port: int, open_: list[socket.socket], rounds: int) -> None:
    """Ask so often with all clients at once."""
    for round_ in range(rounds):
        if asking.anew:
            for one in open_:
                one.close()
            open_[:] = connected(port)
        for number, one in enumerate(open_):
            one.sendall(request(asking, task, round_ * CLIENTS + number))
            if asking.alone:
                read(one, asking.status)
        for one in () if asking.alone else open_:
            read(one, asking.status)


class Front:
    """The front in a process of its own."""

    def __init__(self, sources: Path, before: Sequence[str]) -> None:
        command = [*before, sys.executable, "-m", "tests.bench.fronts.refusing"]
        self.child = subprocess.Popen(
            command, cwd=sources, env={**os.environ, "PYTHONPATH": str(sources)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.port = int(self._line())
        self.task = Scripted().task.name

    def _line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline()

    def begin(self, way: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(way + "\n")
        self.child.stdin.flush()
        assert self._line() == "ready\n"

    def measured(self, asking: Asking, rounds: int, measure: Callable[[], None]) -> None:
        """Ask to warm up, and then with ``measure`` before and after."""
        self.begin(asking.way)
        open_ = connected(self.port)
        asked(asking, self.task, self.port, open_, WARM)
        measure()
        asked(asking, self.task, self.port, open_, rounds)
        measure()
        for one in open_:
            one.close()

    def stop(self) -> None:
        self.child.communicate(timeout=120)


@contextmanager
def front(sources: Path, *before: str) -> Iterator[Front]:
    made = Front(sources, before)
    try:
        yield made
    finally:
        made.stop()


class Dumps:
    """Counts instructions between every second call and the one before it."""

    def __init__(self, folder: Path, pid: int) -> None:
        self._folder, self._pid = folder, pid
        self._calls = 0

    def __call__(self) -> None:
        counting([self._pid], on=self._calls % 2 == 0)
        self._calls += 1

    def last(self) -> int:
        return total(self._folder / f"{self._pid}.{self._calls // 2}")


def instructions(sources: Path, rounds: int) -> dict[str, float]:
    """Thousands of instructions for each refusal."""
    with tempfile.TemporaryDirectory(prefix="ml-") as name:
        folder, found = Path(name), {}
        with front(sources, *VALGRIND, f"--callgrind-out-file={folder}/%p") as running:
            dumps = Dumps(folder, running.child.pid)
            for asking in ASKED:
                running.measured(asking, rounds, dumps)
                found[asking.name] = dumps.last() / rounds / CLIENTS / 1e3
        return found | asyncio.run(by_worker(sources, folder, rounds))


async def by_worker(sources: Path, folder: Path, rounds: int) -> dict[str, float]:
    """The same of a worker that is asked for what it has no time for, ``CLIENTS`` at once."""
    given = config(folder)
    child = await asyncio.create_subprocess_exec(
        *VALGRIND, f"--callgrind-out-file={folder}/%p", sys.executable, "-m", "workers.host",
        "--id", "w1", "--config", json.dumps(asdict(given)), cwd=sources,
        env={**os.environ, "PYTHONPATH": str(sources), "OMP_NUM_THREADS": "1"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert child.stdout is not None
    address = (await child.stdout.readline()).decode().strip()
    connection = await WorkerConnection.open(
        address, secret_of(given), on_status=lambda _: None, on_lost=lambda _: None, timeout_s=60.0
    )
    spec = echo_spec(inputs=(tensor("x", WIDTH),))
    await connection.load(spec, 120.0)
    rows = [np.zeros((1, WIDTH), np.float32)]

    async def ask(rounds: int) -> None:
        for _ in range(rounds):
            replies: list[asyncio.Future[Reply]] = []
            for _ in range(CLIENTS):
                replies.append(asyncio.get_running_loop().create_future())
                connection.infer(vid(spec), 1, 1, rows, replies[-1].set_result)
            for reply in replies:
                assert (await reply).code is ReplyCode.OVERLOADED

    dumps = Dumps(folder, child.pid)
    await ask(WARM)
    await asyncio.to_thread(dumps)
    await ask(rounds)
    await asyncio.to_thread(dumps)
    connection.close()
    child.terminate()
    await child.wait()
    return {"by the worker: refused there": dumps.last() / rounds / CLIENTS / 1e3}


def system_calls(sources: Path, rounds: int) -> dict[str, float]:
    """System calls for each refusal."""
    found = {}
    with front(sources) as running:
        for asking in ASKED:
            with tempfile.NamedTemporaryFile() as table:
                running.measured(asking, rounds, Tracer(running.child.pid, table.name))
                counts = re.findall(r"^\s*(\d+) \w+$", Path(table.name).read_text(), re.MULTILINE)
                found[asking.name] = sum(map(int, counts[:-1])) / rounds / CLIENTS
    return found


class Tracer:
    """Counts system calls from its first call to its second."""

    def __init__(self, pid: int, table: str) -> None:
        self._command = ["strace", "-c", "-f", "-U", "calls,name", "-o", table, "-p", str(pid)]
        self._tracing: subprocess.Popen[str] | None = None

    def __call__(self) -> None:
        if self._tracing is None:
            self._tracing = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
            assert self._tracing.stderr is not None
            self._tracing.stderr.readline()  # it has attached
        else:
            self._tracing.send_signal(signal.SIGINT)
            self._tracing.communicate(timeout=20)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fronts.refusals")
    parser.add_argument("--beside", type=Path, help="a folder with another version of the sources")
    parser.add_argument("--rounds", type=int, default=25, help="of eight queries each")
    given = parser.parse_args()
    folders = {"here": Path.cwd()} | ({"beside": given.beside} if given.beside else {})
    columns: dict[str, dict[str, float]] = {}
    for name, sources in folders.items():
        columns[f"instructions, thousands, {name}"] = instructions(sources, given.rounds)
        if which("strace"):
            columns[f"system calls, {name}"] = system_calls(sources, 10 * given.rounds)
    print(" | ".join(["| refused", *columns]) + " |")
    print("|---|" + "--:|" * len(columns))
    for row in next(iter(columns.values())):
        counts = [f"{column[row]:.1f}" if row in column else "" for column in columns.values()]
        print(" | ".join([f"| {row}", *counts]) + " |")


if __name__ == "__main__":
    main()
