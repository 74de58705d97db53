"""Which metrics there are, how they are written, and what a task and its rows need for each."""

import re
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from variants.errors import InvalidInput
from variants.types import TensorSpec

LABELS = "labels"
"""Array of a file of rows with the right class of each, ``(rows,)``."""
TARGETS = "targets"
"""Array of a file of rows with the right first output of each, ``(rows, *shape)``."""

LARGEST_TOLERANCE = 1e30
"""A larger one would ask for nothing: a float32 holds little more."""


class MetricKind(StrEnum):
    TOP1 = "top1"
    TOP5 = "top5"
    BALANCED = "balanced"
    F1 = "f1"
    WITHIN = "within"
    R2 = "r2"
    COSINE = "cosine"
    NEAREST = "nearest"


_OF_CLASSES = (MetricKind.TOP1, MetricKind.TOP5, MetricKind.BALANCED, MetricKind.F1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """How the accuracy of a task's models is counted; ``str`` is how the catalog writes it."""

    kind: MetricKind
    tolerance: float = 0.0
    """Of ``within`` alone: in the units of the first output, or in percent of the target."""
    relative: bool = False
    """Whether the tolerance is in percent of the target."""

    def __str__(self) -> str:
        return f"{self.kind}:{self._tolerance}" if self.kind is MetricKind.WITHIN else self.kind

    @property
    def _tolerance(self) -> str:
        """``0.5`` or ``5%``, with as many digits as the number has."""
        return repr(self.tolerance).removesuffix(".0") + ("%" if self.relative else "")

    @property
    def classifies(self) -> bool:
        """Whether the first output has a score for each class."""
        return self.kind in _OF_CLASSES

    @property
    def by_class(self) -> bool:
        """Whether each class counts alike, however many rows it has."""
        return self.kind in (MetricKind.BALANCED, MetricKind.F1)

    @property
    def counts_rows(self) -> bool:
        """Whether the accuracy is a share of the rows, each of which is right or wrong."""
        return not self.by_class and self.kind not in (MetricKind.R2, MetricKind.COSINE)

    @property
    def truth(self) -> str:
        """The array that a file of rows has beside the inputs: ``LABELS`` or ``TARGETS``."""
        return LABELS if self.classifies or self.kind is MetricKind.NEAREST else TARGETS

    def means(self, *, by_position: bool = False) -> str:
        """What an accuracy by this metric is, in a clause.

        Args:
            by_position: whether each position of a row is judged by itself.
        """
        one, many = ("position", "positions") if by_position else ("row", "rows")
        return _MEANS[self.kind].format(one=one, many=many, tolerance=self._tolerance)


TOP1 = Metric(kind=MetricKind.TOP1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What of a model is judged."""

    metric: Metric = TOP1
    output: str | None = None
    """Name of the output that the metric is of; None: the model's first one."""
    along: int | None = None
    """The axis of a row of that output along which each position is judged by itself; None: a row
    is judged as a whole."""


CLASSES = Judged()
"""The first output has the scores of a classifier."""

_MEANS = {
    MetricKind.TOP1: "share of the {many} whose highest score is that of the right class",
    MetricKind.TOP5: "share of the {many} whose right class has one of the five highest scores",
    MetricKind.BALANCED: "mean over the classes of the share of their {many} whose highest score is"
    " theirs (balanced accuracy)",
    MetricKind.F1: "mean over the classes of F1, which is high where their {many} are found and no"
    " others are taken for them",
    MetricKind.WITHIN: "share of the {many} of which every number is within {tolerance} of its"
    " target",
    MetricKind.R2: "coefficient of determination (R²) of the targets, 0 where it is negative",
    MetricKind.COSINE: "mean cosine similarity of vector and target, 0 where it is negative",
    MetricKind.NEAREST: "share of the {many} whose nearest other {one}, by cosine, has the same"
    " label",
}

_WITHIN = re.compile(r"within:(?P<number>[0-9.eE+-]{1,40})(?P<percent>%?)")
WRITTEN = (
    "top1, top5, balanced, f1, within:T (such as within:0.5 or within:5%), r2, cosine, nearest"
)
"""All metrics, as they are written."""


def parse_metric(text: str) -> Metric:
    """The metric that a text names.

    Raises:
        InvalidInput: there is none of that name, or its tolerance is no positive number.
    """
    if text == MetricKind.WITHIN or text.startswith(f"{MetricKind.WITHIN}:"):
        return _within(text)
    try:
        return Metric(kind=MetricKind(text))
    except ValueError:
        raise InvalidInput(f"there is no metric {text[:128]!r}; there are: {WRITTEN}") from None


def _within(text: str) -> Metric:
    found = _WITHIN.fullmatch(text)
    try:
        number = float(found["number"]) if found else 0.0
    except ValueError:
        number = 0.0
    if found is None or not isfinite(number) or not 0 < number <= LARGEST_TOLERANCE:
        raise InvalidInput(
            f"metric {text[:128]!r} needs a positive tolerance: within:0.5 in the units of the "
            "targets, or within:5% of each target"
        )
    return Metric(kind=MetricKind.WITHIN, tolerance=number, relative=found["percent"] == "%")


def check_output(metric: Metric, spec: TensorSpec, along: int | None = None) -> str | None:
    """Why a task of this metric cannot have such a first output, in a clause; None when it can.

    A classifier has a score for each class; the others have real numbers of any shape.

    Args:
        along: the axis of a row along which each position is judged by itself. Classes stand behind
            it, and what compares directions needs a vector at each position.
    """
    real = spec.dtype.startswith("float")
    if along is not None:
        if metric.classifies:
            fits = along == 0 and len(spec.shape) == 2 and spec.shape[1] >= 2 and real
            return None if fits else "must be scores, float [batch, positions, classes]"
        vectors = metric.kind in (MetricKind.COSINE, MetricKind.NEAREST)
        if vectors and len(spec.shape) < 2:
            return f"must have a vector for each position for the metric {metric}"
    elif metric.classifies:
        if len(spec.shape) == 1 and spec.shape[0] >= 2 and real:
            return None
        return "must be scores, float [batch, classes]"
    return None if real else f"must be of real numbers for the metric {metric}"
