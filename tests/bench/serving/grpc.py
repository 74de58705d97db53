"""gRPC beside HTTP: the same queries over both, in turns, on one gateway without Ray.

``python -m tests.bench.serving.grpc [--rounds 5] [--seconds 1]`` prints queries per second and the
processor time that the gateway spends on a query, over HTTP (v2, raw bytes), over gRPC and over a
gRPC stream; and HTTP's on a gateway without gRPC. The worker and the clients are processes of their
own on the same machine. Rounds are taken in turns, and ratios within each: whatever else the
machine does meets all of them.

A call of grpcio's own client costs about as much as the server's, so that queries per second say
more about one machine with both than about the gateway; its processor time is the gateway's own.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import uvloop

from controlplane.startup.valkey import EmbeddedValkey
from tests.controlplane.gateway.grpc.calls import request
from tests.controlplane.serving import FAST, Served, serving
from tests.ports import free_port

IN_FLIGHT = (1, 32)
ROWS = np.ones((1, 4), "<f4")
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


class Round(NamedTuple):
    """What one client got."""

    qps: float
    gateway_us: float
    """Processor time of the gateway's process per query."""
    p50_ms: float


# -- the gateway --------------------------------------------------------------------------------


async def bench(rounds: int, seconds: float) -> None:
    async with _gateway(0) as alone, _gateway(free_port()) as both:
        for in_flight in IN_FLIGHT:
            await _compare(both, in_flight, rounds, seconds)
        await _beside(alone, both, rounds, seconds)


@asynccontextmanager
async def _gateway(grpc_port: int) -> AsyncIterator[Served]:
    """A gateway and its worker, with a live state of its own."""
    with (
        TemporaryDirectory(prefix="ml-", dir="/tmp") as live,
        TemporaryDirectory(prefix="ml-", dir="/tmp") as folder,
    ):
        valkey = EmbeddedValkey(Path(live))
        valkey.start()
        try:
            async with serving(Path(folder), valkey.url, grpc_port=grpc_port) as served:
                await served.process("w1", FAST)
                yield served
        finally:
            valkey.stop()


async def _compare(served: Served, in_flight: int, rounds: int, seconds: float) -> None:
    kinds = ("http", "grpc", "stream")
    found: dict[str, list[Round]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind in kinds:
            found[kind].append(await _round(served, kind, in_flight, seconds))
    print(f"{in_flight} in flight: queries/s, gateway µs per query, p50 ms; ratios to HTTP")
    for kind, one in found.items():
        _show(kind, one, found["http"])


async def _beside(alone: Served, both: Served, rounds: int, seconds: float) -> None:
    """HTTP with and without a port for gRPC that nobody calls."""
    found: dict[str, list[Round]] = {"without": [], "with": []}
    for _ in range(rounds):
        found["without"].append(await _round(alone, "http", 32, seconds))
        found["with"].append(await _round(both, "http", 32, seconds))
    print("HTTP, 32 in flight, without and with a port for gRPC")
    for name, one in found.items():
        _show(name, one, found["without"])


def _show(name: str, found: list[Round], against: list[Round]) -> None:
    qps, gateway_us, p50_ms = (median(column) for column in zip(*found, strict=True))
    rates = [one.qps / other.qps for one, other in zip(found, against, strict=True)]
    costs = [one.gateway_us / other.gateway_us for one, other in zip(found, against, strict=True)]
    print(
        f"  {name:<8} {qps:8,.0f}/s {gateway_us:6.0f} µs {p50_ms:6.2f} ms"
        f"   rate {median(rates):.2f} [{min(rates):.2f}, {max(rates):.2f}]"
        f"   cost {median(costs):.2f} [{min(costs):.2f}, {max(costs):.2f}]",
        flush=True,
    )


async def _round(served: Served, kind: str, in_flight: int, seconds: float) -> Round:
    settings = served.gateway.settings
    port = settings.port if kind == "http" else settings.grpc_port
    job = json.dumps([kind, port, in_flight, seconds])
    before_s = time.process_time()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.serving.grpc", "--client", job,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await child.communicate()
    used_s = time.process_time() - before_s
    answered, took_s, p50_ms = json.loads(said)
    return Round(answered / took_s, used_s / answered * 1e6, p50_ms)


# -- the client ---------------------------------------------------------------------------------


class Client:
    """Keeps some queries on the way for some seconds."""

    def __init__(self, port: int, in_flight: int, seconds: float) -> None:
        self._port = port
        self._in_flight = in_flight
        self._end_s = time.perf_counter() + seconds
        self.took_s: list[float] = []

    @property
    def over(self) -> bool:
        return time.perf_counter() >= self._end_s

    async def http(self) -> None:
        document = {
            "inputs": [
                {
                    "name": "x", "datatype": "FP32", "shape": list(ROWS.shape),
                    "parameters": {"binary_data_size": ROWS.nbytes},
                }
            ],
            "parameters": {"binary_data_output": True},
        }  # fmt: skip
        text = json.dumps(document).encode()
        data = b"POST /v2/models/letters/infer HTTP/1.1\r\nhost: localhost\r\n"
        data += b"inference-header-content-length: %d\r\n" % len(text)
        data += b"content-length: %d\r\n\r\n" % (len(text) + ROWS.nbytes)
        data += text + ROWS.tobytes()

        async def connection() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)

            async def ask() -> None:
                writer.write(data)
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200"), head
                # The other one is the length of the JSON.
                (length,) = (
                    int(line[16:])
                    for line in head.split(b"\r\n")
                    if line.startswith(b"content-length: ")
                )
                await reader.readexactly(length)

            await self._repeat(ask)
            writer.close()

        await asyncio.gather(*(connection() for _ in range(self._in_flight)))

    async def grpc(self) -> None:
        import grpc.aio

        data = request(ROWS).SerializeToString()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self._port}") as channel:
            call = channel.unary_unary(INFER)

            async def ask() -> None:
                await call(data)

            await asyncio.gather(*(self._repeat(ask) for _ in range(self._in_flight)))

    async def stream(self) -> None:
        import grpc.aio

        data = request(ROWS).SerializeToString()
        sent: deque[float] = deque()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self._port}") as channel:
            call = channel.stream_stream(STREAM)()

            async def ask() -> None:
                sent.append(time.perf_counter())
                await call.write(data)

            for _ in range(self._in_flight):
                await ask()
            while await call.read() is not grpc.aio.EOF:
                self.took_s.append(time.perf_counter() - sent.popleft())
                if not self.over:
                    await ask()
                elif not sent:
                    await call.done_writing()

    async def _repeat(self, ask: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while not self.over:
            begin_s = time.perf_counter()
            await ask()
            self.took_s.append(time.perf_counter() - begin_s)


async def _client(kind: str, port: int, in_flight: int, seconds: float) -> None:
    client = Client(port, in_flight, seconds)
    begin_s = time.perf_counter()
    await getattr(client, kind)()
    took_s = time.perf_counter() - begin_s
    print(json.dumps([len(client.took_s), took_s, median(client.took_s) * 1000]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        uvloop.run(_client(*json.loads(options.client)))
    else:
        uvloop.run(bench(options.rounds, options.seconds))


if __name__ == "__main__":
    main()
