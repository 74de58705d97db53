"""Builders for tests of workers: tiny models, specs, hosts, a worker process of its own."""

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from variants.types import Digest, TaskName, TensorSpec, VariantName
from workers.channel.client import WorkerConnection
from workers.channel.reply import Reply
from workers.channel.secret import ensure_secret
from workers.host import WorkerHost
from workers.runtimes.protocol import Tensor
from workers.types import LoadSpec, WorkerConfig, variant_id

WIDTH = 4


def double_model(path: Path, *, width: int = WIDTH) -> Path:
    """An ONNX file that doubles rows ``x`` of ``width`` numbers into ``y``."""
    from onnx import TensorProto, helper, numpy_helper, save

    two = numpy_helper.from_array(np.array(2, dtype=np.float32), "two")
    shape = ["batch", width]
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "two"], ["y"])],
        "double",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [two],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def dense_model(path: Path, *, inputs: int = 64, outputs: int = 10) -> Path:
    """An ONNX file with one dense layer from ``x`` to ``y``: a linear classifier's cost."""
    from onnx import TensorProto, helper, numpy_helper, save

    weights = np.random.default_rng(0).random((inputs, outputs), dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", outputs])],
        [numpy_helper.from_array(weights, "w")],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def tensor(name: str, width: int = WIDTH, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=(width,))


def onnx_spec(path: Path, **changes: Any) -> LoadSpec:
    """A spec of ``double_model`` or ``dense_model``, which may not be there."""
    digest = digest_of(path) if path.is_file() else Digest("0" * 64)
    return _spec(**{"runtime": "onnx", "path": str(path), "artifact": digest, **changes})


def digest_of(path: Path) -> Digest:
    return Digest(hashlib.sha256(path.read_bytes()).hexdigest())


def echo_spec(**changes: Any) -> LoadSpec:
    """A spec of an echo variant; ``options`` may be given as a dictionary."""
    options = changes.pop("options", {})
    return _spec(**{"runtime": "echo", "options": tuple(sorted(options.items())), **changes})


def _spec(**changes: Any) -> LoadSpec:
    fields: dict[str, Any] = {
        "task": TaskName("task"),
        "variant": VariantName("v"),
        "artifact": Digest("0" * 64),
        "path": "",
        "inputs": (tensor("x"),),
        "outputs": (tensor("y"),),
        "latency": ((1, 1.0), (8, 2.0)),
        "memory_mib": 10.0,
        "load_s": 0.1,
    }
    return LoadSpec(**{**fields, **changes})


def vid(spec: LoadSpec) -> int:
    return variant_id(spec.task, spec.variant)


def row(*values: float) -> list[Tensor]:
    """One row with these numbers first."""
    numbers = np.zeros((1, WIDTH), dtype=np.float32)
    numbers[0, : len(values)] = values
    return [numbers]


def config(folder: Path, **changes: Any) -> WorkerConfig:
    """A worker of one core and 100 MiB with its files in ``folder``."""
    secret = folder / "secret"
    ensure_secret(secret)
    fields: dict[str, Any] = {
        "device_kind": "cpu-1",
        "cores": 1,
        "memory_mib": 100.0,
        "run_dir": str(folder),
        "secret_path": str(secret),
    }
    return WorkerConfig(**{**fields, **changes})


@asynccontextmanager
async def running(worker: WorkerConfig) -> AsyncIterator[tuple[WorkerHost, WorkerConnection]]:
    """A host on this loop and a connection to it."""
    host = WorkerHost(worker, "w1")
    address = await host.start()
    try:
        connection = await connect(address, worker)
        try:
            yield host, connection
        finally:
            connection.close()
    finally:
        await host.drain_and_stop(1.0)


async def connect(address: str, worker: WorkerConfig, **changes: Any) -> WorkerConnection:
    handlers = {"on_status": lambda _: None, "on_lost": lambda _: None, **changes}
    return await WorkerConnection.open(address, secret_of(worker), **handlers)


async def until(condition: Callable[[], object]) -> None:
    """Return once it holds; fail after two minutes."""
    async with asyncio.timeout(120.0):
        while not condition():  # noqa: ASYNC110 -- not ours to signal
            await asyncio.sleep(0.005)


def secret_of(worker: WorkerConfig) -> bytes:
    return Path(worker.secret_path).read_bytes()


def socket_of(connection: WorkerConnection) -> Path:
    return Path(connection.address.removeprefix("unix:"))


async def ask(
    connection: WorkerConnection,
    spec: LoadSpec,
    tensors: list[Tensor],
    *,
    rows: int | None = None,
    budget_ms: float = 60_000.0,
) -> Reply:
    """One query and its reply."""
    reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    count = len(tensors[0]) if rows is None else rows
    connection.infer(vid(spec), count, int(budget_ms * 1000), tensors, reply.set_result)
    return await asyncio.wait_for(reply, 90.0)


@asynccontextmanager
async def process(
    worker: WorkerConfig, worker_id: str = "w1"
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A worker in a process of its own, and its address."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "workers.host", "--id", worker_id,
        "--config", json.dumps(asdict(worker)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=Path(__file__).parent.parent.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        assert child.stdout is not None
        line = await asyncio.wait_for(child.stdout.readline(), 120.0)
        yield child, line.decode().strip()
    finally:
        if child.returncode is None:
            child.terminate()
        try:
            await asyncio.wait_for(child.wait(), 30.0)
        except TimeoutError:
            child.kill()
            await child.wait()
