"""The bound of a trace: all that can be said of it before any policy has run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, inf

import numpy as np

from planner.bounds.ceilings import Line, accuracy_line, gains, most_earned
from planner.bounds.classes import Classes, classes_of
from planner.bounds.devices import DeviceTime, Offers, device_time
from planner.bounds.program import ServingProgram
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace

CLOSE = 1e-4
"""Of the mean accuracy: where lines known so far leave less than that open, no program is solved.
The accuracies of a bench are compared with a tolerance ten times as large."""
ROUNDING = 1e-9
"""Relative. A bound is given away so much, so that rounding never makes a policy beat it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The bound beside one policy's results, and the regret: by how much it is missed.

    Accuracy and cost are those of the same number of queries in time, so that a policy that
    violates more is compared with a bound that does, too.
    """

    bound_violation_ratio: float
    bound_accuracy: float
    bound_cost_usd: float
    regret_violation_ratio: float
    regret_accuracy: float
    regret_cost_ratio: float
    """Of the bound; 0 where that is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What no policy can beat."""

    requests: int
    in_time: int
    """At most so many."""
    highest_accuracy: float
    """Of any variant."""
    accuracy_lines: tuple[Line, ...]
    """Each is above the sum of accuracies of any number of queries in time."""
    cost_lines: tuple[Line, ...]
    """Each is below the cost in USD of any number of queries in time."""

    @property
    def violation_ratio(self) -> float:
        """At least so many of all queries are not in time; 0 without queries."""
        return 1 - self.in_time / self.requests if self.requests else 0.0

    def accuracy(self, in_time: float) -> float:
        """The highest mean accuracy of so many queries in time; 0 for none."""
        if in_time <= 0:
            return 0.0
        least = min((line.at(in_time) for line in self.accuracy_lines), default=inf)
        most = min(self.highest_accuracy, least / in_time)
        return min(1.0, most * (1 + ROUNDING))

    def cost_usd(self, in_time: float) -> float:
        """The least cost of so many queries in time."""
        most = max((line.at(in_time) for line in self.cost_lines), default=0.0)
        return max(0.0, most * (1 - ROUNDING))

    def beside(self, report: Report) -> Beside:
        """The bound beside a policy's results."""
        accuracy, cost_usd = self.accuracy(report.in_time), self.cost_usd(report.in_time)
        return Beside(
            bound_violation_ratio=self.violation_ratio,
            bound_accuracy=accuracy,
            bound_cost_usd=cost_usd,
            regret_violation_ratio=report.violation_ratio - self.violation_ratio,
            regret_accuracy=accuracy - report.effective_accuracy,
            regret_cost_ratio=report.cost_usd / cost_usd - 1 if cost_usd > 0 else 0.0,
        )


def bound_of(setting: Setting, trace: Trace, offers: Offers, levels: Iterable[int] = ()) -> Bound:
    """The bound of a trace.

    Args:
        offers: what each device kind can hold, with the latencies that batches really have.
        levels: numbers of queries in time for which accuracy and cost are wanted as tight as
            possible; for others they are valid, too.
    """
    if not len(trace):
        return Bound(requests=0, in_time=0, highest_accuracy=0.0, accuracy_lines=(), cost_lines=())
    classes = classes_of(setting, trace, offers)
    end_ms = float(trace.arrival_s[-1]) * 1_000
    if setting.instant or not len(classes.begin):
        return _without_time(setting, classes, end_ms)
    time = device_time(setting, offers, classes.windows, end_ms)
    program = ServingProgram(classes, time)
    in_time = _most_in_time(classes, time, program)
    wanted = sorted({min(level, in_time) for level in (*levels, in_time) if level > 0})
    return Bound(
        requests=len(trace),
        in_time=in_time,
        highest_accuracy=float(classes.accuracy.max(initial=0.0)),
        accuracy_lines=tuple(_accuracy_lines(classes, time, program, wanted)),
        cost_lines=tuple(_cost_lines(setting, end_ms)),
    )


def _without_time(setting: Setting, classes: Classes, end_ms: float) -> Bound:
    """Where runs and loads take no time, each query gets the best that it may have."""
    highest = gains(classes, classes.accuracy)
    return Bound(
        requests=classes.requests,
        in_time=round(classes.servable),
        highest_accuracy=float(classes.accuracy.max(initial=0.0)),
        accuracy_lines=(Line(highest, 0.0),),
        cost_lines=tuple(_cost_lines(setting, end_ms)),
    )


def _most_in_time(classes: Classes, time: DeviceTime, program: ServingProgram) -> int:
    """Queries in time at most: a whole number."""
    prices = program.most_served()
    most = min(classes.servable, most_earned(classes, time, prices.per_ms, 0.0, 1.0))
    return floor(most * (1 + ROUNDING) + ROUNDING)


def _accuracy_lines(
    classes: Classes, time: DeviceTime, program: ServingProgram, wanted: Sequence[int]
) -> list[Line]:
    """Lines that are tight where it is wanted; ``wanted`` ascends.

    The best sum of accuracies is concave in the number in time: between two points where it is
    known it is above their chord, and below the lines of both. Where that leaves little open,
    no program is solved.
    """
    lines: list[Line] = []
    known: list[tuple[float, float]] = [(0.0, 0.0)]
    for level in _outside_first(wanted):
        upper = min((line.at(level) for line in lines), default=inf)
        if upper - _chord(known, level) <= CLOSE * level:
            continue
        prices = program.most_accurate(level * (1 - ROUNDING))
        lines.append(accuracy_line(classes, time, prices.per_ms, prices.query))
        known.append((float(level), min(prices.value, lines[-1].at(level))))
    return lines


def _outside_first(wanted: Sequence[int]) -> list[int]:
    """The largest, the smallest, then halves in between."""
    found: list[int] = []
    left = list(wanted)
    while left:
        found += dict.fromkeys((left[-1], left[0], left[len(left) // 2]))
        left = [level for level in left if level not in found]
    return found


def _chord(known: Sequence[tuple[float, float]], level: float) -> float:
    """Below any concave curve through the known points; minus infinity beyond them."""
    points = sorted(known)
    if level > points[-1][0]:
        return -inf
    return float(np.interp(level, [x for x, _ in points], [y for _, y in points]))


def _cost_lines(setting: Setting, end_ms: float) -> Iterable[Line]:
    """A fleet that is there throughout is billed to the last arrival at least."""
    if not setting.fleet_is_elastic or setting.instant:
        usd_per_hour = sum(kind.count * kind.usd_per_hour for kind in setting.kinds)
        yield Line(usd_per_hour * end_ms / 3_600_000, 0.0)
