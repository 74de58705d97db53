"""One query in flight: what it takes, beside an empty HTTP answer of the same process.

``python -m tests.bench.serving.lone`` or ``make bench-lone``; it registers a dense layer as the
task ``digits`` and starts ``modelless up``, unless ``--port`` names a gateway that runs. One client
with a plain socket asks for one row of the smallest model, back to back and 10 ms apart, and in
turns with that for an answer without content: ``GET /v2/health/live``, and a query for a task that
there is not, which takes the short way through the gateway but meets no worker. Medians of rounds
in turns, so that neighbours, who slow down all of them, do not change what is compared.
"""

import argparse
import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from tests.bench import machine
from tests.bench.serving.load import summary
from tests.integration.deployment import CLI, deployed, environment
from tests.ports import free_port
from tests.workers.builders import dense_model

APART_S = 0.01
WARM_UP = 50
"""Exchanges of a round that do not count."""
AT_MOST_TIMES, AT_MOST_MS = 2.5, 0.8


class Asked(NamedTuple):
    name: str
    request: bytes
    status: int


class Round(NamedTuple):
    """Times in ms of one way of asking; ``run_ms`` as answers say, empty where they do not."""

    took_ms: list[float]
    run_ms: list[float]


def query(port: int, task: str, name: str, status: int) -> Asked:
    body = json.dumps({"task": task, "inputs": [[float(i % 17) for i in range(64)]]}).encode()
    head = b"POST /v1/query HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n"
    return Asked(name, head % port + b"content-length: %d\r\n\r\n%s" % (len(body), body), status)


def exchanged(connection: socket.socket, asked: Asked) -> tuple[float, bytes]:
    """Ask once: what it took in ms, and the answer's body."""
    began_s = time.perf_counter()
    connection.sendall(asked.request)
    data = connection.recv(65_536)
    while (at := data.find(b"\r\n\r\n")) < 0:
        data += connection.recv(65_536)
    begin = data.lower().index(b"content-length: ") + 16
    length = int(data[begin : data.index(b"\r", begin)])
    while len(data) < at + 4 + length:
        data += connection.recv(65_536)
    took_ms = 1_000 * (time.perf_counter() - began_s)
    assert int(data[9:12]) == asked.status, data
    return took_ms, data[at + 4 :]


def asked_in_turn(port: int, asked: Asked, count: int, apart_s: float) -> Round:
    """Ask so often over one connection, so long after each answer."""
    found = Round([], [])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(WARM_UP + count):
            if apart_s:
                time.sleep(apart_s)
            took_ms, body = exchanged(connection, asked)
            if number >= WARM_UP:
                found.took_ms.append(took_ms)
                if b'"run_ms"' in body:
                    found.run_ms.append(json.loads(body)["run_ms"])
    return found


def measured(port: int, rounds: int, count: int) -> None:
    ways = (
        query(port, "digits", "query", 200),
        Asked("health", b"GET /v2/health/live HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n\r\n" % port, 200),
        query(port, "nothing", "unknown task", 404),
    )
    print("| | | p50 ms | p90 ms | p99 ms | in the runtime, p50 |")
    print("|---|---|--:|--:|--:|--:|")
    for how, apart_s, part in (("back to back", 0.0, 1), ("10 ms apart", APART_S, 10)):
        found: dict[str, list[Round]] = {way.name: [] for way in ways}
        for _ in range(rounds):
            for way in ways:
                found[way.name].append(asked_in_turn(port, way, count // part, apart_s))

        def over_rounds(name: str, of: Callable[[Round], float]) -> float:
            return median([of(each) for each in found[name]])  # noqa: B023

        for name in found:
            p50, p90, p99 = (
                over_rounds(name, lambda each: summary(each.took_ms)[p])  # noqa: B023
                for p in ("p50", "p90", "p99")
            )
            run = over_rounds(name, lambda each: summary(each.run_ms)["p50"])
            print(f"| {how} | {name} | {p50:.3f} | {p90:.3f} | {p99:.3f} | {run or 0:.3f} |")
        for name in list(found)[1:]:
            pairs = zip(found["query"], found[name], strict=True)
            times = [median(one.took_ms) / median(other.took_ms) for one, other in pairs]
            print(f"{how}: a query takes {median(times):.2f} times {name}", end="")
            print(f" ({min(times):.2f} to {max(times):.2f})", flush=True)
    print(f"Goals: {AT_MOST_TIMES} times an empty answer, and {AT_MOST_MS} ms at 10 ms apart.")


@contextmanager
def gateway(port: int | None) -> Iterator[int]:
    """The port of a gateway that serves ``digits``."""
    if port is not None:
        yield port
        return
    with tempfile.TemporaryDirectory(prefix="ml-") as folder:
        state = Path(folder) / "s"
        register(Path(folder), state)
        with deployed(state) as running:
            yield running.port


def register(folder: Path, state: Path) -> None:
    """A dense layer of 64 numbers to 10 classes, as ``digits``."""
    model, rows = folder / "tiny.onnx", folder / "rows.npz"
    dense_model(model)
    draw = np.random.default_rng(0)
    x = draw.random((200, 64), dtype=np.float32)
    np.savez(rows, x=x, labels=draw.integers(0, 10, 200))
    command = [*CLI, "register", str(model), "--task", "digits", "--eval", str(rows)]
    subprocess.run(
        [*command, "--variants", "onnx-fp32"],
        env=environment(state, free_port()),
        stdout=subprocess.DEVNULL,
        check=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.serving.lone")
    parser.add_argument("--port", type=int, help="of a gateway that serves digits")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--count", type=int, default=2_000, help="back to back, in each round")
    given = parser.parse_args()
    print(machine.describe())
    with gateway(given.port) as port:
        measured(port, given.rounds, given.count)


if __name__ == "__main__":
    main()
