"""A picture of simulations as PNG, by matplotlib."""

from io import BytesIO
from typing import TYPE_CHECKING

from controlplane.plots import Line, Panel, Picture, time_ticks, value_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "demand": "#b9bdc9",
    "late": "#e0a030",
    "rejected": "#d9534a",
    "c0": "#3159d9",
    "c1": "#c2571a",
    "c2": "#7b43c4",
    "c3": "#1d7f4e",
    "c4": "#b8901a",
    "c5": "#c2327f",
    "c6": "#0e7c86",
    "c7": "#7a6a55",
}
INK, SOFT, RULE = "#17181c", "#666b78", "#e4e5ea"


def png(picture: Picture) -> bytes:
    """The panels below each other, the whole 1,600 dots wide."""
    # A figure of its own canvas: pyplot would look for a display and keep what it drew.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.08)
    figure = Figure(figsize=(11, 1.5 + 2.0 * len(picture.panels)), layout=layout)
    FigureCanvasAgg(figure)
    figure.suptitle(picture.title, x=0.012, ha="left", fontsize=13, weight="bold", color=INK)
    axes = figure.subplots(len(picture.panels), 1, sharex=True, squeeze=False)[:, 0]
    for panel, axis in zip(picture.panels, axes, strict=True):
        _draw(axis, panel, picture)
    marks = time_ticks(picture.starts_s[0], picture.end_s)
    axes[-1].set_xticks([at for at, _ in marks], [text for _, text in marks])
    if len(picture.reports) > 1:
        handles, names = axes[1].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower left", ncols=8, frameon=False, fontsize=9)
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=150, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def _draw(axis: "Axes", panel: Panel, picture: Picture) -> None:
    axis.set_title(panel.title, loc="left", fontsize=10, weight="bold", color=INK)
    axis.set_title(panel.unit, loc="right", fontsize=9, color=SOFT)
    axis.set_xlim(picture.starts_s[0], picture.end_s)
    axis.set_ylim(panel.least, panel.most)
    marks = value_ticks(panel.least, panel.most)
    axis.set_yticks(marks, [f"{mark:,.10g}" for mark in marks])
    axis.tick_params(colors=SOFT, labelsize=8, length=0)
    axis.grid(axis="y", color=RULE, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[:].set_visible(False)
    axis.spines["bottom"].set(visible=True, color=RULE)
    # Ours, the first, lies on top of the others.
    for index, line in enumerate(panel.lines):
        order = 2 if line.filled else 20 - index
        _draw_line(axis, line, picture, most=panel.most, order=order)
    if len(picture.reports) == 1 and len(panel.lines) > 1:
        legend = axis.legend(loc="lower center", fontsize=8, frameon=False, ncols=2)
        legend.set_bbox_to_anchor((0.5, 0.98), transform=axis.transAxes)


def _draw_line(axis: "Axes", line: Line, picture: Picture, *, most: float, order: int) -> None:
    # What lies outside runs along the edge.
    values = [float("nan") if value is None else min(value, most) for value in line.values]
    starts = [*picture.starts_s[: len(values)]]
    if line.stepped or line.filled:  # to the end of the last interval
        values.append(values[-1] if values else float("nan"))
        starts.append(picture.end_s)
    colour = COLOURS[line.tone]
    if line.filled:
        axis.fill_between(
            starts,
            values,
            step="post",
            color=colour,
            alpha=0.7,
            lw=0,
            label=line.name,
            zorder=order,
        )
        return
    axis.plot(
        starts,
        values,
        drawstyle="steps-post" if line.stepped else "default",
        color=colour,
        linewidth=1.7 if line.tone == "c0" else 1.1,
        clip_on=False,
        label=line.name,
        zorder=order,
    )
