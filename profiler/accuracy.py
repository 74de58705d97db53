"""How often a variant is right, on rows that nothing was trained or calibrated on."""

from collections.abc import Callable, Sequence

import numpy as np

from variants.errors import InvalidArtifact
from workers.runtime import Runtime, Tensor

BATCH = 32


def top1(scores: Tensor, labels: Tensor) -> int:
    """Rows whose highest score is at their label. ``scores`` is ``(rows, classes)``."""
    return int((np.argmax(scores, axis=1) == labels).sum())


METRICS: dict[str, Callable[[Tensor, Tensor], int]] = {"top1": top1}
"""Metric name to the number of rows that it counts as right, from the first output."""


def accuracy(
    runtime: Runtime,
    rows: Sequence[Tensor],
    labels: Tensor,
    *,
    metric: str = "top1",
    batch_size: int = BATCH,
) -> float:
    """Share of rows that the metric counts as right, in [0, 1].

    Args:
        runtime: loaded.
        rows: input tensors in the task's order, as many rows as labels.
        batch_size: rows per run; at most the largest profiled batch.

    Raises:
        InvalidArtifact: an output is not finite, or has another number of rows.
        RuntimeFailed: the runtime failed.
    """
    count = METRICS[metric]
    right = 0
    for start in range(0, len(labels), batch_size):
        chosen = slice(start, start + batch_size)
        outputs = runtime.run([tensor[chosen] for tensor in rows])
        expected = len(labels[chosen])
        for output in outputs:
            if output.ndim == 0 or len(output) != expected:
                raise InvalidArtifact(
                    f"the model answers {expected} rows with an output of shape {output.shape}"
                )
            if output.dtype.kind in "fc" and not np.isfinite(output).all():
                row = start + int(np.argmin(np.isfinite(output).reshape(expected, -1).all(1)))
                raise InvalidArtifact(f"the model's output is not finite on evaluation row {row}")
        right += count(outputs[0], labels[chosen])
    return right / len(labels)
