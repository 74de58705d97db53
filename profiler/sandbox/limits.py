"""What trying and measuring foreign models may take. Registrations carry it, so nothing that
measures is imported."""

from dataclasses import dataclass

from variants.types import PROFILE_BATCH_SIZES

PATIENCE = 2
"""Times as many rounds, where a median is not sure enough yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """What one call into a sandbox may take."""

    memory_mib: float = 8192
    """Beyond what the interpreter and its libraries need. On a CPU, of address space; with a GPU,
    whose driver maps far more than it uses, of what is resident."""
    libraries_mib: float = 2048
    """With a GPU: memory that an interpreter and its back end may keep resident without a model."""
    time_s: float = 600.0
    """Wall-clock time of one call, or of what it does until it tells how far it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureLimits:
    """How long measuring may go on. A variant too slow for a batch size goes without it."""

    batch_sizes: tuple[int, ...] = (*PROFILE_BATCH_SIZES, 64)
    useful_above: int = PROFILE_BATCH_SIZES[-1]
    """Larger batches are measured only while they still raise the throughput."""
    useful_gain: float = 0.03
    """Least share by which throughput has to grow over two doublings of the batch size."""
    point_s: float = 0.12
    """Time for the runs of one batch size, unless ``min_runs`` need more or it is not sure yet."""
    min_runs: int = 12
    max_runs: int = 2_000
    rounds: int = 4
    """Batch sizes take turns so often."""
    precision: float = 0.02
    """How well a median is to be known after that, either way and at 95 %, as a share of it; else
    there are more rounds, up to ``PATIENCE`` times as many in as much more time."""
    slowest_batch_s: float = 5.0
    """A batch that takes longer is not profiled, and neither are larger ones; one row always is."""
