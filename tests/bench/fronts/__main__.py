"""What a request costs each HTTP front: ``make bench-fronts`` or ``python -m tests.bench.fronts``.

Each front runs the same handler, which reads a query of one row as the gateway does and answers it
(``handler``). One client keeps so many connections busy; fronts take turns. It prints medians of
the processor time per request of all processes of a front, and of the client's p50.
"""

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import median

import psutil

from tests.bench import machine
from tests.bench.fronts.handler import WIDTH
from tests.bench.fronts.servers import FRONTS
from tests.bench.serving.load import Job, requests, run
from tests.clients import program
from tests.ports import free_port

WIDTHS = (16, 2_330)
"""Numbers of a row: bodies of 0.1 and, with six digits, 23 kB."""


@contextmanager
def front(name: str, width: int) -> Iterator[tuple[int, psutil.Process]]:
    """A front that serves, on this port."""
    port = free_port()
    found = {WIDTH: str(width), "GRANIAN": str(packages())}
    command = [sys.executable, "-m", "tests.bench.fronts.servers", name, str(port)]
    with subprocess.Popen(
        command, env={**os.environ, **found}, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _wait(port)
            yield port, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(20)


def packages() -> str:
    """Where granian is; empty where it is not installed."""
    try:
        python = program("granian", "python")
    except Exception:
        return ""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return str(python.parent.parent / "lib" / version / "site-packages")


def cpu_s(root: psutil.Process) -> float:
    times = [one.cpu_times() for one in (root, *root.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def _wait(port: int) -> None:
    end_s = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.05)
        else:
            return


def compare(width: int, connections: int, seconds: float, rounds: int, names: list[str]) -> None:
    job = Job(port=1, connections=connections, seconds=seconds, width=width,
              decimals=6 if width > 100 else 0)  # fmt: skip
    size = len(requests(job)[0].partition(b"\r\n\r\n")[2])
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            with front(name, width) as (port, root):
                asked = replace(job, port=port)
                run(replace(asked, seconds=0.3))
                before_s = cpu_s(root)
                outcome = run(asked)
                used_s = cpu_s(root) - before_s
            assert outcome.statuses.keys() == {"200"}, outcome.statuses
            each_us = used_s / outcome.answered * 1e6
            found[name].append((each_us, outcome.ms["total"]["p50"], outcome.qps))
    for name, values in found.items():
        spent, p50, qps = (median(column) for column in zip(*values, strict=True))
        low, high = min(values)[0], max(values)[0]
        print(f"| {size:,} | {connections} | {name} | {spent:.0f} ({low:.0f} to {high:.0f}) |"
              f" {p50:.2f} | {qps:,.0f} |", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fronts")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    names = [name for name in FRONTS if packages() or not name.startswith("granian")]
    print(machine.describe())
    print(
        "| bytes of a body | connections | front | µs of processor per request | p50 ms | per s |"
    )
    print("|--:|--:|---|--:|--:|--:|")
    for width in WIDTHS:
        for connections in given.connections:
            compare(width, connections, given.seconds, given.rounds, names)


if __name__ == "__main__":
    main()
