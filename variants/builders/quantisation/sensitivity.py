"""Which parts of a model lose most on 8 bits, and how few of them have to stay in fp32.

Answers on the calibration rows decide, and the task's accuracy floor says how good they have to be,
by the task's metric.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from variants.builders.activations import Tensors, first_outputs, spread
from variants.builders.quantisation.qdq import Quantiser
from variants.metrics.metric import CLASSES, TOP1, Judged, Metric
from variants.metrics.scoring import agreement, class_accuracy, score

UNASKED_ROWS = 64
"""The same where no floor says how good they have to be."""
ROWS = 512
"""Most rows that are answered for one count of right answers; 1 % of them is five rows."""
RANKING_ROWS = 16
"""Rows on which each unit's own error is found: an average over all outputs needs few."""
LOSS = 0.01
"""Accuracy that quantising may cost where the floor is out of reach anyway."""
LARGEST_SHARE = 0.5
"""Largest share of the units that may stay in fp32: with more, quantising gains nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """A quantised model, and what of it stayed in fp32."""

    model: Any
    """A ``ModelProto``."""
    kept: tuple[str, ...]
    """Units in fp32, the most sensitive first."""
    units: int
    right: float | None
    """Accuracy in [0, 1] on the calibration rows; None where it was not found out."""
    wanted: float | None
    """The accuracy that was to be reached."""

    @property
    def misses(self) -> bool:
        """Whether it was looked at, and is not reached."""
        return self.right is not None and self.wanted is not None and self.right < self.wanted


class Judge:
    """Judges answers on the calibration rows, by the task's metric: by labels or targets where they
    are known, else by what the fp32 model says. Of a classifier right answers are counted.

    Args:
        labels: ``(rows,)``, or targets ``(rows, *shape)``, as the metric wants them; or None. Where
            positions are judged one by one, they are as ``variants.metrics.positions`` has them.
    """

    def __init__(
        self,
        original: Any,
        rows: Tensors,
        labels: NDArray[Any] | None,
        judged: Judged = CLASSES,
        most: int = ROWS,
    ) -> None:
        self.rows, chosen = spread(rows, most)
        self._metric, self._output, self._along = judged.metric, judged.output, judged.along
        self._counts = judged.metric.classifies and judged.along is None
        self.outputs = self.answered(original, self.rows)
        known = labels is not None and len(labels) >= len(chosen)
        self._truth = labels[chosen] if labels is not None and known else None
        self.original = self._accuracy(self.outputs)
        """Of the fp32 model itself: 1 where it is what others are compared with, None where a
        classifier's first output has no classes, so that nothing can be judged."""

    def answered(self, model: Any, rows: Tensors) -> NDArray[Any]:
        """The output of a ``ModelProto`` that is judged, ``(rows, *shape)``."""
        return first_outputs(model, rows, None if self._counts else self._output)

    def share(self, model: Any) -> float:
        """Accuracy of a ``ModelProto``, in [0, 1]."""
        return self._accuracy(self.answered(model, self.rows)) or 0.0

    def _accuracy(self, outputs: NDArray[Any]) -> float | None:
        if self._counts:
            answers = _answers(outputs)
            if answers is None:
                return None
            right = _answers(self.outputs) if self._truth is None else self._truth
            return 0.0 if right is None else class_accuracy(self._metric, answers, right)
        if self._truth is None:
            return agreement(self._metric, outputs, self.outputs, self._along)
        return score(self._metric, outputs, self._truth, self._along).accuracy


def losses(right: float | None, wanted: float | None, best: str = "") -> str:
    """Why a variant is not built that loses too much where no floor says what may be lost."""
    ours, least = (f"{100 * (share or 0.0):.1f} %" for share in (right, wanted))
    return (
        f"its accuracy on the calibration rows is {ours}{best}, and {least} would be the least"
        " without a floor"
    )


def quantise(
    quantiser: Quantiser,
    rows: Tensors,
    labels: NDArray[Any] | None,
    floor: float | None,
    judged: Judged = CLASSES,
    *,
    loss: float | None = None,
    search: bool = True,
) -> Mixed:
    """Quantise as much as the floor allows, or without one as costs no more than ``loss``.

    Where fp32 itself is below the floor on these rows, ``LOSS`` less than it has is enough. Units
    are ranked by what quantising each of them alone does to the outputs; the worst are left out,
    more and more of them, until enough answers are right, then as many of those as possible are
    taken back. If the floor cannot be reached, the fewest that answer most are left out. Without
    ``search`` all are quantised, and only what comes of it is found out.

    Raises:
        VariantNotBuilt: quantising fails.
    """
    whole = quantiser.model()
    units = len(quantiser.units)
    if floor is None and loss is None:
        return Mixed(model=whole, kept=(), units=units, right=None, wanted=None)
    most = UNASKED_ROWS if floor is None else ROWS
    judge = Judge(quantiser.original, rows, labels, judged, most)
    if judge.original is None:
        return Mixed(model=whole, kept=(), units=units, right=None, wanted=None)
    if floor is None:
        wanted = judge.original - (loss or 0.0)
    else:
        wanted = floor if judge.original >= floor else judge.original - LOSS
    found = Mixed(model=whole, kept=(), units=units, right=judge.share(whole), wanted=wanted)
    if not search or not found.misses:
        return found
    return _search(quantiser, judge, found, wanted)


def _search(quantiser: Quantiser, judge: Judge, best: Mixed, wanted: float) -> Mixed:
    ranked = ranking(quantiser, judge)
    most = int(len(ranked) * LARGEST_SHARE)

    def leaving(count: int) -> Mixed:
        kept = tuple(ranked[:count])
        model = quantiser.model(kept)
        return replace(best, model=model, kept=kept, right=judge.share(model), wanted=wanted)

    below, count = 0, 1
    while count <= most:
        tried = leaving(count)
        if (tried.right or 0.0) > (best.right or 0.0):
            best = tried
        if (tried.right or 0.0) >= wanted:
            break
        below, count = count, min(count * 2, most) if count < most else most + 1
    else:
        return best
    while count - below > 1:
        middle = (below + count) // 2
        tried = leaving(middle)
        if (tried.right or 0.0) >= wanted:
            best, count = tried, middle
        else:
            below = middle
    return best


def ranking(quantiser: Quantiser, judge: Judge) -> list[str]:
    """Names of the units, the one whose quantisation alone changes the outputs most first.

    The measure is noise over signal: the squared change of the first output over its variance.
    """
    rows, chosen = spread(judge.rows, RANKING_ROWS)
    true = judge.outputs[chosen].astype(np.float64)
    signal = float(np.var(true)) or 1.0
    noise: dict[str, float] = {}
    names = [unit.name for unit in quantiser.units]
    for name in names:
        alone = quantiser.model([other for other in names if other != name])
        change = judge.answered(alone, rows).astype(np.float64) - true
        noise[name] = float(np.mean(change**2)) / signal
    return sorted(names, key=lambda name: -noise[name])


def describe(mixed: Mixed, skipped: Sequence[str] = (), metric: Metric = TOP1) -> str:
    """One clause for people: ``3 of 21 nodes in fp32: conv_1, conv_2, conv_7``.

    ``skipped`` are nodes that could be quantised but are quicker as they are.
    """
    total = mixed.units + len(skipped)
    said = []
    kept = (*mixed.kept, *skipped)
    if kept:
        named = ", ".join(kept[:NAMED]) + (", ..." if len(kept) > NAMED else "")
        said.append(f"{len(kept)} of {total} nodes in fp32: {named}")
    if skipped and not mixed.kept:
        said[-1] += ", quicker so"
    if mixed.misses:
        right, wanted = (f"{100 * (share or 0.0):.1f} %" for share in (mixed.right, mixed.wanted))
        said.append(
            f"right on {right} of the calibration rows, where {wanted} are asked for"
            if metric.classifies and metric.counts_rows
            else f"{metric} of {right} on the calibration rows, where {wanted} is asked for"
        )
    return "; ".join(said)


NAMED = 8
"""Nodes that a note names; the rest is counted."""


def _answers(outputs: NDArray[Any]) -> NDArray[Any] | None:
    """The class of each row, from scores ``(rows, classes)`` or from classes ``(rows,)``."""
    if outputs.ndim == 2 and outputs.shape[1] > 1 and outputs.dtype.kind == "f":
        return np.asarray(outputs.argmax(1))
    if outputs.ndim == 1 and outputs.dtype.kind in "iub":
        return outputs
    return None
