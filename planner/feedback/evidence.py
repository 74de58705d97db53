"""Evidence: what clients said lately of a variant's answers, and whether it contradicts what was
measured.

The rows of a measurement are of the day on which they were put aside. What is asked later may be
other: a camera was moved, words have changed their meaning, a season has begun. Then the accuracy
in the catalog says little of what clients get, and nobody is told, unless clients say which answers
were right.

The share of right rows has a confidence sequence (``planner.canary.sequences``), which holds
however often one looks. Where all of it is further than ``MARGIN`` from what was measured, clients
do not get what the catalog promises, whether the world has changed or the measurement was lucky.
Then what was said counts until that is so no more, or it is forgotten. It is kept in two spans of
time or rows: the last one that is complete, and the one since. So what counts is between one and
two of them old, and a variant that nobody asks any more, because it was found bad, is tried again
later.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from planner.canary.sequences import bounds
from variants.figures import apart, counted

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
    """The share of the rows that were right."""
    rows: int
    """Of which clients have said it."""


@dataclass(slots=True)
class _Span:
    right: int = 0
    wrong: int = 0

    @property
    def rows(self) -> int:
        return self.right + self.wrong


class Evidence:
    """Of one variant."""

    def __init__(self) -> None:
        self._before, self._now = _Span(), _Span()
        self._since_s: float | None = None
        self.finding: Finding | None = None
        """None: what was said is what was measured, within chance, or too little."""

    def add(self, right: int, wrong: int, now_s: float) -> None:
        """Take in rows that were right and wrong."""
        self._pass(now_s)
        if self._since_s is None:
            self._since_s = now_s
        self._now.right += right
        self._now.wrong += wrong

    def judge(self, measured: float, now_s: float) -> bool:
        """Compare with the accuracy in the catalog; whether ``finding`` has changed."""
        self._pass(now_s)
        before, self.finding = self.finding, self._found(measured)
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
            "before": [self._before.right, self._before.wrong],
            "now": [self._now.right, self._now.wrong],
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
        made._before = _Span(*map(int, kept["before"]))
        made._now = _Span(*map(int, kept["now"]))
        since_s, finding = kept["since_s"], kept["finding"]
        made._since_s = None if since_s is None else float(since_s)
        if finding is not None:
            accuracy, rows = finding
            made.finding = Finding(float(accuracy), int(rows))
        return made

    def _found(self, measured: float) -> Finding | None:
        right, rows = self._before.right + self._now.right, self.rows
        if not rows or abs(right / rows - measured) <= MARGIN:  # what was seen is never outside
            return None
        low, high = bounds(right, rows, ERROR)
        if low <= measured + MARGIN and high >= measured - MARGIN:
            return None
        return Finding(right / rows, rows)

    def _pass(self, now_s: float) -> None:
        """Begin a new span where the one before is over."""
        if self._since_s is None:
            return
        passed_s = now_s - self._since_s
        if passed_s < 0.0:  # the clock was set back
            self._since_s = now_s
        elif passed_s >= 2 * SPAN_S:
            self._before, self._now, self._since_s = _Span(), _Span(), None
        elif passed_s >= SPAN_S or self._now.rows >= SPAN_ROWS:
            self._before, self._now = self._now, _Span()
            self._since_s = min(now_s, self._since_s + SPAN_S)


def words(finding: Finding, measured: float, measured_rows: int) -> str:
    """What was found, beside what was measured."""
    said, was = apart(100 * finding.accuracy, 100 * measured)
    rows = counted(finding.rows, "row")
    return f"right {said} % of {rows} by feedback, {was} % of {measured_rows:,} when measured"
