"""How well two profiles of the same variant agree, taken one after the other in one run.

Run with ``python -m tests.bench.repeat`` from the repository's root; takes about two minutes. Every
variant is profiled in a process of its own as a registration does it; when all are done, each is
profiled again. A line has the second median over the first one for each batch size; what differs by
more than 5 % is marked. ``--pinned`` compares processes that stay on their cores with those that do
not, sampled in turns, instead.

The digits family as fp32 and int8, and a network of ResNet-18's size with random weights on images
of 64 x 64.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from profiler.measure import MeasureLimits
from profiler.probe import Probe, settle
from profiler.sandbox import Sandbox
from profiler.timing import Sample
from tests.bench.machine import IDLE_CORES, Others, describe
from tests.bench.resnet import CLASSES, resnet18
from tests.zoo_cache import digits_folder
from variants.types import PROFILE_BATCH_SIZES, Digest, TaskName, TensorSpec, VariantName
from variants.zoo.digits import MODELS
from workers.types import LoadSpec

WITHIN = 0.05
IMAGE = 64
LIMITS = MeasureLimits(batch_sizes=PROFILE_BATCH_SIZES)


class Subject(NamedTuple):
    spec: LoadSpec
    data: Path
    threads: int

    def probe(self, *, pinned: bool = False) -> Probe:
        return Probe(self.spec, threads=self.threads, data=self.data, limits=LIMITS, pinned=pinned)


class Profiled(NamedTuple):
    samples: dict[int, Sample]
    took_s: float


def digits(threads: int, work: Path) -> list[Subject]:
    """The family, and its int8 variants."""
    folder = digits_folder()
    rows, scores = tensor("pixels", 64), tensor("scores", 10)
    found = []
    for model in MODELS:
        source = folder / model / "1/model.onnx"
        small = work / f"{model}-int8.onnx"
        with Sandbox() as sandbox:
            sandbox.call(
                "build",
                {
                    "kind": "onnx-int8",
                    "source": str(source),
                    "target": str(small),
                    "calibration": str(folder / "calibration.npz"),
                },
                subject=model,
            )
        for name, path in ((f"{model}-fp32", source), (f"{model}-int8", small)):
            data = folder / "evaluation.npz"
            found.append(Subject(load_spec(name, path, rows, scores), data, threads))
    return found


def resnet(threads: int, work: Path) -> list[Subject]:
    """One network of ResNet-18's size."""
    path, data = work / "resnet18.onnx", work / "images.npz"
    resnet18(path, image=IMAGE)
    draw = np.random.default_rng(0)
    np.savez(data, images=draw.random((32, 3, IMAGE, IMAGE)).astype(np.float32))
    images, scores = tensor("images", 3, IMAGE, IMAGE), tensor("scores", CLASSES)
    return [Subject(load_spec("resnet18-fp32", path, images, scores), data, threads)]


def tensor(name: str, *shape: int) -> TensorSpec:
    return TensorSpec(name=name, dtype="float32", shape=shape)


def load_spec(name: str, path: Path, taken: TensorSpec, given: TensorSpec) -> LoadSpec:
    return LoadSpec(
        task=TaskName("bench"),
        variant=VariantName(name),
        runtime="onnx",
        artifact=Digest("0" * 64),
        path=str(path),
        inputs=(taken,),
        outputs=(given,),
        latency=(),
        memory_mib=0.0,
        load_s=0.0,
    )


def profiled(subject: Subject) -> Profiled:
    """As a registration profiles it."""
    began_s = time.perf_counter()
    with subject.probe() as probe:
        probe.curve()
        return Profiled(dict(probe.samples), time.perf_counter() - began_s)


def repeated(subjects: Sequence[Subject]) -> None:
    """Profile all, and all again; print what the second found over what the first found."""
    first, second = ([profiled(subject) for subject in subjects] for _ in range(2))
    print(f"\nSecond median / first; more than {WITHIN:.0%} apart: *")
    print(f"{'':24}" + "".join(f"{size:>8}" for size in LIMITS.batch_sizes) + "   stolen  seconds")
    ratios: list[float] = []
    for subject, a, b in zip(subjects, first, second, strict=True):
        found = {
            size: b.samples[size].point.p50_ms / a.samples[size].point.p50_ms
            for size in LIMITS.batch_sizes
            if size in a.samples and size in b.samples
        }
        ratios += found.values()
        both = [*a.samples.values(), *b.samples.values()]
        stolen = sum(one.stolen for one in both) / sum(one.runs for one in both)
        cells = "".join(cell(found.get(size)) for size in LIMITS.batch_sizes)
        print(f"{subject.spec.variant:24}{cells}  {stolen:7.1%}  {a.took_s:.1f} {b.took_s:.1f}")
    apart = [abs(ratio - 1) for ratio in ratios]
    near = sum(one <= WITHIN for one in apart) / len(apart)
    took_s = [one.took_s for one in (*first, *second)]
    print(f"\n{near:.1%} of {len(apart)} medians agree within {WITHIN:.0%}")
    print(f"apart by {median(apart):.1%} at the median, {np.percentile(apart, 90):.1%} at the 90th")
    print(f"seconds a profile: {median(took_s):.1f} at the median, {max(took_s):.1f} at most")


def cell(ratio: float | None) -> str:
    if ratio is None:
        return f"{'-':>8}"
    return f"{ratio:7.3f}{'*' if abs(ratio - 1) > WITHIN else ' '}"


def pinned_or_not(subjects: Sequence[Subject]) -> None:
    """Print how long a batch takes on its cores over how long it takes anywhere."""
    print("\nPinned / not pinned, p50 and p99")
    print(f"{'':24}" + "".join(f"{size:>14}" for size in LIMITS.batch_sizes))
    limits = replace(LIMITS, rounds=2 * LIMITS.rounds)
    everything: list[float] = []
    for subject in subjects:
        with subject.probe(pinned=True) as pinned, subject.probe() as free:
            pinned.limits = free.limits = limits
            settle([(one, size) for size in limits.batch_sizes for one in (pinned, free)])
            line = ""
            for size in limits.batch_sizes:
                a, b = pinned.samples[size].point, free.samples[size].point
                everything.append(a.p50_ms / b.p50_ms)
                line += f"{a.p50_ms / b.p50_ms:8.2f}{a.p99_ms / b.p99_ms:6.2f}"
        print(f"{subject.spec.variant:24}{line}")
    low, high = np.percentile(everything, [10, 90])
    print(f"\np50: {median(everything):.3f} at the median, 80 % from {low:.3f} to {high:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", default="", help="only variants whose names hold this")
    parser.add_argument("--pinned", action="store_true", help="compare pinned with not pinned")
    arguments = parser.parse_args()
    print(describe())
    with tempfile.TemporaryDirectory() as folder, Others() as others:
        work = Path(folder)
        subjects = [*digits(arguments.threads, work), *resnet(arguments.threads, work)]
        chosen = [one for one in subjects if arguments.models in one.spec.variant]
        (pinned_or_not if arguments.pinned else repeated)(chosen)
    if others.cores > IDLE_CORES:
        print(f"NOT IDLE: others used {others.cores:.1f} cores")


if __name__ == "__main__":
    main()
