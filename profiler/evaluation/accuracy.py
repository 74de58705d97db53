"""How good a variant's answers are, on rows that nothing was trained or calibrated on."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import sqrt

import numpy as np

from variants.errors import InvalidArtifact, RuntimeFailed
from variants.metrics.answered import cell_counts, found_counts
from variants.metrics.metric import parse_metric
from variants.metrics.scoring import agreement, score
from workers.runtimes.protocol import Runtime, Tensor

BATCH = 32
OUT_OF_MEMORY = ("Failed to allocate memory", "bad_alloc", "bad allocation")
"""How ONNX Runtime says it."""
FIRST = 8
"""Rows of the first run, and of the next ones of a model that is slow."""
SLOW_S = 2.0
"""A model is slow that takes longer for these."""
Z = 1.959964
"""Normal quantile of a two-sided 95 % interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """How good a variant's answers are, on held-out rows."""

    accuracy: float
    """By the task's metric, in [0, 1]."""
    rows: int
    """That were judged."""
    agreement: float | None = None
    """Share of the rows that are answered as the reference does, in [0, 1]; None without one. What
    counts as the same depends on the metric: ``variants.metrics.scoring.agreement``."""
    note: str = ""
    """A clause for people, where the accuracy alone would mislead."""
    suspicion: str = ""
    """Another one on the model itself, where it would be far better if it were used otherwise
    (``profiler.evaluation.suspicions``)."""
    answered: list[int] = field(default_factory=list)
    """How many rows were answered by a class of each cell (``variants.metrics.answered``); empty
    where they are not answered by classes."""
    found: list[list[int]] = field(default_factory=list)
    """Of each cell, how many rows of its classes were answered right, and how many there are."""

    @property
    def found_pairs(self) -> tuple[tuple[int, int], ...]:
        """``found``, as variants have it."""
        return tuple((right, rows) for right, rows in self.found)


def wilson(right: int, rows: int) -> tuple[float, float]:
    """95 % score interval of a share (Wilson 1927); never outside [0, 1], sound near its ends."""
    share, square = right / rows, Z * Z / rows
    middle = (share + square / 2) / (1 + square)
    reach = Z / (1 + square) * sqrt(share * (1 - share) / rows + square / (4 * rows))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def interval_of(share: float, rows: int) -> tuple[float, float]:
    """The 95 % interval of a share that was counted on so many rows; all of [0, 1] on none."""
    return wilson(round(share * rows), rows) if rows else (0.0, 1.0)


def wants_memory(error: BaseException) -> bool:
    """Whether that is what a run failed for."""
    return isinstance(error, MemoryError) or any(said in str(error) for said in OUT_OF_MEMORY)


def answers(
    runtime: Runtime,
    rows: Sequence[Tensor],
    *,
    batch_size: int = BATCH,
    told: Callable[[int], None] = lambda _: None,
) -> Tensor:
    """The first output for all rows, ``(rows, *shape)``; all outputs are looked at.

    Args:
        runtime: loaded.
        rows: input tensors ``(rows, *shape)`` in the task's order.
        batch_size: rows per run; at most the largest that the runtime takes. Of a slow model it is
            less, so that it can be told how far it is, and where memory is short.
        told: called with the number of rows that are answered.

    Raises:
        InvalidArtifact: an output is not finite, or has another number of rows.
        RuntimeFailed: the runtime failed.
    """
    (first,) = outputs_of(runtime, rows, 1, batch_size, told=told)
    return first


def outputs_of(
    runtime: Runtime,
    rows: Sequence[Tensor],
    most: int | None,
    batch_size: int,
    *,
    first: int = FIRST,
    told: Callable[[int], None] = lambda _: None,
) -> list[Tensor]:
    """As ``answers``, of the first ``most`` outputs; None: of all. The first run has ``first`` rows
    at most."""
    kept: list[list[Tensor]] = []
    start, count, size = 0, len(rows[0]), min(first, batch_size)
    while start < count:
        began_s = time.perf_counter()
        batch = [np.ascontiguousarray(tensor[start : start + size]) for tensor in rows]
        try:
            outputs = runtime.run(batch)
        except (RuntimeFailed, MemoryError) as error:
            if size == 1 or not wants_memory(error):
                raise
            batch_size = size = size // 2  # so many rows are too many
            continue
        expected = len(batch[0])
        for output in outputs:
            _check(output, expected, start)
        kept.append([np.array(output) for output in outputs[:most]])
        start += expected
        told(start)
        if time.perf_counter() - began_s <= SLOW_S:
            size = batch_size
    return [np.concatenate(parts) for parts in zip(*kept, strict=True)]


def judge(
    outputs: Tensor,
    truth: Tensor,
    metric: str,
    reference: Tensor | None,
    along: int | None = None,
) -> Judgement:
    """Compare a first output ``(rows, *shape)`` with labels ``(rows,)`` or targets
    ``(rows, *shape)``, and with the reference's output ``(rows, *shape)``.

    Args:
        along: the axis of a row along which each position is judged by itself; labels are then
            ``(rows, positions)``.

    Raises:
        InvalidArtifact: there are too few rows for the metric.
        InvalidInput: there is no such metric.
    """
    by = parse_metric(metric)
    scored = score(by, outputs, truth, along)
    counts = by.classifies and along is None
    return Judgement(
        accuracy=scored.accuracy,
        rows=scored.rows,
        agreement=None if reference is None else agreement(by, outputs, reference, along, truth),
        note=scored.note,
        answered=cell_counts(outputs).tolist() if counts else [],
        found=found_counts(outputs, truth) if counts else [],
    )


def _check(output: Tensor, expected: int, start: int) -> None:
    """Refuse an output that is not ``(expected, ...)`` or not finite; ``start`` is its first
    row."""
    if output.ndim == 0 or len(output) != expected:
        raise InvalidArtifact(
            f"the model answers {expected} rows with an output of shape {output.shape}"
        )
    if output.dtype.kind in "fc" and not np.isfinite(output).all():
        row = start + int(np.argmin(np.isfinite(output).reshape(expected, -1).all(1)))
        raise InvalidArtifact(f"the model's output is not finite on evaluation row {row}")
