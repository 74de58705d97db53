"""The tally of a sample, and what it says of the whole."""

from collections.abc import Iterable, Sequence
from math import sqrt
from typing import NamedTuple

from planner.approximate.sample import Sample
from planner.simulation.fleet import Ticket
from planner.simulation.tally import Tally


class Chance(NamedTuple):
    """How far chance may have moved an estimate: standard errors."""

    violation_ratio: float
    effective_accuracy: float


class Outcomes(NamedTuple):
    """Numbers of queries, and the sum of the accuracies of those in time."""

    punctual: float
    late: float
    rejected: float
    accuracy: float

    @property
    def asked(self) -> float:
        """All queries, whatever became of them."""
        return self.punctual + self.late + self.rejected

    def times(self, factor: float) -> "Outcomes":
        """The same shares of so many times as many queries."""
        return Outcomes(*[factor * each for each in self])

    def plus(self, other: "Outcomes") -> "Outcomes":
        """Both together."""
        return Outcomes(*[one + more for one, more in zip(self, other, strict=True)])


class SampledTally(Tally):
    """Counts the queries of slices, without their leads."""

    def __init__(self, sample: Sample, duration_s: int, expected: Sequence[float]) -> None:
        """``expected`` is the number of queries in each window, played or not."""
        super().__init__((), end_s=float(duration_s) - 1e-9, width_s=sample.width_s)
        self.arrived = [round(each) for each in expected]
        self._sample = sample
        self._counts_ms = [each.counts_s * 1_000.0 for each in sample.slices]
        self._start_ms = sample.start_s * 1_000.0
        self._start = Outcomes(0.0, 0.0, 0.0, 0.0)

    def _counted(self, arrived_ms: float) -> bool:
        return arrived_ms >= self._counts_ms[self._at(arrived_ms)]

    def rejects(self, arrived_ms: float) -> None:
        if self._counted(arrived_ms):
            super().rejects(arrived_ms)
        elif arrived_ms < self._start_ms:
            self._start = self._start.plus(Outcomes(0.0, 0.0, 1.0, 0.0))

    def never(self, arrived_ms: float) -> None:
        if self._counted(arrived_ms):
            super().never(arrived_ms)
        elif arrived_ms < self._start_ms:
            self._start = self._start.plus(Outcomes(0.0, 1.0, 0.0, 0.0))

    def ran(self, tickets: Iterable[Ticket], now_ms: float, run_ms: float, accuracy: float) -> None:
        counted = []
        for ticket in tickets:
            if self._counted(ticket.arrived_ms):
                counted.append(ticket)
            elif ticket.arrived_ms < self._start_ms:
                punctual = self.in_time(ticket, now_ms)
                found = Outcomes(punctual, 1.0 - punctual, 0.0, accuracy * punctual)
                self._start = self._start.plus(found)
        super().ran(counted, now_ms, run_ms, accuracy)

    def extrapolate(self) -> Chance:
        """Make the tally that of all queries of the whole fleet. May be called once.

        Each window's shares are those of its slice; a window of which nothing was played has those
        of all slices together. The beginning stands for itself.
        """
        sample = self._sample
        columns = (self.punctual, self.late, self.rejected, self.accuracy)
        slices = [Outcomes(*found) for found in zip(*columns, strict=True)]
        chance = self._chance(slices)
        whole = Outcomes(*[sum(column) for column in columns])
        for index, (found, each) in enumerate(zip(slices, sample.slices, strict=True)):
            known = found if found.asked else whole
            played_s = each.end_s - each.begin_s
            total = Outcomes(0.0, 0.0, 0.0, 0.0)
            left = float(self.arrived[index])
            if not index and sample.start_s:
                total = self._start.times(sample.scale)
                left = max(0.0, left - total.asked)
                played_s += sample.start_s
            total = total.plus(known.times(left / known.asked if known.asked else 0.0))
            self.late[index] = round(total.late)
            self.rejected[index] = round(total.rejected)
            self.punctual[index] = self.arrived[index] - self.late[index] - self.rejected[index]
            mean = total.accuracy / total.punctual if total.punctual else 0.0
            self.accuracy[index] = mean * self.punctual[index]
            self.busy_ms[index] *= self.width_ms / (1_000.0 * played_s)
            self.capacity_qps[index] *= sample.scale
            self.usd_per_hour[index] *= sample.scale
            self.loads[index] = round(self.loads[index] * sample.scale)
            self.evictions[index] = round(self.evictions[index] * sample.scale)
        self.load_s_total *= sample.scale
        return chance

    def _chance(self, slices: Sequence[Outcomes]) -> Chance:
        """Standard errors, from how much neighbouring windows differ.

        A slice at a random place in each window is a systematic sample. The successive differences
        of its windows estimate its variance, and count changes over time as chance: rather too much
        than too little (Wolter, "Introduction to Variance Estimation", 2007, section 8.2).
        """
        known = [(f, float(n)) for f, n in zip(slices, self.arrived, strict=True) if f.asked]
        weights = [weight for _, weight in known]
        ratios = [(found.late + found.rejected) / found.asked for found, _ in known]
        means = [found.accuracy / found.punctual if found.punctual else 0.0 for found, _ in known]
        return Chance(_error(ratios, weights), _error(means, weights))


def _error(values: Sequence[float], weights: Sequence[float]) -> float:
    total = sum(weights)
    if len(values) < 2 or not total:
        return 0.0
    squares = sum(
        ((weights[i] + weights[i + 1]) / 2 * (values[i + 1] - values[i])) ** 2
        for i in range(len(values) - 1)
    )
    return sqrt(squares / 2 * len(values) / (len(values) - 1)) / total
