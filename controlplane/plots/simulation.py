"""A simulation over time as a drawing: demand and capacity, violations, accuracy, devices, cost.

Several reports of the same trace are drawn over each other, one colour each.
"""

from collections.abc import Sequence
from itertools import groupby
from math import isfinite
from typing import TYPE_CHECKING

from controlplane.plots.drawing import (
    Axis,
    Diagram,
    Drawing,
    Form,
    Key,
    Row,
    Scale,
    Section,
    Series,
    Table,
    line_tone,
    short,
)
from planner.simulation.results import Interval, Report
from variants.figures import accuracy_text

if TYPE_CHECKING:
    from planner.bounds.bound import Beside

POINTS = 300
"""A longer timeline is drawn with its intervals put together."""

Values = Sequence[float | None]
Timelines = Sequence[Sequence[Interval]]

HEAD = (
    "Policy", "Queries", "Violations", "Late", "Rejected", "Accuracy", "USD", "Busy", "Loads",
    "Evictions",
)  # fmt: skip
REGRETS = ("Regret: violations", "Accuracy", "USD")
"""By how much the bound is missed, where it is known."""


def simulation_drawing(
    reports: Sequence[Report], title: str, beside: "Sequence[Beside]" = ()
) -> Drawing:
    """The diagrams of at least one report; the intervals of all timelines are equally long.

    ``beside`` is the bound beside each report; empty where it is not known.
    """
    longest = max(len(report.timeline) for report in reports)
    size = max(1, -(-longest // POINTS))
    timelines = [merge(report.timeline, size) for report in reports]
    shared = _Shared(reports, max(timelines, key=len))
    return Drawing(
        heading="Simulation",
        # A file's name may hold bytes that are no text.
        title=title.encode("utf-8", "replace").decode(),
        sections=(
            Section(
                keys=shared.policies if len(reports) > 1 else (),
                diagrams=(
                    _demand(shared, timelines),
                    _violations(shared, timelines),
                    _accuracy(shared, timelines),
                    shared.levels(
                        "Devices", "usable", [[float(i.devices) for i in t] for t in timelines]
                    ),
                    shared.levels(
                        "Cost", "USD per hour", [[i.usd_per_hour for i in t] for t in timelines]
                    ),
                ),
                table=Table(
                    head=(*HEAD, *(REGRETS if beside else ())),
                    rows=tuple(
                        Row(
                            name=one.policy,
                            tone=line_tone(index),
                            cells=(*_totals(one), *_regrets(beside[index : index + 1])),
                        )
                        for index, one in enumerate(reports)
                    ),
                ),
            ),
        ),
    )


def merge(timeline: Sequence[Interval], size: int) -> Sequence[Interval]:
    """The timeline with every ``size`` neighbouring intervals put together into one.

    Counts are added up, ratios are means, and states are those at the end.
    """
    if size <= 1:
        return timeline
    groups = groupby(enumerate(timeline), key=lambda pair: pair[0] // size)
    return [_together([interval for _, interval in group]) for _, group in groups]


def _together(some: Sequence[Interval]) -> Interval:
    in_time = sum(one.in_time for one in some)
    last = some[-1]
    return Interval(
        start_s=some[0].start_s,
        arrived=sum(one.arrived for one in some),
        in_time=in_time,
        late=sum(one.late for one in some),
        rejected=sum(one.rejected for one in some),
        accuracy=sum(one.accuracy * one.in_time for one in some) / max(in_time, 1),
        devices=last.devices,
        capacity_qps=last.capacity_qps,
        usd_per_hour=last.usd_per_hour,
        busy_ratio=sum(one.busy_ratio for one in some) / len(some),
        loads=sum(one.loads for one in some),
        evictions=sum(one.evictions for one in some),
    )


def _totals(report: Report) -> tuple[str, ...]:
    """The cells of a report below ``HEAD``, the policy's name left out."""
    return (
        f"{report.requests:,}",
        f"{100 * report.violation_ratio:.2f} %",
        f"{report.late:,}",
        f"{report.rejected:,}",
        accuracy_text(report.effective_accuracy) if report.in_time else "–",
        short(report.cost_usd),
        f"{100 * report.busy_ratio:.1f} %",
        f"{report.loads:,}",
        f"{report.evictions:,}",
    )


def _regrets(missed: "Sequence[Beside]") -> tuple[str, ...]:
    """The cells below ``REGRETS``; none where the bound is not known."""
    return tuple(
        f"{100 * value:.2f} %"
        for one in missed
        for value in (one.regret_violation_ratio, one.regret_accuracy, one.regret_cost_ratio)
    )


# -- diagrams -----------------------------------------------------------------------------------


class _Shared:
    """What all diagrams of some reports share: the policies, and the axis of time."""

    def __init__(self, reports: Sequence[Report], timeline: Sequence[Interval]) -> None:
        self.policies: tuple[Key, ...] = tuple(
            (report.policy, line_tone(index)) for index, report in enumerate(reports)
        )
        self.starts_s = [one.start_s for one in timeline] or [0.0]
        self.width_s = self.starts_s[1] - self.starts_s[0] if len(self.starts_s) > 1 else 1.0
        end_s = self.starts_s[-1] + self.width_s
        self.axis = Axis(
            label="time",
            unit="s",
            least=self.starts_s[0],
            most=end_s,
            scale=Scale.TIME,
            ticks=time_ticks(self.starts_s[0], end_s),
        )

    def series(self, key: Key, values: Values, form: Form = Form.STEPS) -> Series:
        """Values of each interval; a timeline that ended earlier has none for the rest."""
        name, colour = key
        padded = [*values, *[None] * (len(self.starts_s) - len(values))]
        return Series(name=name, tone=colour, form=form, x=self.starts_s, y=padded)

    def lines(self, columns: Sequence[Values]) -> tuple[Series, ...]:
        """A line for each policy."""
        pairs = zip(self.policies, columns, strict=True)
        return tuple(self.series(key, values) for key, values in pairs)

    def levels(self, title: str, unit: str, columns: Sequence[Values]) -> Diagram:
        """A diagram from 0 upwards of one value for each policy."""
        return self.diagram(title, unit, self.lines(columns), most=1.1 * highest(*columns) or 1.0)

    def diagram(
        self,
        title: str,
        unit: str,
        series: tuple[Series, ...],
        *,
        most: float,
        least: float = 0.0,
        decimals: int | None = None,
        more: str = "",
        keys: tuple[Key, ...] = (),
    ) -> Diagram:
        return Diagram(
            title=title,
            detail=unit + more,
            x=self.axis,
            y=Axis(label=title, unit=unit, least=least, most=most, decimals=decimals),
            series=series,
            keys=keys,
        )


def _demand(shared: _Shared, timelines: Timelines) -> Diagram:
    arrived = [one.arrived / shared.width_s for one in max(timelines, key=len)]
    demand = shared.series(("demand", "demand"), arrived, Form.AREA)
    columns = [
        [one.capacity_qps if isfinite(one.capacity_qps) else None for one in timeline]
        for timeline in timelines
    ]
    several = len(shared.policies) > 1
    lines = shared.lines(columns) if several else (shared.series(("capacity", "c0"), columns[0]),)
    # The capacity of a fleet far beyond the demand would press the demand to the ground.
    top = highest(arrived, *columns)
    most = 1.05 * (min(top, 2.5 * highest(arrived)) or 1.0)
    cut = f"; capacity is cut off at {short(most)}" if top > most else ""
    return shared.diagram(
        "Demand and capacity",
        "queries per second",
        (demand, *lines),
        most=most,
        more=(", capacity by policy" if several else "") + cut,
        keys=_keys((demand,) if several else (demand, *lines)),
    )


def _violations(shared: _Shared, timelines: Timelines) -> Diagram:
    every = [[_percent(i.late + i.rejected, i.arrived) for i in t] for t in timelines]
    if len(timelines) > 1:
        series = shared.lines(every)
    else:
        late = [_percent(i.late, i.arrived) for i in timelines[0]]
        series = (
            shared.series(("late", "late"), late, Form.AREA),
            shared.series(("rejected or late", "rejected"), every[0], Form.AREA),
        )
    return shared.diagram(
        "Violations",
        "% of queries",
        series,
        most=min(max(1.1 * highest(*every), 1.0), 100.0),
        keys=() if len(timelines) > 1 else _keys(series),
    )


def _accuracy(shared: _Shared, timelines: Timelines) -> Diagram:
    columns = [[100 * i.accuracy if i.in_time else None for i in t] for t in timelines]
    known = [value for column in columns for value in column if value is not None] or [0.0, 100.0]
    slack = max(0.1 * (max(known) - min(known)), 0.5)
    return shared.diagram(
        "Accuracy",
        "%",
        shared.lines(columns),
        least=max(min(known) - slack, 0.0),
        most=min(max(known) + slack, 100.0),
        decimals=2,
        more=", mean of the queries in time",
    )


def _keys(series: Sequence[Series]) -> tuple[Key, ...]:
    return tuple((one.name, one.tone) for one in series)


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def highest(*columns: Values) -> float:
    """The largest of all values that are there; 0 when there is none."""
    return max((value for values in columns for value in values if value is not None), default=0.0)


# -- the axis of time ---------------------------------------------------------------------------

_STEPS_S = (
    *(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200),
    *(86_400 * days for days in (1, 2, 7, 14, 28, 56)),
)
_UNITS_S = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def time_ticks(begin_s: float, end_s: float) -> tuple[tuple[float, str], ...]:
    """Where the time axis is marked, and with which text: at most ten marks."""
    span = end_s - begin_s
    step = next((step for step in _STEPS_S if span / step <= 9), _STEPS_S[-1])
    unit, name = next((unit, name) for unit, name in _UNITS_S if step >= unit)
    first = -(-begin_s // step)
    count = int((end_s - first * step) / step + 1e-9) + 1
    at = [(first + index) * step for index in range(count)]
    return tuple((mark, f"{mark / unit:g} {name}" if mark else "0") for mark in at)
