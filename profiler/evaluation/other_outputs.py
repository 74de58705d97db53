"""Outputs that no metric judges: whether a variant gives what the model itself does.

A task's metric is of its first output, and replies have all of them. A runtime that computes whole
numbers in 32 bits, or a precision that a detector's boxes do not bear, shows in none of the scores.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from profiler.evaluation.accuracy import outputs_of
from variants.errors import InvalidArtifact
from variants.metrics.scoring import THE_MODELS
from variants.types import TensorSpec
from workers.runtimes.protocol import Runtime, Tensor

ROWS = 32
"""Most rows that are compared, evenly spread."""
MOST_MIB = 64.0
"""Most memory that their answers may take; one row is compared in any case."""
NOTED, REFUSED = 0.05, 0.5
"""From which share of their spread on numbers that are apart are told of, and refused; of whole
numbers it is the share of those that differ."""
ROUNDING = 1e-3
"""The least spread that is counted with, as a share of how large the numbers are."""
_INT32 = np.iinfo(np.int32)


def other_outputs(
    runtime: Runtime, rows: Sequence[Tensor], outputs: Sequence[TensorSpec], batch_size: int
) -> list[Tensor]:
    """All outputs but the first, ``(some rows, *shape)``, for the same rows of the same data.

    Raises:
        InvalidArtifact: one is not finite, or has another number of rows.
        RuntimeFailed: the runtime failed.
    """
    if len(outputs) < 2:
        return []
    row_mib = sum(prod(one.shape) * np.dtype(one.dtype).itemsize for one in outputs) / 2**20
    count = min(ROWS, len(rows[0]), max(1, int(MOST_MIB / max(row_mib, 1e-9))))
    places = np.linspace(0, len(rows[0]) - 1, count).astype(int)
    return outputs_of(runtime, [tensor[places] for tensor in rows], None, batch_size)[1:]


def compared(names: Sequence[str], given: Sequence[Tensor], wanted: Sequence[Tensor]) -> str:
    """What is to be said of a variant's other outputs beside the model's; mostly nothing.

    Args:
        names: of the outputs, without the first.

    Raises:
        InvalidArtifact: an output has hardly anything of the model's.
    """
    said = []
    for name, ours, theirs in zip(names, given, wanted, strict=True):
        real = theirs.dtype.kind == "f"
        if not real and theirs.dtype.kind != "b" and _is_cut(ours, theirs):
            raise InvalidArtifact(
                f"it computes whole numbers in 32 bits, and those of output {name!r} need more"
            )
        share = _apart(ours, theirs) if real else float(np.mean(ours != theirs))
        if share < NOTED:
            continue
        percent = f"{100 * share:.0f} %"
        if real:
            clause = f"output {name!r} is {percent} of its spread from{THE_MODELS}"
        else:
            clause = f"{percent} of output {name!r} are other numbers than{THE_MODELS}"
        if share > REFUSED:
            raise InvalidArtifact(clause)
        said.append(clause)
    return "; ".join(said)


def _is_cut(given: Tensor, wanted: Tensor) -> bool:
    """Whether whole numbers end at 32 bits that did not."""

    def fits(numbers: Tensor) -> bool:
        least, most = numbers.min(initial=0), numbers.max(initial=0)
        return bool(least >= _INT32.min and most <= _INT32.max)

    return fits(given) and not fits(wanted)


def _apart(given: Tensor, wanted: Tensor) -> float:
    """How far numbers are from others ``(rows, *shape)``, as a share of how far the rows of these
    are from their mean; both are root mean squares."""
    ours, theirs = (each.reshape(len(each), -1).astype(np.float64) for each in (given, wanted))
    mean = theirs.mean(axis=0) if len(theirs) > 1 else theirs.mean()
    spread = max(_size(theirs - mean), ROUNDING * _size(theirs))
    apart = _size(ours - theirs)
    return apart / spread if spread else float(apart > 0)


def _size(numbers: Tensor) -> float:
    largest = float(np.abs(numbers).max(initial=0.0))
    return largest * float(np.sqrt(np.mean((numbers / largest) ** 2))) if largest else 0.0
