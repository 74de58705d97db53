"""What a registration takes and gives."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from profiler.sandbox.limits import MeasureLimits, SandboxLimits
from variants.checks.edges import Edges
from variants.types import (
    DeviceKind,
    ImageScale,
    LengthBucket,
    ModelVersion,
    Profile,
    Registration,
    Slo,
    Stage,
    Task,
    TextInput,
    Variant,
    VariantName,
)


class Thoroughness(StrEnum):
    """How much of a model's grid of kinds, threads and batch sizes is measured."""

    AUTO = "auto"
    """All of it if that is quick, else a part."""
    FULL = "full"
    SAMPLED = "sampled"
    """A fifth at most; the rest is predicted, and says so."""


QUICK_ROWS = 100
"""A quick registration judges by so many rows at most, drawn from those that are given; besides it
samples latencies, of all threads only."""
QUICK_CALIBRATION_ROWS = 50
"""Rows that it quantises with at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationRequest:
    """What to register, and how."""

    path: Path
    """An ``.onnx`` or ``.pt2`` file, or a folder ``model/version/file``."""
    only: str | None = None
    """Name of the one version's folder to take, where ``path`` is a folder of several."""
    task: str
    evaluation: Path
    """An ``.npz`` with one array per input, and ``labels`` or ``targets`` as the metric wants."""
    kinds: tuple[str, ...] | None = None
    """Kinds of variants to build besides the model itself; else all that can be built here."""
    measure: Thoroughness = Thoroughness.AUTO
    threads: bool = True
    """Whether fewer threads than a worker has are tried too."""
    training: Path | None = None
    """Rows that the model was trained on, with labels or targets: for pruning and distillation."""
    calibration: Path | None = None
    """Rows to quantise with; without it some of the evaluation rows, which then measure nothing."""
    labels: tuple[str, ...] | None = None
    """Names of the classes; ``None`` keeps the task's, and leaves a new task without."""
    model: str | None = None
    """Name of the model; None takes the file's or the folder's name."""
    metric: str | None = None
    """How a new task counts accuracy; ``None`` takes the task's, and ``top1`` for a new one."""
    slo: Slo | None = None
    """Defaults of a new task."""
    image: ImageScale | None = None
    """How pictures become the values of a new task's input."""
    lengths: tuple[int, ...] | None = None
    """For rows of several lengths, each a bucket of its own; None: those that the task has."""
    pads: tuple[tuple[str, float], ...] = ()
    """Names of inputs, or an empty one for all others, and what fills up their rows; else 0."""
    bucket: LengthBucket | None = None
    """Where it is for one of several buckets."""
    tokenizer: Path | None = None
    """A ``tokenizer.json``: by it a new task takes texts, and it is the version's own where the
    task has another one. None: that of the version before, else the task's."""
    text_inputs: tuple[tuple[str, str], ...] = ()
    """What takes ``ids``, ``mask`` or ``types``, and the input that does; else as names say."""
    text: TextInput | None = None
    """How texts become rows of the task, once the tokenizer was read."""
    own_text: TextInput | None = None
    """How they become those of the version, where it has another tokenizer than the task."""
    row_pads: tuple[tuple[str, float], ...] = ()
    """As ``pads``, of the rows in the files, where those were filled up with something else."""
    tokenizer_data: bytes | None = None
    stage: Stage | None = None
    """Stage of the version; None is live for a model's first version and canary for later ones."""
    quick: bool = False
    """Whether to judge by few of the rows, and to measure little: see ``QUICK_ROWS``."""
    edges: Edges = field(default_factory=Edges)
    """What an ONNX file takes and gives otherwise than it says."""

    @property
    def rows(self) -> dict[str, Path]:
        """The files of rows that are given, by the fields that have them."""
        files = {
            "evaluation": self.evaluation,
            "calibration": self.calibration,
            "training": self.training,
        }
        return {name: path for name, path in files.items() if path is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationLimits:
    """What a registration may take."""

    model_mib: float = 2048
    trial: SandboxLimits = field(default_factory=lambda: SandboxLimits(time_s=900.0))
    """Of the process that tries the model: one check, one build or one measurement."""
    measure: MeasureLimits = field(default_factory=MeasureLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far it is."""

    step: str
    """``check``, ``build``, ``measure``, ``store``; ``train`` and ``export`` for examples."""
    done: int
    total: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedVariant:
    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reused:
    """What a registration has taken from the build cache."""

    built: tuple[VariantName, ...] = ()
    """Variants whose files were built before."""
    measured: tuple[VariantName, ...] = ()
    """Variants that were judged and measured before, on at least one device kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationResult:
    """What a registration has added to the catalog, and what it has left out."""

    task: Task
    versions: tuple[ModelVersion, ...]
    variants: tuple[Variant, ...]
    profiles: tuple[Profile, ...]
    device_kinds: tuple[DeviceKind, ...] = ()
    """The kinds that the variants were measured on."""
    skipped: tuple[SkippedVariant, ...] = ()
    unchanged: tuple[str, ...] = ()
    """Versions of the folder that were registered before, with the same bytes."""
    doubts: tuple[str, ...] = ()
    """One sentence for each version that is no better than guessing."""
    repaired: tuple[str, ...] = ()
    """One sentence for each of their artifacts that was damaged in the store: which it is, and
    whether it was repaired."""
    reused: Reused = Reused()
    said: tuple[str, ...] = ()
    """What else whoever registers should know, in sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A version with everything measured, not stored yet."""

    registration: Registration
    artifacts: tuple[Path, ...]
    """Files that the store has to take first."""
    doubt: str = ""
    """A sentence where the version is no better than guessing; else empty."""
    skipped: tuple[SkippedVariant, ...] = ()
    reused: Reused = Reused()
