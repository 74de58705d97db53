"""A simulation over time as a picture: demand and capacity, violations, accuracy, devices, cost.

Several reports are drawn over each other, one colour each. ``.html`` is one file of its own,
without a network; ``.png`` needs matplotlib.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from math import floor, inf, isfinite, log10
from pathlib import Path

from planner.simulation.results import Interval, Report
from variants.errors import InvalidInput

POINTS = 300
"""A longer timeline is drawn with its intervals put together."""

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One value over time. None where there is none."""

    name: str
    values: Values
    tone: str
    """What colour: ``demand``, ``late``, ``rejected``, or ``c0`` and so on for each report."""
    filled: bool = False
    stepped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One diagram; all panels of a picture have the same times."""

    title: str
    unit: str
    lines: Sequence[Line]
    least: float
    most: float
    show: Callable[[float], str]
    """A value for reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """All that both formats draw."""

    title: str
    reports: Sequence[Report]
    starts_s: Sequence[float]
    end_s: float
    panels: Sequence[Panel]


def check_target(path: Path) -> None:
    """Refuse, before hours of simulation, what could not be written after them.

    Raises:
        InvalidInput: the suffix, the folder, or matplotlib.
    """
    if path.suffix.lower() not in (".html", ".png"):
        raise InvalidInput(f"--plot {path}: the name must end in .html or .png")
    if path.is_dir() or not path.absolute().parent.is_dir():
        what = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise InvalidInput(f"--plot {path} cannot be written: {what}")
    if path.suffix.lower() == ".png" and find_spec("matplotlib") is None:
        raise InvalidInput(
            f"--plot {path} needs matplotlib: `pip install 'modelless[plot]'`, or a name in .html"
        )


def write_plot(path: Path, reports: Sequence[Report], title: str) -> None:
    """Draw reports of the same trace into a file, in the format of its suffix.

    Raises:
        InvalidInput: it cannot be written.
    """
    check_target(path)
    drawn = picture(reports, title)
    try:
        if path.suffix.lower() == ".html":
            from controlplane.plot_html import html

            path.write_text(html(drawn), encoding="utf-8")
        else:
            from controlplane.plot_png import png

            path.write_bytes(png(drawn))
    except OSError as error:
        raise InvalidInput(f"--plot {path} cannot be written: {error.strerror}") from error


def picture(reports: Sequence[Report], title: str) -> Picture:
    """The panels of some reports, at least one; their timelines have the same intervals."""
    merged = [merge(report.timeline, POINTS) for report in reports]
    longest = max(merged, key=len)
    starts = [one.start_s for one in longest]
    width = starts[1] - starts[0] if len(starts) > 1 else 1.0
    rates = [[_rate(one.arrived, width) for one in timeline] for timeline in merged]
    return Picture(
        title=title,
        reports=reports,
        starts_s=starts or [0.0],
        end_s=(starts[-1] if starts else 0.0) + width,
        panels=(
            _demand(reports, merged, max(rates, key=len)),
            _violations(reports, merged),
            _accuracy(reports, merged),
            _level("Devices", "usable", reports, [[float(i.devices) for i in t] for t in merged]),
            _level("Cost", "USD per hour", reports, [[i.usd_per_hour for i in t] for t in merged]),
        ),
    )


def merge(timeline: Sequence[Interval], most: int) -> Sequence[Interval]:
    """At most so many intervals, neighbours put together: sums, means, and the last state."""
    size = -(-len(timeline) // most)
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


# -- panels -------------------------------------------------------------------------------------

Timelines = Sequence[Sequence[Interval]]


def _demand(reports: Sequence[Report], timelines: Timelines, demand: Values) -> Panel:
    lines = [Line(name="demand", values=demand, tone="demand", filled=True)]
    capacities = [[one.capacity_qps for one in timeline] for timeline in timelines]
    for index, (report, values) in enumerate(zip(reports, capacities, strict=True)):
        name = "capacity" if len(reports) == 1 else report.policy
        finite = [value if isfinite(value) else None for value in values]
        lines.append(Line(name=name, values=finite, tone=f"c{index}", stepped=True))
    unit = "queries per second"
    if len(reports) > 1:
        unit += ", demand in grey, capacity by policy"
    # A fleet far beyond the demand would press it to the ground.
    top = max(highest(line.values) for line in lines)
    most = min(top, 2.5 * highest(demand)) or 1.0
    if top > most:
        unit += f"; capacity is cut off at {short(1.05 * most)}"
    return Panel(
        title="Demand and capacity",
        unit=unit,
        lines=lines,
        least=0.0,
        most=1.05 * most,
        show=short,
    )


def _violations(reports: Sequence[Report], timelines: Timelines) -> Panel:
    if len(reports) == 1:
        every = [_percent(i.late + i.rejected, i.arrived) for i in timelines[0]]
        late = [_percent(i.late, i.arrived) for i in timelines[0]]
        lines = [
            Line(name="rejected or late", values=every, tone="rejected", filled=True),
            Line(name="late", values=late, tone="late", filled=True),
        ]
    else:
        lines = [
            Line(
                name=report.policy,
                values=[_percent(i.late + i.rejected, i.arrived) for i in timeline],
                tone=f"c{index}",
            )
            for index, (report, timeline) in enumerate(zip(reports, timelines, strict=True))
        ]
    most = min(max(1.1 * max(highest(line.values) for line in lines), 1.0), 100.0)
    return Panel(
        title="Violations", unit="% of queries", lines=lines, least=0.0, most=most, show=short
    )


def _accuracy(reports: Sequence[Report], timelines: Timelines) -> Panel:
    lines = [
        Line(
            name=report.policy,
            values=[100 * i.accuracy if i.in_time else None for i in timeline],
            tone=f"c{index}",
        )
        for index, (report, timeline) in enumerate(zip(reports, timelines, strict=True))
    ]
    known = [value for line in lines for value in line.values if value is not None] or [0.0, 100.0]
    slack = max(0.1 * (max(known) - min(known)), 0.5)
    return Panel(
        title="Accuracy",
        unit="%, mean of the queries in time",
        lines=lines,
        least=max(min(known) - slack, 0.0),
        most=min(max(known) + slack, 100.0),
        show=lambda value: f"{value:.2f}",
    )


def _level(title: str, unit: str, reports: Sequence[Report], columns: Sequence[Values]) -> Panel:
    lines = [
        Line(name=report.policy, values=values, tone=f"c{index}", stepped=True)
        for index, (report, values) in enumerate(zip(reports, columns, strict=True))
    ]
    most = 1.1 * max(highest(line.values) for line in lines) or 1.0
    return Panel(title=title, unit=unit, lines=lines, least=0.0, most=most, show=short)


def _rate(count: int, width_s: float) -> float:
    return count / width_s


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def highest(values: Values) -> float:
    return max((value for value in values if value is not None), default=0.0)


# -- axes ---------------------------------------------------------------------------------------

_STEPS_S = (
    *(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200),
    *(86_400 * days for days in (1, 2, 7, 14, 28, 56)),
)
_UNITS_S = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def time_ticks(begin_s: float, end_s: float) -> list[tuple[float, str]]:
    """Where the time axis is marked, with what: at most ten marks."""
    span = end_s - begin_s
    step = next((step for step in _STEPS_S if span / step <= 9), _STEPS_S[-1])
    unit, name = next((unit, name) for unit, name in _UNITS_S if step >= unit)
    first = -(-begin_s // step)
    count = int((end_s - first * step) / step + 1e-9) + 1
    at = [(first + index) * step for index in range(count)]
    return [(mark, f"{mark / unit:g} {name}" if mark else "0") for mark in at]


def value_ticks(least: float, most: float) -> list[float]:
    """Round values between two others, about four."""
    raw = (most - least) / 4
    if not 0 < raw < inf:
        return [least]
    power = 10.0 ** floor(log10(raw))
    step = next(step * power for step in (1, 2, 5, 10) if step * power >= raw * 0.99)
    first = -int(-least // step)
    return [index * step for index in range(first, int(most / step + 1e-9) + 1)]


def short(value: float) -> str:
    """A number for an axis or a read-out: about three digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
