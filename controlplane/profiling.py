"""Measuring one variant on one device kind, in a sandboxed process; and those not measured yet."""

import tempfile
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from controlplane.registration_types import Progress, RegistrationLimits
from profiler.evaluation import LABELS
from profiler.host import fingerprint
from profiler.probe import Probe
from variants.artifacts import ArtifactStore
from variants.catalog import Catalog
from variants.errors import InvalidArtifact
from variants.types import (
    PROFILE_BATCH_SIZES,
    CatalogSnapshot,
    DeviceKind,
    Profile,
    Stage,
    Task,
    Variant,
)


def profile_variant(
    variant: Variant,
    task: Task,
    path: Path,
    kind: DeviceKind,
    data: Path,
    limits: RegistrationLimits,
    *,
    labelled: bool = False,
    announce: Callable[[str], None] = lambda _: None,
) -> tuple[Profile, float | None]:
    """Measure a variant as a worker of ``kind`` would run it; with labels, its accuracy as well.

    ``data`` is an ``.npz`` with an array per input, and ``labels`` where ``labelled``. Each call
    has a process of its own: what one variant leaves in memory must not be another's.

    Raises:
        InvalidArtifact: it crashed, hung, took too much memory or gave what is not finite.
    """
    with Probe(
        _load_spec(variant, task, path),
        threads=kind.cores,
        data=data,
        limits=limits.measure,
        memory_mib=limits.trial_mib,
        time_s=limits.trial_s,
        announce=announce,
    ) as probe:
        announce(f"measuring batches of up to {limits.measure.batch_sizes[-1]}")
        points = probe.curve()
        found = probe.figures
        judgement = probe.judge(LABELS, metric=task.metric) if labelled else None
    profile = Profile(
        task=task.name,
        variant=variant.name,
        device_kind=kind.name,
        points=points,
        memory_mib=found.memory_mib,
        load_s=found.load_s,
        cold_load_s=found.cold_load_s,
        host=fingerprint("onnxruntime"),
        measured_at=now(),
    )
    return profile, None if judgement is None else judgement.accuracy


def unprofiled(catalog: CatalogSnapshot, kinds: tuple[DeviceKind, ...]) -> int:
    """How many profiles of answering variants are missing on these device kinds."""
    return len(_missing(catalog, kinds))


def profile_missing(
    catalog: Catalog,
    store: ArtifactStore,
    kinds: tuple[DeviceKind, ...],
    progress: Callable[[Progress], None] = lambda _: None,
    *,
    limits: RegistrationLimits | None = None,
) -> tuple[int, tuple[str, ...]]:
    """Measure answering variants on the device kinds that they have no profile on.

    A machine that is sliced anew has new device kinds. Each profile is kept as soon as it is
    measured, so an interrupt loses one measurement. Rows are made up, uniform in [0, 1): latency
    and memory hardly depend on values.

    Returns how many were measured, and one sentence for each variant that could not be.

    Raises:
        StateUnavailable: catalog or store cannot be reached.
    """
    snapshot = catalog.snapshot()
    missing = _missing(snapshot, kinds)
    tasks = {task.name: task for task in snapshot.tasks}
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="modelless-") as work:
        for index, (variant, kind) in enumerate(missing):
            task = tasks[variant.task]
            data = Path(work) / f"{task.name}.npz"
            if not data.exists():
                np.savez(data, **made_up_rows(task))
            message = f"measuring {variant.name} on {kind.name}"
            progress(Progress(step="measure", done=index, total=len(missing), message=message))
            try:
                profile, _ = profile_variant(
                    variant, task, store.path(variant.artifact), kind, data,
                    limits or RegistrationLimits(),
                )  # fmt: skip
            except InvalidArtifact as error:
                failures.append(error.message)
                continue
            catalog.put_profiles((profile,), (kind,))
    return len(missing) - len(failures), tuple(failures)


def made_up_rows(task: Task) -> dict[str, Any]:
    """Rows enough for the largest batch, for each input: ``(rows, *shape)``."""
    draw = np.random.default_rng(0)
    rows = max(PROFILE_BATCH_SIZES)
    return {spec.name: draw.random((rows, *spec.shape)).astype(spec.dtype) for spec in task.inputs}


def _missing(
    catalog: CatalogSnapshot, kinds: tuple[DeviceKind, ...]
) -> list[tuple[Variant, DeviceKind]]:
    profiled = {(p.task, p.variant, p.device_kind) for p in catalog.profiles}
    answering = {
        (v.task, v.model, v.version)
        for v in catalog.versions
        if v.stage in (Stage.LIVE, Stage.CANARY)
    }
    return [
        (variant, kind)
        for variant in catalog.variants
        for kind in kinds
        if (variant.task, variant.model, variant.version) in answering
        and (variant.task, variant.name, kind.name) not in profiled
    ]


def _load_spec(variant: Variant, task: Task, path: Path) -> dict[str, Any]:
    """What ``profiler.child.load_spec`` reads."""
    return {
        "task": task.name,
        "variant": variant.name,
        "runtime": variant.runtime,
        "artifact": variant.artifact,
        "path": str(path),
        "inputs": [asdict(spec) for spec in task.inputs],
        "outputs": [asdict(spec) for spec in task.outputs],
        "options": list(variant.options.items()),
    }


def now() -> str:
    """This moment in UTC, as the catalog writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
