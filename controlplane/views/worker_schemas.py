"""What the control API sends of workers and of what they have loaded."""

from pydantic import Field

from controlplane.views.schemas import Schema
from variants.types import ReplicaState


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
