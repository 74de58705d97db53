"""What one process for gateway and worker would save: ``python -m tests.bench.fronts.one_process``.

An experiment, not a way to run the product. A real gateway and a real worker with one tiny model
answer queries in three ways, in turns: as two processes; as one process and event loop that speaks
to itself over the same Unix socket; and as one process whose frames are handed over without a
socket, so that a lone query wakes two processes less. Batches that are longer than 0.25 ms run in a
thread of that process, and would hold its interpreter's lock wherever the runtime does.
"""

import argparse
import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import uvloop

from controlplane.startup.valkey import EmbeddedValkey
from tests.bench import machine
from tests.bench.serving.load import Job, run
from tests.bench.serving.lone import Asked, asked_in_turn
from tests.controlplane.serving import DOUBLE, TASK, Served, serving
from workers.channel import client
from workers.execution.listening.peer import Peer
from workers.host import WorkerHost, settle_memory

WAYS = ("two processes", "one process", "one, no socket")


class Pipe(asyncio.Transport):
    """One end of a connection within a process: what is written arrives in the next turn."""

    other: "Pipe"

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def write(self, data: Any) -> None:
        self._loop.call_soon(self.other.arrived, bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def arrived(self, data: bytes) -> None:
        if not self._closed:
            self._protocol.data_received(data)

    def is_closing(self) -> bool:
        return self._closed

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.call_soon(self._protocol.connection_lost, None)
            self._loop.call_soon(self.other.close)

    def abort(self) -> None:
        self.close()


@asynccontextmanager
async def served(way: str, live_url: str) -> AsyncIterator[tuple[Served, list[int]]]:
    """A gateway with a worker that holds one model, and the processes of both."""
    hosts: list[WorkerHost] = []

    async def connect_here(address: str, protocol: asyncio.Protocol) -> None:
        peer = Peer(hosts[0]._server)
        ours, theirs = Pipe(protocol), Pipe(peer)
        ours.other, theirs.other = theirs, ours
        protocol.connection_made(ours)
        peer.connection_made(theirs)

    with TemporaryDirectory(prefix="ml-", dir="/tmp") as folder:
        async with serving(Path(folder), live_url) as running:
            pids = [psutil.Process().pid]
            if way == "two processes":
                pids.append((await running.process("w1", DOUBLE)).pid)
            else:
                if way == "one, no socket":
                    starts = WorkerHost.start

                    async def start(self: WorkerHost) -> str:
                        hosts.append(self)
                        return await starts(self)

                    WorkerHost.start = start  # type: ignore[method-assign]
                    client.connect = connect_here  # type: ignore[attr-defined]
                await running.worker("w1", DOUBLE)
            yield running, pids


async def serve(way: str) -> None:
    """Serve until the input ends; the first line of the output says where."""
    with TemporaryDirectory(prefix="ml-", dir="/tmp") as folder:
        valkey = EmbeddedValkey(Path(folder))
        valkey.start()
        try:
            async with served(way, valkey.url) as (running, pids):
                settle_memory()
                print(json.dumps([running.port, pids]), flush=True)
                await asyncio.to_thread(sys.stdin.read)
        finally:
            valkey.stop()


def measured(way: str, count: int, seconds: float) -> tuple[float, float, float, float, float]:
    """p50 of one query in ms, back to back and 10 ms apart; µs of processor time per query, back to
    back and with 32 in flight; queries per second with 32."""
    command = [sys.executable, "-m", "tests.bench.fronts.one_process", "--serve", way]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        port, pids = json.loads(child.stdout.readline())
        roots = [psutil.Process(pid) for pid in pids]

        def used_s() -> float:
            return sum(one.cpu_times().user + one.cpu_times().system for one in roots)

        body = json.dumps({"task": TASK.name, "inputs": [[1.0, 2.0, 3.0, 4.0]]}).encode()
        head = b"POST /v1/query HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-length: %d\r\n\r\n"
        asked = Asked("query", head % (port, len(body)) + body, 200)
        asked_in_turn(port, asked, count, 0.0)
        before_s = used_s()
        close = asked_in_turn(port, asked, count, 0.0).took_ms
        lone_us = (used_s() - before_s) / (count + 50) * 1e6
        apart = asked_in_turn(port, asked, count // 10, 0.01).took_ms
        before_s = used_s()
        found = run(Job(port=port, connections=32, seconds=seconds, task=TASK.name, width=4))
        busy_us = (used_s() - before_s) / found.answered * 1e6
        child.communicate(timeout=60)
    return median(close), median(apart), lone_us, busy_us, found.qps


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fronts.one_process")
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        logging.disable()
        uvloop.run(serve(given.serve))
        return
    print(machine.describe())
    print("| | p50 ms | 10 ms apart | µs of processor, alone | with 32 in flight | per s |")
    print("|---|--:|--:|--:|--:|--:|")
    found: dict[str, list[tuple[float, ...]]] = {way: [] for way in WAYS}
    for _ in range(given.rounds):
        for way in WAYS:
            found[way].append(measured(way, given.count, given.seconds))
            print(way, found[way][-1], file=sys.stderr, flush=True)
    for way, rounds in found.items():
        close, apart, lone_us, busy_us, qps = (
            median(column) for column in zip(*rounds, strict=True)
        )
        print(f"| {way} | {close:.3f} | {apart:.3f} | {lone_us:.0f} | {busy_us:.0f} | {qps:,.0f} |")


if __name__ == "__main__":
    main()
