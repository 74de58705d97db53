"""What timed runs say: the median with its confidence interval, and percentiles.

Times come in rounds. Within a round they share the machine's state (its clock, its caches, other
processes), so that a thousand runs of one round say less than ten runs each of a hundred rounds:
how sure a median is has to be read from the differences between rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import floor, inf, sqrt
from typing import NamedTuple

import numpy as np

from profiler.timing.contention import Contention
from variants.types import LatencyPoint

STUDENT_T = (inf, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16)
"""Two-sided 95 % quantiles of Student's distribution by degrees of freedom, from 0; later ones are
taken as the last."""
KEPT = 20_000
"""Runs of one batch size that are kept; the oldest rounds go first."""
ENOUGH = 0.1
"""Share of the runs, from two rounds at least, that have to be there of the best for the others not
to count."""


class Round(NamedTuple):
    """Times in seconds of runs that were made one after another, by their ``Contention``."""

    alone: tuple[float, ...] = ()
    """No other process computed."""
    beside: tuple[float, ...] = ()
    """Other processes did on other cores, which costs some speed."""
    stolen: tuple[float, ...] = ()
    """A processor was missing in a measurable part of the time. That part is taken off where a
    single thread computes."""


@dataclass(frozen=True)
class Sample:
    """All timed runs of one batch size, by the round that they were made in.

    The best runs are the times of the variant: those that were alone, and where these are too few
    those that had others beside them, and where these are too few, all. What is left out is
    counted, never forgotten: what contention does to a query is for the queue's prediction to say,
    which learns it live. No run is left out for being slow.

    Not slotted: what was computed from the runs is kept.
    """

    batch_size: int
    rounds: tuple[Round, ...] = ()

    @cached_property
    def runs(self) -> int:
        return sum(len(times) for one in self.rounds for times in one)

    @cached_property
    def contention(self) -> Contention:
        """The worst contention of the runs that count."""
        for worst in Contention:
            there = [sum(map(len, one[: worst + 1])) for one in self.rounds]
            several = sum(map(bool, there)) >= min(2, len(there))
            if there and several and sum(there) >= ENOUGH * self.runs:
                return worst
        return Contention.INSTEAD

    @property
    def dropped(self) -> int:
        """Runs that do not count."""
        return self.runs - len(self.times_s)

    @cached_property
    def seconds(self) -> float:
        """Total time of all runs."""
        return sum(sum(times) for one in self.rounds for times in one)

    @cached_property
    def times_s(self) -> tuple[float, ...]:
        """The times that count, in the order of the rounds."""
        return tuple(time for times in self._counted for time in times)

    @cached_property
    def point(self) -> LatencyPoint:
        return percentile_point(self.batch_size, self.times_s)

    @cached_property
    def half_width(self) -> float:
        """Half of the median's 95 % confidence interval, as a share of the median.

        The wider of two: what the runs say taken as independent (order statistics), and what the
        medians of the rounds say (Student's t). Infinite with less than two rounds.
        """
        medians = [float(np.median(times)) for times in self._counted if times]
        if len(medians) < 2:
            return inf
        median = float(np.median(self.times_s))
        if median <= 0:
            return 0.0
        quantile = STUDENT_T[min(len(medians), len(STUDENT_T)) - 1]
        between = quantile * float(np.std(medians, ddof=1)) / sqrt(len(medians))
        low, high = median_interval(self.times_s)
        return max(between, (high - low) / 2) / median

    def merged(self, other: "Sample") -> "Sample":
        """This sample and another's later rounds; the oldest rounds go while there are more than
        ``KEPT`` runs."""
        both = Sample(self.batch_size, self.rounds + other.rounds)
        while len(both.rounds) > 1 and both.runs > KEPT:
            both = Sample(self.batch_size, both.rounds[1:])
        return both

    @cached_property
    def _counted(self) -> list[tuple[float, ...]]:
        """The times that count, by round."""
        return [sum(one[: self.contention + 1], ()) for one in self.rounds]


def percentile_point(batch_size: int, times_s: Sequence[float]) -> LatencyPoint:
    """p50, p95 and p99 by the nearest-rank rule: each is a time that was really seen.

    Of less than a hundred runs p99 is the slowest, and of less than twenty p95 is.
    """
    p50, p95, p99 = np.percentile(times_s, [50, 95, 99], method="higher") * 1000
    return LatencyPoint(
        batch_size=batch_size,
        p50_ms=round(float(p50), 5),
        p95_ms=round(float(p95), 5),
        p99_ms=round(float(p99), 5),
    )


def median_interval(times_s: Sequence[float]) -> tuple[float, float]:
    """A 95 % confidence interval of the median, free of any distribution.

    From one order statistic to its mirror image, by the normal approximation of the binomial with
    its correction for continuity (Conover, Practical Nonparametric Statistics, 3.2). Of less than
    six times the extremes, which are less sure.
    """
    ordered = sorted(times_s)
    count = len(ordered)
    low = max(0, floor((count - 1) / 2 - 0.98 * sqrt(count)))
    return ordered[low], ordered[count - 1 - low]
