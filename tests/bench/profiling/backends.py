"""How long a batch takes in each runtime and precision: ``python -m
tests.bench.profiling.backends``.

The digits family's ``cnn`` with random weights, exported as a user exports it, or the network of
ResNet-18's size (``--resnet``, ONNX only). All variants take turns within one run, so that a busy
moment of the machine falls on all of them; ratios are to ONNX Runtime in fp32 on as many threads.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench import machine
from tests.bench.building.resnet import resnet18
from tests.workers.builders import onnx_spec
from variants.builders.protocol import Material
from variants.builders.registry import make_builder, missing_here
from variants.checks.archive.archive_check import extract_onnx
from variants.errors import ModellessError
from variants.types import TensorSpec
from workers.runtimes.protocol import Runtime
from workers.runtimes.pytorch.runtime import import_torch
from workers.runtimes.registry import make_runtime
from workers.types import LoadSpec

KINDS = (
    "onnx-fp32", "onnx-fp16", "onnx-int8",
    "openvino-fp32", "openvino-bf16", "openvino-fp16", "openvino-int8",
    "torch-fp32", "torch-bf16", "torch-fp16", "torch-fp32-compiled", "torch-bf16-compiled",
)  # fmt: skip
BATCHES = (1, 8, 32)
ROUNDS = 15
REFERENCE = "onnx-fp32"


def digits_cnn(folder: Path) -> tuple[Material, TensorSpec, TensorSpec]:
    """The program and the ONNX of one module."""
    torch = import_torch()  # as a worker does: its threads sleep while they wait

    from controlplane.client.exporting.export import export
    from variants.zoo import digits_models

    torch.manual_seed(0)
    recipe = next(each for each in digits_models.RECIPES if each.name == "cnn")
    archive, onnx = folder / "cnn.pt2", folder / "cnn.onnx"
    export(
        recipe.build(), torch.rand(4, digits_models.PIXELS) * 16, archive, input_names=["pixels"]
    )
    extract_onnx(archive, onnx)
    rows = 16 * np.random.default_rng(0).random((128, digits_models.PIXELS), dtype=np.float32)
    material = Material(source=onnx, program=archive, calibration={"pixels": rows})
    taken = TensorSpec(name="pixels", dtype="float32", shape=(digits_models.PIXELS,))
    given = TensorSpec(name="scores", dtype="float32", shape=(digits_models.CLASSES,))
    return material, taken, given


def resnet(folder: Path) -> tuple[Material, TensorSpec, TensorSpec]:
    source = folder / "resnet.onnx"
    resnet18(source)
    rows = np.random.default_rng(0).random((32, 3, 224, 224), dtype=np.float32)
    material = Material(source=source, calibration={"images": rows})
    return (
        material,
        TensorSpec(name="images", dtype="float32", shape=(3, 224, 224)),
        TensorSpec(name="scores", dtype="float32", shape=(1000,)),
    )


def loaded(spec: LoadSpec, threads: int) -> tuple[Runtime, float]:
    """A loaded runtime, and the seconds that loading took."""
    runtime = make_runtime(spec, threads)
    began_s = time.perf_counter()
    runtime.load()
    return runtime, time.perf_counter() - began_s


def medians_ms(runtimes: dict[Any, Runtime], rows: Any, rounds: int) -> dict[Any, float]:
    """Median time of a batch, every runtime in turn."""
    times: dict[Any, list[float]] = {key: [] for key in runtimes}
    for _ in range(rounds):
        for key, runtime in runtimes.items():
            runtime.run([rows])  # what ran before left its own data in the caches
            for _ in range(4):
                began_s = time.perf_counter()
                runtime.run([rows])
                times[key].append((time.perf_counter() - began_s) * 1000)
    return {key: float(np.median(found)) for key, found in times.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resnet", action="store_true", help="the network of ResNet-18's size")
    parser.add_argument("--kinds", nargs="+", default=KINDS, help="which variants")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, len(os.sched_getaffinity(0))])
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    told = parser.parse_args(arguments)
    print(machine.describe())
    with tempfile.TemporaryDirectory() as name, machine.Others() as others:
        folder = Path(name)
        material, taken, given = (resnet if told.resnet else digits_cnn)(folder)
        runtimes: dict[tuple[str, int], Runtime] = {}
        for kind in told.kinds:
            builder = make_builder(kind)
            artifact = folder / f"{kind}{builder.suffix}"
            try:
                if why := missing_here(kind):
                    raise ModellessError(why)
                builder.build(material, artifact)
                options = {"engines": str(folder / "engines"), **builder.options}
                spec = replace(
                    onnx_spec(artifact, options=tuple(options.items())),
                    runtime=builder.runtime, inputs=(taken,), outputs=(given,),
                )  # fmt: skip
                first_s = 0.0
                for threads in sorted(set(told.threads)):
                    runtimes[kind, threads], load_s = loaded(spec, threads)
                    first_s = first_s or load_s
                print(f"{kind}: first load {first_s:.2f} s, next {load_s:.3f} s")
            except ModellessError as error:
                print(f"{kind}: {error.message}")
        found = {
            batch: medians_ms(
                runtimes, np.resize(material.calibration[taken.name], (batch, *taken.shape)).copy(),
                told.rounds,
            )
            for batch in told.batches
        }  # fmt: skip
    print(f"others computed on {others.cores:.1f} cores meanwhile")
    heads = "".join(f"{f'{batch} rows':>20}" for batch in told.batches)
    print(f"{'ms a batch (of fp32)':<22}{'threads':>8}{heads}")
    for kind, threads in runtimes:
        cells = []
        for batch in told.batches:
            took, reference = (found[batch].get((of, threads)) for of in (kind, REFERENCE))
            ratio = f"({took / reference:.2f})" if took and reference else ""
            cells.append(f"{took:12.3f} {ratio:>7}")
        print(f"{kind:<22}{threads:>8}{''.join(cells)}")


if __name__ == "__main__":
    main()
