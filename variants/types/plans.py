"""What is loaded where, and which part of the demand each worker gets."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from variants.types.names import DeviceKindName, TaskName, VariantName, WorkerId


class ReplicaState(StrEnum):
    """The state of a variant on a worker."""

    LOADING = "loading"
    READY = "ready"
    UNLOADING = "unloading"
    QUARANTINED = "quarantined"
    FAILED = "failed"
    """Its last load failed; it is tried again later."""
    DAMAGED = "damaged"
    """Its artifact is missing or not what was registered; it is tried again when that changes."""

    @property
    def kept_out(self) -> bool:
        """Whether it is not loaded there and would not load now."""
        return self in _KEPT_OUT


_KEPT_OUT = (ReplicaState.QUARANTINED, ReplicaState.FAILED, ReplicaState.DAMAGED)
"""A tuple: in a set of so few, hashing a member takes longer than comparing it with all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A variant on a worker with a share of its time."""

    worker: WorkerId
    task: TaskName
    variant: VariantName
    share: float
    """Planned fraction of the worker's time, in [0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A part of an SLO class of queries that the plan gives to a replica."""

    task: TaskName
    latency_ms: float
    accuracy: float | None
    """Floor of the class."""
    variant: VariantName
    worker: WorkerId
    batch_size: int
    """The batch size that the replica is expected to run at."""
    qps: float
    pinned: bool = False
    """For queries that are pinned to the variant, or whose texts other models do not hold; others
    do not follow it."""
    slo_ms: float | None = None
    """The latency SLO by which the worker goes: where plans are for accuracy, the tightest in the
    class at that time; None: ``latency_ms``, which is at most that."""

    @property
    def tightest_ms(self) -> float:
        """The latency SLO by which the worker goes."""
        return self.slo_ms or self.latency_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A versioned set of placements plus worker counts, with its explanation."""

    version: int
    epoch: int
    """Leadership under which it was made; an older epoch cannot overwrite a newer plan."""
    placements: tuple[Placement, ...]
    workers: Mapping[DeviceKindName, int]
    explanation: tuple[str, ...] = ()
    created_at: str = ""
    routes: tuple[Route, ...] = ()
    """How the demand is divided, ordered by task, class, variant and worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickRecord:
    """One turn of the control loop, kept for reading: the dashboard's "why"."""

    plan_version: int
    at: str
    body: Mapping[str, Any]
    """Observation, demand, actions and explanation as plain JSON values."""
