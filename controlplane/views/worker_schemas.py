"""What the control API sends of workers and of what they have loaded."""

from typing import Self

from pydantic import Field, model_validator

from controlplane.views.schemas import Schema
from variants.types import ReplicaState
from workers.process.release import release


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
    busy: list[tuple[int, float, float]] = Field(
        default=[],
        description="What batches take that follow on one another, without what other variants "
        "prolong: size (up to), mean ms, and the standard deviation of its logarithm.",
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
    warnings: list[str] = Field(default=[], description="What is wrong with it, one sentence each.")
    silent_s: float | None = Field(
        None,
        description="For so long it has said nothing to the gateway that was asked, stopped or "
        "hanging; null while it answers. Queries go elsewhere where another worker holds the same.",
    )
    slowness: float | None = Field(
        None,
        description="How many times as long as others of its kind it takes, where the gateway that "
        "was asked finds it slow; null else.",
    )
    spared: bool = Field(False, description="That gateway keeps queries from it, as it is slow.")

    @model_validator(mode="after")
    def _warn(self) -> Self:
        """Say what the gateway finds in words too, so that it is told wherever warnings are."""
        found = []
        if self.silent_s is not None:
            found.append(silent_words(self.silent_s))
        if self.slowness is not None:
            found.append(slow_words(self.slowness, spared=self.spared))
        if self.release and self.release != release():
            found.append(other_release_words(self.release, release()))
        self.warnings = [*found, *(text for text in self.warnings if text not in found)]
        return self


def other_release_words(its: str, own: str) -> str:
    """What is told of a worker that runs other code than the gateway that was asked."""
    return (
        f"it runs modelless {its}, and the gateway that was asked {own}: install the same on each"
        " machine, or let `modelless upgrade` finish"
    )


def silent_words(silent_s: float) -> str:
    """``it has not answered for 4 s, and gets no queries until it does``."""
    return f"it has not answered for {silent_s:,.0f} s, and gets no queries until it does"


def slow_words(slowness: float, *, spared: bool) -> str:
    """What is told of a slow worker."""
    why = (
        "queries go to the others"
        if spared
        else "it gets queries to see whether that lasts, or because the others are busy"
    )
    return f"it takes {slowness:.1f} times as long as others of its kind: {why}"
