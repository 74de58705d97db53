"""Answers: how the answers of one variant are divided among its classes, first and lately.

What is asked of a model changes, and often nobody says which answers were right. But each answer is
seen. Where many more of them than before are of one class, something has changed: what is asked, or
who asks. That is no error: a model may be as right as it was. So two things are kept apart:

- whether the first answers are divided otherwise than those to the held-out rows. They may well be
  from the first day on: clients do not ask what the rows were drawn from;
- whether answers are divided otherwise now than the first ones were. That is a change.

The first answers are those of a span of time, and of enough rows. From then on each span begins
anew and is looked at until the next one is over, so that a change is found soon and is not thinned
out by all that came before. The k-th span has the part ``1 / (k (k + 1))`` of the error: all parts
are one, so the error holds for as long as the variant answers (``planner.feedback.moved``).
"""

from math import log
from typing import Any, NamedTuple

import numpy as np

from planner.feedback.moved import Counts, dispersion_of, evidence, most_moved, moved, shares

SPAN_S = 3_600.0
FIRST_ROWS = 2_000
SPAN_ROWS = 500
"""A span has at least so many rows, however long that takes."""
BLOCKS = 20
"""The first answers are cut into so many, to see whether they come in clumps."""
ERROR = 1e-3
"""The chance that a change is ever told of a variant whose answers do not change: of ten variants
of a version one in a hundred."""
MARGIN = 0.05
"""Where a smaller part of the answers falls into other classes, nothing is said."""
MOST_CLASSES_TOLD = 3


class Shift(NamedTuple):
    """The share of a cell of classes, in [0, 1]."""

    cell: int
    before: float
    now: float


class Standing(NamedTuple):
    """What is known of a variant's answers."""

    rows: int
    """Lately: in the span that is over and in the one since; right after a change was found those
    that showed it."""
    first_rows: int
    complete: bool
    """Whether these are all; until then nothing is compared."""
    moved: float | None
    """The part of the answers that falls into other classes than the first ones did; None before
    there are others."""
    changed: bool
    """Whether it is so large, and no chance."""
    since_s: float | None
    """When a change that goes on was found; None without one."""
    shifts: tuple[Shift, ...]
    """Where that is most."""
    from_held_out: float | None
    """The part of the first answers that falls into other classes than those to the held-out rows;
    None where these are not known or the first ones are not complete."""
    differs: bool
    """Whether it is so large, and no chance."""
    differences: tuple[Shift, ...]
    """Where that is most."""


class Answers:
    """Of one variant."""

    def __init__(self, cells: int, span_s: float = SPAN_S) -> None:
        """
        Args:
            cells: of classes that are counted apart (``variants.metrics.answered``).
        """
        self.cells = cells
        self._span_s = span_s
        self._first, self._before, self._now = (np.zeros(cells, np.int64) for _ in range(3))
        self._blocks: list[Counts] = []
        self._spans = 0
        """So many have begun; 0: the first answers are not complete."""
        self._since_s: float | None = None
        """When the first answers or the span began."""
        self._block_s = 0.0
        self._dispersion = 1.0
        self._new = False
        """Whether there is something to look at."""
        self.since_s: float | None = None
        """When a change that goes on was found; None without one."""
        self._judged = False
        """``changed`` when it was judged last."""
        self._shows: Counts | None = None
        """What showed a change that was found when it was judged last."""

    @property
    def changed(self) -> bool:
        """Whether they are divided otherwise than the first ones."""
        return self.since_s is not None

    def add(self, counts: Counts, now_s: float) -> None:
        """Take in answers, ``(cells,)``."""
        self._pass(now_s)
        if self._since_s is None:
            self._since_s = now_s
        self._new = True
        if self._spans:
            self._now += counts
            return
        if not self._blocks or self._block_is_full(now_s):
            self._blocks.append(np.zeros(self.cells, np.int64))
            self._block_s = now_s
        self._first += counts
        self._blocks[-1] += counts

    def judge(self, now_s: float) -> bool:
        """Compare what came lately with the first answers; whether ``changed`` is another now."""
        self._pass(now_s)
        self._shows = None
        if self._new and self._spans and not self.changed:
            self._shows = self._found()
            self.since_s = None if self._shows is None else now_s
        self._new = False
        before, self._judged = self._judged, self.changed
        return self.changed is not before

    def standing(self, held_out: tuple[int, ...] = ()) -> Standing:
        """What is known.

        Args:
            held_out: the answers to the held-out rows, in the same cells; empty where these are not
                known.
        """
        lately = self._before + self._now if self._shows is None else self._shows
        complete = self._spans > 0
        compared = complete and bool(lately.sum())
        known = np.array(held_out if complete and len(held_out) == self.cells else (), np.int64)
        from_held_out = moved(known, self._first, self._dispersion) if known.sum() else None
        sure = evidence(known, self._first, self._dispersion) >= -log(ERROR) if known.any() else 0
        differs = from_held_out is not None and bool(sure) and from_held_out >= MARGIN
        return Standing(
            rows=int(lately.sum()),
            first_rows=int(self._first.sum()),
            complete=complete,
            moved=moved(self._first, lately, self._dispersion) if compared else None,
            changed=self.changed,
            since_s=self.since_s,
            shifts=self._shifts(self._first, lately) if compared else (),
            from_held_out=from_held_out,
            differs=differs,
            differences=self._shifts(known, self._first) if differs else (),
        )

    def plain(self) -> dict[str, Any]:
        """The same in numbers, to be kept."""
        return {
            "first": self._first.tolist(),
            "before": self._before.tolist(),
            "now": self._now.tolist(),
            "blocks": [block.tolist() for block in self._blocks],
            "spans": self._spans,
            "since_s": self._since_s,
            "block_s": self._block_s,
            "dispersion": self._dispersion,
            "changed": self.changed,
            "changed_s": self.since_s,
        }

    @classmethod
    def of(cls, kept: dict[str, Any], span_s: float = SPAN_S) -> "Answers":
        """What was kept.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        made = cls(len(kept["first"]), span_s)
        made._first, made._before, made._now = (
            made._read(kept[name]) for name in ("first", "before", "now")
        )
        made._blocks = [made._read(block) for block in kept["blocks"]]
        made._spans, made._dispersion = int(kept["spans"]), float(kept["dispersion"])
        since_s = kept["since_s"]
        made._since_s = None if since_s is None else float(since_s)
        made._block_s = float(kept["block_s"])
        if kept["changed"] is True:  # an earlier release did not keep since when
            made.since_s = float(kept.get("changed_s") or 0.0)
        made._judged = made.changed
        return made

    def _read(self, counts: Any) -> Counts:
        read = np.array(counts, np.int64)
        if read.shape != (self.cells,):
            raise ValueError(f"{read.shape} counts in place of {self.cells}")
        return read

    def _found(self) -> Counts | None:
        """What shows a change of the two spans that are looked at, if one does."""
        for span, later in ((self._spans, self._now), (self._spans - 1, self._before + self._now)):
            if not span or moved(self._first, later, self._dispersion) < MARGIN:
                continue
            needed = log(span * (span + 1) / ERROR)
            if evidence(self._first, later, self._dispersion) >= needed:
                return later
        return None

    def _shifts(self, first: Counts, later: Counts) -> tuple[Shift, ...]:
        before, now = shares(first), shares(later)
        cells = most_moved(first, later, MOST_CLASSES_TOLD, self._dispersion)
        return tuple(Shift(cell, float(before[cell]), float(now[cell])) for cell in cells)

    def _block_is_full(self, now_s: float) -> bool:
        long_enough = now_s - self._block_s >= self._span_s / BLOCKS
        return long_enough and int(self._blocks[-1].sum()) >= FIRST_ROWS / BLOCKS

    def _pass(self, now_s: float) -> None:
        """Begin a new span where the one before is over."""
        if self._since_s is None:
            return
        if now_s < self._since_s:  # the clock was set back
            self._since_s = self._block_s = now_s
        if now_s - self._since_s < self._span_s:
            return
        if not self._spans:
            if int(self._first.sum()) >= FIRST_ROWS:
                self._dispersion, self._blocks = dispersion_of(self._blocks), []
                self._spans, self._since_s = 1, now_s
        elif int(self._now.sum()) >= SPAN_ROWS:
            lately = self._before + self._now
            if self.changed and moved(self._first, lately, self._dispersion) < MARGIN / 2:
                self.since_s = None
            self._before, self._now = self._now, np.zeros(self.cells, np.int64)
            self._spans, self._since_s = self._spans + 1, now_s
