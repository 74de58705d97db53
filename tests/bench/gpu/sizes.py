"""Batches of changing sizes on a GPU: ``python -m tests.bench.gpu.sizes``.

Under load hardly two batches have the same size. ``same`` runs one size over and over, ``changing``
each of some sizes in turn; with recordings (``graphs``) and without. ``loaded`` is the time that
making the session took until it could answer, and ``all`` that until all sizes were recorded.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.bench.gpu.models import MODELS, export
from tests.bench.gpu.speed import median_ms, spec_of
from variants.builders.protocol import Material
from variants.builders.registry import make_builder
from workers.runtimes.cuda import first_device
from workers.runtimes.cuda_graphs import SIZES
from workers.runtimes.protocol import finish_loading
from workers.runtimes.registry import make_runtime

CHANGING = (17, 23, 20, 29, 18, 31)
"""All of them are filled up to two of the recorded sizes."""


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", type=float, default=1.0, help="for each number")
    asked.add_argument("--models", default=",".join(MODELS))
    asked.add_argument("--kind", default="onnx-fp16-cuda")
    asked.add_argument("--most", type=int, default=64, help="rows of the largest batch")
    chosen = asked.parse_args()
    recorded = [size for size in SIZES if size <= chosen.most]
    print(f"{first_device().name}; recorded sizes {recorded}; medians in ms, changing: means\n")
    print("| model | graphs | loaded, s | all, s | same, 24 rows | changing, mean | longest |")
    print("|---|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen.models.split(","):
            source, _ = export(MODELS[name], Path(folder))
            path = Path(folder) / f"{name}-{chosen.kind}.onnx"
            make_builder(chosen.kind).build(Material(source=source), path)
            batches = {rows: MODELS[name].rows(rows) for rows in (24, *CHANGING)}
            for graphs in "01":
                spec = spec_of(name, chosen.kind, path, batches[24])
                options = (*spec.options, ("graphs", graphs))
                runtime = make_runtime(
                    replace(spec, options=options, latency=((chosen.most, 1.0),)), 1
                )
                began_s = time.perf_counter()
                runtime.load()
                loaded_s = time.perf_counter() - began_s
                finish_loading(runtime)
                finished_s = time.perf_counter() - began_s
                times: list[float] = []
                end_s = time.perf_counter() + chosen.seconds
                while time.perf_counter() < end_s or len(times) < 2 * len(CHANGING):
                    for rows in CHANGING:
                        before_s = time.perf_counter()
                        runtime.run([batches[rows]])
                        times.append((time.perf_counter() - before_s) * 1000)
                times = times[len(CHANGING) :]
                same_ms = median_ms(partial(runtime.run, [batches[24]]), chosen.seconds)
                print(
                    f"| {name} | {'yes' if graphs == '1' else 'no'} | {loaded_s:.2f} "
                    f"| {finished_s:.2f} "
                    f"| {same_ms:.2f} | {sum(times) / len(times):.2f} | {max(times):.2f} |",
                    flush=True,
                )
                runtime.close()


if __name__ == "__main__":
    main()
