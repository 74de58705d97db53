"""A gateway and one worker on one core, without Ray: what overload is put on.

``python -m tests.bench.live.one_core CORE`` serves the task ``images`` until its standard input
is closed, and prints the port once queries are taken. Gateway and worker are a process each; both
may use that core only. The model is a convolutional network of six layers for 32 x 32 images, whose
profile is measured on that core first.
"""

import asyncio
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import uvloop
from onnx import helper, numpy_helper, save

from controlplane.gateway.gateway import Gateway
from controlplane.live_state import LiveState
from controlplane.load_specs import Specs
from controlplane.settings import load_settings
from controlplane.startup.valkey import EmbeddedValkey
from tests.controlplane.serving import until
from tests.onnx_models import node, tensor
from tests.ports import free_port
from tests.workers import builders as workers
from variants.artifacts.store import FileArtifactStore
from variants.catalog.memory import MemoryCatalog
from variants.types import (
    DeviceKind,
    DeviceKindName,
    LatencyPoint,
    ModelName,
    ModelVersion,
    Precision,
    Profile,
    Registration,
    Slo,
    Stage,
    Task,
    TaskName,
    TensorSpec,
    Variant,
    VariantName,
    WorkerId,
)

WIDTH = 3 * 32 * 32
CLASSES = 10
LAYERS = ((3, 64, 1), (64, 96, 2), (96, 160, 1), (160, 192, 2), (192, 256, 1), (256, 256, 2))
"""Channels in, channels out, stride."""
SLO_MS = 30.0
BATCHES = (1, 2, 4, 8, 16)
TRIALS = 25
TASK = Task(
    name=TaskName("images"),
    inputs=(TensorSpec(name="x", dtype="float32", shape=(WIDTH,)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=(CLASSES,)),),
    slo=Slo(latency_ms=SLO_MS),
)
VARIANT = VariantName("cnn-v1-onnx-fp32")
KIND = DeviceKind(name=DeviceKindName("cpu-1"), cores=1, memory_mib=1_000.0, usd_per_hour=0.1)


def network() -> Any:
    """``x`` ``[batch, 3072]`` to ``y`` ``[batch, 10]``, with random weights."""
    draw = np.random.default_rng(0)
    arrays = {"image": np.array([-1, 3, 32, 32])}
    nodes = [node("Reshape", ("x", "image"), "a0")]
    for at, (before, after, stride) in enumerate(LAYERS):
        weights = draw.standard_normal((after, before, 3, 3)) / np.sqrt(9 * before)
        arrays[f"w{at}"] = weights.astype(np.float32)
        strides = [stride, stride]
        nodes += [
            node("Conv", (f"a{at}", f"w{at}"), f"c{at}", pads=[1] * 4, strides=strides),
            node("Relu", (f"c{at}",), f"a{at + 1}"),
        ]
    arrays["w"] = draw.standard_normal((LAYERS[-1][1], CLASSES)).astype(np.float32)
    nodes += [
        node("GlobalAveragePool", (f"a{len(LAYERS)}",), "pooled"),
        node("Flatten", ("pooled",), "flat"),
        node("MatMul", ("flat", "w"), "y"),
    ]
    graph = helper.make_graph(
        nodes,
        "images",
        [tensor("x", "batch", WIDTH)],
        [tensor("y", "batch", CLASSES)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def measured(path: Path) -> tuple[LatencyPoint, ...]:
    """Latencies of batches on one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    points = []
    for rows in BATCHES:
        batch = {"x": np.ones((rows, WIDTH), np.float32)}
        took_ms = []
        for _ in range(TRIALS):
            began_s = time.perf_counter()
            session.run(None, batch)
            took_ms.append(1000 * (time.perf_counter() - began_s))
        p50, p95, p99 = (float(np.quantile(took_ms, q)) for q in (0.5, 0.95, 0.99))
        points.append(LatencyPoint(batch_size=rows, p50_ms=p50, p95_ms=p95, p99_ms=p99))
    return tuple(points)


def fill(catalog: MemoryCatalog, store: FileArtifactStore, path: Path) -> None:
    artifact = store.put(path)
    catalog.register(
        Registration(
            task=TASK,
            version=ModelVersion(
                task=TASK.name,
                model=ModelName("cnn"),
                version=1,
                stage=Stage.LIVE,
                source=artifact,
                created_at="2026-01-01T00:00:00+00:00",
            ),
            variants=(
                Variant(
                    task=TASK.name,
                    name=VARIANT,
                    model=ModelName("cnn"),
                    version=1,
                    runtime="onnx",
                    precision=Precision.FP32,
                    artifact=artifact,
                    size_bytes=path.stat().st_size,
                    accuracy=0.9,
                    accuracy_rows=100,
                ),
            ),
            profiles=(
                Profile(
                    task=TASK.name,
                    variant=VARIANT,
                    device_kind=KIND.name,
                    points=measured(path),
                    memory_mib=100.0,
                    load_s=0.5,
                ),
            ),
            device_kinds=(KIND,),
        )
    )


async def serve(folder: Path, live_url: str, ended: threading.Event) -> None:
    """Serve until ``ended``, on a free port that is printed."""
    catalog, store = MemoryCatalog(), FileArtifactStore(folder / "artifacts")
    path = folder / "cnn.onnx"
    save(network(), str(path))
    fill(catalog, store, path)
    settings = load_settings(state_dir=folder, port=free_port(), redis_url=live_url)
    config = workers.config(folder, memory_mib=KIND.memory_mib)
    gateway = Gateway(settings, catalog, store, workers.secret_of(config))
    live = LiveState(live_url)
    async with workers.process(config, "w1") as (_, address):
        listed = {"id": "w1", "address": address, "device_kind": KIND.name}
        await live.put_workers(1, [listed])
        await live.close()
        await gateway.start()
        try:
            await until(lambda: WorkerId("w1") in gateway.known.workers)
            worker = gateway.known.workers[WorkerId("w1")]
            specs = Specs(catalog.snapshot(), store)
            await worker.connection.load(specs.of(TASK.name, VARIANT, KIND.name), 30.0)
            await until(lambda: (TASK.name, VARIANT) in worker.ready)
            print(settings.port, flush=True)
            await asyncio.to_thread(ended.wait)
        finally:
            await gateway.stop()


def main() -> None:
    os.sched_setaffinity(0, {int(sys.argv[1])})
    ended = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="ml-") as name:
        folder = Path(name)
        (folder / "v").mkdir()
        valkey = EmbeddedValkey(folder / "v")
        valkey.start()
        try:
            uvloop.run(serve(folder, valkey.url, ended))
        finally:
            valkey.stop()


if __name__ == "__main__":
    main()
