"""``Sources``: what the builders of one version's variants may draw on."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from controlplane.building.digests import file_digest
from profiler.evaluation.labelled_rows import LabelledRows
from variants.builders.protocol import Needs
from variants.types import LengthBucket

LOSS = 0.05
"""What 8 bits may cost a task without a floor: queries that name none get the cheapest variant, so
none is built that gives up more where that can be helped."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """What builders may draw on. Files lie where the sandbox can read them.

    Not slotted: digests are kept once they were computed.
    """

    onnx: Path
    calibration: LabelledRows | None
    """Rows to quantise with; None when a variant is built again without them."""
    program: Path | None = None
    """The ``torch.export`` archive that the ONNX was taken from."""
    training: LabelledRows | None = None
    teacher: Path | None = None
    floor: float | None = None
    loss: float | None = LOSS
    """Accuracy that quantising may cost where there is no floor."""
    metric: str = "top1"
    judged_output: str = ""
    """Name of the task's first output, which the metric is of."""
    along: int | None = None
    """The axis of a row of it along which each position is judged by itself."""
    bucket: LengthBucket | None = None
    """Where the model is for one of several lengths."""

    @property
    def has(self) -> frozenset[Needs]:
        there = {
            Needs.PROGRAM: self.program,
            Needs.TRAINING: self.training,
            Needs.TEACHER: self.teacher,
            Needs.LENGTHS: self.bucket,
        }
        return frozenset(need for need, found in there.items() if found is not None)

    @property
    def handed_in(self) -> Path:
        """The file that was registered."""
        return self.program or self.onnx

    @cached_property
    def calibration_digest(self) -> str:
        """Empty where there are no such rows, as below."""
        return "" if self.calibration is None else self.calibration.digest

    @cached_property
    def training_digest(self) -> str:
        return "" if self.training is None else self.training.digest

    @cached_property
    def teacher_digest(self) -> str:
        return "" if self.teacher is None else file_digest(self.teacher)
