"""What variants take on a device kind, and requests to measure it again."""

from dataclasses import dataclass
from enum import StrEnum

from variants.types.names import DeviceKindName, TaskName, VariantName

PROFILE_BATCH_SIZES = (1, 2, 4, 8, 16, 32)


class ProfileSource(StrEnum):
    """Whether a profile was measured on the device kind, predicted by a cost model, or given."""

    MEASURED = "measured"
    PREDICTED = "predicted"
    EXACT = "exact"
    """From a planning file: true by definition, so no margin is added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPoint:
    """Latency of one whole batch of ``batch_size`` rows."""

    batch_size: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    error: float = 0.0
    """0 when it was measured; of a predicted point the standard deviation of its logarithm, so that
    0.1 means about 10 % either way."""
    energy_j: float | None = None
    """Joules that the device takes while it runs such a batch, its idle draw included; None where
    that was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How a variant behaves on a device kind: the only thing the planner knows of cost."""

    task: TaskName
    variant: VariantName
    device_kind: DeviceKindName
    points: tuple[LatencyPoint, ...]
    """Ascending by batch size; a batch above the last is forbidden."""
    memory_mib: float
    """Memory that it takes of the device: the GPU's, or the CPU worker's, as if it were alone."""
    load_s: float
    """Warm: its files are in the system's cache and its back end is imported."""
    source: ProfileSource = ProfileSource.MEASURED
    """Predicted when any of its points is."""
    host: str = ""
    """Fingerprint of the machine and library versions it was measured with."""
    measured_at: str = ""
    """ISO 8601, UTC."""
    measured_on: str = ""
    """The machine that it was measured on, as its host name, and its address on a cluster."""
    beside_load: bool = False
    """Whether other work took the processor while it was measured, and no calm moment was found."""
    cold_load_s: float | None = None
    """The first load in a new process, the import of its back end included."""
    host_memory_mib: float | None = None
    """Memory that a variant on a GPU takes of the host."""
    energy_j: float | None = None
    """Joules per row at the batch size of the highest throughput, where they can be read."""
    working_mib: float | None = None
    """Of ``memory_mib``: what batches take while they run, where the variants of a worker share
    that (``variants.working_memory``)."""
    live: bool = False
    """Its latencies are those that workers see now: to decide by, not to be kept."""
    busy: tuple[tuple[int, float], ...] = ()
    """Of one that plans are made by: (batch size, ms) of each point, what a batch is counted with
    on a worker where one follows on another. Empty where workers have not told it apart."""
    busy_error: float = 0.0
    """How sure that is: the standard deviation of the logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilingRequest:
    """A request to measure a profile again; it is removed once that was done."""

    task: TaskName
    variant: VariantName
    device_kind: DeviceKindName
    reason: str
    """One sentence: what was seen."""
    at: str = ""
    """ISO 8601, UTC."""
