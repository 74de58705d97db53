"""What exporting gives, and how it refuses."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from variants.errors import InvalidInput
from variants.figures import counted
from variants.types import TensorSpec

DTYPES = ("float32", "float64", "int64", "int32", "uint8", "bool")
"""Element types that a task may have."""
CHECKED_ROWS = 32
"""Most examples that are answered to compare the file with the model."""


class ExportError(InvalidInput):
    """The model cannot be exported as it is; the sentence says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A file that was written, and what was compared before it was."""

    path: Path
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    labels: tuple[str, ...] = ()
    """Names of a classifier's classes, in the order of the scores, where the model knows them."""
    rows: int
    """How many example rows the file and the model both answered."""
    different_rows: int = 0
    """How many of them it answers differently, because it computes in float32: none of PyTorch's,
    and at most one in a hundred of scikit-learn's."""
    difference: float
    """Largest absolute difference between their answers to the other rows."""


def check_names(names: Sequence[str], *, count: int, what: str) -> tuple[str, ...]:
    """Names for ``count`` inputs or outputs; ``what`` is ``input`` or ``output``.

    Raises:
        ExportError: there are too many, too few, empty ones or the same twice.
    """
    if isinstance(names, str) or not all(names):
        raise ExportError(f"{what}_names must be a list of names")
    if len(names) != count:
        raise ExportError(
            f"{what}_names has {counted(len(names), 'name')}, but the model has {count}"
        )
    if len(set(names)) != len(names):
        raise ExportError(f"{what}_names has a name twice")
    return tuple(names)
