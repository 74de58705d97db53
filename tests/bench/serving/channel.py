"""The tensor channel alone: one client process, one worker process, one tiny model.

``python -m tests.bench.serving.channel [--in-flight 32] [--seconds 2]`` prints queries per second
and the processor time that a query costs on each side. ``--bytes 23000 600000`` does so with rows
of these sizes for a model that looks at ten numbers of each, through the socket and through shared
memory in turns.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import psutil
import uvloop

from tests.workers.builders import config, connect, dense_model, onnx_spec, process, tensor, vid
from variants.types import VariantName
from workers.channel.client import WorkerConnection
from workers.channel.reply import Reply
from workers.host import settle_memory
from workers.types import LoadSpec, ReplyCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    in_flight: int
    qps: float
    client_us: float
    """Processor time per query of the client."""
    worker_us: float
    p50_ms: float
    p99_ms: float
    mean_batch: float
    refused: int

    def __str__(self) -> str:
        return (
            f"{self.in_flight:4} in flight: {self.qps:8,.0f} queries/s, "
            f"client {self.client_us:5.1f} us, worker {self.worker_us:5.1f} us per query, "
            f"p50 {self.p50_ms:.3f} ms, p99 {self.p99_ms:.3f} ms, "
            f"mean batch {self.mean_batch:.1f}, refused {self.refused}"
        )


async def closed_loop(
    connection: WorkerConnection, spec: LoadSpec, in_flight: int, seconds: float, pid: int
) -> Measurement:
    """Keep ``in_flight`` queries on the way for some seconds."""
    width = spec.inputs[0].shape[0]
    row = [np.random.default_rng(1).random((1, width), dtype=np.float32)]
    number, worker = vid(spec), psutil.Process(pid)
    times: list[float] = []
    batches = refused = running = 0
    end_s = time.perf_counter() + seconds
    done = asyncio.Event()

    def send() -> None:
        begin_s = time.perf_counter()

        def on_reply(reply: Reply) -> None:
            nonlocal batches, refused, running
            now_s = time.perf_counter()
            times.append(now_s - begin_s)
            batches += reply.batch_size
            refused += reply.code is not ReplyCode.OK
            if now_s < end_s:
                send()
            else:
                running -= 1
                if not running:
                    done.set()

        connection.infer(number, 1, 100_000, row, on_reply)

    used_s, cpu_s, begin_s = time.process_time(), worker.cpu_times(), time.perf_counter()
    running = in_flight
    for _ in range(in_flight):
        send()
    await done.wait()
    took_s = time.perf_counter() - begin_s
    spent_s, after_s = time.process_time() - used_s, worker.cpu_times()
    worker_s = after_s.user + after_s.system - cpu_s.user - cpu_s.system
    times.sort()
    count = len(times)
    return Measurement(
        in_flight=in_flight,
        qps=count / took_s,
        client_us=spent_s / count * 1e6,
        worker_us=worker_s / count * 1e6,
        p50_ms=times[count // 2] * 1000,
        p99_ms=times[count * 99 // 100] * 1000,
        mean_batch=batches / count,
        refused=refused,
    )


async def measure(in_flight: list[int], seconds: float) -> list[Measurement]:
    """One measurement for each number of queries in flight, after a warm-up."""
    with TemporaryDirectory() as folder:
        worker = config(Path(folder))
        model = dense_model(Path(folder) / "dense.onnx")
        spec = onnx_spec(
            model, inputs=(tensor("x", 64),), outputs=(tensor("y", 10),),
            latency=((1, 0.006), (32, 0.012)),
        )  # fmt: skip
        async with process(worker) as (child, address):
            connection = await connect(address, worker)
            await connection.load(spec, 10.0)
            settle_memory()
            await closed_loop(connection, spec, 4, 0.2, child.pid)
            found = [await closed_loop(connection, spec, n, seconds, child.pid) for n in in_flight]
            connection.close()
            return found


async def compare(
    sizes: list[int], in_flight: list[int], seconds: float, rounds: int
) -> AsyncIterator[tuple[int, str, Measurement]]:
    """Rows of each size, in bytes, through the socket and through shared memory in turns."""
    ways = {"socket": sys.maxsize, "shared memory": 0}
    with TemporaryDirectory() as folder:
        worker = config(Path(folder))
        async with process(worker) as (child, address):
            for size in sizes:
                width = size // 4
                spec = onnx_spec(
                    first_numbers_model(Path(folder) / f"{size}.onnx", width),
                    variant=VariantName(f"v{size}"),
                    inputs=(tensor("x", width),), outputs=(tensor("y", 10),),
                    latency=((1, 0.006), (32, 0.012)),
                )  # fmt: skip
                opened = {
                    way: await connect(address, worker, shared_from=least)
                    for way, least in ways.items()
                }
                await opened["socket"].load(spec, 10.0)
                settle_memory()
                for number in in_flight:
                    for _ in range(rounds):
                        for way, connection in opened.items():
                            await closed_loop(connection, spec, number, 0.2, child.pid)
                            yield (
                                size,
                                way,
                                await closed_loop(connection, spec, number, seconds, child.pid),
                            )
                for connection in opened.values():
                    connection.close()


def first_numbers_model(path: Path, width: int) -> Path:
    """An ONNX file that gives the first ten numbers of each row: its cost knows no width."""
    from onnx import TensorProto, helper, numpy_helper, save

    bounds = [
        numpy_helper.from_array(np.array([value]), name)
        for name, value in (("begin", 0), ("end", 10), ("axis", 1))
    ]
    graph = helper.make_graph(
        [helper.make_node("Slice", ["x", "begin", "end", "axis"], ["y"])],
        "first_numbers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
        bounds,
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


async def print_comparison(arguments: argparse.Namespace) -> None:
    async for size, way, found in compare(
        arguments.bytes, arguments.in_flight, arguments.seconds, arguments.rounds
    ):
        print(f"{size:9,} bytes, {way:13}: {found}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--bytes", type=int, nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.bytes:
        uvloop.run(print_comparison(arguments))
        return
    for found in uvloop.run(measure(arguments.in_flight, arguments.seconds)):
        print(found)


if __name__ == "__main__":
    main()
