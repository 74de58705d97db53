"""What metrics compute: accuracy in [0, 1] from a first output, and how alike two answer.

Outputs are ``(rows, *shape)`` and finite. Behind the first axis they are taken as one list of
numbers. Everything is computed in float64.

Where each position of a row is judged by itself (``along``, an axis of a row), positions stand for
rows in all of this. Outputs and targets are then those of the positions that are judged
(``variants.metrics.positions``), and what counts as so many judged rows are still rows: positions
of one row are not independent of each other, so an interval from their number would be too narrow.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from variants.errors import InvalidArtifact
from variants.figures import counted, figure
from variants.metrics.metric import Metric, MetricKind
from variants.metrics.positions import at_positions, judged_positions, truth_at

Array = NDArray[Any]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

NEAREST_ROWS = 4_096
"""Most rows among which neighbours are looked for, evenly spread over those given: the work grows
with their square."""
NEAREST_BLOCK = 256
"""Rows whose neighbours are looked for at a time."""
SAME_SPREAD = 0.05
"""By ``r2``, a row is answered as the model itself does if each number differs by at most this part
of the number's standard deviation over the rows. Such differences, if nothing else goes with them,
cost 0.0025 of R²."""
SAME_COSINE = 0.999
"""By ``cosine`` and ``nearest``, a row is answered as the model itself does if the vectors have at
least this cosine: 2.6 degrees."""
ROUNDING = 1e-6
"""By ``r2``, differences of at most this part of the largest answer are the same all the same."""

RARE = 10
"""A class with fewer rows is told of, where each class counts alike."""
COUNTS_AS_0 = ", which counts as 0"
"""How the note of a score below 0 ends."""
RAREST_HAS, CLASSES_WITHOUT = "its rarest class has ", " classes without a row"
"""How the notes of classes with few rows begin and end."""
THE_MODELS = " the model's own"
"""How the note of an output ends that no metric judges, and that is not as the model gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """How good answers are."""

    accuracy: float
    rows: int
    """That were judged."""
    note: str = ""
    """A clause for people, where the number alone would mislead."""


def score(metric: Metric, outputs: Array, truth: Array, along: int | None = None) -> Scored:
    """Judge a first output ``(rows, *shape)`` by labels ``(rows,)`` or targets ``(rows, *shape)``;
    with ``along`` by labels ``(rows, positions)`` or targets, position by position.

    Raises:
        InvalidArtifact: there are too few rows for the metric.
    """
    if along is None:
        return _score(metric, outputs, truth)
    flags = judged_positions(truth, along)
    rows = int(flags.any(axis=1).sum())
    if metric.kind is MetricKind.NEAREST:  # before they are copied
        flags = _only(flags, _spread(int(flags.sum()), NEAREST_ROWS))
    found = _score(metric, at_positions(outputs, flags, along), truth_at(truth, flags, along))
    return replace(found, rows=rows)


def _only(flags: Flags, chosen: NDArray[np.intp]) -> Flags:
    """Of the places that are marked only those of these numbers."""
    kept = np.zeros(flags.size, np.bool_)
    kept[np.flatnonzero(flags)[chosen]] = True
    return kept.reshape(flags.shape)


def _score(metric: Metric, outputs: Array, truth: Array) -> Scored:
    match metric.kind:
        case MetricKind.TOP1:
            return _share(top1(outputs, truth), len(truth))
        case MetricKind.TOP5:
            return _share(top5(outputs, truth), len(truth))
        case MetricKind.BALANCED | MetricKind.F1:
            found = class_accuracy(metric, np.argmax(outputs, axis=1), truth)
            return Scored(accuracy=found, rows=len(truth), note=_rarest(outputs.shape[1], truth))
        case MetricKind.WITHIN:
            return _share(int(within(metric, outputs, truth).sum()), len(truth))
        case MetricKind.NEAREST:
            chosen = _spread(len(truth), NEAREST_ROWS)
            return _share(int(nearest(outputs[chosen], truth[chosen]).sum()), len(chosen))
        case MetricKind.R2:
            return _clipped("R²", r2(outputs, truth), len(truth))
        case MetricKind.COSINE:
            cosine = float(cosines(outputs, truth).mean())
            return _clipped("the mean cosine similarity", cosine, len(truth))


def is_of_rare_classes(clause: str) -> bool:
    """Whether a clause of a variant's note says that a class had few rows or none."""
    return clause.startswith(RAREST_HAS) or clause.endswith(CLASSES_WITHOUT)


def is_of_score(clause: str) -> bool:
    """Whether a clause of a variant's note comes from judging it."""
    return clause.endswith((COUNTS_AS_0, THE_MODELS)) or is_of_rare_classes(clause)


def agreement(
    metric: Metric,
    outputs: Array,
    reference: Array,
    along: int | None = None,
    truth: Array | None = None,
) -> float:
    """The share of the rows that ``outputs`` answer as ``reference`` does, both ``(rows, *shape)``;
    with ``along`` of the positions, of all or of those that ``truth`` judges.

    What counts as the same, by the task's metric:

    - ``top1``, ``top5``, ``balanced``, ``f1``: the best class is the same.
    - ``within``: every number is within the tolerance of the reference's.
    - ``r2``: every number differs by at most ``SAME_SPREAD`` of its standard deviation over the
      rows of the reference.
    - ``cosine``, ``nearest``: the vectors have a cosine of at least ``SAME_COSINE``, or both are
      zero.
    """
    if along is not None:
        flags = (
            np.ones((len(outputs), outputs.shape[along + 1]), np.bool_)
            if truth is None
            else judged_positions(truth, along)
        )
        outputs, reference = (at_positions(one, flags, along) for one in (outputs, reference))
    return float(_same(metric, outputs, reference).mean())


def _same(metric: Metric, outputs: Array, reference: Array) -> Flags:
    if metric.classifies:
        return np.asarray(np.argmax(outputs, axis=1) == np.argmax(reference, axis=1))
    if metric.kind is MetricKind.WITHIN:
        return within(metric, outputs, reference)
    given, wanted = flat(outputs), flat(reference)
    if metric.kind is MetricKind.R2:
        with np.errstate(over="ignore", invalid="ignore"):
            allowed = SAME_SPREAD * wanted.std(axis=0) + ROUNDING * np.abs(wanted).max(initial=0.0)
            return np.asarray((np.abs(given - wanted) <= allowed).all(axis=1))
    both_zero = ~given.any(axis=1) & ~wanted.any(axis=1)
    return np.asarray((cosines(given, wanted) >= SAME_COSINE) | both_zero)


def constant(metric: Metric, truth: Array, along: int | None = None) -> float:
    """The accuracy of a model that answers every row the same, as well as such a model can; of
    ``within``, that of one which always answers the median. ``truth`` is as for ``score``, and with
    ``along`` every position is answered the same."""
    if along is not None:
        truth = truth_at(truth, judged_positions(truth, along), along)
    match metric.kind:
        case MetricKind.R2:
            return 0.0
        case MetricKind.WITHIN:
            middle = np.broadcast_to(np.median(flat(truth), axis=0), flat(truth).shape)
            return float(within(metric, middle, flat(truth)).mean())
        case MetricKind.COSINE:
            # The mean of t·c over unit vectors t is largest for c along their mean.
            return float(np.linalg.norm(_directions(flat(truth)).mean(axis=0)))
        case MetricKind.BALANCED:
            return 1.0 / len(np.unique(truth))
        case MetricKind.F1:
            rows = np.unique(truth, return_counts=True)[1]
            return float((2 * rows / (len(truth) + rows)).max() / len(rows))
        case MetricKind.TOP5:
            return float(np.sort(np.unique(truth, return_counts=True)[1])[-5:].sum() / len(truth))
        case MetricKind.TOP1 | MetricKind.NEAREST:
            return float(np.unique(truth, return_counts=True)[1].max() / len(truth))


# -- by class --------------------------------------------------------------------------------------


def top1(scores: Array, labels: Array) -> int:
    """Number of rows with the highest score at their label. ``scores`` is ``(rows, classes)``,
    ``labels`` is ``(rows,)``."""
    return int((np.argmax(scores, axis=1) == labels).sum())


def top5(scores: Array, labels: Array) -> int:
    """Number of rows with their label among the five highest scores; the first class wins a tie, as
    in top1. ``scores`` is ``(rows, classes)``, ``labels`` is ``(rows,)``."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    return int((best == labels[:, None]).any(axis=1).sum())


def class_accuracy(metric: Metric, answers: Array, labels: Array) -> float:
    """The accuracy of answers by a metric of classes; both are classes, ``(rows,)``.

    ``top5`` counts as ``top1``, as there is one answer for each row.
    """
    if metric.kind is MetricKind.BALANCED:
        return balanced(answers, labels)
    if metric.kind is MetricKind.F1:
        return macro_f1(answers, labels)
    return float(np.mean(answers == labels))


def balanced(answers: Array, labels: Array) -> float:
    """The mean over the classes that have rows of the share of their rows that is answered rightly.

    Brodersen and others, *The Balanced Accuracy and Its Posterior Distribution* (ICPR 2010), and
    ``sklearn.metrics.balanced_accuracy_score``. Both are ``(rows,)``.
    """
    classes, place, rows = np.unique(labels, return_inverse=True, return_counts=True)
    right = np.bincount(place[answers == labels], minlength=len(classes))
    return float((right / rows).mean())


def macro_f1(answers: Array, labels: Array) -> float:
    """The mean of F1 over the classes that have rows or are answered: twice the rows that are
    rightly answered so, over those that have the class and those that are answered so.

    Van Rijsbergen, *Information Retrieval* (1979), each class by itself, as in
    ``sklearn.metrics.f1_score`` with ``average="macro"``. Both are ``(rows,)``.
    """
    classes, places = np.unique(np.concatenate([labels, answers]), return_inverse=True)
    own, said = places[: len(labels)], places[len(labels) :]
    right = np.bincount(own[own == said], minlength=len(classes))
    return float((2 * right / np.bincount(places)).mean())


def _rarest(classes: int, labels: Array) -> str:
    """A clause where some class has hardly a row, so that chance decides of it; else empty."""
    rows = np.unique(labels, return_counts=True)[1]
    if (without := classes - len(rows)) > 0:
        return f"{without} of {classes}{CLASSES_WITHOUT}"
    least = int(rows.min())
    return f"{RAREST_HAS}{counted(least, 'row')}" if least < RARE else ""


# -- by number -------------------------------------------------------------------------------------


def within(metric: Metric, outputs: Array, targets: Array) -> Flags:
    """Which rows ``(rows,)`` have every number within the tolerance of its target.

    The share of such rows is the accuracy at an error tolerance of Bi and Bennett, *Regression
    Error Characteristic Curves* (ICML 2003), by the absolute deviation. With a tolerance in percent
    of the target it is PRED of Conte, Dunsmore and Shen, *Software Engineering Metrics and Models*
    (1986). Of several numbers a row, the worst one counts.
    """
    given, wanted = flat(outputs), flat(targets)
    with np.errstate(over="ignore"):  # a difference beyond float64 is too large in any case
        allowed = metric.tolerance * (np.abs(wanted) / 100 if metric.relative else 1.0)
        return np.asarray((np.abs(given - wanted) <= allowed).all(axis=1))


def r2(outputs: Array, targets: Array) -> float:
    """The coefficient of determination, 1 - Σ(y - ŷ)² / Σ(y - ȳ)²: at most 1, 0 for always saying
    the mean, and without a lower end. Over several numbers a row it is the mean of theirs.

    It is the first of the definitions in Kvålseth, *Cautionary Note about R²* (The American
    Statistician 39(4), 1985), the one that is recommended there, and ``sklearn.metrics.r2_score``:
    targets that do not vary have 1 where they are met exactly, else 0.

    Raises:
        InvalidArtifact: there are fewer than two rows.
    """
    given, wanted = flat(outputs), flat(targets)
    if len(wanted) < 2:
        raise InvalidArtifact("the metric r2 needs at least two evaluation rows")
    # By columns of the same size, so that no square overflows.
    size = np.maximum(np.abs(wanted).max(axis=0), np.abs(given).max(axis=0))
    size[size == 0] = 1.0
    given, wanted = given / size, wanted / size
    residual = ((wanted - given) ** 2).sum(axis=0)
    total = ((wanted - wanted.mean(axis=0)) ** 2).sum(axis=0)
    varies = wanted.max(axis=0) > wanted.min(axis=0)
    each = np.where(residual == 0, 1.0, 0.0)
    each[varies] = 1.0 - residual[varies] / total[varies]
    return float(each.mean())


# -- by vector -------------------------------------------------------------------------------------


def cosines(outputs: Array, targets: Array) -> Floats:
    """The cosine similarity of each row's vector with its target, ``(rows,)`` in [-1, 1].

    x·y / (|x| |y|), as in Salton and McGill, *Introduction to Modern Information Retrieval* (1983).
    A vector that is zero has no direction: its row counts 0, as in scikit-learn. As a target it is
    refused where rows are read.
    """
    products = _directions(flat(outputs)) * _directions(flat(targets))
    return np.asarray(np.clip(products.sum(axis=1), -1.0, 1.0))


def nearest(outputs: Array, labels: Array) -> Flags:
    """Which rows ``(rows,)`` have the label of their nearest other row, by cosine similarity.

    The share of such rows is the accuracy of the nearest-neighbour rule of Cover and Hart, *Nearest
    Neighbor Pattern Classification* (IEEE Transactions on Information Theory 13(1), 1967), each row
    left out in turn; where embeddings are compared it is called Recall@1 (Oh Song and others, *Deep
    Metric Learning via Lifted Structured Feature Embedding*, CVPR 2016). Of several rows that are
    as near, the first one counts. A vector that is zero has a similarity of 0 to all.

    Raises:
        InvalidArtifact: there are fewer than two rows.
    """
    vectors = _directions(flat(outputs))
    count = len(vectors)
    if count < 2:
        raise InvalidArtifact("the metric nearest needs at least two evaluation rows")
    found = np.empty(count, np.intp)
    for start in range(0, count, NEAREST_BLOCK):
        rows = np.arange(start, min(count, start + NEAREST_BLOCK))
        similar = vectors[rows] @ vectors.T
        similar[rows - start, rows] = -np.inf  # itself
        found[rows] = similar.argmax(axis=1)
    return np.asarray(labels[found] == labels)


def flat(values: Array) -> Floats:
    """Numbers ``(rows, *shape)`` as float64 ``(rows, count)``; one number a row has one column."""
    return values.reshape(len(values), -1).astype(np.float64)


def _directions(vectors: Floats) -> Floats:
    """Vectors ``(rows, count)`` of length 1; those that are zero stay so."""
    size = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    scaled = vectors / np.where(size > 0, size, 1.0)  # or squares would overflow, or vanish
    length = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.asarray(scaled / np.where(length > 0, length, 1.0))


def _spread(count: int, most: int) -> NDArray[np.intp]:
    """At most so many of ``count`` places, evenly spread."""
    return np.unique(np.linspace(0, max(0, count - 1), min(count, most)).astype(np.intp))


def _share(right: int, rows: int) -> Scored:
    return Scored(accuracy=right / rows, rows=rows)


def _clipped(what: str, value: float, rows: int) -> Scored:
    """``value`` in [0, 1], with a note where it was below."""
    note = f"{what} is {figure(value, 3)}{COUNTS_AS_0}" if value < 0 else ""
    return Scored(accuracy=min(1.0, max(0.0, value)), rows=rows, note=note)
