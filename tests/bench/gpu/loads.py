"""Batches of one variant while another is loaded beside it: ``python -m tests.bench.gpu.loads``.

A worker loads in a thread beside its batches. Here one thread runs batches of an encoder of
BERT-base's size, one after the other, and another loads and closes ResNet-50. Printed is what the
batches take meanwhile, beside what they take when nothing is loaded: each value over all batches,
and the sum of what they took longer than the median alone, for each load.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tests.bench.gpu.models import MODELS, export
from tests.bench.gpu.speed import spec_of
from variants.builders.protocol import Material
from variants.builders.registry import make_builder
from workers.runtimes.cuda import first_device
from workers.runtimes.gpu_thread import LOADING
from workers.runtimes.protocol import Runtime, Tensor, finish_loading
from workers.runtimes.registry import make_runtime
from workers.types import LoadSpec

KIND = "onnx-fp16-cuda"
SERVED, LOADED = "bert-base", "resnet50"
ALONE_S = 2.0
PAUSE_S = 0.2
"""Between two loads."""


@dataclass(frozen=True, slots=True)
class Batches:
    """What batches took, in ms."""

    ms: np.ndarray[tuple[int], np.dtype[np.float64]]

    def row(self, usual_ms: float, loads: int) -> str:
        p50, p99 = np.percentile(self.ms, (50, 99))
        lost_ms = float(np.maximum(0, self.ms - usual_ms).sum())
        late = int((self.ms > 20).sum())
        each = f"{lost_ms / loads:.0f}" if loads else ""
        return f"{len(self.ms)} | {p50:.2f} | {p99:.2f} | {self.ms.max():.1f} | {late} | {each}"


def spec(name: str, folder: Path, rows: int) -> LoadSpec:
    source, _ = export(MODELS[name], folder)
    path = folder / f"{name}-{KIND}.onnx"
    make_builder(KIND).build(Material(source=source), path)
    return spec_of(name, KIND, path, MODELS[name].rows(rows))


def serve(runtime: Runtime, rows: Tensor, until: Callable[[], bool]) -> Batches:
    """Batches one after the other."""
    took = []
    while not until():
        began_s = time.perf_counter()
        runtime.run([rows])
        took.append(1_000 * (time.perf_counter() - began_s))
    return Batches(np.array(took))


def is_past(end_s: float) -> bool:
    return time.perf_counter() > end_s


def load_often(spec: LoadSpec, loads: int) -> float:
    """Load and close so often; returns the mean time of a load, in seconds."""
    took_s = 0.0
    for _ in range(loads):
        runtime = make_runtime(spec, 1)
        with LOADING:
            began_s = time.perf_counter()
            runtime.load()
            took_s += time.perf_counter() - began_s
        time.sleep(PAUSE_S)
        with LOADING:
            runtime.close()
    return took_s / loads


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m tests.bench.gpu.loads")
    asked.add_argument("--loads", type=int, default=4)
    asked.add_argument("--rows", default="1,8", help="rows of the batches that are served")
    chosen = asked.parse_args()
    print(f"{first_device().name}; {SERVED} is served while {LOADED} is loaded, both {KIND}\n")
    print("| rows | meanwhile | batches | p50 ms | p99 ms | longest | > 20 ms | lost ms a load |")
    print("|--:|---|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(1) as pool:
        folder = Path(name)
        served, loaded = spec(SERVED, folder, 1), spec(LOADED, folder, 1)
        runtime = make_runtime(served, 1)
        runtime.load()
        finish_loading(runtime)
        load_often(loaded, 1)  # the libraries themselves are loaded once in a process
        for count in map(int, chosen.rows.split(",")):
            rows = MODELS[SERVED].rows(count)
            for seconds in (0.5, ALONE_S):
                end_s = time.perf_counter() + seconds
                alone = serve(runtime, rows, partial(is_past, end_s))
            usual_ms = float(np.median(alone.ms))
            print(f"| {count} | nothing | {alone.row(usual_ms, 0)} |", flush=True)
            loading = pool.submit(load_often, loaded, chosen.loads)
            found = serve(runtime, rows, loading.done)
            label = f"loads of {loading.result():.2f} s"
            print(f"| {count} | {label} | {found.row(usual_ms, chosen.loads)} |", flush=True)
        runtime.close()


if __name__ == "__main__":
    main()
