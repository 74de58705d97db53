"""Workers on cores of their own, and workers that the system moves about: the same work in turns.

``python -m tests.bench.live.pinning [--rounds 4] [--seconds 4]`` starts four workers of one core
each, without Ray: two that keep to cores of their own and two that do not. In turns both of a
pair are asked by as many queries as keep them busy, and by a rate that leaves them half idle. It
prints what batches took and how many rows were answered, by turn and in all, and what else
computed meanwhile.
"""

import argparse
import asyncio
import random
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import psutil
import uvloop
from onnx import TensorProto, helper, numpy_helper, save

from tests.bench.machine import Others, describe
from tests.workers.builders import config, connect, onnx_spec, process, tensor, vid
from workers.channel.client import WorkerConnection
from workers.channel.reply import Reply
from workers.types import LoadSpec, ReplyCode

WIDTH = 512
LAYERS = 6
ROWS = 8
"""Of each query, which is a batch of its own."""
IN_FLIGHT = 2
LIGHT = 0.5
"""Part of the time that a worker computes under the lower rate."""


@dataclass(slots=True)
class Turn:
    """What one pair of workers did in one or more turns."""

    run_ms: list[float] = field(default_factory=list)
    rows: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    """Processor time of both workers."""
    others: list[float] = field(default_factory=list)

    def add(self, other: "Turn") -> None:
        self.run_ms += other.run_ms
        self.rows += other.rows
        self.seconds += other.seconds
        self.cpu_s += other.cpu_s
        self.others += other.others

    def __str__(self) -> str:
        p50, p95, p99 = np.percentile(self.run_ms, (50, 95, 99))
        return (
            f"batch p50 {p50:.3f}, p95 {p95:.3f}, p99 {p99:.3f} ms; "
            f"{self.rows / self.seconds:,.0f} rows/s, "
            f"{1e6 * self.cpu_s / self.rows:.1f} us of processor time each; "
            f"others {np.mean(self.others):.2f} cores"
        )


def network(path: Path) -> Path:
    """Dense layers whose weights do not fit the first two caches together."""
    draw = np.random.default_rng(0)
    nodes, weights = [], []
    for at in range(LAYERS):
        values = (draw.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{at}"))
        nodes.append(helper.make_node("MatMul", [f"a{at}" if at else "x", f"w{at}"], [f"m{at}"]))
        last = at == LAYERS - 1
        nodes.append(helper.make_node("Relu", [f"m{at}"], ["y" if last else f"a{at + 1}"]))
    shape = ["batch", WIDTH]
    graph = helper.make_graph(
        nodes,
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        weights,
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


async def busy(connection: WorkerConnection, spec: LoadSpec, seconds: float, turn: Turn) -> None:
    """Keep a worker busy for some seconds."""
    end_s = time.perf_counter() + seconds

    async def ask() -> None:
        while time.perf_counter() < end_s:
            note(turn, await _asked(connection, spec))

    await asyncio.gather(*(ask() for _ in range(IN_FLIGHT)))


async def half_idle(
    connection: WorkerConnection, spec: LoadSpec, seconds: float, turn: Turn, every_s: float
) -> None:
    """Ask now and then, as a Poisson process does."""
    draw, end_s = random.Random(1), time.perf_counter() + seconds
    asked: list[asyncio.Task[Reply]] = []
    while time.perf_counter() < end_s:
        asked.append(asyncio.create_task(_asked(connection, spec)))
        await asyncio.sleep(draw.expovariate(1.0 / every_s))
    for reply in await asyncio.gather(*asked):
        note(turn, reply)


def note(turn: Turn, reply: Reply) -> None:
    assert reply.code is ReplyCode.OK, reply
    turn.run_ms.append(reply.run_us / 1_000)
    turn.rows += ROWS


async def _asked(connection: WorkerConnection, spec: LoadSpec) -> Reply:
    done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    rows = [np.ones((ROWS, WIDTH), dtype=np.float32)]
    connection.infer(vid(spec), ROWS, 30_000_000, rows, done.set_result)
    return await done


def processor_s(connections: list[WorkerConnection]) -> float:
    """What the processes of workers have computed until now."""
    return sum(sum(psutil.Process(one.status.pid).cpu_times()[:2]) for one in connections)


async def measure(rounds: int, seconds: float, *, control: bool) -> None:
    print(describe())
    with TemporaryDirectory() as folder:
        spec = onnx_spec(
            network(Path(folder) / "dense.onnx"), inputs=(tensor("x", WIDTH),),
            outputs=(tensor("y", WIDTH),), latency=((ROWS, 3.0),), memory_mib=20.0,
        )  # fmt: skip
        async with AsyncExitStack() as stack:
            pairs: dict[str, list[WorkerConnection]] = {}
            for name, pinned in (
                ("first", False) if control else ("pinned", True),
                ("free", False),
            ):
                for number in range(2):
                    worker = replace(config(Path(folder)), pin_cores=pinned)
                    _, address = await stack.enter_async_context(
                        process(worker, f"{name}-{number}")
                    )
                    connection = await connect(address, worker)
                    stack.callback(connection.close)
                    await connection.load(spec, 60.0)
                    pairs.setdefault(name, []).append(connection)
            for one in (one for pair in pairs.values() for one in pair):
                print(
                    f"{one.status.worker}: {one.status.cores or 'any core'}", *one.status.warnings
                )
            await in_turns(pairs, spec, rounds, seconds)


async def in_turns(
    pairs: dict[str, list[WorkerConnection]], spec: LoadSpec, rounds: int, seconds: float
) -> None:
    alone = Turn()
    for connections in pairs.values():
        await asyncio.gather(*(busy(one, spec, 0.5, alone) for one in connections))
    every_s = float(np.median(alone.run_ms)) / 1_000 / LIGHT
    for load in ("busy", "half idle"):
        sums = {name: Turn() for name in pairs}
        for number in range(rounds):
            order = list(pairs) if number % 2 else list(reversed(pairs))
            for name in order:
                turn, begin_s = Turn(), time.perf_counter()
                before_s = processor_s(pairs[name])
                with Others() as others:
                    await asyncio.gather(
                        *(
                            busy(one, spec, seconds, turn)
                            if load == "busy"
                            else half_idle(one, spec, seconds, turn, every_s)
                            for one in pairs[name]
                        )
                    )
                turn.seconds = time.perf_counter() - begin_s
                turn.cpu_s = processor_s(pairs[name]) - before_s
                turn.others.append(others.cores)
                sums[name].add(turn)
                print(f"{load}, round {number + 1}, {name}: {turn}", flush=True)
        for name, turn in sums.items():
            print(f"{load}, all, {name}: {turn}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--control", action="store_true", help="pin none of the workers")
    arguments = parser.parse_args()
    uvloop.run(measure(arguments.rounds, arguments.seconds, control=arguments.control))


if __name__ == "__main__":
    main()
