"""What a bad artefact is: how it is made, where it has to be refused, and what is said then."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests import onnx_models as models


class Step(StrEnum):
    """Where a registration ends."""

    FIND = "find"
    """Before any process is started for it."""
    CHECK = "check"
    """Its bytes are read, and nothing of it is run."""
    ROWS = "rows"
    """The evaluation rows are read."""
    BUILD = "build"
    MEASURE = "measure"
    """It is run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What is handed in; what is ``None`` is sound."""

    path: Path | None = None
    evaluation: Path | None = None


Make = Callable[[Path], Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One bad artefact."""

    name: str
    step: Step
    says: str
    """A regular expression that the sentence matches from its begin."""
    make: Make
    """Writes it into a folder that is its own, and returns its path."""
    rows: bool
    """Whether it is the evaluation rows that are bad, not the model."""
    known: bool
    """Whether the task exists, with the signature of ``sound_model``."""
    trial_s: float

    def given(self, folder: Path) -> Given:
        """Make it."""
        made = self.make(folder)
        return Given(evaluation=made) if self.rows else Given(path=made)


CASES: list[Case] = []


def bad(
    step: Step, says: str, *, known: bool = False, trial_s: float = 30.0
) -> Callable[[Make], Make]:
    """Add a case, called after the function that makes it."""

    def add(make: Make) -> Make:
        name = make.__name__.replace("_", "-")
        assert name not in {case.name for case in CASES}
        case = Case(
            name=name,
            step=step,
            says=says,
            make=make,
            rows=step is Step.ROWS,
            known=known,
            trial_s=trial_s,
        )
        CASES.append(case)
        return make

    return add


def sound_model(folder: Path) -> Path:
    """``pixels`` ``[batch, 4]`` to ``scores`` ``[batch, 3]``."""
    return models.write(folder / "sound.onnx")


def sound_rows(folder: Path) -> Path:
    return models.write_rows(folder / "sound.npz")
