"""What the control API shows of the catalog: tasks, models, variants and the frontier of variants.

Pure functions from one catalog snapshot to what the control API shows.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from controlplane.views.catalog_schemas import (
    ModelSchema,
    OnDevice,
    TaskSchema,
    VariantSchema,
    VersionSchema,
)
from planner.latency_table import latency_table
from planner.selection.snapshot import latency_points, reservation_price
from planner.sentences import there_are
from profiler.evaluation.accuracy import interval_of
from variants.buckets import (
    BucketedTask,
    bucketed_named,
    bucketed_tasks,
    in_order,
    own_texts_of,
)
from variants.errors import NotFound, TaskNotFound
from variants.metrics.metric import parse_metric
from variants.types import (
    CatalogSnapshot,
    DeviceKind,
    DeviceKindName,
    LatencyPoint,
    ModelName,
    Profile,
    Stage,
    Task,
    TaskName,
    Variant,
    VariantName,
)
from variants.working_memory import counted_mib, held_mib

NOISE = 1.03
"""Two measurements of the same latency may differ by this factor."""

Changed = Callable[[Variant, Profile], str | None]
"""Returns what has changed since a profile was measured, if it matters, or else None."""


def nothing_changed(_variant: Variant, _profile: Profile) -> str | None:
    """Always None: for callers that do not show what has changed."""
    return None


SERVING = (Stage.CANARY, Stage.LIVE)
"""Stages whose variants answer queries."""


def find_task(snapshot: CatalogSnapshot, name: str) -> Task:
    """The task of that name.

    Raises:
        TaskNotFound: there is none; the error names those that there are.
    """
    for task in snapshot.tasks:
        if task.name == name:
            return task
    of_lengths = bucketed_named(snapshot.tasks, name)
    if of_lengths is not None:
        buckets = ", ".join(one.name for one in of_lengths.buckets)
        raise TaskNotFound(
            f"task {name!r} takes rows of several lengths, and what is asked is known of each of"
            f" its buckets alone: {buckets}"
        )
    known = there_are(
        [*(task.name for task in snapshot.tasks), *bucketed_tasks(snapshot.tasks)], name
    )
    raise TaskNotFound(f"there is no task {name!r}{known or '; nothing is registered yet'}")


def named_tasks(
    snapshot: CatalogSnapshot, name: str, model: str | None = None, version: int | None = None
) -> tuple[TaskName, ...]:
    """The task of that name, or the buckets of the task for rows of several lengths.

    Args:
        model: only the buckets that have it, where any does.
        version: of the model, which a bucket may lack that has others of it.

    Raises:
        TaskNotFound: there is none.
    """
    of_lengths = bucketed_named(snapshot.tasks, name)
    if of_lengths is None:
        return (find_task(snapshot, name).name,)
    have = {
        one.task
        for one in snapshot.versions
        if one.model == model and version in (None, one.version)
    }
    parts = tuple(one.name for one in of_lengths.buckets)
    return tuple(one for one in parts if one in have) or parts


def task_rows(snapshot: CatalogSnapshot, name: str | None = None) -> list[TaskSchema]:
    """All tasks, or the one of that name, with how many models and answering variants they have.

    A task for rows of several lengths comes beside its buckets, with what all of these have.

    Raises:
        TaskNotFound: there is no task of that name.
    """
    of_lengths = bucketed_tasks(snapshot.tasks)
    asked: dict[TaskName, tuple[Task, tuple[TaskName, ...]]]
    if name is None:
        asked = {task.name: (task, (task.name,)) for task in snapshot.tasks}
        asked |= {one.name: (one.face, _names(one)) for one in of_lengths.values()}
    elif name in of_lengths:
        one = of_lengths[TaskName(name)]
        asked = {one.name: (one.face, _names(one))}
    else:
        task = find_task(snapshot, name)
        asked = {task.name: (task, (task.name,))}
    stages, own = _stages(snapshot), own_texts_of(snapshot.versions)
    rows = []
    for at in sorted(asked, key=in_order):
        task, parts = asked[at]
        staged = [
            (variant.accuracy, stages.get(_version_key(variant)))
            for variant in snapshot.variants
            if variant.task in parts
        ]
        live = [accuracy for accuracy, stage in staged if stage is Stage.LIVE]
        models = {version.model for version in snapshot.versions if version.task in parts}
        rows.append(
            TaskSchema.of(
                task,
                models=len(models),
                variants=sum(stage in SERVING for _, stage in staged),
                live_variants=len(live),
                best_accuracy=max(live, default=None),
                of_lengths=of_lengths.get(task.name),
                tokenizers={text.tokenizer for (of, _), text in own.items() if of in parts},
            )
        )
    return rows


def _names(of_lengths: BucketedTask) -> tuple[TaskName, ...]:
    return tuple(one.name for one in of_lengths.buckets)


def model_rows(
    snapshot: CatalogSnapshot, task: str | None = None, model: str | None = None
) -> list[ModelSchema]:
    """Models with their versions, oldest first; of one task, or one model of it. Of a task for rows
    of several lengths each bucket's stand by themselves, the shortest length first.

    Raises:
        TaskNotFound: the task is unknown.
        NotFound: the task has no such model.
    """
    parts = None if task is None else named_tasks(snapshot, task)
    variants: dict[tuple[TaskName, ModelName, int], list[str]] = defaultdict(list)
    for variant in snapshot.variants:
        variants[_version_key(variant)].append(variant.name)
    texts = {one.name: one.text for one in snapshot.tasks}
    grouped: dict[tuple[TaskName, ModelName], list[VersionSchema]] = defaultdict(list)
    for version in sorted(snapshot.versions, key=lambda v: (in_order(v.task), v.model, v.version)):
        if (parts is None or version.task in parts) and model in (None, version.model):
            built = variants[version.task, version.model, version.version]
            grouped[version.task, version.model].append(
                VersionSchema.of(version, of_task=texts.get(version.task), variants=built)
            )
    if model is not None and not grouped:
        of_it = {one.model for one in snapshot.versions if parts is None or one.task in parts}
        known = there_are(of_it, model)
        raise NotFound(f"task {task!r} has no model {model!r}{known}")
    return [
        ModelSchema(
            task=of_task,
            model=name,
            live=max((v.version for v in versions if v.stage is Stage.LIVE), default=None),
            versions=versions,
        )
        for (of_task, name), versions in grouped.items()
    ]


def model_row(snapshot: CatalogSnapshot, task: str, model: str) -> ModelSchema:
    """One model with its versions, oldest first; of a task for rows of several lengths with those
    of all buckets, each under its bucket's name.

    Raises:
        TaskNotFound: the task is unknown.
        NotFound: the task has no such model.
    """
    rows = model_rows(snapshot, task, model)
    versions = [version for row in rows for version in row.versions]
    return ModelSchema(
        task=task,
        model=model,
        live=max((row.live for row in rows if row.live is not None), default=None),
        versions=sorted(versions, key=lambda one: one.version),
    )


def is_last_live(snapshot: CatalogSnapshot, of: VersionSchema) -> bool:
    """Whether a version is live and no other version of its task is that has variants."""
    stages = _stages(snapshot)
    return of.stage is Stage.LIVE and not any(
        one.task == of.task
        and (one.model, one.version) != (of.model, of.version)
        and stages.get(_version_key(one)) is Stage.LIVE
        for one in snapshot.variants
    )


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
    stages = _stages(snapshot)
    serving = [v for v in variants if stages.get(_version_key(v)) in SERVING]
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
        low, high = _interval(variant, counted)
        rows.append(
            VariantSchema(
                task=variant.task,
                name=variant.name,
                model_version=variant.model_version,
                stage=stages.get(_version_key(variant), Stage.CANDIDATE),
                runtime=variant.runtime,
                precision=variant.precision,
                accuracy=variant.accuracy,
                accuracy_low=low,
                accuracy_high=high,
                accuracy_rows=variant.accuracy_rows,
                live_accuracy=None,
                live_accuracy_rows=0,
                agreement=variant.agreement,
                note=variant.note,
                size_bytes=variant.size_bytes,
                artifact=variant.artifact,
                options=dict(variant.options),
                devices=devices,
                dominated=bool(devices) and all(device.dominated for device in _there(devices)),
            )
        )
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


def dominated(
    variants: Iterable[Variant], profiles: Iterable[Profile]
) -> set[tuple[DeviceKindName, VariantName]]:
    """Variants that another one beats on a device kind, whatever is asked.

    One dominates another where it is at least as accurate, as quick at every batch size, as cheap
    and as small, and better in one of these. Latencies, prices and memory are measured, so they
    count as equal within ``NOISE``; what is equal in all does not dominate. For each dominated
    variant there is one left that dominates it.
    """
    accuracy = {variant.name: variant.accuracy for variant in variants}
    by_kind: dict[DeviceKindName, list[_Measured]] = defaultdict(list)
    for profile in profiles:
        if profile.variant in accuracy:
            by_kind[profile.device_kind].append(_measured(profile, accuracy[profile.variant]))
    beaten = set()
    for kind, found in by_kind.items():
        left: list[_Measured] = []
        for one in sorted(found):
            if any(_dominates(other, one) for other in left):
                beaten.add((kind, one.variant))
                continue
            for other in left:
                if _dominates(one, other):
                    beaten.add((kind, other.variant))
            left = [other for other in left if (kind, other.variant) not in beaten] + [one]
    return beaten


class _Measured(NamedTuple):
    """What variants are compared by on a device kind; less is better in each number."""

    median_ms: float
    inaccuracy: float
    variant: VariantName
    latency_ms: tuple[float, ...]
    """Of batches of 1, 2, 4, ... rows, as planning counts them."""
    memory_mib: float
    held_mib: float
    """Without what batches take and variants share: what counts lies between the two."""


def _measured(profile: Profile, accuracy: float) -> _Measured:
    return _Measured(
        median_ms=profile.points[0].p50_ms,
        inaccuracy=-accuracy,
        variant=profile.variant,
        latency_ms=latency_table(latency_points(profile)).doubling,
        memory_mib=profile.memory_mib,
        held_mib=held_mib(profile),
    )


def _dominates(one: _Measured, other: _Measured) -> bool:
    if one.inaccuracy > other.inaccuracy or len(one.latency_ms) < len(other.latency_ms):
        return False
    ours = (one.median_ms, one.memory_mib, one.held_mib, *one.latency_ms)
    theirs = (other.median_ms, other.memory_mib, other.held_mib, *other.latency_ms)
    pairs = list(zip(ours, theirs, strict=False))
    if any(mine > yours * NOISE for mine, yours in pairs):
        return False
    larger = len(one.latency_ms) > len(other.latency_ms)
    better = any(mine * NOISE < yours for mine, yours in pairs)
    return better or larger or one.inaccuracy < other.inaccuracy


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
        energy_j=first.energy_j,
        memory_mib=counted_mib(profile, kind),
        load_s=profile.load_s,
        source=profile.source,
        dominated=dominated,
        stale=stale,
        gone=gone,
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


def _version_key(variant: Variant) -> tuple[TaskName, ModelName, int]:
    return (variant.task, variant.model, variant.version)


def _stages(snapshot: CatalogSnapshot) -> dict[tuple[TaskName, ModelName, int], Stage]:
    return {(v.task, v.model, v.version): v.stage for v in snapshot.versions}
