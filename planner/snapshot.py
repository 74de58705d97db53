"""The snapshot: the catalog and the workers, as selection wants to see them.

The price of a candidate is its reservation price, ``usd_per_hour * latency_ms(1) / 3,600``. Its
latency is the median of a batch of one row without any margin: a price is what a query is expected
to take, whereas the margin on p95 is there to keep a promise.
"""

from collections.abc import Collection, Iterable

from planner.frontier import task_view
from planner.types import (
    TRANSPORT_MS,
    Candidate,
    LatencyTable,
    Snapshot,
    TaskView,
    WorkerView,
)
from variants.types import (
    CatalogSnapshot,
    DeviceKind,
    DeviceKindName,
    Profile,
    ProfileSource,
    Stage,
    TaskName,
    Variant,
    VariantName,
)

MEASURED_MARGIN = 1.2
"""On a measured p95, until live latency corrects it."""
PREDICTED_MARGIN = 1.5
"""On a p95 that a cost model predicted."""

Key = tuple[TaskName, VariantName]
Workers = tuple[WorkerView, ...]

_MARGIN = {
    ProfileSource.MEASURED: MEASURED_MARGIN,
    ProfileSource.PREDICTED: PREDICTED_MARGIN,
    ProfileSource.EXACT: 1.0,
}
_NO_WORKERS: tuple[Workers, Workers] = ((), ())


def build_snapshot(
    catalog: CatalogSnapshot,
    workers: Iterable[tuple[WorkerView, Collection[Key]]],
    *,
    transport_ms: float = TRANSPORT_MS,
) -> Snapshot:
    """All that choosing needs, from a catalog and what is ready on each worker.

    Only variants of live and canary versions become candidates, one for each device kind they
    have a profile on, whether or not there is a worker of that kind. Workers that drain are in
    the snapshot, but neither hold nor host anything. Linear in profiles, apart from sorting.
    """
    workers = list(workers)
    attached = _Attachment(workers)
    answers, excluded = _by_stage(catalog)
    kinds = {kind.name: kind for kind in catalog.device_kinds}
    candidates: dict[TaskName, list[Candidate]] = {task.name: [] for task in catalog.tasks}
    profiled: set[Key] = set()
    for profile in catalog.profiles:
        key = (profile.task, profile.variant)
        found = answers.get(key)
        kind = kinds.get(profile.device_kind)
        if found is None or kind is None or profile.task not in candidates:
            continue
        variant, canary = found
        profiled.add(key)
        ready, hosts = attached.of(key, kind, profile.memory_mib)
        candidates[profile.task].append(_candidate(variant, canary, profile, kind, ready, hosts))
    for task, name in answers.keys() - profiled:
        excluded.setdefault(task, {})[name] = "has no profile on any device kind"
    tasks: dict[TaskName, TaskView] = {
        task.name: task_view(task, candidates[task.name], excluded.get(task.name, {}))
        for task in catalog.tasks
    }
    return Snapshot(
        revision=catalog.revision,
        tasks=tasks,
        workers={view.id: view for view, _ in workers},
        transport_ms=transport_ms,
    )


def latency_points(profile: Profile) -> tuple[tuple[int, float], ...]:
    """(batch size, p95 in ms with the margin of its source), as a worker predicts with it too."""
    margin = _MARGIN[profile.source]
    return tuple((point.batch_size, point.p95_ms * margin) for point in profile.points)


def reservation_price(profile: Profile, kind: DeviceKind) -> float:
    """USD per 1,000 queries of one row."""
    return kind.usd_per_hour * profile.points[0].p50_ms / 3_600


def _candidate(
    variant: Variant,
    canary: bool,
    profile: Profile,
    kind: DeviceKind,
    ready: Workers,
    hosts: Workers,
) -> Candidate:
    return Candidate(
        task=variant.task,
        variant=variant.name,
        model_version=variant.model_version,
        device_kind=kind.name,
        accuracy=variant.accuracy,
        price_usd_per_1k=reservation_price(profile, kind),
        usd_per_hour=kind.usd_per_hour,
        table=LatencyTable(latency_points(profile)),
        memory_mib=profile.memory_mib,
        load_ms=profile.load_s * 1_000,
        canary=canary,
        ready=ready,
        hosts=hosts,
    )


def _by_stage(
    catalog: CatalogSnapshot,
) -> tuple[dict[Key, tuple[Variant, bool]], dict[TaskName, dict[VariantName, str]]]:
    """Variants that may answer, with whether they are canaries; and why the others may not."""
    stages = {(v.task, v.model, v.version): v.stage for v in catalog.versions}
    answers: dict[Key, tuple[Variant, bool]] = {}
    excluded: dict[TaskName, dict[VariantName, str]] = {}
    for variant in catalog.variants:
        stage = stages.get((variant.task, variant.model, variant.version), Stage.CANDIDATE)
        if stage is Stage.LIVE or stage is Stage.CANARY:
            answers[(variant.task, variant.name)] = (variant, stage is Stage.CANARY)
        else:
            why = f"its version {variant.model_version} is {stage.value}"
            excluded.setdefault(variant.task, {})[variant.name] = why
    return answers, excluded


class _Attachment:
    """Which workers hold a variant, and which could.

    Equal sets come as the same tuple, so that they are made once and compared by identity.
    """

    def __init__(self, workers: Iterable[tuple[WorkerView, Collection[Key]]]) -> None:
        self._of_kind: dict[DeviceKindName, list[WorkerView]] = {}
        # Bit i of a mask stands for the i-th worker of the kind: the cheapest set to build, and
        # this runs once for each variant on each worker.
        self._holders: dict[DeviceKindName, dict[Key, int]] = {}
        self._split: dict[tuple[DeviceKindName, int], tuple[Workers, Workers]] = {}
        for view, ready in workers:
            if view.draining:
                continue
            siblings = self._of_kind.setdefault(view.device_kind, [])
            masks = self._holders.setdefault(view.device_kind, {})
            bit = 1 << len(siblings)
            for key in ready:
                masks[key] = masks.get(key, 0) | bit
            siblings.append(view)

    def of(self, key: Key, kind: DeviceKind, memory_mib: float) -> tuple[Workers, Workers]:
        """Workers of a kind on which a variant is ready, and those that could load it."""
        siblings = self._of_kind.get(kind.name)
        if siblings is None:
            return _NO_WORKERS
        mask = self._holders[kind.name].get(key, 0)
        split = self._split.get((kind.name, mask))
        if split is None:
            split = (
                tuple(view for index, view in enumerate(siblings) if mask >> index & 1),
                tuple(view for index, view in enumerate(siblings) if not mask >> index & 1),
            )
            self._split[kind.name, mask] = split
        # What is larger than a whole worker can be loaded nowhere.
        return split if memory_mib <= kind.memory_mib else (split[0], ())
