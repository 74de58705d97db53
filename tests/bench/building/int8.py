"""What 8 bits give convolutional networks here: speed against fp32, and what they cost in answers.

Run with ``python -m tests.bench.building.int8``; ``--parts`` adds what each idea of the builder is
worth, ``--loads`` how long models take to load in which form, ``--others`` fp16 and dynamic
variants. The networks are the three of the digits family, trained, and one of ResNet-18's size with
random weights and a last layer fitted to pictures of ten kinds. Variants are made by the product's
own builders.

Sessions take turns, a run of each a round, so that a busy moment of the machine falls on all of
them; a ratio is the median over the rounds of fp32's time over the variant's in the same round.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from tests.bench import machine
from tests.bench.building.pictures import pictures, teach
from tests.bench.building.resnet import resnet18
from tests.machine_cache import digits_folder
from variants.builders.calibration import Calibration
from variants.builders.protocol import Material
from variants.builders.quantisation.onnx_int8 import build_qdq
from variants.builders.quantisation.qdq import CPU, Form
from variants.builders.registry import make_builder
from variants.errors import VariantNotBuilt
from workers.runtimes.onnx import SPIN_US

Array = NDArray[Any]
Rows = dict[str, Array]

BATCH = 8
THREADS = (1, 2)
STATIC = ("onnx-int8", "onnx-int8-entropy", "onnx-int8-percentile")
OTHERS = ("onnx-fp16", "onnx-int8-dynamic")
DIGITS = ("cnn-small", "cnn", "cnn-large")
PICTURES = 256
ROUNDS = 15
ROUND_S = 0.02
"""Quick models run as often in a round as fp32 does in this time."""
FORMS: Mapping[str, Form] = {
    "as it is": CPU,
    "8-bit weights": replace(CPU, weight_bits=8),
    "fp32 between nodes": replace(CPU, joins=False),
    "shallow ones too": replace(CPU, shallow=True),
    "signed activations": replace(CPU, symmetric=True),
}
"""What the builder does, and that with one idea changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A model in fp32, rows to calibrate on and rows to ask it."""

    name: str
    path: Path
    calibration: Rows
    calibration_labels: Array
    rows: Rows
    labels: Array

    @property
    def batch(self) -> Rows:
        return {name: array[:BATCH] for name, array in self.rows.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A variant of a network that takes part."""

    name: str
    path: Path
    note: str


def digits(name: str) -> Network:
    """One of the trained family."""
    folder = digits_folder()
    with (
        np.load(folder / "calibration.npz") as calibration,
        np.load(folder / "evaluation.npz") as evaluation,
    ):
        return Network(
            name=name,
            path=folder / name / "1" / "model.onnx",
            calibration={"pixels": calibration["pixels"]},
            calibration_labels=calibration["labels"],
            rows={"pixels": evaluation["pixels"]},
            labels=evaluation["labels"],
        )


def resnet(folder: Path, image: int) -> Network:
    """Random weights, settled on pictures, and a last layer that was taught them."""
    path = folder / "resnet18.onnx"
    taught, kinds = pictures(PICTURES, image, seed=0)
    resnet18(folder / "random.onnx", image=image)
    teach(folder / "random.onnx", path, taught, kinds)
    asked, labels = pictures(PICTURES, image, seed=1)
    return Network(
        name=f"resnet18 at {image}",
        path=path,
        calibration={"images": taught[:64]},
        calibration_labels=kinds[:64],
        rows={"images": asked},
        labels=labels,
    )


def session(path: Path, threads: int) -> Any:
    """As a worker opens it."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.spin_duration_us", str(SPIN_US))
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def race(paths: Mapping[str, Path], feed: Rows, threads: int) -> dict[str, list[float]]:
    """Seconds of every run, the same number for each model, taken in turns."""
    sessions = {name: session(path, threads) for name, path in paths.items()}
    for one in sessions.values():
        one.run(None, feed)
    begin = time.perf_counter()
    next(iter(sessions.values())).run(None, feed)
    runs = max(1, round(ROUND_S / (time.perf_counter() - begin)))
    found: dict[str, list[float]] = {name: [] for name in sessions}
    for _ in range(ROUNDS):
        for name, one in sessions.items():
            begin = time.perf_counter()
            for _ in range(runs):
                one.run(None, feed)
            found[name].append((time.perf_counter() - begin) / runs)
    return found


def ratios(found: Mapping[str, Sequence[float]], name: str) -> tuple[float, float, float]:
    """Median and quartiles of how many times as fast as fp32 a model was."""
    each = [a / b for a, b in zip(found["fp32"], found[name], strict=True)]
    low, _, high = quantiles(each, n=4)
    return median(each), low, high


def outputs(path: Path, rows: Rows) -> Array:
    one = session(path, 2)
    total = len(next(iter(rows.values())))
    return np.concatenate(
        [
            one.run(None, {n: a[start : start + 16] for n, a in rows.items()})[0]
            for start in range(0, total, 16)
        ]
    )


def answers(network: Network, scores: Array, reference: Array) -> tuple[float, float]:
    """Share of right answers, and signal over noise in dB.

    Signal is how scores differ between rows; what all rows have in common decides nothing.
    """
    share = float(np.mean(scores.argmax(1) == network.labels))
    noise = float(np.mean((scores - reference) ** 2))
    signal = float(np.mean((reference - reference.mean(0)) ** 2))
    return share, float("inf") if noise == 0 else 10 * float(np.log10(signal / noise))


def built(
    network: Network, make: Callable[[Material, Path], str], name: str, folder: Path
) -> Candidate | None:
    target = folder / f"{network.name}.{name}.onnx".replace(" ", "-")
    material = Material(
        source=network.path,
        calibration=network.calibration,
        calibration_labels=network.calibration_labels,
    )
    begin = time.perf_counter()
    try:
        note = make(material, target)
    except VariantNotBuilt as error:
        print(f"{network.name}: no {name}: {error.message}")
        return None
    print(
        f"{network.name}: {name} built in {time.perf_counter() - begin:.1f} s; {note or 'no note'}"
    )
    return Candidate(name=name, path=target, note=note)


def by_kind(kind: str) -> Callable[[Material, Path], str]:
    return lambda material, target: make_builder(kind).build(material, target).note


def by_form(form: Form) -> Callable[[Material, Path], str]:
    return lambda material, target: (
        build_qdq(material, target, how=Calibration.MIN_MAX, form=form).note
    )


def compare(network: Network, candidates: Sequence[Candidate]) -> None:
    """Print one row for each candidate."""
    reference = outputs(network.path, network.rows)
    paths = {"fp32": network.path} | {one.name: one.path for one in candidates}
    raced = {threads: race(paths, network.batch, threads) for threads in THREADS}
    for name, path in paths.items():
        share, noise = answers(network, outputs(path, network.rows), reference)
        cells = [network.name, name]
        for threads in THREADS:
            times = raced[threads]
            middle, low, high = ratios(times, name)
            cells.append(f"{1000 * median(times[name]):.2f}")
            cells.append("" if name == "fp32" else f"{middle:.2f} ({low:.2f} to {high:.2f})")
        cells += [f"{share:.2%}", "" if np.isinf(noise) else f"{noise:.0f}"]
        cells.append(f"{path.stat().st_size / 2**20:.2f}")
        print(f"| {' | '.join(cells)} |")


def heading() -> None:
    cells = ["network", "variant"]
    for threads in THREADS:
        cells += [f"{threads} thread{'s' * (threads > 1)}, ms", "times fp32 (quartiles)"]
    cells += ["right", "SQNR, dB", "MiB"]
    print(f"\n| {' | '.join(cells)} |\n|{'---|' * 2}{'--:|' * (len(cells) - 2)}")


def loads(networks: Sequence[Network], folder: Path) -> None:
    """Print how long each network takes to load, as handed in and written at each level."""
    levels = ort.GraphOptimizationLevel
    written = {
        "basic": (levels.ORT_ENABLE_BASIC, "ONNX"),
        "extended": (levels.ORT_ENABLE_EXTENDED, "ONNX"),
        "all": (levels.ORT_ENABLE_ALL, "ONNX"),
        "all, ORT format": (levels.ORT_ENABLE_ALL, "ORT"),
    }
    print(f"\n| network | as handed in, ms | {' | '.join(written)} |\n|---|{'--:|' * 5}")
    for network in networks:
        paths = {"as handed in": network.path}
        for name, (level, form) in written.items():
            suffix = "ort" if form == "ORT" else "onnx"
            paths[name] = folder / f"load-{name.replace(', ', '-')}.{suffix}"
            options = ort.SessionOptions()
            options.graph_optimization_level = level
            options.log_severity_level = 4
            options.optimized_model_filepath = str(paths[name])
            options.add_session_config_entry("session.save_model_format", form)
            ort.InferenceSession(str(network.path), options, providers=["CPUExecutionProvider"])
        found: dict[str, list[float]] = {name: [] for name in paths}
        for _ in range(ROUNDS):
            for name, path in paths.items():
                begin = time.perf_counter()
                session(path, 1)
                found[name].append(1000 * (time.perf_counter() - begin))
        cells = [network.name, *(f"{median(times):.1f}" for times in found.values())]
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", type=int, default=224, help="side of ResNet-18's images")
    parser.add_argument("--only", nargs="+", default=[*DIGITS, "resnet"])
    parser.add_argument("--parts", action="store_true", help="what each idea is worth")
    parser.add_argument("--others", action="store_true", help="fp16 and dynamic variants too")
    parser.add_argument("--loads", action="store_true", help="load times by form")
    given = parser.parse_args()
    print(machine.describe())
    kinds = [*STATIC, *(OTHERS if given.others else ())]
    with tempfile.TemporaryDirectory() as name, machine.Others() as others:
        folder = Path(name)
        networks = [digits(one) for one in DIGITS if one in given.only]
        if "resnet" in given.only:
            networks.append(resnet(folder, given.image))
        makers = {kind: by_kind(kind) for kind in kinds}
        compare_all(networks, makers, folder)
        if given.parts:
            compare_all(networks, {name: by_form(form) for name, form in FORMS.items()}, folder)
        if given.loads:
            loads(networks, folder)
    print(f"\nothers used {others.cores:.1f} cores meanwhile")


def compare_all(
    networks: Sequence[Network],
    makers: Mapping[str, Callable[[Material, Path], str]],
    folder: Path,
) -> None:
    candidates = {
        network.name: [built(network, make, name, folder) for name, make in makers.items()]
        for network in networks
    }
    heading()
    for network in networks:
        compare(network, [one for one in candidates[network.name] if one is not None])


if __name__ == "__main__":
    main()
