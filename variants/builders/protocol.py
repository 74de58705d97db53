"""What a builder is: it takes a model's material and writes one kind of variant."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from variants.metrics.metric import CLASSES, Judged
from variants.types import LengthBucket, Precision

Rows = Mapping[str, NDArray[Any]]
"""Input name to an array ``(rows, *shape)``; all arrays have the same number of rows."""


class Needs(Enum):
    """What a builder cannot do without, besides the model; the value says it in words."""

    PROGRAM = "a PyTorch program; export the model with modelless.export"
    TRAINING = "the rows that the model was trained on"
    TEACHER = "a larger model of the task to learn from"
    LENGTHS = "a model for rows of several lengths; register it with --lengths"


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What a variant is made of."""

    source: Path
    """The version as ONNX, checked."""
    program: Path | None = None
    """The version as a ``torch.export`` archive, if it was handed in as one."""
    calibration: Rows = field(default_factory=dict)
    """Rows of typical inputs; no evaluation row is among them."""
    calibration_labels: NDArray[Any] | None = None
    """Labels ``(rows,)`` or targets ``(rows, *shape)``, as the metric wants them, where they are
    known: a builder that has a choice judges answers here, or by agreement with the model itself
    where they are not."""
    training: Rows = field(default_factory=dict)
    training_labels: NDArray[Any] | None = None
    """Rows that the model was trained on, and their labels or targets, if they were given."""
    teacher: Path | None = None
    """A larger model of the task, as ONNX."""
    floor: float | None = None
    """The task's default accuracy floor in [0, 1]: what falls below it is of little use."""
    loss: float | None = None
    """Accuracy that quantising may cost where there is no floor; None: any."""
    judged: Judged = CLASSES
    """What accuracy is in this task, and of which output."""
    bucket: LengthBucket | None = None
    """Where the source is for one of several lengths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a builder reports of the artifact that it wrote."""

    note: str = ""
    """One clause for people: which nodes kept their precision, how much was pruned."""


class Builder(Protocol):
    """Makes one kind of variant. The constructor only stores."""

    runtime: str
    """Key of the runtime that will run it."""
    precision: Precision
    options: Mapping[str, str]
    """Options that the variant gives to its runtime, as text by name."""
    suffix: str
    """End of the name of the artifact's file: ``.onnx``, ``.pt2``."""
    gpu: bool
    """Whether the variant runs on GPUs only; else on CPUs only."""
    needs: frozenset[Needs]
    """Parts of the material that it cannot do without."""

    def missing(self) -> str | None:
        """Why it cannot build here although the packages and the device that its entry in the
        registry needs are here, in one clause: a compiler, an instruction set; else None.

        Imports nothing heavy. ``variants.builders.registry.missing_here`` asks for everything.
        """

    def build(self, material: Material, target: Path) -> Built:
        """Write the variant to ``target``, which does not exist yet.

        Runs the model, so it belongs into a process that may die.

        Raises:
            VariantNotBuilt: this kind cannot be made of this model, or not here.
        """
