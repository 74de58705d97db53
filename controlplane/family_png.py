"""The picture of a task's variants as a PNG, with matplotlib."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from controlplane.family_plot import Chart, frontier_steps, rows_per_s

TONES = (
    "#3159d9", "#c2571a", "#7b43c4", "#1d7f4e", "#b8901a", "#c2327f", "#0e7c86", "#7a6a55",
    "#6b7a12", "#a33b3b", "#4f6d8f", "#8d4f9e",
)  # fmt: skip
FAINT = 0.3


def draw(path: Path, charts: Sequence[Chart]) -> None:
    """Two diagrams side by side for each chart."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.6 * len(charts)), layout="constrained")
    FigureCanvasAgg(figure)
    rows = figure.subplots(len(charts), 2, squeeze=False)
    for (left, right), chart in zip(rows, charts, strict=True):
        _accuracy(left, chart)
        _batches(right, chart)
    figure.savefig(path, dpi=120)


def _accuracy(axes: Any, chart: Chart) -> None:
    dearest = max((mark.usd_per_1k or 0.0 for mark in chart.marks), default=0.0) or 1.0
    for mark in chart.marks:
        tone = TONES[mark.tone]
        axes.scatter(
            mark.p95_ms,
            100 * mark.accuracy,
            s=20 + 120 * (mark.usd_per_1k or 0.0) / dearest,
            facecolors="none" if mark.points[0].error else tone,
            edgecolors=tone,
            alpha=1.0 if mark.frontier else FAINT,
        )
    steps = frontier_steps(chart.marks)
    axes.step(
        [ms for ms, _ in steps],
        [100 * accuracy for _, accuracy in steps],
        where="post",
        color="#99a",
        linewidth=1,
        zorder=0,
    )
    axes.set(
        xscale="log",
        xlabel="p95 latency of one row, ms (area: USD per 1,000)",
        ylabel="accuracy, %",
        title=f"{chart.task} on {chart.device_kind}",
    )
    _plain(axes.xaxis)
    axes.grid(alpha=0.25)


def _batches(axes: Any, chart: Chart) -> None:
    named: set[str] = set()
    for mark in chart.marks:
        tone = TONES[mark.tone]
        axes.plot(
            [point.batch_size for point in mark.points],
            [rows_per_s(point) for point in mark.points],
            color=tone,
            alpha=1.0 if mark.frontier else FAINT,
            linewidth=1.2,
            label=None if mark.kind in named else mark.kind,
        )
        named.add(mark.kind)
        for point in mark.points:
            axes.plot(
                point.batch_size,
                rows_per_s(point),
                "o",
                markersize=4,
                color=tone,
                markerfacecolor="white" if point.error else tone,
                alpha=1.0 if mark.frontier else FAINT,
            )
    axes.set(
        xscale="log", yscale="log", xlabel="rows in a batch (hollow: predicted)", ylabel="rows/s"
    )
    sizes = sorted({point.batch_size for mark in chart.marks for point in mark.points})
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.xaxis.set_minor_locator(_nowhere())
    _plain(axes.yaxis)
    axes.grid(alpha=0.25)
    # Beside the diagram, where it hides nothing.
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)


def _plain(axis: Any) -> None:
    """Numbers as people write them, at 1, 2 and 5 of each power of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axis.set_minor_locator(_nowhere())


def _nowhere() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()
