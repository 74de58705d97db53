"""What the control API sends, as pydantic models: the OpenAPI page is made from them.

Each has the same fields, names and units as the domain type it shows. ``of`` makes one from it.
"""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from variants.catalog.sharing_validation import LONGEST_TTL_S, MOST_MEMORY_MIB
from variants.errors import Alternative
from variants.types import (
    DeviceKind,
    Event,
    ModelVersion,
    Prefer,
    Profile,
    ProfileSource,
    ReplicaState,
    Slo,
    Stage,
    Task,
    TensorSpec,
    TickRecord,
)


class Schema(BaseModel):
    """Base: built from attributes or mappings, documents its fields."""

    model_config = ConfigDict(from_attributes=True, protected_namespaces=(), extra="ignore")


class ErrorBody(Schema):
    """Every error has this body."""

    error: str = Field(description="One readable sentence.")
    code: str = Field(description="Stable and machine-readable.", examples=["TASK_NOT_FOUND"])
    retryable: bool = Field(description="Whether the same request may succeed later.")
    request_id: str = Field(description="The same as in the header X-Request-Id.")
    reasons: dict[str, str] | None = Field(
        None, description="SLO_INFEASIBLE only: variant to the reason why it does not fit."
    )
    alternatives: list[Alternative] | None = Field(
        None, description="SLO_INFEASIBLE only: what comes closest."
    )
    retry_after_s: float | None = Field(
        None,
        description="COLD: predicted seconds until the variant is loaded. NO_WORKERS: until a "
        "worker is expected, where that is known.",
    )


class TensorSchema(Schema):
    """One input or output; the shape is of one row."""

    name: str = Field(examples=["pixels"])
    dtype: str = Field(examples=["float32"])
    shape: list[int] = Field(examples=[[64]])

    @classmethod
    def of(cls, spec: TensorSpec) -> Self:
        return cls(name=spec.name, dtype=spec.dtype, shape=list(spec.shape))


class SloSchema(Schema):
    """What a query needs; null asks for nothing."""

    latency_ms: float = Field(examples=[50.0])
    accuracy: float | None = Field(examples=[0.95])
    cost: float | None = Field(description="USD per 1,000 queries.")
    prefer: Prefer

    @classmethod
    def of(cls, slo: Slo) -> Self:
        return cls.model_validate(slo)


class SharingSchema(Schema):
    """Equal queries get one answer, within these limits."""

    model_config = ConfigDict(from_attributes=True, extra="forbid")

    ttl_s: float = Field(
        ge=0.0,
        le=LONGEST_TTL_S,
        description="How long an answer is given again; 0: only queries in flight share a run.",
        examples=[60.0],
    )
    memory_mib: float = Field(
        64.0,
        gt=0.0,
        le=MOST_MEMORY_MIB,
        description="What each gateway keeps of the task's answers at most.",
    )


class TaskSchema(Schema):
    """What can be asked for."""

    name: str = Field(examples=["digits"])
    inputs: list[TensorSchema]
    outputs: list[TensorSchema]
    labels: list[str] = Field(description="Classes of the first output; empty when it has none.")
    metric: str = Field(examples=["top1"])
    slo: SloSchema = Field(description="What holds when a query names nothing.")
    models: int = Field(description="Models that were trained for it.")
    variants: int = Field(description="Variants of canary and live versions.")
    best_accuracy: float | None = Field(description="Of a canary or live variant.")
    sharing: SharingSchema | None = Field(
        None, description="How equal queries share answers; null: every query is run."
    )

    @classmethod
    def of(cls, task: Task, *, models: int, variants: int, best_accuracy: float | None) -> Self:
        return cls(
            name=task.name,
            inputs=[TensorSchema.of(spec) for spec in task.inputs],
            outputs=[TensorSchema.of(spec) for spec in task.outputs],
            labels=list(task.labels),
            metric=task.metric,
            slo=SloSchema.of(task.slo),
            models=models,
            variants=variants,
            best_accuracy=best_accuracy,
            sharing=None if task.sharing is None else SharingSchema.model_validate(task.sharing),
        )


class VersionSchema(Schema):
    """One version of a model."""

    task: str = Field(examples=["digits"])
    model: str = Field(examples=["cnn-small"])
    version: int = Field(examples=[1])
    stage: Stage
    source: str = Field(description="SHA-256 of what was handed in.")
    format: str = Field(examples=["onnx"])
    created_at: str
    source_bytes: int | None = Field(None, description="Null when the file is not in the store.")
    variants: list[str] = Field(default_factory=list, examples=[["cnn-small-v1-onnx-fp32"]])

    @classmethod
    def of(
        cls, version: ModelVersion, *, source_bytes: int | None = None, variants: list[str]
    ) -> Self:
        return cls(
            task=version.task,
            model=version.model,
            version=version.version,
            stage=version.stage,
            source=version.source,
            format=version.format,
            created_at=version.created_at,
            source_bytes=source_bytes,
            variants=variants,
        )


class ModelSchema(Schema):
    """A model with its versions, oldest first."""

    task: str
    model: str
    live: int | None = Field(description="The newest live version.")
    versions: list[VersionSchema]


class StageChange(Schema):
    """Where a version shall go: ``live`` promotes it, ``retired`` takes it out of service."""

    model_config = ConfigDict(extra="forbid")

    stage: Stage = Field(examples=["live"])


class PointSchema(Schema):
    """Latency of a whole batch."""

    batch_size: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    error: float = Field(
        description="0 when measured; of a prediction the standard deviation of its logarithm: "
        "0.1 is about 10 % either way."
    )
    energy_j: float | None = Field(
        None, description="Joules of the batch, idle draw included; null where not measured."
    )
    live_ms: float | None = Field(
        None, description="What it takes now, in the mean, as workers say; null before any ran."
    )
    live_p95_ms: float | None = Field(None, description="What 95 % of them take at most now.")


class ProfileSchema(Schema):
    """How a variant behaves on a device kind."""

    task: str
    variant: str
    device_kind: str = Field(examples=["cpu-4"])
    points: list[PointSchema]
    memory_mib: float
    host_memory_mib: float | None = Field(description="Of a variant on a GPU.")
    load_s: float = Field(description="Warm: its files and its back end are in memory.")
    cold_load_s: float | None = Field(description="The first load in a new process.")
    energy_j: float | None = Field(description="Joules per row, where they can be read.")
    source: ProfileSource = Field(description="Predicted when any of its points is.")
    host: str = Field(description="What it was measured on: processor, libraries.")
    measured_at: str
    measured_on: str = Field(
        "", description="The machine; empty where it was measured before that was kept."
    )
    beside_load: bool = Field(
        False, description="Other work took the processor meanwhile, so it is no calm measurement."
    )
    unconfirmed: bool = Field(
        False,
        description="The variant is ready on workers of the kind and none has run a batch of it.",
    )

    @classmethod
    def of(cls, profile: Profile) -> Self:
        return cls.model_validate(profile)


class DeviceSchema(Schema):
    """A device kind and its price."""

    name: str
    cores: int
    memory_mib: float
    usd_per_hour: float
    gpu: str | None
    idle_w: float | None = Field(
        None, description="Watts while nothing runs; null where that is not known."
    )
    carbon_g_per_kwh: list[float] = Field(
        default_factory=list,
        description="Grams of CO2 per kWh: one number, or 24 by hour of the day in UTC; empty "
        "where not known.",
    )

    @classmethod
    def of(cls, kind: DeviceKind) -> Self:
        return cls.model_validate(kind)


class OnDevice(Schema):
    """What a variant does on one device kind."""

    device_kind: str = Field(examples=["cpu-4"])
    p50_ms: float = Field(description="One row, median.")
    p95_ms: float = Field(description="One row.")
    live_ms: float | None = Field(
        None,
        description="What one row takes now, in the mean, as workers say; null before any ran.",
    )
    live_p95_ms: float | None = Field(None, description="What 95 % of them take at most now.")
    unconfirmed: bool = Field(
        False,
        description="It is ready on workers and none has run a batch of it: what is refused for "
        "the sake of its profile has that checked.",
    )
    best_rows_per_s: float = Field(description="At the batch size where it is highest.")
    best_batch_size: int
    max_batch_size: int
    price_usd_per_1k: float | None = Field(
        description="Reservation price per 1,000 queries; null when the device has no price here."
    )
    energy_j: float | None = Field(
        None, description="Joules of one row, idle draw included; null where not measured."
    )
    memory_mib: float
    load_s: float
    source: ProfileSource
    dominated: bool = Field(
        description="Another serving variant is as accurate, as fast at every batch size and as "
        "small here, within what measuring can tell, and better in one."
    )
    stale: str | None = Field(
        None,
        description="What has changed on this machine since it was measured; null when nothing "
        "has that matters, or this machine is of another device kind.",
        examples=["onnxruntime 1.30.0 -> 1.31.1"],
    )


class VariantSchema(Schema):
    """A variant with its place on the frontier of accuracy and latency."""

    task: str
    name: str = Field(examples=["cnn-small-v1-onnx-int8"])
    model_version: str = Field(examples=["cnn-small-v1"])
    stage: Stage
    runtime: str = Field(examples=["onnx"])
    precision: str = Field(examples=["int8"])
    accuracy: float = Field(examples=[0.9833])
    accuracy_low: float = Field(description="Of its 95 % confidence interval.")
    accuracy_high: float
    accuracy_rows: int = Field(description="Held-out rows that it was measured on.")
    agreement: float | None = Field(
        description="Share of these rows that it answers as the model itself does in fp32."
    )
    note: str = Field(description="What was done to the model to get it.")
    size_bytes: int
    artifact: str
    options: dict[str, str]
    devices: list[OnDevice]
    dominated: bool = Field(description="Dominated on every device kind that it has a profile for.")


class ReplicaSchema(Schema):
    """A variant on a worker."""

    task: str
    variant: str
    state: ReplicaState
    memory_mib: float
    queued: int = 0
    idle_s: float = 0.0
    message: str = ""
    quarantined_s: float | None = Field(
        None, description="Unix time since when it is in quarantine there."
    )
    batches: int = 0
    checks: int = Field(
        0, description="So many batches ran only to check its profile, since it was loaded."
    )
    latency: list[tuple[int, float, float]] = Field(
        default=[],
        description="What batches take lately: size (up to), mean ms, and the 95th percentile that "
        "is predicted.",
    )
    within: float | None = Field(
        None, description="Share of its batches that took no longer than was predicted for 95 %."
    )


class WorkerSchema(Schema):
    """A worker as it reports itself."""

    worker: str
    device_kind: str
    memory_mib: float
    reserved_mib: float
    draining: bool
    backlog_us: int = Field(description="Predicted time until all admitted work is done.")
    busy_ratio: float = Field(description="Share of the last seconds spent running batches.")
    replicas: list[ReplicaSchema]
    pid: int = 0
    release: str = Field("", description="Its release, and a digest of the sources it runs.")
    eviction: str = Field("", description="By which rule variants leave it where memory is short.")
    loads: int = Field(0, description="Loads that are over since it started.")
    loading_s: float = Field(0.0, description="What they took.")
    churn_per_s: float = Field(
        0.0, description="The share of its memory that is evicted per second, lately."
    )
    cores: list[int] = Field(
        default=[], description="Cores of its machine that no other worker has; empty: any."
    )
    zone: str = Field("", description="Zone of its machine, by the label of its node.")
    round_trip_ms: float | None = Field(
        None,
        description="From the gateway that was asked to this worker and back: 0 within a zone and "
        "below 4 ms; null where that gateway is not connected to it.",
    )
    warnings: list[str] = Field(
        default=[], description="What is wrong with it although it serves, one sentence each."
    )


class TickSchema(Schema):
    """One turn of the control loop."""

    plan_version: int
    at: str
    body: dict[str, Any]

    @classmethod
    def of(cls, tick: TickRecord) -> Self:
        return cls(plan_version=tick.plan_version, at=tick.at, body=dict(tick.body))


class EventSchema(Schema):
    """Something that happened."""

    seq: int = Field(description="Ascending; pass it as `after` to get what came later.")
    at: str
    kind: str = Field(examples=["worker_joined"])
    subject: str
    message: str

    @classmethod
    def of(cls, event: Event) -> Self:
        return cls.model_validate(event)


class SloRow(Schema):
    """How well the SLOs of a task's queries were met."""

    model_config = ConfigDict(extra="allow")

    task: str
    requests: int
    met: int = Field(description="Answered in time, with the floors and ceilings asked for.")
    late: int = Field(description="Answered after the deadline, or never.")
    refused: int = Field(description="Refused with a typed error.")
    attainment: float | None = Field(description="met / requests; null without requests.")


class SloReport(Schema):
    """SLO attainment per task over the last ``window_s`` seconds; 0: since the gateways started."""

    model_config = ConfigDict(extra="allow")

    window_s: float
    tasks: list[SloRow]


class OperationSchema(Schema):
    """A long-running request: poll it until ``state`` is ``succeeded`` or ``failed``."""

    id: str = Field(examples=["8f14e45fceea167a5a36dedd4bea2543"])
    kind: str = Field(examples=["register"])
    state: str = Field(description="running, succeeded or failed.", examples=["running"])
    subject: str = Field(examples=["digits/cnn-small"])
    progress: dict[str, Any] = Field(
        default_factory=dict,
        description="The last line of progress: step, message, and done of total where known.",
        examples=[{"step": "profile", "message": "cnn-small-v1-onnx-int8", "done": 3, "total": 6}],
    )
    result: dict[str, Any] | None = Field(None, description="With succeeded: what was registered.")
    error: ErrorBody | None = Field(None, description="With failed: why.")
    created_at: str
    updated_at: str
