"""How well two profiles of the same variant agree that were taken in one run.

Run with ``python -m tests.bench.profiling.repeat`` from the repository's root; takes about three
minutes.

* In turns: two processes hold the same variant and are sampled in turns, as variants are that are
  compared with each other. What they differ by is the method's doing.
* One after the other: every variant is profiled as a registration does it; when all are done, each
  is profiled again. What these differ by more is the machine's doing.
* ``--pinned``: instead, processes that stay on their cores against those that do not, in turns.

A line has the ratio of the medians for each batch size; more than 5 % is marked.

The digits family as fp32 and int8, and a network of ResNet-18's size with random weights on images
of 64 x 64.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from profiler.sandbox.limits import MeasureLimits
from profiler.sandbox.probe import Probe, settle
from profiler.sandbox.sandbox import Sandbox
from profiler.timing.statistics import Sample
from tests.bench.building.resnet import CLASSES, resnet18
from tests.bench.machine import IDLE_CORES, Others, describe
from tests.machine_cache import digits_folder
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


Samples = Mapping[int, Sample]


class Profiled(NamedTuple):
    samples: Samples
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


def in_turns(subjects: Sequence[Subject]) -> None:
    """Two processes for each variant, sampled in turns."""
    head("In turns")
    ratios: list[float] = []
    for subject in subjects:
        with subject.probe() as one, subject.probe() as other:
            settle([(probe, size) for size in LIMITS.batch_sizes for probe in (one, other)])
            ratios += line(subject, one.samples, other.samples)
    summary(ratios)


def one_after_the_other(subjects: Sequence[Subject]) -> None:
    """Profile all, and all again."""
    first = [profiled(subject) for subject in subjects]
    head("One after the other")
    ratios: list[float] = []
    took_s = [one.took_s for one in first]
    for subject, before in zip(subjects, first, strict=True):
        after = profiled(subject)
        took_s.append(after.took_s)
        ratios += line(subject, before.samples, after.samples)
    summary(ratios)
    print(f"seconds a profile: {median(took_s):.1f} at the median, {max(took_s):.1f} at most")


def head(title: str) -> None:
    sizes = "".join(f"{size:>8}" for size in LIMITS.batch_sizes)
    print(f"\n{title:24}{sizes}   left out   runs that count had others")


def line(subject: Subject, one: Samples, other: Samples) -> list[float]:
    """Print the ratios of one variant's medians, and return them."""
    found = {
        size: other[size].point.p50_ms / one[size].point.p50_ms
        for size in LIMITS.batch_sizes
        if size in one and size in other
    }
    both = [*one.values(), *other.values()]
    dropped = sum(sample.dropped for sample in both) / sum(sample.runs for sample in both)
    contention = max(sample.contention for sample in both).name.lower()
    cells = "".join(cell(found.get(size)) for size in LIMITS.batch_sizes)
    print(f"{subject.spec.variant:24}{cells}  {dropped:9.1%}   {contention}", flush=True)
    return list(found.values())


def summary(ratios: Sequence[float]) -> None:
    apart = [abs(ratio - 1) for ratio in ratios]
    near = sum(one <= WITHIN for one in apart) / len(apart)
    high = np.percentile(apart, 90)
    print(f"{near:.1%} of {len(apart)} medians agree within {WITHIN:.0%}; ", end="")
    print(f"apart by {median(apart):.1%} at the median, {high:.1%} at the 90th percentile")


def cell(ratio: float | None) -> str:
    if ratio is None:
        return f"{'-':>8}"
    return f"{ratio:7.3f}{'*' if abs(ratio - 1) > WITHIN else ' '}"


def pinned_or_not(subjects: Sequence[Subject]) -> None:
    """Print how long a batch takes on its cores over how long it takes anywhere."""
    head("Pinned over not, p50")
    p50s: list[float] = []
    p99s: list[float] = []
    for subject in subjects:
        with subject.probe(pinned=True) as pinned, subject.probe() as free:
            settle([(probe, size) for size in LIMITS.batch_sizes for probe in (pinned, free)])
            p50s += line(subject, free.samples, pinned.samples)
            p99s += [
                pinned.samples[size].point.p99_ms / free.samples[size].point.p99_ms
                for size in LIMITS.batch_sizes
            ]
    for name, ratios in (("p50", p50s), ("p99", p99s)):
        low, high = np.percentile(ratios, [10, 90])
        print(f"{name}: {median(ratios):.3f} at the median, 80 % from {low:.3f} to {high:.3f}")


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
        if arguments.pinned:
            pinned_or_not(chosen)
        else:
            in_turns(chosen)
            one_after_the_other(chosen)
    if others.cores > IDLE_CORES:
        print(f"NOT IDLE: others used {others.cores:.1f} cores")


if __name__ == "__main__":
    main()
