"""Versions of models, and the variants that are built of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from variants.types.devices import DeviceKind
from variants.types.names import Digest, ModelName, TaskName, VariantName
from variants.types.tasks import TextInput


class Stage(StrEnum):
    """The stage of a model version. Only canary and live versions answer queries."""

    CANDIDATE = "candidate"
    CANARY = "canary"
    LIVE = "live"
    RETIRED = "retired"


class Precision(StrEnum):
    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """An architecture trained for a task: one immutable source artifact."""

    task: TaskName
    model: ModelName
    version: int
    stage: Stage
    source: Digest
    """The artifact as it was handed in, before any variant was built from it."""
    format: str = "onnx"
    created_at: str = ""
    """ISO 8601, UTC."""
    text: TextInput | None = None
    """How texts become its rows where another tokenizer does it than the task's. Its inputs are
    called as the task's are. None: as the task says."""

    @property
    def label(self) -> str:
        """How the version is named in replies and variant names: ``cnn-small-v1``."""
        return f"{self.model}-v{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Model version x runtime x precision: one artifact that can be loaded."""

    task: TaskName
    name: VariantName
    model: ModelName
    version: int
    runtime: str
    """A key of the runtime registry: ``onnx``, ``echo``."""
    precision: Precision
    artifact: Digest
    size_bytes: int
    accuracy: float
    """By the task's metric, measured on ``accuracy_rows`` held-out rows, in [0, 1]."""
    accuracy_rows: int
    options: Mapping[str, str] = field(default_factory=dict)
    """What else makes the variant, for its runtime: ``threads``, ``precision``, ``provider``, ...

    ``threads`` is how many compute one batch; without it, all that the worker has. An echo variant
    has its latency here.
    """
    agreement: float | None = None
    """Share of the held-out rows that it answers as the model itself does in fp32, in [0, 1]. What
    counts as the same depends on the metric: ``variants.metrics.scoring.agreement``."""
    note: str = ""
    """A clause from its builder: which nodes kept their precision, how much was pruned."""
    answered: tuple[int, ...] = ()
    """How many of the held-out rows it answers by a class of each cell
    (``variants.metrics.answered``); empty where that was not counted."""
    found: tuple[tuple[int, int], ...] = ()
    """Of each cell, how many held-out rows of its classes it answers right, and how many there are;
    empty where that was not counted."""
    measured_accuracy: float | None = None
    """What was measured, where ``accuracy`` and its rows are what clients have said since
    (``planner.feedback``). In the catalog itself ``accuracy`` is always the measured one."""

    @property
    def key(self) -> tuple[TaskName, VariantName]:
        return (self.task, self.name)

    @property
    def model_version(self) -> str:
        return f"{self.model}-v{self.version}"

    @property
    def gpu(self) -> bool:
        """Whether it runs on GPUs only; all others run on CPUs only."""
        return self.runtime == "tensorrt" or "provider" in self.options

    def runs_on(self, kind: "DeviceKind") -> bool:
        """Whether it has business on a device kind.

        With fewer threads it is another variant only where there are more cores than that.
        """
        if self.gpu != (kind.gpu is not None):
            return False
        return self.gpu or int(self.options.get("threads", 0)) < kind.cores
