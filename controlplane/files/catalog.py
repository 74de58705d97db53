"""Catalog and devices from files, as the planner and as production know them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import inf, isfinite
from pathlib import Path

import numpy as np

from controlplane.files.fields import (
    BATCH_SIZE,
    CARBON,
    COUNT,
    ENERGY_J,
    IDLE_W,
    INTERFERENCE,
    LATENCY_MS,
    LIMIT_MIB,
    LOAD_S,
    NAME,
    NEEDED_MIB,
    PRICE,
    SHARE,
    quoted,
)
from controlplane.files.table import Block, Columns, Table, shown
from planner.energy import EnergyCurve, energy_curve
from planner.latency_curve import Curve
from planner.solver.problem import AvailableKind, Offer
from variants.figures import apart
from variants.types import (
    CatalogSnapshot,
    DeviceKind,
    DeviceKindName,
    Digest,
    LatencyPoint,
    ModelName,
    ModelVersion,
    Precision,
    Profile,
    ProfileSource,
    Stage,
    Task,
    TaskName,
    Variant,
    VariantName,
)

CATALOG: Columns = {
    "task": NAME,
    "model": NAME,
    "variant": NAME,
    "accuracy": SHARE,
    "device_kind": NAME,
    "batch_size": BATCH_SIZE,
    "latency_ms": LATENCY_MS,
    "memory_mib": NEEDED_MIB,
    "load_s": LOAD_S,
}
CATALOG_OPTIONAL: Columns = {"energy_j": ENERGY_J}
DEVICES: Columns = {
    "device_kind": NAME,
    "count": COUNT,
    "memory_mib": LIMIT_MIB,
    "usd_per_hour": PRICE,
}
DEVICES_OPTIONAL: Columns = {
    "interference": INTERFERENCE,
    "idle_w": IDLE_W,
    "carbon_g_per_kwh": CARBON,
}
MAX_CATALOG_ROWS = 1_000_000
MAX_KINDS = 1_000

_NO_ARTIFACT = Digest("0" * 64)


def read_devices(path: Path) -> tuple[AvailableKind, ...]:
    """The device kinds of a devices file, in its order; blank memory is no limit, and what is
    blank of idle draw and carbon is not known.

    Raises:
        BadFile: the first thing wrong, with its line and column.
    """
    kinds: dict[str, AvailableKind] = {}
    table = Table(path, {"devices": DEVICES}, max_rows=MAX_KINDS, optional=DEVICES_OPTIONAL)
    for block in table.blocks():
        numbers = block.numbers
        interference = numbers.get("interference", np.zeros(len(block)))
        idle_w = numbers.get("idle_w", np.full(len(block), inf))
        carbon = block.names.get("carbon_g_per_kwh", [""] * len(block))
        for row, name in enumerate(block.names["device_kind"]):
            if name in kinds:
                raise block.wrong(row, "device_kind", f"{quoted(name)} stands there twice")
            kinds[name] = AvailableKind(
                name=DeviceKindName(name),
                count=int(numbers["count"][row]),
                memory_mib=float(numbers["memory_mib"][row]),
                usd_per_hour=float(numbers["usd_per_hour"][row]),
                interference=float(interference[row]),
                idle_w=_known(float(idle_w[row])),
                carbon_g_per_kwh=CARBON.one(carbon[row]),
            )
    return tuple(kinds.values())


def read_catalog(
    path: Path, kinds: Collection[AvailableKind], *, devices: Path | None = None
) -> tuple[Offer, ...]:
    """The offers of a catalog file, in its order: one for each variant and device kind.

    Every device kind of the catalog must be among ``kinds``, which come from the file ``devices``:
    a misspelt kind would silently take its variants away. A kind that is not there to be used has
    the count 0.

    Raises:
        BadFile: the first thing wrong, with its line and column.
    """
    reading = _Catalog(
        kinds=frozenset(kind.name for kind in kinds),
        devices="the devices file" if devices is None else shown(str(devices)),
    )
    table = Table(path, {"catalog": CATALOG}, max_rows=MAX_CATALOG_ROWS, optional=CATALOG_OPTIONAL)
    for block in table.blocks():
        reading.add(block)
    return tuple(
        Offer(
            task=TaskName(task),
            model=ModelName(reading.variants[task, variant][0]),
            variant=VariantName(variant),
            accuracy=reading.variants[task, variant][1],
            device_kind=DeviceKindName(kind),
            curve=Curve(draft.points.items()),
            memory_mib=draft.memory_mib,
            load_s=draft.load_s,
            energy=draft.energy,
        )
        for (task, variant, kind), draft in reading.drafts.items()
    )


@dataclass(slots=True)
class _Draft:
    """A variant on a device kind, while its rows are read."""

    memory_mib: float
    load_s: float
    points: dict[int, float] = field(default_factory=dict)
    joules: dict[int, float] = field(default_factory=dict)
    """Of the batch sizes at which they were measured."""

    @property
    def energy(self) -> EnergyCurve | None:
        """Known where that of the smallest and of the largest batch is."""
        return energy_curve(
            [
                LatencyPoint(
                    batch_size=size, p50_ms=ms, p95_ms=ms, p99_ms=ms, energy_j=self.joules.get(size)
                )
                for size, ms in sorted(self.points.items())
            ]
            if self.joules
            else ()
        )


def _known(value: float) -> float | None:
    """A number that may have been left blank."""
    return value if isfinite(value) else None


@dataclass(slots=True, kw_only=True)
class _Catalog:
    """What the rows of a catalog have said so far; they must agree."""

    kinds: Collection[str]
    devices: str
    variants: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)
    """Model and accuracy of a variant of a task."""
    drafts: dict[tuple[str, str, str], _Draft] = field(default_factory=dict)

    def add(self, block: Block) -> None:
        names = block.names
        numbers = {name: column.tolist() for name, column in block.numbers.items()}
        joules = numbers.get("energy_j", repeat(inf, len(block)))
        rows = zip(
            names["task"],
            names["model"],
            names["variant"],
            names["device_kind"],
            numbers["accuracy"],
            numbers["batch_size"],
            numbers["latency_ms"],
            numbers["memory_mib"],
            numbers["load_s"],
            joules,
            strict=True,
        )
        for row, (task, model, variant, kind, accuracy, size, ms, mib, load_s, energy) in enumerate(
            rows
        ):
            known = self.variants.setdefault((task, variant), (model, accuracy))
            if known != (model, accuracy):
                raise self._other_variant(block, row, known)
            draft = self.drafts.get((task, variant, kind))
            if draft is None:
                if kind not in self.kinds:
                    raise self._unknown_kind(block, row, kind)
                draft = self.drafts[task, variant, kind] = _Draft(mib, load_s)
            elif (draft.memory_mib, draft.load_s) != (mib, load_s):
                raise self._other_draft(block, row, draft)
            if size in draft.points:
                what = f"{int(size)} stands there twice for {variant} of {task} on {kind}"
                raise block.wrong(row, "batch_size", what)
            draft.points[int(size)] = ms
            if energy < inf:
                draft.joules[int(size)] = energy

    def _unknown_kind(self, block: Block, row: int, kind: str) -> Exception:
        known = ", ".join(sorted(self.kinds)[:8]) + (", ..." if len(self.kinds) > 8 else "")
        what = f"{quoted(kind)} is unknown; {self.devices} has {known}"
        return block.wrong(row, "device_kind", what)

    def _other_variant(self, block: Block, row: int, known: tuple[str, float]) -> Exception:
        """A variant has one model and one accuracy, whatever it runs on."""
        variant = block.names["variant"][row]
        model, accuracy = known
        if block.names["model"][row] != model:
            what = f"{variant} was of model {model} in a row above"
            return block.wrong(row, "model", what)
        here = float(block.numbers["accuracy"][row])
        before, now = apart(accuracy, here, 4)
        what = f"{variant} had {before} in a row above, and {now} here"
        return block.wrong(row, "accuracy", what)

    def _other_draft(self, block: Block, row: int, draft: _Draft) -> Exception:
        """Memory and load time do not depend on the batch size."""
        variant, kind = block.names["variant"][row], block.names["device_kind"][row]
        for column, before in (("memory_mib", draft.memory_mib), ("load_s", draft.load_s)):
            here = float(block.numbers[column][row])
            if here != before:
                break
        above, now = apart(before, here)
        what = f"{variant} on {kind} had {above} in a row above, and {now} here"
        return block.wrong(row, column, what)


def catalog_snapshot(offers: Sequence[Offer], kinds: Sequence[AvailableKind]) -> CatalogSnapshot:
    """The same as production's nouns, every model version live, so that its decisions run on it.

    A file knows one latency for a batch: it is the median and every percentile.
    """
    first: dict[tuple[TaskName, VariantName], Offer] = {}
    for offer in offers:
        first.setdefault((offer.task, offer.variant), offer)
    models = sorted({(offer.task, offer.model) for offer in offers})
    by_name = sorted(offers, key=lambda offer: (offer.task, offer.variant, offer.device_kind))
    return CatalogSnapshot(
        revision=1,
        tasks=tuple(
            Task(name=task, inputs=(), outputs=()) for task in sorted({task for task, _ in models})
        ),
        versions=tuple(
            ModelVersion(task=task, model=model, version=1, stage=Stage.LIVE, source=_NO_ARTIFACT)
            for task, model in models
        ),
        variants=tuple(_variant(first[key]) for key in sorted(first)),
        profiles=tuple(_profile(offer) for offer in by_name),
        device_kinds=tuple(
            DeviceKind(
                name=kind.name,
                cores=1,
                memory_mib=kind.memory_mib,
                usd_per_hour=kind.usd_per_hour,
                idle_w=kind.idle_w,
                carbon_g_per_kwh=kind.carbon_g_per_kwh,
            )
            for kind in sorted(kinds, key=lambda kind: kind.name)
        ),
    )


def _variant(offer: Offer) -> Variant:
    return Variant(
        task=offer.task,
        name=offer.variant,
        model=offer.model,
        version=1,
        runtime="echo",
        precision=Precision.FP32,
        artifact=_NO_ARTIFACT,
        size_bytes=0,
        accuracy=offer.accuracy,
        accuracy_rows=0,
    )


def _profile(offer: Offer) -> Profile:
    joules = {} if offer.energy is None else dict(offer.energy.points)
    return Profile(
        task=offer.task,
        variant=offer.variant,
        device_kind=offer.device_kind,
        points=tuple(
            LatencyPoint(
                batch_size=size, p50_ms=ms, p95_ms=ms, p99_ms=ms, energy_j=joules.get(size)
            )
            for size, ms in offer.curve.points
        ),
        memory_mib=offer.memory_mib,
        load_s=offer.load_s,
        source=ProfileSource.EXACT,
    )
