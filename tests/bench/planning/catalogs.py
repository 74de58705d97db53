"""Catalogs and fleets to simulate on: ten tasks, forty devices.

Two of them. ``synthetic`` has round numbers and needs no data. ``timm`` is made of measured models
(``timm_imagenet.csv`` in the directory that MODELLESS_BENCH_DATA names).
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.solver.problem import AvailableKind
from tests.planner.builders import catalog, variant
from variants.types import (
    CatalogSnapshot,
    DeviceKind,
    DeviceKindName,
    LatencyPoint,
    Profile,
    ProfileSource,
    TaskName,
    Variant,
    VariantName,
)

TASKS = 10
MIB_PER_S = 1_024.0
"""At which variants load."""
OVERHEAD = 0.1
"""Part of the largest batch's latency that every batch takes, however small: L(b) =
L(B) x (0.1 + 0.9 b / B)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a workload is simulated on."""

    name: str
    catalog: CatalogSnapshot
    kinds: tuple[AvailableKind, ...]
    latency_ms: Mapping[TaskName, float]
    """The usual latency SLO of each task."""

    @property
    def tasks(self) -> tuple[TaskName, ...]:
        return tuple(self.latency_ms)

    def accuracies(self, task: TaskName) -> tuple[float, ...]:
        """Of a task's variants, ascending."""
        return tuple(sorted({v.accuracy for v in self.catalog.variants if v.task == task}))


FAMILY = (
    ("nano", 0.700, 100.0, 100.0),
    ("tiny", 0.740, 160.0, 200.0),
    ("small", 0.780, 270.0, 400.0),
    ("medium", 0.810, 470.0, 700.0),
    ("large", 0.835, 800.0, 1_200.0),
    ("huge", 0.850, 1_500.0, 2_400.0),
)
"""Name, accuracy, latency of one row on a CPU in ms, memory in MiB."""


def synthetic() -> Ground:
    """A family of six variants for each task, later tasks up to 1.9 times as heavy.

    32 CPU devices, on which a batch of four gains a tenth; 8 GPU devices, which run sixteen rows in
    the time that a CPU takes for three. The largest variant does not run on CPUs.
    """
    variants: list[Variant] = []
    profiles: list[Profile] = []
    usual_ms: dict[TaskName, float] = {}
    for number in range(TASKS):
        task = TaskName(f"t{number}")
        weight = 1.0 + number / 10
        usual_ms[task] = 1_600.0 * weight
        for name, accuracy, row_ms, mib in FAMILY:
            variants.append(variant(name, accuracy, task))
            cpu_ms = 4 * row_ms * weight
            gpu_ms = 3 * row_ms * weight
            if name != "huge":
                profiles.append(_profile(task, name, "cpu", cpu_ms, 4, mib))
            profiles.append(_profile(task, name, "gpu", gpu_ms, 16, mib))
    kinds = (
        AvailableKind(name=DeviceKindName("cpu"), count=32, memory_mib=2_048.0, usd_per_hour=0.20),
        AvailableKind(name=DeviceKindName("gpu"), count=8, memory_mib=6_144.0, usd_per_hour=0.80),
    )
    return Ground(
        name="synthetic",
        catalog=catalog(variants, profiles, kinds=_device_kinds(kinds)),
        kinds=kinds,
        latency_ms=usual_ms,
    )


TIMM_KINDS = {
    # Device kind: how many there are, memory in MiB, USD per hour, bytes of a parameter.
    "i9-10940x-fp32": (18, 2_048.0, 0.35, 4),
    "i7-12700h-fp32": (20, 2_048.0, 0.20, 4),
    "rtx-3090-amp": (2, 4_096.0, 0.45, 2),
}
LARGEST_BATCH = 16
LEAST_MS = 70.0
"""Models that are faster on the i9 are left out: with them, forty devices would serve more queries
than can be simulated."""
VARIANTS = 7


def timm(data: Path) -> Ground:
    """Measured image models: each task has seven from the frontier of a tenth of the models."""
    models = _timm_models(data / "timm_imagenet.csv")
    variants: list[Variant] = []
    profiles: list[Profile] = []
    usual_ms: dict[TaskName, float] = {}
    for number in range(TASKS):
        task = TaskName(f"t{number}")
        usual_ms[task] = 1_000.0
        names = sorted(models)[number::TASKS]
        for name in _spread(_frontier({n: models[n] for n in names}), VARIANTS):
            rows = models[name]
            variants.append(variant(name, _top1(rows), task))
            for kind, row in rows.items():
                batch = int(row["batch_size"])
                whole_ms = 1_000.0 * batch / float(row["samples_per_s"])
                mib = float(row["params_million"]) * 1e6 * TIMM_KINDS[kind][3] / 2**20
                profiles.append(_profile(task, name, kind, whole_ms, batch, mib))
    kinds = tuple(
        AvailableKind(name=DeviceKindName(name), count=count, memory_mib=mib, usd_per_hour=usd)
        for name, (count, mib, usd, _) in TIMM_KINDS.items()
    )
    return Ground(
        name="timm",
        catalog=catalog(variants, profiles, kinds=_device_kinds(kinds)),
        kinds=kinds,
        latency_ms=usual_ms,
    )


Rows = Mapping[str, Mapping[str, str]]
"""The measurements of one model, by device kind."""


def _timm_models(path: Path) -> dict[str, Rows]:
    """Models measured on all of the device kinds, by name."""
    found: dict[str, dict[str, Mapping[str, str]]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["device_kind"] in TIMM_KINDS:
                name = f"{row['model']}-{row['img_size']}".lower()
                found.setdefault(name, {})[row["device_kind"]] = row
    return {
        name: rows
        for name, rows in found.items()
        if len(rows) == len(TIMM_KINDS) and _cpu_ms(rows) >= LEAST_MS
    }


def _cpu_ms(rows: Rows) -> float:
    return 1_000.0 / float(rows["i9-10940x-fp32"]["samples_per_s"])


def _top1(rows: Rows) -> float:
    return float(rows["i9-10940x-fp32"]["top1"]) / 100


def _frontier(models: Mapping[str, Rows]) -> list[str]:
    """From fast to accurate, those that no faster one equals."""
    kept: list[str] = []
    best = 0.0
    for name in sorted(models, key=lambda n: _cpu_ms(models[n])):
        if _top1(models[name]) > best:
            best = _top1(models[name])
            kept.append(name)
    return kept


def _spread(names: Sequence[str], count: int) -> list[str]:
    """So many of them at equal steps, both ends included."""
    if len(names) <= count:
        return list(names)
    return [names[round(i * (len(names) - 1) / (count - 1))] for i in range(count)]


def _profile(
    task: TaskName, name: str, kind: str, whole_ms: float, batch: int, mib: float
) -> Profile:
    """A straight line through the latency of a batch that was measured."""
    sizes = sorted({1, min(batch, LARGEST_BATCH)})
    share = 0.0 if batch == 1 else OVERHEAD
    points = []
    for size in sizes:
        ms = whole_ms * (share + (1 - share) * size / batch)
        points.append(LatencyPoint(batch_size=size, p50_ms=ms, p95_ms=ms, p99_ms=ms))
    return Profile(
        task=task,
        variant=VariantName(name),
        device_kind=DeviceKindName(kind),
        points=tuple(points),
        memory_mib=mib,
        load_s=mib / MIB_PER_S,
        source=ProfileSource.EXACT,
    )


def _device_kinds(kinds: Iterable[AvailableKind]) -> tuple[DeviceKind, ...]:
    return tuple(
        DeviceKind(name=k.name, cores=1, memory_mib=k.memory_mib, usd_per_hour=k.usd_per_hour)
        for k in kinds
    )
