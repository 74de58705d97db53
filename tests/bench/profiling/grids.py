"""Grids of kind x threads x batch size, measured in full: the truth that searches are judged by."""

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import psutil

from profiler.sampling.space import Configuration, Space
from profiler.sandbox.enough import is_too_slow
from profiler.sandbox.limits import MeasureLimits
from profiler.sandbox.probe import Probe
from profiler.sandbox.sandbox import Sandbox
from tests.bench.building.resnet import CLASSES, resnet18
from variants.builders.registry import BUILDERS, make_builder, missing_here
from variants.checks.archive.archive_check import extract_onnx
from variants.errors import InvalidArtifact
from variants.types import PROFILE_BATCH_SIZES, LatencyPoint

Grid = Mapping[Configuration, LatencyPoint]

LIMITS = MeasureLimits(batch_sizes=PROFILE_BATCH_SIZES)
FREE_MIB = 4096
"""Of the machine's memory, that processes with loaded variants leave."""
RESNET = "resnet18"
ROWS = 128


def write(path: Path, grids: Mapping[str, Grid], note: str) -> None:
    """One line a curve: batch sizes ascending, p50 and p95 of each in ms."""
    models: dict[str, dict[str, dict[str, list[float]]]] = {}
    for model, grid in grids.items():
        for each, point in sorted(grid.items()):
            curve = models.setdefault(model, {}).setdefault(f"{each.kind} x{each.threads}", {})
            curve[str(each.batch_size)] = [_rounded(point.p50_ms), _rounded(point.p95_ms)]
    lines = [f' "note": {json.dumps(note)}']
    for model, curves in models.items():
        inner = [f"  {json.dumps(name)}: {json.dumps(curve)}" for name, curve in curves.items()]
        lines.append(f" {json.dumps(model)}: {{\n" + ",\n".join(inner) + "\n }")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def read(path: Path) -> dict[str, Grid]:
    """What ``write`` wrote."""
    models = json.loads(path.read_text())
    models.pop("note", None)
    return {model: dict(_curves(curves)) for model, curves in models.items()}


def _curves(
    curves: Mapping[str, Mapping[str, Sequence[float]]],
) -> Iterable[tuple[Configuration, LatencyPoint]]:
    for name, curve in curves.items():
        kind, _, threads = name.rpartition(" x")
        for size, (p50_ms, p95_ms) in curve.items():
            configuration = Configuration(kind=kind, threads=int(threads), batch_size=int(size))
            yield (
                configuration,
                LatencyPoint(batch_size=int(size), p50_ms=p50_ms, p95_ms=p95_ms, p99_ms=p95_ms),
            )


def _rounded(latency_ms: float) -> float:
    return float(f"{latency_ms:.4g}")


def space_of(grid: Grid) -> Space:
    """The space that a grid fills."""
    return Space(
        kinds=tuple(dict.fromkeys(each.kind for each in grid)),
        threads=tuple(sorted({each.threads for each in grid})),
        batch_sizes=tuple(sorted({each.batch_size for each in grid})),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model with all variants that can be built of it here."""

    name: str
    specs: Mapping[str, Mapping[str, Any]]
    """By kind, the values of a load spec."""
    data: Path

    def space(self, threads: tuple[int, ...]) -> Space:
        return Space(kinds=tuple(self.specs), threads=threads, batch_sizes=LIMITS.batch_sizes)


def digits_subject(name: str, folder: Path) -> Subject:
    """A model of the digits family with random weights, exported as a user exports it."""
    from workers.runtimes.pytorch.runtime import import_torch

    torch = import_torch()  # its threads sleep while they wait

    from controlplane.client.exporting.export import export
    from variants.zoo import digits_models

    torch.manual_seed(0)
    recipe = next(each for each in digits_models.RECIPES if each.name == name)
    module = torch.nn.Sequential(recipe.build(), torch.nn.Softmax(-1))
    program, source = folder / f"{name}.pt2", folder / f"{name}.onnx"
    rows = 16 * np.random.default_rng(0).random((ROWS, digits_models.PIXELS), dtype=np.float32)
    export(module, torch.from_numpy(rows[:4]), program, input_names=["pixels"])
    extract_onnx(program, source)
    given = (digits_models.CLASSES,)
    return _subject(name, folder, source, program, "pixels", rows, given)


def resnet_subject(folder: Path, image: int) -> Subject:
    """A network of ResNet-18's size with random weights, as ONNX only."""
    source = folder / f"{RESNET}.onnx"
    resnet18(source, image=image)
    rows = np.random.default_rng(0).random((32, 3, image, image), dtype=np.float32)
    return _subject(RESNET, folder, source, None, "images", rows, (CLASSES,))


def _subject(
    name: str,
    folder: Path,
    source: Path,
    program: Path | None,
    taken: str,
    rows: Any,
    given: tuple[int, ...],
) -> Subject:
    data = folder / f"{name}.npz"
    np.savez(data, **{taken: rows})
    specs: dict[str, Mapping[str, Any]] = {}
    for kind in BUILDERS:
        builder = make_builder(kind)
        if builder.gpu or missing_here(kind):
            continue
        target = folder / f"{name}-{kind}{builder.suffix}"
        material = {"source": source, "program": program or "", "calibration": data}
        with Sandbox(runtime=builder.runtime) as sandbox:
            arguments = {"kind": kind, "target": str(target)}
            arguments |= {key: str(path) for key, path in material.items()}
            try:
                sandbox.call("build", arguments, subject=kind)
            except InvalidArtifact as error:
                print(f"{name}: without {error.message}")
                continue
        specs[kind] = {
            "task": "bench",
            "variant": f"{name}-v1-{kind}",
            "runtime": builder.runtime,
            "artifact": "0" * 64,
            "path": str(target),
            "inputs": [{"name": taken, "dtype": "float32", "shape": rows.shape[1:]}],
            "outputs": [{"name": "scores", "dtype": "float32", "shape": given}],
            "options": [*builder.options.items(), ("engines", str(folder / "engines"))],
        }
    return Subject(name=name, specs=specs, data=data)


class Stand:
    """Measures configurations of a subject, loaded variants kept while there is memory.

    Use as a context manager. What was sampled is kept by it, so each stand measures anew.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._probes: dict[tuple[str, int], Probe] = {}
        self._open: OrderedDict[tuple[str, int], Probe] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for probe in self._open.values():
            probe.__exit__()
        self._open.clear()

    def measure(self, configuration: Configuration) -> LatencyPoint:
        """Sampled until its median is known well enough.

        Raises:
            InvalidArtifact: it cannot be loaded or run, or one batch takes too long.
        """
        self.measure_all([configuration])
        return self._point(configuration)

    def measure_all(
        self, configurations: Iterable[Configuration]
    ) -> dict[Configuration, LatencyPoint]:
        """Of all that can be measured, in turns."""
        wanted = list(configurations)
        failed: set[tuple[str, int]] = set()
        going = wanted
        while going:
            for each in going:
                key = (each.kind, each.threads)
                if key in failed:
                    continue
                try:
                    self._probe(each).sample(each.batch_size)
                except InvalidArtifact as error:
                    print(f"{each}: {error.message}")
                    failed.add(key)
            going = [
                each
                for each in going
                if (key := (each.kind, each.threads)) not in failed
                and not self._probes[key].settled(each.batch_size)
            ]
        found = {}
        for each in wanted:
            with suppress(InvalidArtifact):
                found[each] = self._point(each)
        return found

    def _point(self, configuration: Configuration) -> LatencyPoint:
        probe = self._probes.get((configuration.kind, configuration.threads))
        sample = probe and probe.samples.get(configuration.batch_size)
        if not sample:
            raise InvalidArtifact(f"{configuration} could not be measured")
        if is_too_slow(sample, LIMITS):
            raise InvalidArtifact(f"{configuration} takes too long")
        return sample.point

    def _probe(self, configuration: Configuration) -> Probe:
        key = (configuration.kind, configuration.threads)
        if key in self._open:
            self._open.move_to_end(key)
            return self._open[key]
        while self._open and psutil.virtual_memory().available < FREE_MIB * 2**20:
            self._open.popitem(last=False)[1].__exit__()
        probe = self._probes.get(key)
        if probe is None:
            probe = self._probes[key] = Probe(
                self._subject.specs[configuration.kind],
                threads=configuration.threads,
                data=self._subject.data,
                limits=LIMITS,
            )
        self._open[key] = probe.__enter__()
        return probe
