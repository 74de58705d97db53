"""What timed runs say: the median with its confidence interval, and percentiles.

Times come in rounds. Within a round they share the machine's mood (its clock, its caches, who else
computes), so that a thousand runs of one round say less than ten runs each of a hundred: how sure a
median is has to be read from the differences between rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import floor, inf, sqrt

import numpy as np

from variants.types import LatencyPoint

STUDENT_T = (inf, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16)
"""Two-sided 95 % quantiles of Student's distribution by degrees of freedom, from 0; later ones are
taken as the last."""
KEPT = 20_000
"""Runs of one batch size that are kept; the oldest rounds go first."""
LEAST_CLEAN = 0.25
"""If fewer runs than this share had the processor to themselves, all are counted."""


@dataclass(frozen=True)
class Sample:
    """All timed runs of one batch size, by the round that they were made in.

    A run is *stolen* when the system took a processor away from it in a measurable part of its
    time. Stolen runs are counted but are no times of the variant: what contention does to a query
    is for the queue's prediction to say. If hardly any run was left alone, all count.
    """

    batch_size: int
    clean_s: tuple[tuple[float, ...], ...] = ()
    """Times of runs that had the processor to themselves, one tuple for each round."""
    stolen_s: tuple[tuple[float, ...], ...] = ()
    """Times of the other runs, one tuple for each round."""

    @property
    def runs(self) -> int:
        return self._count(self.clean_s) + self.stolen

    @property
    def stolen(self) -> int:
        """Runs that lost the processor."""
        return self._count(self.stolen_s)

    @property
    def seconds(self) -> float:
        """That all runs took together."""
        return sum(map(sum, (*self.clean_s, *self.stolen_s)))

    @property
    def rounds(self) -> int:
        return len(self.clean_s)

    @property
    def counts_stolen(self) -> bool:
        """Whether stolen runs are counted, for want of others."""
        return self._count(self.clean_s) < max(1.0, LEAST_CLEAN * self.runs)

    @cached_property
    def times_s(self) -> tuple[float, ...]:
        """The times that count, in the order of the rounds."""
        return tuple(time for times in self._rounds() for time in times)

    @cached_property
    def point(self) -> LatencyPoint:
        return percentile_point(self.batch_size, self.times_s)

    @cached_property
    def half_width(self) -> float:
        """Half of the median's 95 % confidence interval, as a share of the median.

        The wider of two: what the runs say taken as independent (order statistics), and what the
        medians of the rounds say (Student's t). Infinite with less than two rounds.
        """
        rounds = [float(np.median(times)) for times in self._rounds() if times]
        if len(rounds) < 2:
            return inf
        median = float(np.median(self.times_s))
        if median <= 0:
            return 0.0
        quantile = STUDENT_T[min(len(rounds), len(STUDENT_T)) - 1]
        between = quantile * float(np.std(rounds, ddof=1)) / sqrt(len(rounds))
        low, high = median_interval(self.times_s)
        return max(between, (high - low) / 2) / median

    def merged(self, other: "Sample") -> "Sample":
        """With another's rounds behind; the oldest go while there are more than ``KEPT`` runs."""
        clean, stolen = self.clean_s + other.clean_s, self.stolen_s + other.stolen_s
        while len(clean) > 1 and self._count(clean) + self._count(stolen) > KEPT:
            clean, stolen = clean[1:], stolen[1:]
        return Sample(self.batch_size, clean, stolen)

    def _rounds(self) -> list[tuple[float, ...]]:
        if self.counts_stolen:
            return [a + b for a, b in zip(self.clean_s, self.stolen_s, strict=True)]
        return list(self.clean_s)

    @staticmethod
    def _count(rounds: tuple[tuple[float, ...], ...]) -> int:
        return sum(map(len, rounds))


def percentile_point(batch_size: int, times_s: Sequence[float]) -> LatencyPoint:
    """p50, p95 and p99 by the nearest-rank rule: each is a time that was really seen."""
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
