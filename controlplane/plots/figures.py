"""Drawings as pictures: the only module that knows matplotlib. Light theme, the pages' colours.

A figure has a canvas of its own: pyplot would look for a display and keep what was drawn.
"""

from collections.abc import Sequence
from io import BytesIO
from math import nan
from typing import TYPE_CHECKING, Any, NamedTuple
from warnings import catch_warnings, filterwarnings

from controlplane.dashboard.pages import light_colours
from controlplane.plots.drawing import (
    Axis,
    Diagram,
    Drawing,
    Form,
    Key,
    Scale,
    Section,
    Series,
    colour_and_stroke,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as FigureAxis
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

WIDTH_IN = 11.0
FAINT = 0.3
_STROKES = {"": "-", "dashed": "--", "dotted": ":"}
POINTS_PER_PIXEL = 0.75
"""Sizes in a drawing are pixels of a page, of which an inch has 96; matplotlib's points are 72."""
STYLE = {
    "font.size": 9.0,
    "svg.fonttype": "none",  # text stays text: it can be searched, and read out
    "svg.hashsalt": "modelless",  # the same drawing gives the same file
}


def svg(drawing: Drawing) -> bytes:
    """The picture as SVG; equal drawings give equal bytes."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    return _printed(drawing, FigureCanvasSVG, "svg", {"Date": None, "Creator": "modelless"})


def png(drawing: Drawing) -> bytes:
    """The picture as PNG, 1,650 pixels wide unless it is very high."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    return _printed(drawing, FigureCanvasAgg, "png", {"Software": None})


def _printed(drawing: Drawing, canvas: type, kind: str, metadata: dict[str, str | None]) -> bytes:
    from matplotlib import rc_context

    buffer = BytesIO()
    with rc_context(STYLE), catch_warnings():
        # The title is the name of a file, in whatever script; a box stands for what is missing.
        filterwarnings("ignore", message="Glyph .* missing")
        figure = figure_of(drawing)
        canvas(figure)
        # An image has at most 65,535 rows; a picture of very many sections is less fine.
        dpi = min(150.0, 60_000 / figure.get_figheight())
        white = light_colours()["card"]
        figure.savefig(buffer, format=kind, dpi=dpi, facecolor=white, metadata=metadata)
    return buffer.getvalue()


def figure_of(drawing: Drawing) -> "Figure":
    """The sections below each other, each with its diagrams and its legend."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    heights = [_height_in(section) for section in drawing.sections]
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08)
    figure = Figure(figsize=(WIDTH_IN, 0.5 + sum(heights)), layout=layout)
    ink = light_colours()["ink"]
    figure.suptitle(
        f"{drawing.heading}: {drawing.title}",
        x=0.012, ha="left", fontsize=13, weight="bold", color=ink, parse_math=False,
    )  # fmt: skip
    parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    drawn: list[tuple[Axes, Diagram]] = []
    for part, section in zip(parts, drawing.sections, strict=True):
        drawn += _draw_section(part, section)
    figure.draw_without_rendering()  # from here on it is known where everything lies
    figure.set_layout_engine("none")
    for axes, diagram in drawn:
        _draw_labels(axes, diagram)
    return figure


def _height_in(section: Section) -> float:
    rows = -(-len(section.diagrams) // section.columns)
    around = (0.35 if section.title else 0.0) + (0.35 if section.keys else 0.0)
    return rows * (1.9 if section.columns == 1 else 4.2) + around


def _draw_section(part: "SubFigure", section: Section) -> "list[tuple[Axes, Diagram]]":
    colours = light_colours()
    if section.title:
        part.suptitle(
            f"{section.title} {section.detail}",
            x=0.012, ha="left", fontsize=11, weight="bold", color=colours["ink"], parse_math=False,
        )  # fmt: skip
    rows = -(-len(section.diagrams) // section.columns)
    timed = section.diagrams[0].x.scale is Scale.TIME
    grid = part.subplots(rows, section.columns, squeeze=False, sharex=timed)
    drawn = list(zip(grid.flat, section.diagrams, strict=True))
    for axes, diagram in drawn:
        _draw_diagram(axes, diagram)
    if section.keys:
        rows = -(-sum(len(name) + 6 for name, _ in section.keys) // 150)
        part.legend(
            handles=_handles(section.keys), loc="outside lower left",
            ncols=-(-len(section.keys) // rows), frameon=False, fontsize=9, handletextpad=0.4,
            labelcolor=colours["ink"],
        )  # fmt: skip
    return drawn


def _handles(keys: Sequence[Key]) -> "list[Line2D]":
    from matplotlib.lines import Line2D

    handles = []
    for name, tone in keys:
        colour, stroke = colour_and_stroke(tone)
        style: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 6}
        if "line" in tone.split():
            style = {"linestyle": _STROKES[stroke]}
        handles.append(Line2D([], [], color=light_colours()[colour], label=name, **style))
    return handles


def _draw_diagram(axes: "Axes", diagram: Diagram) -> None:
    colours = light_colours()
    axes.set_title(diagram.title, loc="left", fontsize=10, weight="bold", color=colours["ink"])
    axes.set_title(diagram.detail, loc="right", fontsize=9, color=colours["soft"])
    if diagram.x.scale is Scale.LOG:
        axes.set_xscale("log")
    if diagram.y.scale is Scale.LOG:
        axes.set_yscale("log")
    axes.set_xlim(diagram.x.least, diagram.x.most)
    axes.set_ylim(diagram.y.least, diagram.y.most)
    timed = diagram.x.scale is Scale.TIME
    _draw_axis(axes.xaxis, diagram.x)
    _draw_axis(axes.yaxis, diagram.y)
    if not timed:
        axes.set_xlabel(_label(diagram.x), color=colours["soft"])
        axes.set_ylabel(_label(diagram.y), color=colours["soft"])
    axes.tick_params(which="both", colors=colours["soft"], labelsize=8, length=0)
    axes.grid(axis="y" if timed else "both", color=colours["line"], linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.spines["bottom"].set(visible=True, color=colours["line"])
    for index, one in enumerate(diagram.series):
        # Areas lie lowest; among the others the first lies on top.
        _draw_series(axes, one, order=(2 if one.form is Form.AREA else 3) + 1 / (index + 2))
    if diagram.keys:
        legend = axes.legend(
            handles=_handles(diagram.keys), loc="lower center", ncols=len(diagram.keys),
            frameon=False, fontsize=8, handletextpad=0.1, labelcolor=colours["soft"],
        )  # fmt: skip
        legend.set_bbox_to_anchor((0.5, 0.97), transform=axes.transAxes)


def _label(axis: Axis) -> str:
    return f"{axis.label}, {axis.unit}" if axis.unit else axis.label


def _draw_axis(drawn: "FigureAxis", axis: Axis) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    if axis.ticks:
        drawn.set_ticks([at for at, _ in axis.ticks], [text for _, text in axis.ticks])
    else:
        wide = axis.scale is Scale.LOG and axis.most / axis.least > 10**2.5
        drawn.set_major_locator(
            LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0))
            if axis.scale is Scale.LOG
            else MaxNLocator(4, steps=[1, 2, 2.5, 5, 10])
        )
        drawn.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    drawn.set_minor_locator(NullLocator())


def _draw_series(axes: "Axes", one: Series, *, order: float) -> None:
    named, stroke = colour_and_stroke(one.tone)
    colour = light_colours()[named]
    alpha = FAINT if one.faint else 1.0
    least, most = axes.get_ylim()
    # What lies outside of the axis runs along its edge.
    values = [nan if value is None else min(max(value, least), most) for value in one.y]
    if one.form in (Form.STEPS, Form.AREA, Form.FRONTIER):
        # The last value holds to the end of the axis.
        x, y = [*one.x, axes.get_xlim()[1]], [*values, values[-1]]
        if one.form is Form.AREA:
            alpha = 0.75 if one.tone == "demand" else 1.0
            axes.fill_between(x, y, step="post", color=colour, alpha=alpha, lw=0, zorder=order)
            return
        style = (
            {"linestyle": "--", "linewidth": 0.9}
            if one.form is Form.FRONTIER
            else {
                "linestyle": _STROKES[stroke],
                "linewidth": 1.7 if (named, stroke) == ("c0", "") else 1.1,
            }
        )
        axes.step(x, y, where="post", color=colour, zorder=order, **style)
        return
    if one.form is Form.CURVE:
        axes.plot(one.x, values, color=colour, alpha=alpha, linewidth=1.1, zorder=order)
    hollow = one.hollow or [False] * len(one.x)
    axes.scatter(
        one.x,
        values,
        s=(2 * POINTS_PER_PIXEL * one.size) ** 2,
        facecolors=["white" if empty else colour for empty in hollow],
        edgecolors=colour,
        linewidths=0.9,
        alpha=alpha,
        zorder=order,
    )


class _Box(NamedTuple):
    """A rectangle on the figure, in points."""

    left: float
    low: float
    right: float
    high: float

    def meets(self, other: "_Box") -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.low < other.high
            and other.low < self.high
        )


LABEL_POINTS = 7.5
_PLACES = (("left", 1, 0), ("right", -1, 0), ("left", 1, 1), ("right", -1, 1), ("left", 1, -1),
           ("right", -1, -1), ("center", 0, 1.4), ("center", 0, -1.4))  # fmt: skip
"""(alignment, how far to the right, how far up) of a label, from its dot; the best first."""


def _draw_labels(axes: "Axes", diagram: Diagram) -> None:
    """A label stands beside its dot where it covers no other label and no other dot."""
    scale = 72 / axes.figure.dpi
    frame = axes.get_window_extent()
    inside = _Box(*(scale * edge for edge in (frame.x0, frame.y0, frame.x1, frame.y1)))
    dots = [one for one in diagram.series if one.form is Form.DOTS]
    centres = [scale * axes.transData.transform((one.x[0], one.y[0] or 0.0)) for one in dots]
    taken = [
        _Box(x - radius, y - radius, x + radius, y + radius)
        for (x, y), radius in zip(
            centres, (POINTS_PER_PIXEL * one.size for one in dots), strict=True
        )
    ]
    for index, one in enumerate(dots):
        if not one.label:
            continue
        x, y = centres[index]
        width, half = 0.62 * LABEL_POINTS * len(one.label), 0.6 * LABEL_POINTS
        for align, across, up in _PLACES:
            away_x = across * (POINTS_PER_PIXEL * one.size + 3)
            away_y = up * (POINTS_PER_PIXEL * one.size + 3)
            left = x + away_x - {"left": 0.0, "right": width, "center": width / 2}[align]
            box = _Box(left, y + away_y - half, left + width, y + away_y + half)
            fits = (
                box.left > inside.left
                and box.right < inside.right + 9
                and (inside.low < box.low and box.high < inside.high + 6)
            )
            if fits and not any(box.meets(other) for i, other in enumerate(taken) if i != index):
                taken.append(box)
                axes.annotate(
                    one.label, (one.x[0], one.y[0] or 0.0), xytext=(away_x, away_y),
                    textcoords="offset points", ha=align, va="center", fontsize=LABEL_POINTS,
                    color=light_colours()["ink"], zorder=5,
                    bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.5},
                )  # fmt: skip
                break
