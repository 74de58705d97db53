"""Evidence: what clients said lately of a variant's answers, and whether it contradicts what was
measured.

The rows of a measurement are of the day on which they were put aside. What is asked later may be
other: a camera was moved, words have changed their meaning, a season has begun. Then the accuracy
in the catalog says little of what clients get, and nobody is told, unless clients say which answers
were right.

The share of right rows has a confidence sequence (``planner.canary.sequences``), which holds
however often one looks, and so has a mean over classes (``by_class``). Where all of it is further
than ``MARGIN`` from what was measured, clients do not get what the catalog promises, whether the
world has changed or the measurement was lucky. Then what was said counts until that is so no more,
or it is forgotten. It is kept in two spans of time or rows: the last one that is complete, and the
one since. So what counts is between one and two of them old, and a variant that nobody asks any
more, because it was found bad, is tried again later.
"""

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from planner.canary.sequences import bounds
from planner.feedback.by_class import ByClass, Said, mean_bounds, mean_of, rows_of
from variants.figures import apart, counted
from variants.metrics.metric import TOP1, Metric, MetricKind

SPAN_S = 1_800.0
SPAN_ROWS = 2_000
ERROR = 1e-4
"""The chance, for each span that begins, that what was said contradicts by chance: of a variant
with 48 spans a day at most once in half a year."""
MARGIN = 0.01
"""A point more or less is not worth another choice."""
STEP = 0.005
"""By so much has the share to move, or twice as many rows to be known, before another one counts:
each makes a new plan."""


class Finding(NamedTuple):
    """What was said of a variant, where it contradicts what was measured."""

    accuracy: float
    """The share of the rows that were right, or the metric over the classes."""
    rows: int
    """Of which clients have said it."""


@dataclass(slots=True)
class _Span:
    right: int = 0
    wrong: int = 0
    classes: dict[int, Said] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return self.right + self.wrong

    def add(self, right: int, wrong: int, classes: ByClass) -> None:
        self.right += right
        self.wrong += wrong
        for number, said in classes.items():
            known = self.classes.get(number, Said(0, 0, 0))
            self.classes[number] = Said(*map(sum, zip(known, said, strict=True)))

    def plain(self) -> list[Any]:
        return [self.right, self.wrong]

    def plain_classes(self) -> list[list[int]]:
        return [[number, *said] for number, said in self.classes.items()]

    @classmethod
    def of(cls, kept: Any, classes: Any) -> "_Span":
        right, wrong = map(int, kept)
        by_class = {int(number): Said(*map(int, said)) for number, *said in classes}
        return cls(right, wrong, by_class)


class Evidence:
    """Of one variant."""

    def __init__(self) -> None:
        self._before, self._now = _Span(), _Span()
        self._since_s: float | None = None
        self.finding: Finding | None = None
        """None: what was said is what was measured, within chance, or too little."""
        self._judged: tuple[float, Metric, int] | None = None
        """What it was compared with last; None where more was said or forgotten since."""

    def add(
        self, right: int, wrong: int, now_s: float, classes: ByClass = MappingProxyType({})
    ) -> None:
        """Take in rows that were right and wrong, and by class where each counts alike."""
        self._pass(now_s)
        if self._since_s is None:
            self._since_s = now_s
        self._now.add(right, wrong, classes)
        self._judged = None

    def judge(self, measured: float, now_s: float, metric: Metric = TOP1, classes: int = 0) -> bool:
        """Compare with the accuracy in the catalog; whether ``finding`` has changed.

        Args:
            metric: by which it was measured: a share of rows, or a mean over so many ``classes``.
        """
        self._pass(now_s)
        if self._judged == (measured, metric, classes):
            return False
        self._judged = measured, metric, classes
        before, self.finding = self.finding, self._found(measured, metric, classes)
        if before is None or self.finding is None:
            return before is not self.finding
        moved = abs(self.finding.accuracy - before.accuracy) >= STEP
        if not moved and self.finding.rows < 2 * before.rows:
            self.finding = before
        return self.finding is not before

    @property
    def rows(self) -> int:
        """Rows that count now."""
        return self._before.rows + self._now.rows

    def plain(self) -> dict[str, Any]:
        """The same in numbers, to be kept."""
        return {
            "before": self._before.plain(),
            "now": self._now.plain(),
            "before_classes": self._before.plain_classes(),
            "now_classes": self._now.plain_classes(),
            "since_s": self._since_s,
            "finding": self.finding,
        }

    @classmethod
    def of(cls, kept: dict[str, Any]) -> "Evidence":
        """What was kept.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        made = cls()
        # An earlier release kept nothing of classes.
        made._before = _Span.of(kept["before"], kept.get("before_classes", ()))
        made._now = _Span.of(kept["now"], kept.get("now_classes", ()))
        since_s, finding = kept["since_s"], kept["finding"]
        made._since_s = None if since_s is None else float(since_s)
        if finding is not None:
            accuracy, rows = finding
            made.finding = Finding(float(accuracy), int(rows))
        return made

    def _found(self, measured: float, metric: Metric, classes: int) -> Finding | None:
        if metric.by_class:
            return self._found_by_class(measured, metric, classes)
        right, rows = self._before.right + self._now.right, self.rows
        if not rows or abs(right / rows - measured) <= MARGIN:  # what was seen is never outside
            return None
        low, high = bounds(right, rows, ERROR)
        return Finding(right / rows, rows) if _excludes(low, high, measured) else None

    def _found_by_class(self, measured: float, metric: Metric, classes: int) -> Finding | None:
        both = _Span(classes=dict(self._before.classes))
        both.add(0, 0, self._now.classes)
        said, rows = both.classes, rows_of(both.classes)
        if not rows or abs((found := mean_of(metric, said)) - measured) <= MARGIN:
            return None
        low, high = mean_bounds(metric, said, classes, ERROR)
        return Finding(found, rows) if _excludes(low, high, measured) else None

    def _pass(self, now_s: float) -> None:
        """Begin a new span where the one before is over."""
        if self._since_s is None:
            return
        passed_s = now_s - self._since_s
        if passed_s < 0.0:  # the clock was set back
            self._since_s = now_s
        elif passed_s >= 2 * SPAN_S:
            self._before, self._now, self._since_s = _Span(), _Span(), None
            self._judged = None
        elif passed_s >= SPAN_S or self._now.rows >= SPAN_ROWS:
            self._before, self._now = self._now, _Span()
            self._since_s = min(now_s, self._since_s + SPAN_S)
            self._judged = None


def _excludes(low: float, high: float, measured: float) -> bool:
    """Whether all of an interval is further than ``MARGIN`` from what was measured."""
    return low > measured + MARGIN or high < measured - MARGIN


def words(finding: Finding, measured: float, measured_rows: int, metric: Metric = TOP1) -> str:
    """What was found, beside what was measured."""
    said, was = apart(100 * finding.accuracy, 100 * measured)
    rows = counted(finding.rows, "row")
    if metric.by_class:
        name = "balanced accuracy" if metric.kind is MetricKind.BALANCED else "macro F1"
        return f"{name} {said} % on {rows} by feedback, {was} % on {measured_rows:,} when measured"
    return f"right {said} % of {rows} by feedback, {was} % of {measured_rows:,} when measured"
