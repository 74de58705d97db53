"""The bound of a trace: all that can be said of it before any policy has run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf

from planner.bounds.ceilings import accuracy_line, gains, most_earned
from planner.bounds.classes import Classes, classes_of
from planner.bounds.devices import DeviceTime, Offers, device_time
from planner.bounds.lines import Line, tight_lines
from planner.bounds.program import ServingProgram
from planner.bounds.rent import Rent
from planner.bounds.whole import Step, WholeRent
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace

CLOSE = 1e-4
"""Part of the mean accuracy: where the lines known so far leave no more than that open, no program
is solved. Benches compare accuracies with a tolerance ten times as large."""
CLOSE_COST = 1e-3
"""The part of the cost up to which no program is solved."""
WHOLE_WINDOWS = 100
"""Of the program with whole devices, which takes longer than the others. On 250,000 queries at a
steady rate nothing was lost by it."""
WHOLE_LEVELS = 3
"""At so many numbers of queries in time it is solved at most."""
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
    bound_whole_cost_usd: float
    """The least cost with whole devices; the bound on cost may rent parts of them."""
    regret_whole_cost_ratio: float
    """Of that; 0 where it is 0."""


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
    """Each is below the cost in USD of any number of queries in time, from one."""
    whole_costs: tuple[Step, ...] = ()
    """What numbers of queries in time cost at least with whole devices."""
    later_lines: tuple[Line, ...] = ()
    """As ``cost_lines``, of what is billed after the beginning, where that is told apart."""
    standing: bool = True
    """Whether the fleet is there, and billed, even if no query is in time."""

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
        return float(min(1.0, most * (1 + ROUNDING)))

    def cost_usd(self, in_time: float) -> float:
        """The least cost of so many queries in time; 0 for none."""
        if in_time <= 0 and not self.standing:
            return 0.0
        most = max((line.at(in_time) for line in self.cost_lines), default=0.0)
        return float(max(0.0, most * (1 - ROUNDING)))

    def later_cost_usd(self, in_time: float) -> float:
        """The least that is billed after the beginning, whatever is before, for so many queries in
        time; 0 where the beginning is not told apart."""
        most = max((line.at(in_time) for line in self.later_lines), default=0.0)
        return float(max(0.0, most * (1 - ROUNDING)))

    def whole_cost_usd(self, in_time: float) -> float:
        """The least cost of so many queries in time with whole devices; 0 for none."""
        steps = (step.usd for step in self.whole_costs if step.in_time <= in_time)
        return max((self.cost_usd(in_time), *steps))

    def beside(self, report: Report) -> Beside:
        """The bound beside a policy's results."""
        accuracy, cost_usd = self.accuracy(report.in_time), self.cost_usd(report.in_time)
        whole_usd = self.whole_cost_usd(report.in_time)
        return Beside(
            bound_violation_ratio=self.violation_ratio,
            bound_accuracy=accuracy,
            bound_cost_usd=cost_usd,
            regret_violation_ratio=report.violation_ratio - self.violation_ratio,
            regret_accuracy=accuracy - report.effective_accuracy,
            regret_cost_ratio=report.cost_usd / cost_usd - 1 if cost_usd > 0 else 0.0,
            bound_whole_cost_usd=whole_usd,
            regret_whole_cost_ratio=report.cost_usd / whole_usd - 1 if whole_usd > 0 else 0.0,
        )


def bound_of(
    setting: Setting,
    trace: Trace,
    offers: Offers,
    levels: Iterable[int] = (),
    *,
    beginning_s: float = 0.0,
) -> Bound:
    """The bound of a trace.

    Args:
        offers: what each device kind can hold, with the latencies that batches really have.
        levels: numbers of queries in time for which accuracy and cost are wanted as tight as
            possible; for others they are valid, too.
        beginning_s: a beginning of this length is told apart, if it is one.
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
    asked = sorted({min(level, in_time) for level in levels if level > 0})
    wanted = sorted({*asked, in_time} - {0})
    return Bound(
        requests=len(trace),
        in_time=in_time,
        highest_accuracy=float(classes.accuracy.max(initial=0.0)),
        accuracy_lines=tuple(_accuracy_lines(classes, time, program, wanted)),
        cost_lines=tuple(_cost_lines(setting, classes, time, end_ms, wanted)),
        later_lines=tuple(
            _cost_lines(setting, classes, time, end_ms, wanted, free_ms=beginning_s * 1_000)
            if beginning_s > 0.0
            else ()
        ),
        whole_costs=tuple(_whole_costs(setting, trace, offers, end_ms, asked or wanted)),
        standing=not _comes_and_goes(setting),
    )


def _without_time(setting: Setting, classes: Classes, end_ms: float) -> Bound:
    """Where runs and loads take no time, each query gets the best that it may have."""
    highest = gains(classes, classes.accuracy)
    return Bound(
        requests=classes.requests,
        in_time=round(classes.servable),
        highest_accuracy=float(classes.accuracy.max(initial=0.0)),
        accuracy_lines=(Line(highest, 0.0),),
        cost_lines=() if _comes_and_goes(setting) else (_standing_fleet(setting, end_ms),),
        standing=not _comes_and_goes(setting),
    )


def _most_in_time(classes: Classes, time: DeviceTime, program: ServingProgram) -> int:
    """Queries in time at most: a whole number."""
    prices = program.most_served()
    most = min(classes.servable, most_earned(classes, time, prices.per_ms, 0.0, 1.0))
    return floor(most * (1 + ROUNDING) + ROUNDING)


def _accuracy_lines(
    classes: Classes, time: DeviceTime, program: ServingProgram, wanted: Sequence[int]
) -> list[Line]:
    """Above the sum of accuracies of any number in time; ``wanted`` ascends."""

    def at(level: int) -> tuple[Line, float]:
        prices = program.most_accurate(level * (1 - ROUNDING))
        return accuracy_line(classes, time, prices.per_ms, prices.query), prices.value

    return tight_lines(wanted, at, CLOSE)


def _cost_lines(
    setting: Setting,
    classes: Classes,
    time: DeviceTime,
    end_ms: float,
    wanted: Sequence[int],
    free_ms: float = 0.0,
) -> list[Line]:
    """Below the cost of any number in time, of what is billed from ``free_ms`` on; ``wanted``
    ascends."""
    if not _comes_and_goes(setting):
        return [_standing_fleet(setting, max(0.0, end_ms - free_ms))]
    rent = Rent(setting, classes, time, free_ms=free_ms)

    def at(level: int) -> tuple[Line, float] | None:
        prices = rent.prices(level * (1 - ROUNDING))
        if prices is None:
            return None
        line = rent.line(prices)
        return Line(-line.start, -line.slope), -prices.value

    lines = tight_lines(wanted, at, CLOSE_COST)
    least = () if free_ms > 0.0 else (rent.least_life(),)
    return [*least, *(Line(-line.start, -line.slope) for line in lines)]


def _comes_and_goes(setting: Setting) -> bool:
    """Whether devices are released: without ticks nobody does that."""
    return setting.fleet_is_elastic and not setting.instant


def _standing_fleet(setting: Setting, end_ms: float) -> Line:
    """A fleet that is there throughout is billed to the last arrival at least."""
    usd_per_hour = sum(kind.count * kind.usd_per_hour for kind in setting.kinds)
    return Line(usd_per_hour * end_ms / 3_600_000, 0.0)


def _whole_costs(
    setting: Setting, trace: Trace, offers: Offers, end_ms: float, wanted: Sequence[int]
) -> list[Step]:
    """What numbers of queries in time cost at least with whole devices; ``wanted`` ascends.

    More cost no less, so where there are many, some are left out: at most so many are solved.
    """
    if not _comes_and_goes(setting) or not wanted:
        return []
    classes = classes_of(setting, trace, offers, most_windows=WHOLE_WINDOWS)
    rent = WholeRent(setting, classes, device_time(setting, offers, classes.windows, end_ms))
    step = max(1, ceil(len(wanted) / WHOLE_LEVELS))
    found = [rent.least(level) for level in wanted[::-1][::step]]
    return [each for each in found if each is not None]
