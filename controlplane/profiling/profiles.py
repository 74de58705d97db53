"""Profiles that are missing or not true any more, and measuring them.

A machine that is sliced anew has new device kinds; a library that was updated makes profiles stale;
live latency may contradict them; and a prediction that queries rely on wants to be measured.
"""

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from controlplane.building.meter import Meter
from controlplane.building.types import Progress, RegistrationLimits
from controlplane.profiling.staleness import host_of
from controlplane.profiling.workbench import Workbench
from controlplane.views.catalog_views import find_task
from profiler.fingerprint import is_stale
from variants.artifacts.protocol import ArtifactStore
from variants.catalog.protocol import Catalog
from variants.errors import InvalidArtifact, NotFound, VariantNotLoadable
from variants.types import (
    PROFILE_BATCH_SIZES,
    CatalogSnapshot,
    DeviceKind,
    Profile,
    ProfileSource,
    ProfilingRequest,
    Stage,
    Task,
    Variant,
)


class Cause(StrEnum):
    """Why a profile is to be measured, the most pressing first."""

    MISSING = "missing"
    REQUESTED = "requested"
    STALE = "stale"
    PREDICTED = "predicted"
    ASKED = "asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class DueProfile:
    """A profile that is to be measured."""

    variant: Variant
    kind: DeviceKind
    cause: Cause
    reason: str
    """One clause."""


def due_profiles(
    catalog: CatalogSnapshot,
    kinds: Iterable[DeviceKind],
    requests: Iterable[ProfilingRequest] = (),
    *,
    host: Callable[[Variant], str] = host_of,
) -> list[DueProfile]:
    """What to measure on these device kinds, for variants that answer, the most pressing first.

    ``host`` gives this machine's fingerprint for what a variant runs on.
    """
    profiles = {(p.task, p.variant, p.device_kind): p for p in catalog.profiles}
    asked = {(r.task, r.variant, r.device_kind): r.reason for r in requests}
    serving = {
        (v.task, v.model, v.version)
        for v in catalog.versions
        if v.stage in (Stage.LIVE, Stage.CANARY)
    }
    hosts: dict[tuple[str, bool], str] = {}
    found: list[DueProfile] = []
    for variant in catalog.variants:
        if (variant.task, variant.model, variant.version) not in serving:
            continue
        back_end = (variant.runtime, variant.gpu)
        if back_end not in hosts:
            hosts[back_end] = host(variant)
        for kind in kinds:
            key = (*variant.key, kind.name)
            if not runs_on(variant, kind):
                continue
            cause = _cause(profiles.get(key), asked.get(key), hosts[back_end])
            if cause is not None:
                found.append(
                    DueProfile(variant=variant, kind=kind, cause=cause[0], reason=cause[1])
                )
    order = list(Cause)
    return sorted(found, key=lambda one: order.index(one.cause))


def to_measure(
    catalog: CatalogSnapshot,
    kinds: Iterable[DeviceKind],
    requests: Iterable[ProfilingRequest] = (),
    *,
    task: str | None = None,
    variant: str | None = None,
    everything: bool = False,
) -> list[DueProfile]:
    """What to measure of a task, or one variant of it, or all tasks.

    One variant is measured whatever its profile says, and with ``everything`` all are.

    Raises:
        TaskNotFound: there is no such task.
        NotFound: the task has no such variant, or it has no business on these device kinds.
    """
    kinds = tuple(kinds)
    if task is not None:
        find_task(catalog, task)
    chosen = [
        one for one in catalog.variants if task in (None, one.task) and variant in (None, one.name)
    ]
    if variant is not None and not chosen:
        raise NotFound(f"task {task!r} has no variant {variant!r}")
    names = {one.key for one in chosen}
    found = [one for one in due_profiles(catalog, kinds, requests) if one.variant.key in names]
    if variant is None and not everything:
        return found
    known = {(one.variant.key, one.kind.name) for one in found}
    found += [
        DueProfile(variant=one, kind=kind, cause=Cause.ASKED, reason="you asked for it")
        for one in chosen
        for kind in kinds
        if runs_on(one, kind) and (one.key, kind.name) not in known
    ]
    if variant is not None and not found:
        there = ", ".join(kind.name for kind in kinds)
        raise NotFound(f"{variant} does not run on {there}")
    return found


def runs_on(variant: Variant, kind: DeviceKind) -> bool:
    """Whether a variant has business on a device kind.

    One with fewer threads is another variant only where there are more cores than that.
    """
    if variant.gpu != (kind.gpu is not None):
        return False
    return variant.gpu or int(variant.options.get("threads", 0)) < kind.cores


def _cause(profile: Profile | None, request: str | None, host: str) -> tuple[Cause, str] | None:
    if profile is None:
        return Cause.MISSING, "was never measured here"
    if profile.source is ProfileSource.EXACT:
        return None
    if request is not None:
        return Cause.REQUESTED, request
    changed = is_stale(profile.host, host)
    if changed is not None:
        return Cause.STALE, changed
    if profile.source is ProfileSource.PREDICTED:
        return Cause.PREDICTED, "its latency was predicted"
    return None


def measure_due(
    due: Iterable[DueProfile],
    catalog: Catalog,
    store: ArtifactStore,
    progress: Callable[[Progress], None] = lambda _: None,
    *,
    limits: RegistrationLimits | None = None,
) -> tuple[int, tuple[str, ...]]:
    """Measure profiles and keep each as soon as it is there: an interrupt loses one.

    Rows are made up, uniform in [0, 1): latency and memory hardly depend on values.

    Returns how many were measured, and one sentence for each variant that could not be.

    Raises:
        StateUnavailable: catalog or store cannot be reached.
    """
    work_list = list(due)
    tasks = {task.name: task for task in catalog.snapshot().tasks}
    meter = Meter(progress, total=len(work_list))
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="modelless-") as work:
        for one in work_list:
            variant, kind = one.variant, one.kind
            task = tasks[variant.task]
            data = Path(work) / f"{task.name}.npz"
            if not data.exists():
                np.savez(data, **made_up_rows(task))
            meter.begin("measure", f"measuring {variant.name} on {kind.name}")
            try:
                path = store.sound(variant.artifact)
                with Workbench(task, kind, data, limits or RegistrationLimits()) as bench:
                    profile = bench.measure(variant, path)
            except VariantNotLoadable as error:
                failures.append(f"{variant.name}: {error.message}")
                continue
            except InvalidArtifact as error:
                failures.append(error.message)
                continue
            catalog.put_profiles((profile,), (kind,))
        if work_list:
            meter.finish("measure", "measured")
    return len(work_list) - len(failures), tuple(failures)


def made_up_rows(task: Task) -> dict[str, Any]:
    """Rows enough for the largest batch, for each input: ``(rows, *shape)``."""
    draw = np.random.default_rng(0)
    rows = max(PROFILE_BATCH_SIZES)
    return {spec.name: draw.random((rows, *spec.shape)).astype(spec.dtype) for spec in task.inputs}
