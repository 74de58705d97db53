"""The picture of a task's variants as one HTML file: inline SVG, light and dark, no script."""

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from math import ceil, floor, log10

from controlplane.family_plot import TONES, Chart, Mark, frontier_steps, rows_per_s
from controlplane.plots import value_ticks

WIDTH, HEIGHT = 560.0, 330.0
LEFT, RIGHT, TOP, BOTTOM = 56.0, 12.0, 10.0, 36.0


def html(charts: Sequence[Chart]) -> str:
    """The page."""
    page = (files("controlplane") / "pages" / "family.html").read_text(encoding="utf-8")
    tasks = ", ".join(dict.fromkeys(chart.task for chart in charts))
    return page.replace("<!--title-->", escape(tasks)).replace(
        "<!--charts-->", "\n".join(map(_section, charts))
    )


def _section(chart: Chart) -> str:
    keys = "".join(
        f'<span><i class="key c{min(tone, TONES - 1)}"></i>{escape(kind)}</span>'
        for tone, kind in enumerate(chart.kinds)
    )
    best = [mark for mark in reversed(chart.marks) if mark.frontier]
    rows = "\n".join(map(_row, sorted(best, key=lambda mark: mark.p95_ms)))
    others = len(chart.marks) - len(best)
    more = f"<p>{others} more variants are beaten by one of these, whatever is asked.</p>"
    return (
        f"<section><h2>{escape(chart.task)} <small>on {escape(chart.device_kind)}</small>"
        f'<span class="keys">{keys}</span></h2>\n<div class="pair">'
        f"<figure><figcaption>Accuracy, and p95 latency of one row</figcaption>"
        f"{_accuracy(chart)}</figure>\n"
        f"<figure><figcaption>Throughput by batch size; hollow: predicted</figcaption>"
        f"{_batches(chart)}</figure></div>\n"
        "<table><thead><tr><th>Nothing beats</th><th>Accuracy</th><th>p95 ms, 1 row</th>"
        "<th>USD per 1,000</th><th>Rows/s</th><th>at batch</th></tr></thead>\n"
        f"<tbody>{rows}</tbody></table>{more if others else ''}</section>"
    )


def _row(mark: Mark) -> str:
    best = max(mark.points, key=rows_per_s)
    guess = "~" if mark.predicted else ""
    price = "-" if mark.usd_per_1k is None else f"{mark.usd_per_1k:.3g}"
    cells = (
        f"{100 * mark.accuracy:.2f} % <small>± {50 * (mark.high - mark.low):.1f}</small>",
        f"{guess}{mark.p95_ms:.3g}",
        price,
        f"{guess}{rows_per_s(best):,.0f}",
        str(best.batch_size),
    )
    return (
        f'<tr><td><i class="key c{mark.tone}"></i>{escape(mark.name)}</td>'
        + "".join(f"<td>{cell}</td>" for cell in cells)
        + "</tr>"
    )


class _Axis:
    """A logarithmic or straight scale from values to pixels."""

    def __init__(self, least: float, most: float, begin: float, end: float, *, log: bool) -> None:
        self._log = log
        self.least, self.most = least, most if most > least else least * 1.1 or 1.0
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        least, most = self.least, self.most
        part = (
            (log10(value) - log10(least)) / (log10(most) - log10(least))
            if self._log
            else (value - least) / (most - least)
        )
        return self._begin + (self._end - self._begin) * min(max(part, 0.0), 1.0)

    @property
    def ticks(self) -> list[float]:
        if not self._log:
            return value_ticks(self.least, self.most)
        decades = range(floor(log10(self.least)), ceil(log10(self.most)) + 1)
        wide = log10(self.most / self.least) > 3
        steps = (1,) if wide else (1, 2, 5)
        marks = [step * 10.0**decade for decade in decades for step in steps]
        return [mark for mark in marks if self.least <= mark <= self.most]


def _accuracy(chart: Chart) -> str:
    marks = chart.marks
    x = _across([mark.p95_ms for mark in marks])
    low, high = min(m.accuracy for m in marks), max(m.accuracy for m in marks)
    slack = max(0.08 * (high - low), 0.004)
    y = _up(100 * max(low - slack, 0.0), 100 * min(high + slack, 1.0), log=False)
    parts = [*_frame(x, y, "ms", "%")]
    steps = frontier_steps(marks)
    corners = "".join(f"H{x.at(ms):.1f}V{y.at(100 * accuracy):.1f}" for ms, accuracy in steps[1:])
    first_ms, first = steps[0]
    parts.append(
        f'<path class="front" d="M{x.at(first_ms):.1f},{y.at(100 * first):.1f}{corners}'
        f'H{WIDTH - RIGHT:g}"/>'
    )
    dearest = max((mark.usd_per_1k or 0.0 for mark in marks), default=0.0)
    for mark in marks:
        size = 3.5 + 7.0 * ((mark.usd_per_1k or 0.0) / dearest) ** 0.5 if dearest else 5.0
        parts.append(_dot(x.at(mark.p95_ms), y.at(100 * mark.accuracy), size, mark))
    return _svg(parts, f"Accuracy and latency of the variants of {chart.task}")


def _batches(chart: Chart) -> str:
    every = [point for mark in chart.marks for point in mark.points]
    sizes = sorted({float(point.batch_size) for point in every})
    x = _across(sizes)
    speeds = [rows_per_s(point) for point in every]
    y = _up(min(speeds) * 0.8, max(speeds) * 1.25, log=True)
    parts = [*_frame(x, y, "rows in a batch", "rows/s", across_at=sizes)]
    for mark in chart.marks:
        line = "L".join(f"{x.at(p.batch_size):.1f},{y.at(rows_per_s(p)):.1f}" for p in mark.points)
        faint = "" if mark.frontier else " faint"
        parts.append(
            f'<g class="c{mark.tone}{faint}"><title>{escape(mark.words)}</title>'
            f'<path class="curve" d="M{line}"/>'
        )
        for point in mark.points:
            hollow = " hollow" if point.error else ""
            parts.append(
                f'<circle class="dot{hollow}" cx="{x.at(point.batch_size):.1f}" '
                f'cy="{y.at(rows_per_s(point)):.1f}" r="3"/>'
            )
        parts.append("</g>")
    return _svg(parts, f"Throughput of the variants of {chart.task} by batch size")


def _across(values: Sequence[float]) -> _Axis:
    return _Axis(min(values) * 0.8, max(values) * 1.25, LEFT, WIDTH - RIGHT, log=True)


def _up(least: float, most: float, *, log: bool) -> _Axis:
    return _Axis(least, most, HEIGHT - BOTTOM, TOP, log=log)


def _frame(
    x: _Axis, y: _Axis, across: str, up: str, across_at: Sequence[float] | None = None
) -> Iterator[str]:
    ground = HEIGHT - BOTTOM
    for mark in y.ticks:
        yield (
            f'<line class="grid" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" '
            f'y1="{y.at(mark):.1f}" y2="{y.at(mark):.1f}"/>'
            f'<text x="{LEFT - 8:g}" y="{y.at(mark) + 4:.1f}" text-anchor="end">{mark:,.6g}</text>'
        )
    for mark in x.ticks if across_at is None else across_at:
        yield (
            f'<line class="grid" x1="{x.at(mark):.1f}" x2="{x.at(mark):.1f}" '
            f'y1="{TOP:g}" y2="{ground:g}"/>'
            f'<text x="{x.at(mark):.1f}" y="{ground + 15:g}" text-anchor="middle">{mark:g}</text>'
        )
    yield f'<text x="{WIDTH - RIGHT:g}" y="{HEIGHT - 4:g}" text-anchor="end">{across}</text>'
    yield f'<text x="{LEFT + 6:g}" y="{TOP + 10:g}">{up}</text>'
    yield (
        f'<line class="axis" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{ground:g}" y2="{ground:g}"/>'
    )


def _dot(x: float, y: float, size: float, mark: Mark) -> str:
    hollow = " hollow" if mark.points[0].error else ""
    faint = "" if mark.frontier else " faint"
    return (
        f'<circle class="dot c{mark.tone}{faint}{hollow}" cx="{x:.1f}" cy="{y:.1f}" '
        f'r="{size:.1f}"><title>{escape(mark.words)}</title></circle>'
    )


def _svg(parts: Sequence[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(label)}">'
        + "\n".join(parts)
        + "</svg>"
    )
