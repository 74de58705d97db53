"""What one lone query has the processes do, counted rather than timed.

``python -m tests.bench.fronts.counted`` asks a real gateway with a real worker and one tiny model,
one query after the other. Bytecodes and Python calls are counted where both are one process that
speaks to itself over its own socket, by the callback of the event loop in which they ran:
counts are the same on every machine and under every load. Processor time, wake-ups and, where
``strace`` is installed, system calls are those of two processes, back to back and 10 ms apart.
``--beside FOLDER`` counts another version of the sources in turns.
"""

import argparse
import asyncio
import json
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from shutil import which
from statistics import median
from types import CodeType, FrameType
from typing import Any

import uvloop

from controlplane.startup.valkey import EmbeddedValkey
from tests.bench.fronts.one_process import served
from tests.bench.serving.lone import Asked, asked_in_turn
from tests.controlplane.serving import TASK
from workers.host import settle_memory

LONE = 50
"""Queries that ``asked_in_turn`` asks before those that count."""


def query(port: int) -> Asked:
    body = json.dumps({"task": TASK.name, "inputs": [[1.0, 2.0, 3.0, 4.0]]}).encode()
    head = b"POST /v1/query HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-length: %d\r\n\r\n"
    return Asked("query", head % (port, len(body)) + body, 200)


class Steps:
    """Bytecodes and calls of this thread, by callback and by function."""

    def __init__(self) -> None:
        self.codes: Counter[tuple[str, str]] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()
        self._callback = ""
        self._depth = 0

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        """For ``sys.settrace``."""
        name = _name(frame.f_code)
        below = frame.f_back
        if below is None or below.f_globals.get("__name__", "").startswith(("uvloop", "asyncio")):
            self._callback = name
        key = (self._callback, name)
        self.calls[key] += 1
        frame.f_trace_lines, frame.f_trace_opcodes = False, True

        def local(_frame: FrameType, event: str, _: Any) -> Any:
            if event == "opcode":
                self.codes[key] += 1
            return local

        return local


def _name(code: CodeType) -> str:
    return f"{Path(code.co_filename).stem}.{code.co_qualname}"


async def count_steps(queries: int) -> None:
    """Ask over one connection in a thread, and print the counts of the loop's thread as JSON."""
    with tempfile.TemporaryDirectory(prefix="ml-") as folder:
        valkey = EmbeddedValkey(Path(folder))
        valkey.start()
        try:
            async with served("one process", valkey.url) as (running, _):
                settle_memory()
                asked = query(running.port)
                await asyncio.to_thread(asked_in_turn, running.port, asked, 2_000, 0.0)
                steps, done = Steps(), asyncio.Event()
                loop = asyncio.get_running_loop()

                def ask() -> None:
                    asked_in_turn(running.port, asked, queries, 0.0)
                    loop.call_soon_threadsafe(done.set)

                sys.settrace(steps.trace)
                threading.Thread(target=ask).start()
                await done.wait()
                sys.settrace(None)
                each = queries + LONE
                found = [
                    (*key, steps.calls[key] / each, steps.codes[key] / each)
                    for key in steps.calls
                    if steps.calls[key] >= each / 20
                ]
                print(json.dumps(found), flush=True)
        finally:
            valkey.stop()


def steps_of(folder: Path, queries: int) -> list[tuple[str, str, float, float]]:
    command = [sys.executable, "-m", "tests.bench.fronts.counted", "--steps", str(queries)]
    out = subprocess.run(command, cwd=folder, env=_env(folder), stdout=subprocess.PIPE, check=True)
    found: list[tuple[str, str, float, float]] = json.loads(out.stdout)
    return found


def _env(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder)}


class Used:
    """Processor time in µs, wake-ups and switches of a process so far."""

    def __init__(self, pid: int) -> None:
        self.cpu_us = self.wakes = 0.0
        for thread in Path(f"/proc/{pid}/task").iterdir():
            self.cpu_us += int((thread / "schedstat").read_text().split()[0]) / 1_000
            found = re.search(r"^voluntary_ctxt_switches:\s*(\d+)", (thread / "status").read_text(),
                              re.MULTILINE)  # fmt: skip
            self.wakes += int(found[1]) if found else 0


class Two:
    """A version of the sources that serves as two processes."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "tests.bench.fronts.one_process", "--serve"]
        self.child = subprocess.Popen(
            [*command, "two processes"], cwd=folder, env=_env(folder),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self.child.stdout is not None
        self.port, self.pids = json.loads(self.child.stdout.readline())
        asked_in_turn(self.port, query(self.port), 2_000, 0.0)

    def measured(self, count: int, apart_s: float) -> list[float]:
        """p50 in ms; then processor time and wake-ups per query of gateway and worker."""
        before = [Used(pid) for pid in self.pids]
        took = asked_in_turn(self.port, query(self.port), count, apart_s).took_ms
        after = [Used(pid) for pid in self.pids]
        each = count + LONE
        found = [median(took)]
        for one, other in zip(before, after, strict=True):
            found += [(other.cpu_us - one.cpu_us) / each, (other.wakes - one.wakes) / each]
        return found

    def system_calls(self, count: int) -> list[dict[str, float]]:
        """System calls per query of each process, by name."""
        found = []
        for pid in self.pids:
            with tempfile.NamedTemporaryFile() as table:
                tracer = subprocess.Popen(
                    ["strace", "-c", "-f", "-U", "calls,name", "-o", table.name, "-p", str(pid)],
                    stderr=subprocess.DEVNULL,
                )
                asked_in_turn(self.port, query(self.port), count, 0.01)
                tracer.send_signal(signal.SIGINT)
                tracer.wait(20)
                rows = re.findall(r"^\s*(\d+) (\w+)$", Path(table.name).read_text(), re.MULTILINE)
                found.append({name: int(number) / (count + LONE) for number, name in rows})
        return found

    def stop(self) -> None:
        self.child.communicate(timeout=60)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fronts.counted")
    parser.add_argument("--beside", type=Path, help="a folder with another version of the sources")
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--functions", type=int, default=0, help="list so many of them")
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.steps:
        logging.disable()
        uvloop.run(count_steps(given.steps))
        return
    folders = {"here": Path.cwd()} | ({"beside": given.beside} if given.beside else {})
    for name, folder in folders.items():
        found = steps_of(folder, given.queries // 5)
        calls, codes = sum(one[2] for one in found), sum(one[3] for one in found)
        print(f"{name}: {codes:,.0f} bytecodes in {calls:.1f} Python calls for a query")
        found.sort(key=lambda one: -one[3])
        for callback, function, calls, codes in found[: given.functions]:
            print(f"  {codes:7.1f} {calls:5.2f}  {function} in {callback}")
    versions = {name: Two(folder) for name, folder in folders.items()}
    print("| | | p50 ms | gateway: us, wake-ups | worker: us, wake-ups |")
    print("|---|---|--:|--:|--:|")
    try:
        for how, apart_s, count in (
            ("back to back", 0.0, given.queries), ("10 ms apart", 0.01, given.queries // 4)
        ):  # fmt: skip
            rounds: dict[str, list[list[float]]] = {name: [] for name in versions}
            for _ in range(given.rounds):
                for name, version in versions.items():
                    rounds[name].append(version.measured(count, apart_s))
            for name, each in rounds.items():
                p50, us, wakes, worker_us, worker_wakes = map(median, zip(*each, strict=True))
                print(f"| {name} | {how} | {p50:.3f} | {us:.0f}, {wakes:.2f} |", end="")
                print(f" {worker_us:.0f}, {worker_wakes:.2f} |", flush=True)
        for name, version in versions.items() if which("strace") else ():
            for process, found_calls in zip(
                ("gateway", "worker"), version.system_calls(200), strict=True
            ):
                listed = ", ".join(f"{n} {c:.2f}" for n, c in found_calls.items() if c >= 0.05)
                print(f"{name}, system calls of the {process}, 10 ms apart: {listed}")
    finally:
        for version in versions.values():
            version.stop()


if __name__ == "__main__":
    main()
