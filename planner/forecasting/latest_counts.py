"""The latest counts: what they say before a bucket has ended.

A bucket takes ten seconds, and one in whose middle a load begins has the mean of before and now.
Two things are known sooner. The rate of a key that was not asked for before is what came since it
was: its first count may have begun before it did, so that count alone says too little. And the
rate of the last ``RECENT_S`` shows a surge or a slump that the mean of the bucket still hides.

How far apart counts lie that follow each other says how much of that is usual: queries of many rows
come in leaps. A change of the rate is only one of these distances.
"""

from collections import deque
from math import exp, pi, sqrt

import numpy as np

from planner.forecasting.buckets import Array
from planner.forecasting.memory import Memory, array
from planner.forecasting.point_forecasts import Rows

RECENT_S = 2.0
"""Counts are looked back on for so long at least: two of the product's."""
ROUGH_S = 600.0
"""Time constant of how far apart counts lie."""


class LatestCounts:
    """The newest counts of each row, and all of those since it began."""

    def __init__(self) -> None:
        self._spans: deque[tuple[float, Array]] = deque()
        """Lengths in s and counts of shape ``(rows,)``, those of the last ``RECENT_S``."""
        self._first, self._first_s = np.zeros(0), np.zeros(0)
        """The first count of each row, and its length."""
        self._later, self._later_s = np.zeros(0), np.zeros(0)
        """What came after it."""
        self._rough, self._looks = np.zeros(0), np.zeros(0)
        """How far apart counts lie, in what chance makes of it, and of how many of them."""

    def add(self, elapsed_s: float, counts: Array) -> None:
        """Take in counts of ``elapsed_s`` seconds, of shape ``(rows,)``."""
        begins = self._first_s == 0.0
        self._first = np.where(begins, counts, self._first)
        self._later = np.where(begins, 0.0, self._later + counts)
        self._later_s = np.where(begins, 0.0, self._later_s + elapsed_s)
        self._first_s = np.where(begins, elapsed_s, self._first_s)
        if self._spans:
            self._compare(elapsed_s, counts, *self._spans[-1])
        self._spans.append((elapsed_s, counts))
        while self.recent_s - self._spans[0][0] >= RECENT_S:
            self._spans.popleft()

    def _compare(self, elapsed_s: float, counts: Array, before_s: float, before: Array) -> None:
        """Learn from two counts that follow each other, both of shape ``(rows,)``.

        Roots of rates by chance have a standard deviation of ``1 / (2 sqrt(s))``, and the mean
        distance of normal ones is ``sqrt(2 / pi)`` standard deviations.
        """
        apart = np.abs(np.sqrt(counts / elapsed_s) - np.sqrt(before / before_s))
        usual = sqrt(1.0 / elapsed_s + 1.0 / before_s) / 2 * sqrt(2.0 / pi)
        self._looks += 1.0
        weight = np.maximum(1.0 / (self._looks + 1.0), 1.0 - exp(-elapsed_s / ROUGH_S))
        self._rough += weight * (apart / usual - self._rough)

    @property
    def rough(self) -> Array:
        """How many times as far apart counts lie as those of single rows that come by chance, shape
        ``(rows,)``; at least 1."""
        return np.maximum(self._rough, 1.0)

    @property
    def recent_s(self) -> float:
        """How long the counts of ``recent`` were."""
        return sum(elapsed_s for elapsed_s, _ in self._spans)

    @property
    def recent(self) -> Array:
        """Rates of the last ``RECENT_S``, shape ``(rows,)``; 0 where nothing was counted."""
        total = np.zeros(len(self._first))
        for _, counts in self._spans:
            total = total + counts
        return total / max(self.recent_s, 1e-9)

    @property
    def since_begun(self) -> Array:
        """Rates since each row began, shape ``(rows,)``; 0 where nothing was counted.

        The first count is left out where this gives more, and what came after it is as long.
        """
        both_s = self._first_s + self._later_s
        rates = (self._first + self._later) / np.maximum(both_s, 1e-9)
        long = (self._later_s >= self._first_s * 0.75) & (self._later_s > 0.0)
        later = self._later / np.where(long, self._later_s, 1.0)
        return np.where(long, np.maximum(rates, later), rates)

    def widen(self, rows: int) -> None:
        """Begin so many more rows, behind those that are there."""
        blank = np.zeros(rows)
        self._spans = deque((s, np.append(counts, blank)) for s, counts in self._spans)
        self._first, self._first_s = np.append(self._first, blank), np.append(self._first_s, blank)
        self._later, self._later_s = np.append(self._later, blank), np.append(self._later_s, blank)
        self._rough, self._looks = (
            np.append(self._rough, blank + 1.0),
            np.append(self._looks, blank),
        )

    def keep(self, rows: Rows) -> None:
        """Keep the rows with these numbers, in this order, and forget all others."""
        self._spans = deque((s, counts[rows]) for s, counts in self._spans)
        self._first, self._first_s = self._first[rows], self._first_s[rows]
        self._later, self._later_s = self._later[rows], self._later_s[rows]
        self._rough, self._looks = self._rough[rows], self._looks[rows]

    def memory(self) -> Memory:
        """See ``planner.forecasting.memory.Remembers``; the last two seconds are forgotten."""
        return {
            "first": self._first.copy(),
            "first_s": self._first_s.copy(),
            "later": self._later.copy(),
            "later_s": self._later_s.copy(),
            "rough": self._rough.copy(),
            "looks": self._looks.copy(),
        }

    def recall(self, memory: Memory, rows: int) -> None:
        """Go on from what another one remembered of so many rows.

        Raises:
            ValueError: it is no memory of such counts.
        """
        self._first = array(memory, "first", (rows,))
        self._first_s = array(memory, "first_s", (rows,))
        self._later = array(memory, "later", (rows,))
        self._later_s = array(memory, "later_s", (rows,))
        # Before 2026-11-29 this was not known.
        known = "rough" in memory
        self._rough = array(memory, "rough", (rows,)) if known else np.ones(rows)
        self._looks = array(memory, "looks", (rows,)) if known else np.zeros(rows)
