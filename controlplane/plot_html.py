"""A picture of simulations as one HTML file: inline SVG, light and dark, a read-out on hover.

The page is ``pages/simulation.html`` with what is drawn put in; without scripts it is a picture
still.
"""

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import orjson

from controlplane.plots import Line, Panel, Picture, short, time_ticks, value_ticks

WIDTH, HEIGHT = 1_100.0, 168.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 6.0, 8.0, 22.0
"""Margins for what stands at the axes."""


def html(picture: Picture) -> str:
    """The page."""
    page = (files("controlplane") / "pages" / "simulation.html").read_text(encoding="utf-8")
    parts = {
        "title": escape(picture.title),
        "summary": _summary(picture),
        "panels": "\n".join(_section(panel, picture) for panel in picture.panels),
        "data": _data(picture),
    }
    for name, text in parts.items():
        page = page.replace(f"<!--{name}-->", text)
    return page


def _summary(picture: Picture) -> str:
    """A row for each report; with several it is the legend too."""
    rows = []
    for index, one in enumerate(picture.reports):
        cells = (
            f"{one.requests:,}",
            f"{100 * one.violation_ratio:.2f} %",
            f"{one.late:,}",
            f"{one.rejected:,}",
            f"{100 * one.effective_accuracy:.2f} %",
            short(one.cost_usd),
            f"{100 * one.busy_ratio:.1f} %",
            f"{one.loads:,}",
            f"{one.evictions:,}",
        )
        rows.append(
            f'<tr data-tone="c{index}" tabindex="0"><td><i class="key c{index}"></i>'
            f"{escape(one.policy)}</td>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
        )
    return "\n".join(rows)


def _section(panel: Panel, picture: Picture) -> str:
    keys = ""
    named = (
        panel.lines
        if len(picture.reports) == 1 and len(panel.lines) > 1
        else [line for line in panel.lines if line.tone == "demand"]
    )
    for line in named:
        keys += f'<span><i class="key {line.tone}"></i>{escape(line.name)}</span>'
    return (
        f"<section><h2>{escape(panel.title)} <small>{escape(panel.unit)}</small>"
        f'<span class="keys">{keys}</span></h2>\n'
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(panel.title)}">\n'
        + "\n".join(_svg(panel, picture))
        + "\n</svg></section>"
    )


def _svg(panel: Panel, picture: Picture) -> Iterator[str]:
    begin, span = picture.starts_s[0], picture.end_s - picture.starts_s[0]
    floor = HEIGHT - BOTTOM

    def x(at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (at_s - begin) / span

    def y(value: float) -> float:
        part = (value - panel.least) / ((panel.most - panel.least) or 1.0)
        # What lies outside runs along the edge.
        return floor - (floor - TOP) * min(max(part, 0.0), 1.0)

    for mark in value_ticks(panel.least, panel.most):
        yield (
            f'<line class="grid" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" '
            f'y1="{y(mark):.1f}" y2="{y(mark):.1f}"/>'
            f'<text x="{LEFT - 8:g}" y="{y(mark) + 4:.1f}" text-anchor="end">'
            f"{mark:,.10g}</text>"
        )
    for at_s, text in time_ticks(begin, picture.end_s):
        anchor = "start" if x(at_s) < LEFT + 20 else "end" if x(at_s) > WIDTH - 40 else "middle"
        yield f'<text x="{x(at_s):.1f}" y="{HEIGHT - 5:g}" text-anchor="{anchor}">{text}</text>'
    yield f'<line class="axis" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{floor:g}" y2="{floor:g}"/>'
    yield f'<svg x="{LEFT:g}" y="{TOP - 2:g}" width="{WIDTH - LEFT - RIGHT:g}" '
    yield f'height="{floor - TOP + 4:g}" viewBox="{LEFT:g} {TOP - 2:g} {WIDTH - LEFT - RIGHT:g} '
    yield f'{floor - TOP + 4:g}">'
    # The first report lies on top of the others, and areas below all lines.
    for line in sorted(panel.lines, key=lambda line: not line.filled):
        if line.filled:
            yield _area(line, picture, x, y, floor)
    for line in reversed([line for line in panel.lines if not line.filled]):
        yield _path(line, picture, x, y)
    yield "</svg>"
    yield f'<line class="cursor" y1="{TOP:g}" y2="{floor:g}"/>'


def _corners(line: Line, picture: Picture, x: Any, y: Any) -> Iterator[list[tuple[float, float]]]:
    """The unbroken pieces of a line."""
    ends = [*picture.starts_s[1:], picture.end_s]
    piece: list[tuple[float, float]] = []
    for start, end, value in zip(picture.starts_s, ends, line.values, strict=False):
        if value is None:
            if piece:
                yield piece
            piece = []
        elif line.stepped or line.filled:
            piece += [(x(start), y(value)), (x(end), y(value))]
        else:
            piece.append((x((start + end) / 2), y(value)))
    if piece:
        yield piece


def _path(line: Line, picture: Picture, x: Any, y: Any) -> str:
    pieces = []
    for piece in _corners(line, picture, x, y):
        # A point by itself is seen as a short stroke.
        [(a, b), *more] = piece
        pieces.append(_points(piece if more else [(a - 1, b), (a + 1, b)]))
    drawn = "".join(f"M{points}" for points in pieces)
    return f'<path class="line {line.tone}" d="{drawn}"/>'


def _area(line: Line, picture: Picture, x: Any, y: Any, floor: float) -> str:
    drawn = "".join(
        f"M{piece[0][0]:.1f},{floor:g}L{_points(piece)}L{piece[-1][0]:.1f},{floor:g}Z"
        for piece in _corners(line, picture, x, y)
    )
    return f'<path class="area {line.tone}" d="{drawn}"/>'


def _points(piece: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{a:.1f},{b:.1f}" for a, b in piece)


def _data(picture: Picture) -> str:
    """What the read-out says at each time, ready to show; JSON that cannot end the script."""
    data = {
        "frame": {"left": LEFT, "right": WIDTH - RIGHT, "width": WIDTH},
        "starts": list(picture.starts_s),
        "end": picture.end_s,
        "panels": [
            {
                "title": panel.title,
                "lines": [
                    {
                        "name": line.name,
                        "tone": line.tone,
                        "shown": [
                            "-" if value is None else panel.show(value) for value in line.values
                        ],
                    }
                    for line in panel.lines
                ],
            }
            for panel in picture.panels
        ],
    }
    return orjson.dumps(data).decode().replace("<", "\\u003c")
