"""Batches on a GPU, ours beside a bare session: ``python -m tests.bench.gpu.speed``.

``ours`` is what a worker calls: rows that came from a socket go in, answers for one come out.
``pinned`` is the same with rows that already lie in page-locked memory. ``bare`` leaves rows and
answers on the GPU, in memory that never moves, and ``graph`` replays them as a CUDA graph: what the
GPU itself needs, and what no server can reach. Both are left out for engines of TensorRT.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from tests.bench.gpu.models import MODELS, export
from variants.builders.protocol import Material
from variants.builders.registry import make_builder
from variants.types import Digest, TaskName, TensorSpec, VariantName
from workers.runtimes.cuda import first_device
from workers.runtimes.onnx_providers import FATAL, cuda_options
from workers.runtimes.protocol import finish_loading
from workers.runtimes.registry import make_runtime
from workers.types import LoadSpec

KINDS = ("onnx-fp32-cuda", "onnx-fp16-cuda")
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
CALIBRATION = 64
"""Rows from which the ranges of int8 numbers are learned."""


def median_ms(run: Callable[[], object], seconds: float) -> float:
    for _ in range(5):
        run()
    times: list[float] = []
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        began = time.perf_counter()
        run()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def spec_of(name: str, kind: str, path: Path, rows: Any) -> LoadSpec:
    builder = make_builder(kind)
    info = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).get_outputs()[0]
    return LoadSpec(
        task=TaskName(name),
        variant=VariantName(kind),
        runtime=builder.runtime,
        artifact=Digest("0" * 64),
        path=str(path),
        inputs=(TensorSpec(name="x", dtype=str(rows.dtype), shape=rows.shape[1:]),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=tuple(info.shape[1:])),),
        latency=((SIZES[-1], 1.0),),
        memory_mib=1.0,
        load_s=1.0,
        options=tuple(builder.options.items()),
    )


@contextmanager
def pinned(rows: Any) -> Iterator[Any]:
    """A copy of some rows in page-locked memory."""
    device = first_device()
    device.enter()
    address, memory = device.pin(rows.nbytes)
    copy = memory.view(rows.dtype).reshape(rows.shape)
    copy[:] = rows
    yield copy
    del copy, memory
    device.unpin(address)


def bare_ms(path: Path, rows: Any, seconds: float, *, graph: bool) -> float:
    """A batch whose rows are on the GPU, and whose answers stay there."""
    options = cuda_options({}, graphs=graph)
    session = ort.InferenceSession(
        str(path), providers=[("CUDAExecutionProvider", options)], enable_fallback=0
    )
    binding = session.io_binding()
    there = ort.OrtValue.ortvalue_from_numpy(rows, "cuda", 0)
    binding.bind_ortvalue_input("x", there)
    shape = (len(rows), *session.get_outputs()[0].shape[1:])
    answers = ort.OrtValue.ortvalue_from_shape_and_type(shape, np.float32, "cuda", 0)
    binding.bind_ortvalue_output("y", answers)

    def run() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return median_ms(run, seconds)


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=0.5, help="for each number")
    asked.add_argument("--models", default=",".join(MODELS))
    asked.add_argument("--kinds", default=",".join(KINDS))
    asked.add_argument("--sizes", default=",".join(map(str, SIZES)))
    chosen = asked.parse_args()
    sizes = [int(size) for size in chosen.sizes.split(",")]
    ort.set_default_logger_severity(FATAL)
    print(f"{first_device().name}, ONNX Runtime {ort.__version__}; medians in ms\n")
    print("| model | kind | rows | ours | pinned | bare | graph | ours / bare | ours, rows/s |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen.models.split(","):
            source, _ = export(MODELS[name], Path(folder))
            calibration = {"x": MODELS[name].rows(CALIBRATION)}
            for kind in chosen.kinds.split(","):
                path = Path(folder) / f"{name}-{kind}.onnx"
                material = Material(source=source, calibration=calibration)
                make_builder(kind).build(material, path)
                began = time.perf_counter()
                runtime = make_runtime(spec_of(name, kind, path, MODELS[name].rows(1)), 1)
                runtime.load()
                finish_loading(runtime)
                print(f"<!-- {name} {kind}: loaded in {time.perf_counter() - began:.2f} s -->")
                for size in sizes:
                    rows = MODELS[name].rows(size)
                    ours = median_ms(partial(runtime.run, [rows]), chosen.seconds)
                    with pinned(rows) as copy:
                        locked = median_ms(partial(runtime.run, [copy]), chosen.seconds)
                    bare = graph = float("nan")
                    if kind.startswith("onnx-"):
                        bare = bare_ms(path, rows, chosen.seconds, graph=False)
                        graph = bare_ms(path, rows, chosen.seconds, graph=True)
                    print(
                        f"| {name} | {kind} | {size} | {ours:.3f} | {locked:.3f} | {bare:.3f} "
                        f"| {graph:.3f} | {ours / bare:.2f} | {size / ours * 1000:,.0f} |",
                        flush=True,
                    )
                runtime.close()


if __name__ == "__main__":
    main()
