"""Variants as the control API shows them, with what each does on every device kind.

Pure functions from one catalog snapshot.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from controlplane.views.catalog.frontier import dominated
from controlplane.views.catalog.stages import SERVING, stages_of, version_key
from controlplane.views.catalog.tasks import find_task, named_tasks
from controlplane.views.catalog.variant_schemas import OnDevice, VariantSchema
from planner.selection.snapshot import reservation_price
from planner.sentences import there_are
from profiler.evaluation.accuracy import interval_of
from variants.errors import NotFound
from variants.metrics.metric import parse_metric
from variants.types import (
    CatalogSnapshot,
    DeviceKind,
    DeviceKindName,
    LatencyPoint,
    Profile,
    Stage,
    Variant,
)
from variants.working_memory import counted_mib

Changed = Callable[[Variant, Profile], str | None]
"""Returns what has changed since a profile was measured, if it matters, or else None."""


def nothing_changed(_variant: Variant, _profile: Profile) -> str | None:
    """Always None: for callers that do not show what has changed."""
    return None


def variant_rows(
    snapshot: CatalogSnapshot,
    task: str,
    changed: Changed = nothing_changed,
    there: Collection[str] | None = None,
) -> list[VariantSchema]:
    """The variants of a task, the fastest first, each with what it does on every device kind; of a
    task for rows of several lengths those of its buckets, one after the other.

    ``changed`` says what makes a variant's profile stale, and ``there`` of which device kinds
    workers are there or wanted; None: of all.

    Raises:
        TaskNotFound: the task is unknown.
    """
    parts = named_tasks(snapshot, task)
    if parts != (task,):
        return [row for part in parts for row in variant_rows(snapshot, part, changed, there)]
    counted = parse_metric(find_task(snapshot, task).metric).counts_rows
    variants = [variant for variant in snapshot.variants if variant.task == task]
    names = {variant.name for variant in variants}
    profiles = [p for p in snapshot.profiles if p.task == task and p.variant in names]
    kinds = {kind.name: kind for kind in snapshot.device_kinds}
    stages = stages_of(snapshot)
    serving = [v for v in variants if stages.get(version_key(v)) in SERVING]
    beaten = dominated(serving, profiles)
    rows = []
    for variant in variants:
        devices = [
            _on_device(
                profile,
                kinds,
                dominated=(profile.device_kind, variant.name) in beaten,
                stale=changed(variant, profile),
                gone=there is not None and profile.device_kind not in there,
            )
            for profile in profiles
            if profile.variant == variant.name
        ]
        stage = stages.get(version_key(variant), Stage.CANDIDATE)
        rows.append(_row(variant, stage, devices, counted=counted))
    return sorted(rows, key=_fastest_first)


def variant_row(
    snapshot: CatalogSnapshot,
    task: str,
    variant: str,
    changed: Changed = nothing_changed,
    there: Collection[str] | None = None,
) -> VariantSchema:
    """One variant.

    Raises:
        TaskNotFound: the task is unknown.
        NotFound: the task has no such variant.
    """
    find_task(snapshot, task)
    for row in variant_rows(snapshot, task, changed, there):
        if row.name == variant:
            return row
    known = there_are((one.name for one in snapshot.variants if one.task == task), variant)
    raise NotFound(f"task {task!r} has no variant {variant!r}{known}")


def _on_device(
    profile: Profile,
    kinds: Mapping[DeviceKindName, DeviceKind],
    *,
    dominated: bool,
    stale: str | None,
    gone: bool,
) -> OnDevice:
    first = profile.points[0]
    best = max(profile.points, key=_rows_per_s)
    kind = kinds.get(profile.device_kind)
    return OnDevice(
        device_kind=profile.device_kind,
        p50_ms=first.p50_ms,
        p95_ms=first.p95_ms,
        live_ms=None,
        live_p95_ms=None,
        unconfirmed=False,
        best_rows_per_s=_rows_per_s(best),
        best_batch_size=best.batch_size,
        max_batch_size=profile.points[-1].batch_size,
        price_usd_per_1k=None if kind is None else reservation_price(profile, kind),
        live_price_usd_per_1k=None,
        energy_j=first.energy_j,
        memory_mib=counted_mib(profile, kind),
        load_s=profile.load_s,
        source=profile.source,
        dominated=dominated,
        stale=stale,
        gone=gone,
    )


def _row(
    variant: Variant, stage: Stage, devices: list[OnDevice], *, counted: bool
) -> VariantSchema:
    """One variant; ``counted``: whether its accuracy is a share of rows that were counted."""
    low, high = _interval(variant, counted)
    return VariantSchema(
        task=variant.task,
        name=variant.name,
        model_version=variant.model_version,
        stage=stage,
        runtime=variant.runtime,
        precision=variant.precision,
        accuracy=variant.accuracy,
        accuracy_low=low,
        accuracy_high=high,
        accuracy_rows=variant.accuracy_rows,
        live_accuracy=None,
        live_accuracy_rows=0,
        said_accuracy=None,
        counted_accuracy=None,
        answers=None,
        agreement=variant.agreement,
        note=variant.note,
        size_bytes=variant.size_bytes,
        artifact=variant.artifact,
        options=dict(variant.options),
        devices=devices,
        dominated=bool(devices) and all(device.dominated for device in _there(devices)),
    )


def _interval(variant: Variant, counted: bool) -> tuple[float | None, float | None]:
    """The interval that the accuracy lies in, given the number of rows it was measured on; none
    where it is no share of rows that were counted."""
    return interval_of(variant.accuracy, variant.accuracy_rows) if counted else (None, None)


def _rows_per_s(point: LatencyPoint) -> float:
    """Rows per second in batches of this size, one after another; a clock may measure 0 ms."""
    return 1_000 * point.batch_size / max(point.p50_ms, 1e-3)


def _there(devices: Sequence[OnDevice]) -> Sequence[OnDevice]:
    """Those of which a worker is there or wanted; all where that is none."""
    return [device for device in devices if not device.gone] or devices


def _fastest_first(row: VariantSchema) -> tuple[float, str]:
    times_ms = (device.p95_ms for device in _there(row.devices))
    return (min(times_ms, default=float("inf")), row.name)
