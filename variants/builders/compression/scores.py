"""What a model says of rows, whatever its graph ends in, and what it is to say.

Classifiers end in a softmax, in its logarithm or in bare logits. What is trained and taught are
logits: the scores before a final softmax where there is one, else the logarithm of probabilities.
Of other models it is the output that the task's metric judges, as it is.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from variants.builders.activations import observe, row_count, spread
from variants.builders.compression.graph import (
    attribute,
    blank,
    multiply_adds,
    producers,
    shapes,
)
from variants.builders.protocol import Rows
from variants.errors import VariantNotBuilt
from variants.metrics.metric import CLASSES, TARGETS, Judged
from variants.metrics.scoring import agreement, class_accuracy, score

Arrays = NDArray[Any]

RATE = 20e9
"""Multiply-adds a second that are planned with: two cores do so many. What is planned follows from
the model and the limit alone, so that the same build gives the same bytes; the clock ends only what
runs slower than this."""
TAUGHT_SHARE = 0.25
"""Share of the time for training that a teacher may take to answer the rows."""
TRIAL_ROWS = 512
TRIAL_WORK = 1e11
"""A trial has at most ``TRIAL_ROWS`` rows and takes at most ``TRIAL_WORK`` multiply-adds, but it
has 32 rows in any case."""
TINY = 1e-37
"""The smallest probability whose logarithm is taken: a float32 holds nothing normal below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The answers that rows should be given."""

    labels: Arrays | None
    """``(rows,)`` int64 indices of classes; float32 targets ``(rows, *shape)`` where the metric has
    some. None where the metric's labels are no answers of the model."""
    taught: Arrays | None = None
    """``(rows, classes)`` float32 logits of a teacher, or its output ``(rows, *shape)``."""
    deviation: Arrays | None = None
    """Standard deviation over the rows of each number of the answers, ``shape``; 1 where it is 0.
    Of classes there is none."""
    judged: Judged = CLASSES

    def known(self, chosen: Arrays) -> "Targets":
        """The labels or targets of the rows at the places ``chosen``, without what a teacher says.

        Raises:
            VariantNotBuilt: there are none.
        """
        if self.labels is None:
            raise VariantNotBuilt(
                f"the metric {self.judged.metric} has no targets to tell what matters by"
            )
        return replace(self, labels=self.labels[chosen], taught=None)


def training_targets(
    teacher: Any, rows: Rows, labels: Arrays | None, *, limit_s: float, judged: Judged = CLASSES
) -> tuple[Rows, Targets]:
    """Rows, and the teacher's answers to them, which also stand for labels that are not known.

    All rows, or as many evenly spread ones as the teacher can be asked about in its share of the
    time for training.

    Raises:
        VariantNotBuilt: the labels are not classes of the teacher, or it cannot be run; or its
            answers are judged position by position.
    """
    check_trainable(judged)
    work = max(1, sum(multiply_adds(teacher).values()))
    if not judged.metric.classifies:
        rows, chosen = spread(rows, max(1, int(TAUGHT_SHARE * limit_s * RATE / work)))
        taught = outputs_of(teacher, rows, judged).astype(np.float32)
        known = None
        if labels is not None and judged.metric.truth == TARGETS:
            known = labels[chosen].astype(np.float32)
        spread_out = np.asarray((taught if known is None else known).std(axis=0))
        deviation = np.where(spread_out > 0, spread_out, 1.0).astype(np.float32)
        return rows, Targets(labels=known, taught=taught, deviation=deviation, judged=judged)
    _, classes = scores_output(teacher)
    if labels is not None:
        labels = checked_labels(labels, rows, classes)
    rows, chosen = spread(rows, max(1, int(TAUGHT_SHARE * limit_s * RATE / work)))
    taught = logits_of(teacher, rows)
    known = taught.argmax(1) if labels is None else labels[chosen]
    return rows, Targets(labels=known, taught=taught)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Rows to judge answers on."""

    rows: Rows
    truth: Arrays
    """``(rows,)`` classes that count as right; else the labels or targets of the metric, where
    positions are judged one by one as ``variants.metrics.positions`` has them."""
    judged: Judged = CLASSES
    alike: bool = False
    """Whether ``truth`` are a model's own outputs, which others are to be like."""

    def right(self, model: Any) -> float:
        """Accuracy of a model on the rows: of a classifier by the classes that it answers."""
        metric, along = self.judged.metric, self.judged.along
        if metric.classifies and along is None:
            return class_accuracy(metric, answers(model, self.rows), self.truth)
        outputs = outputs_of(model, self.rows, self.judged)
        if self.alike:
            return agreement(metric, outputs, self.truth, along)
        return score(metric, outputs, self.truth, along).accuracy


def trial(model: Any, rows: Rows, labels: Arrays | None, judged: Judged = CLASSES) -> Trial | None:
    """Evenly spread rows to judge answers on, None if there are no rows. Where labels ``(rows,)``
    or targets ``(rows, *shape)`` are not given, the model's own answers count as right.

    Raises:
        VariantNotBuilt: the model cannot be run, or has no scores.
    """
    if not row_count(rows):
        return None
    work = max(1, sum(multiply_adds(model).values()))
    rows, chosen = spread(rows, int(min(TRIAL_ROWS, max(32, TRIAL_WORK / work))))
    if judged.metric.classifies and judged.along is None:
        truth = answers(model, rows) if labels is None else labels[chosen]
        return Trial(rows=rows, truth=truth, judged=judged)
    if labels is None:
        own = outputs_of(model, rows, judged)
        return Trial(rows=rows, truth=own, judged=judged, alike=True)
    return Trial(rows=rows, truth=labels[chosen], judged=judged)


def check_trainable(judged: Judged) -> None:
    """
    Raises:
        VariantNotBuilt: answers are judged position by position, which training knows nothing of.
    """
    if judged.along is not None:
        raise VariantNotBuilt("cannot be trained: each position of a row is judged by itself")


def output_name(model: Any, judged: Judged) -> str:
    """Name of the output that is judged, of a model that has no scores for a row as a whole."""
    return judged.output or str(model.graph.output[0].name)


def outputs_of(model: Any, rows: Rows, judged: Judged) -> Any:
    """``(rows, *shape)``: the output that is judged, of such a model."""
    return _whole(model, output_name(model, judged), rows)


def scores_output(model: Any) -> tuple[str, int]:
    """Name and number of classes of the first output that has one score per class.

    Raises:
        VariantNotBuilt: no output has.
    """
    from onnx import TensorProto

    one = shapes(model).one
    real = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
    for value in model.graph.output:
        shape = one[value.name]
        if value.type.tensor_type.elem_type in real and len(shape) == 2 and shape[1] > 1:
            return value.name, shape[1]
    raise VariantNotBuilt("cannot be trained: no output has one score per class")


def logits_of(model: Any, rows: Rows) -> Any:
    """``(rows, classes)`` logits that ONNX Runtime finds, float32."""
    name, logarithm = place_of_logits(model)
    found = _whole(model, name, rows).astype(np.float32)
    return np.log(np.maximum(found, np.float32(TINY))) if logarithm else found


def answers(model: Any, rows: Rows) -> Any:
    """``(rows,)`` classes with the highest scores."""
    return _whole(model, scores_output(model)[0], rows).argmax(1)


def _whole(model: Any, name: str, rows: Rows) -> Any:
    """One tensor for all rows: ``(rows, *shape)``."""
    return np.concatenate([found[name] for found in observe(model, [name], rows)])


def place_of_logits(model: Any) -> tuple[str, bool]:
    """A tensor of the graph, and whether its logarithm is the logits."""
    name, _ = scores_output(model)
    made = producers(model)
    node = made.get(name)
    while node is not None and node.op_type == "Identity":
        node = made.get(node.input[0])
    if node is not None and node.op_type in ("Softmax", "LogSoftmax"):
        along = attribute(node, "axis", -1)
        if along in (-1, 1):
            return node.input[0], False
    return name, _are_probabilities(model, name)


def _are_probabilities(model: Any, name: str) -> bool:
    """Whether scores of any rows lie in 0 to 1 and add up to 1; logits do not by chance."""
    random = np.random.default_rng(0)
    rows = {
        key: random.random(value.shape).astype(value.dtype) if value.dtype.kind == "f" else value
        for key, value in blank(model, 8).items()
    }
    found = _whole(model, name, rows)
    return bool((found >= 0).all() and np.allclose(found.sum(1), 1, atol=1e-3))


def checked_labels(labels: Arrays, rows: Rows, classes: int) -> Arrays:
    """``(rows,)`` int64 labels that are classes of the model.

    Raises:
        VariantNotBuilt: they are not, or not one for each row.
    """
    if labels.shape != (row_count(rows),) or labels.dtype.kind not in "iu":
        raise VariantNotBuilt("the training rows need one whole-numbered label each")
    if labels.size and not 0 <= labels.min() <= labels.max() < classes:
        raise VariantNotBuilt(f"a training label is not among the model's {classes} classes")
    return labels.astype(np.int64)
