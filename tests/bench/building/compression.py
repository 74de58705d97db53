"""What low rank, pruning and distillation do to the digits family.

Run with ``python -m tests.bench.building.compression`` from the repository's root; takes about ten
minutes, with ``--models mlp cnn-small`` less.

A line has, for a variant and the model that it was made of: accuracy on the held-out rows, which
nothing was chosen by; multiply-adds of a row; the ratio of latencies in ONNX Runtime on one thread,
variant / model, each the least of several rounds in turns; and what building took.

* Latency is the thread's processor time: what a batch takes where nothing else computes.
* low rank: no training rows; what may be lost is counted on the calibration rows;
* low rank, tuned; pruned; distilled: with the rows that the family was trained on, and the largest
  model as the teacher.
* ``--resnet``: instead, a network of ResNet-18's size with random weights, pruned to a half and to
  a quarter without tuning, in whole blocks of channels and in any number. Its answers mean nothing.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.bench.building.resnet import resnet18
from tests.bench.machine import IDLE_CORES, Others, describe
from tests.machine_cache import digits_folder
from variants.builders.compression import importance
from variants.builders.compression.channel_dependencies import trace
from variants.builders.compression.graph import multiply_adds, read, save
from variants.builders.compression.scores import answers
from variants.builders.compression.surgery import separable, without
from variants.builders.protocol import Material, Rows
from variants.builders.registry import make_builder
from variants.errors import VariantNotBuilt
from variants.zoo.digits import MODELS, split

BATCHES = (1, 32)
ROUNDS = 15
ROUND_S = 0.02
KINDS = {
    "low rank": ("onnx-fp32-lowrank", False),
    "low rank, tuned": ("onnx-fp32-lowrank", True),
    "pruned": ("onnx-fp32-pruned", True),
    "distilled": ("onnx-fp32-distilled", True),
}
"""What is made, by which builder, and whether it is given the training rows."""
IMAGE = 112


def accuracy(path: Path, pixels: NDArray[Any], labels: NDArray[Any]) -> float:
    return float((answers(read(path), {"pixels": pixels}) == labels).mean())


def session(path: Path) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def ratio(variant: Path, model: Path, rows: Rows) -> float:
    """Latency of the variant / latency of the model, on one batch."""
    runs: list[Callable[[], Any]] = [
        lambda: sessions[0].run(None, dict(rows)),
        lambda: sessions[1].run(None, dict(rows)),
    ]
    sessions = [session(variant), session(model)]
    repeats = []
    for run in runs:
        run()
        begun = time.thread_time()
        run()
        repeats.append(max(1, int(ROUND_S / (time.thread_time() - begun))))
    least = [float("inf")] * 2
    for _ in range(ROUNDS):
        for place, run in enumerate(runs):
            begun = time.thread_time()
            for _ in range(repeats[place]):
                run()
            least[place] = min(least[place], (time.thread_time() - begun) / repeats[place])
    return least[0] / least[1]


def ratios(variant: Path, model: Path, rows: Rows) -> str:
    found = [
        ratio(variant, model, {name: array[:batch] for name, array in rows.items()})
        for batch in BATCHES
    ]
    return " | ".join(f"{value:.2f}" for value in found)


def family(models: Sequence[str], variants: Sequence[str], folder: Path) -> None:
    data = split()
    digits = digits_folder()
    pixels, labels = data["evaluation"]
    print(
        "| model | variant | accuracy | multiply-adds, thousands "
        "| latency ratio, 1 row | 32 rows | built in | note |\n|---|---|--:|--:|--:|--:|--:|---|"
    )
    for name in models:
        source, model = digits / name / "1" / "model.onnx", folder / f"{name}.onnx"
        save(read(source), model)
        work = sum(multiply_adds(read(model)).values())
        print(
            f"| {name} | fp32 | {accuracy(model, pixels, labels):.1%} | {work / 1e3:,.0f} | | | | |"
        )
        for what, (kind, trained) in KINDS.items():
            if what not in variants or (what == "distilled" and name == MODELS[-1]):
                continue  # the largest is the teacher
            material = Material(
                source=source,
                calibration={"pixels": data["calibration"][0]},
                calibration_labels=data["calibration"][1],
                training={"pixels": data["train"][0]} if trained else {},
                training_labels=data["train"][1] if trained else None,
                teacher=digits / MODELS[-1] / "1" / "model.onnx",
            )
            target = folder / f"{name}-{what}.onnx"
            begun = time.monotonic()
            try:
                note = make_builder(kind).build(material, target).note
            except VariantNotBuilt as error:
                print(f"| | {what} | | | | | | {error} |", flush=True)
                continue
            took_s = time.monotonic() - begun
            left = sum(multiply_adds(read(target)).values())
            print(
                f"| | {what} | {accuracy(target, pixels, labels):.1%} | {left / 1e3:,.0f} "
                f"| {ratios(target, model, {'pixels': pixels})} | {took_s:.0f} s | {note} |",
                flush=True,
            )


def resnet(folder: Path) -> None:
    source = folder / "resnet.onnx"
    resnet18(source, image=IMAGE)
    model = separable(read(source))
    save(model, folder / "whole.onnx")
    channels = trace(model)
    random = np.random.default_rng(0)
    weights = random.random(channels.count)
    whole = sum(layer.work for layer in channels.layers)
    images = {"images": random.standard_normal((32, 3, IMAGE, IMAGE)).astype(np.float32)}
    print("| kept | channels leave | multiply-adds | latency ratio, 1 row | 32 rows |")
    print("|---|---|--:|--:|--:|")
    for share in (0.5, 0.25):
        for what, block in (("in blocks", importance.usual_block), ("in any number", lambda _: 1)):
            kept = importance.lightest(
                channels, weights, work=share * whole, least=0.1, block_of=block
            )
            target = folder / "pruned.onnx"
            save(without(model, channels, kept), target)
            found = ratios(target, folder / "whole.onnx", images)
            left = channels.work(kept) / whole
            print(f"| {share:.0%} | {what} | {left:.0%} | {found} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the compressors.")
    parser.add_argument("--models", nargs="+", default=list(MODELS[1:]), choices=MODELS)
    parser.add_argument("--variants", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--resnet", action="store_true")
    asked = parser.parse_args()
    print(describe())
    with Others() as others:
        time.sleep(1)
    if others.cores > IDLE_CORES:
        print(f"NOT IDLE: others use {others.cores:.1f} cores; the ratios are less sure")
    with tempfile.TemporaryDirectory() as folder:
        if asked.resnet:
            resnet(Path(folder))
        else:
            family(asked.models, asked.variants, Path(folder))


if __name__ == "__main__":
    main()
