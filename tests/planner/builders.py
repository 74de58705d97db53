"""Builders with round numbers: each test names only what it is about."""

from collections.abc import Collection, Mapping, Sequence

from planner.eviction.displacement import Ladder
from planner.selection.snapshot import build_snapshot
from planner.types import (
    Demand,
    Observation,
    Query,
    ReplicaReport,
    Snapshot,
    WorkerReport,
    WorkerView,
)
from variants.types import (
    CatalogSnapshot,
    DeviceKind,
    DeviceKindName,
    Digest,
    LatencyPoint,
    ModelName,
    ModelVersion,
    Placement,
    Plan,
    Precision,
    Prefer,
    Profile,
    ProfileSource,
    ReplicaState,
    Slo,
    Stage,
    Task,
    TaskName,
    TensorSpec,
    Variant,
    VariantKey,
    VariantName,
    WorkerId,
)

DIGITS = TaskName("digits")
NOW_MS = 1_000.0


def key(variant: str, task: str = DIGITS) -> VariantKey:
    return (TaskName(task), VariantName(variant))


def task(name: str = DIGITS, slo: Slo | None = None) -> Task:
    return Task(
        name=TaskName(name),
        inputs=(TensorSpec(name="pixels", dtype="float32", shape=(64,)),),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=(10,)),),
        slo=slo or Slo(),
    )


def version(model: str, stage: Stage = Stage.LIVE, task: str = DIGITS) -> ModelVersion:
    return ModelVersion(
        task=TaskName(task),
        model=ModelName(model),
        version=1,
        stage=stage,
        source=Digest("0" * 64),
    )


def variant(name: str, accuracy: float = 0.9, task: str = DIGITS) -> Variant:
    """A variant that is the only one of its model, so that it can have a stage of its own."""
    return Variant(
        task=TaskName(task),
        name=VariantName(name),
        model=ModelName(name),
        version=1,
        runtime="echo",
        precision=Precision.FP32,
        artifact=Digest("0" * 64),
        size_bytes=1_000,
        accuracy=accuracy,
        accuracy_rows=100,
    )


def profile(
    variant: str,
    latency_ms: float = 10.0,
    *,
    kind: str = "cpu-1",
    task: str = DIGITS,
    max_batch: int = 8,
    memory_mib: float = 100.0,
    load_s: float = 1.0,
    source: ProfileSource = ProfileSource.MEASURED,
    energy_j: float | None = None,
) -> Profile:
    """One row takes ``latency_ms``, whatever the percentile; a batch of b rows b times as long, and
    b times the joules."""
    return Profile(
        task=TaskName(task),
        variant=VariantName(variant),
        device_kind=DeviceKindName(kind),
        points=tuple(
            LatencyPoint(
                batch_size=b,
                p50_ms=latency_ms * b,
                p95_ms=latency_ms * b,
                p99_ms=latency_ms * b,
                energy_j=None if energy_j is None else energy_j * b,
            )
            for b in sorted({1, max_batch})
        ),
        memory_mib=memory_mib,
        load_s=load_s,
        source=source,
    )


def kind(
    name: str = "cpu-1",
    usd_per_hour: float = 0.36,
    memory_mib: float = 1_000.0,
    *,
    idle_w: float | None = None,
    carbon: Sequence[float] = (),
) -> DeviceKind:
    """At 0.36 USD per hour, 10 ms cost 0.001 USD per 1,000 queries."""
    return DeviceKind(
        name=DeviceKindName(name),
        cores=1,
        memory_mib=memory_mib,
        usd_per_hour=usd_per_hour,
        idle_w=idle_w,
        carbon_g_per_kwh=tuple(carbon),
    )


def catalog(
    variants: Sequence[Variant],
    profiles: Sequence[Profile],
    *,
    kinds: Sequence[DeviceKind] = (),
    stages: Mapping[str, Stage] | None = None,
    tasks: Sequence[Task] = (),
) -> CatalogSnapshot:
    """Every variant is live unless ``stages`` says otherwise."""
    names = sorted({v.task for v in variants})
    return CatalogSnapshot(
        revision=1,
        tasks=tuple(tasks) or tuple(task(name) for name in names),
        versions=tuple(
            version(v.model, (stages or {}).get(v.name, Stage.LIVE), v.task) for v in variants
        ),
        variants=tuple(variants),
        profiles=tuple(profiles),
        device_kinds=tuple(kinds) or (kind(),),
    )


def worker(
    name: str = "w1",
    *,
    kind: str = "cpu-1",
    busy_ms: float = 0.0,
    free_mib: float = 0.0,
    draining: bool = False,
    evictable: Ladder = (),
    loading: tuple[VariantKey, ...] = (),
    churn_per_s: float = 0.0,
) -> WorkerView:
    """A worker that is busy for another ``busy_ms``."""
    return WorkerView(
        id=WorkerId(name),
        device_kind=DeviceKindName(kind),
        busy_until_ms=NOW_MS + busy_ms,
        free_mib=free_mib,
        draining=draining,
        evictable=evictable,
        loading=loading,
        churn_per_s=churn_per_s,
    )


def snapshot(
    catalog: CatalogSnapshot, *workers: tuple[WorkerView, Collection[VariantKey]]
) -> Snapshot:
    """Without transport, so that numbers stay round."""
    return build_snapshot(catalog, workers, transport_ms=0.0)


def query(
    latency_ms: float = 100.0,
    *,
    task: str = DIGITS,
    rows: int = 1,
    spent_ms: float = 0.0,
    accuracy: float | None = None,
    cost: float | None = None,
    prefer: Prefer = Prefer.COST,
    best_effort: bool = False,
    variant: str | None = None,
    draw: int = 0,
    avoid: str | None = None,
) -> Query:
    """A query of which ``spent_ms`` have passed at ``NOW_MS``."""
    return Query(
        task=TaskName(task),
        rows=rows,
        received_ms=NOW_MS - spent_ms,
        latency_ms=latency_ms,
        accuracy=accuracy,
        cost=cost,
        prefer=prefer,
        best_effort=best_effort,
        variant=None if variant is None else VariantName(variant),
        draw=draw,
        avoid=None if avoid is None else WorkerId(avoid),
    )


# -- the control loop ---------------------------------------------------------------------------


def replica(
    variant: str,
    *,
    task: str = DIGITS,
    state: ReplicaState = ReplicaState.READY,
    memory_mib: float = 100.0,
    in_flight: int = 0,
    idle_s: float = 1_000.0,
    asked: bool = False,
    loaded_for_s: float = 1_000.0,
    rate_qps: float = 0.0,
) -> ReplicaReport:
    """A replica that no query has asked for, unless ``asked``."""
    return ReplicaReport(
        task=TaskName(task),
        variant=VariantName(variant),
        state=state,
        memory_mib=memory_mib,
        in_flight=in_flight,
        idle_s=idle_s,
        asked=asked,
        loaded_for_s=loaded_for_s,
        rate_qps=rate_qps,
    )


def report(
    name: str = "w1",
    *replicas: ReplicaReport,
    kind: str = "cpu-1",
    memory_mib: float = 1_000.0,
    draining: bool = False,
) -> WorkerReport:
    return WorkerReport(
        id=WorkerId(name),
        device_kind=DeviceKindName(kind),
        memory_mib=memory_mib,
        reserved_mib=sum(r.memory_mib for r in replicas),
        draining=draining,
        replicas=replicas,
    )


def placement(
    variant: str, worker: str = "w1", share: float = 0.5, task: str = DIGITS
) -> Placement:
    return Placement(
        worker=WorkerId(worker), task=TaskName(task), variant=VariantName(variant), share=share
    )


def demand(
    qps: float,
    latency_ms: float = 100.0,
    accuracy: float | None = None,
    task: str = DIGITS,
    variant: str | None = None,
) -> Demand:
    return Demand(
        task=TaskName(task),
        latency_ms=latency_ms,
        accuracy=accuracy,
        qps=qps,
        variant=None if variant is None else VariantName(variant),
    )


def observation(
    catalog: CatalogSnapshot,
    *workers: WorkerReport,
    demand: Sequence[Demand] = (),
    plan: Plan | None = None,
    inventory: Mapping[str, int] | None = None,
    running: Mapping[str, int] | None = None,
) -> Observation:
    """Inventory and running default to one ``cpu-1``."""
    want = {"cpu-1": 1} if inventory is None else inventory
    have = want if running is None else running
    return Observation(
        catalog=catalog,
        workers=workers,
        demand=tuple(demand),
        inventory={DeviceKindName(k): n for k, n in want.items()},
        running={DeviceKindName(k): n for k, n in have.items()},
        plan=plan,
        now_s=1_000.0,
    )
