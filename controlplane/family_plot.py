"""A task's variants as a picture: accuracy against latency and cost, and how batches behave.

``.html`` is one file of its own, without a network; ``.png`` needs matplotlib.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.frontier import find_task, variant_rows
from controlplane.plots import check_target
from controlplane.schemas import VariantSchema
from variants.errors import InvalidInput
from variants.types import CatalogSnapshot, LatencyPoint, Profile, Stage

TONES = 12
"""Colours there are; further kinds share the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A variant on a device kind."""

    name: str
    kind: str
    """``onnx-int8``: what it has its colour for."""
    tone: int
    accuracy: float
    low: float
    high: float
    """Of the accuracy's 95 % confidence interval."""
    usd_per_1k: float | None
    points: tuple[LatencyPoint, ...]
    frontier: bool
    """No other variant beats it."""

    @property
    def p95_ms(self) -> float:
        """Of one row."""
        return self.points[0].p95_ms

    @property
    def predicted(self) -> bool:
        return any(point.error for point in self.points)

    @property
    def words(self) -> str:
        """All that is known of it, for reading."""
        best = max(self.points, key=rows_per_s)
        price = "" if self.usd_per_1k is None else f", {self.usd_per_1k:.3g} USD per 1,000"
        guess = ", in part predicted" if self.predicted else ""
        return (
            f"{self.name}: accuracy {100 * self.accuracy:.2f} % "
            f"({100 * self.low:.1f} to {100 * self.high:.1f}), p95 {self.p95_ms:.3g} ms{price}; "
            f"up to {rows_per_s(best):,.0f} rows/s at batch {best.batch_size}{guess}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The variants of a task on one device kind."""

    task: str
    device_kind: str
    marks: tuple[Mark, ...]
    """Those of the frontier last, so that they lie on top."""
    kinds: tuple[str, ...]
    """In the order of their colours."""


def plot_family(catalog: CatalogSnapshot, path: Path, *, task: str | None = None) -> None:
    """Draw the variants of a task, or of all tasks, into a file in the format of its suffix.

    Raises:
        InvalidInput: it cannot be written, or there is nothing to draw.
        TaskNotFound: there is no such task.
    """
    check_target(path)
    charts = charts_of(catalog, task)
    if not charts:
        raise InvalidInput(f"--plot {path}: there is no variant with a profile to draw")
    try:
        if path.suffix.lower() == ".png":
            from controlplane.family_png import draw

            draw(path, charts)
        else:
            from controlplane.family_html import html

            path.write_text(html(charts), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--plot {path} cannot be written: {error.strerror}") from error


def charts_of(catalog: CatalogSnapshot, task: str | None = None) -> tuple[Chart, ...]:
    """A chart for each task and device kind that has profiles of answering variants."""
    tasks = catalog.tasks if task is None else (find_task(catalog, task),)
    charts: list[Chart] = []
    for one in tasks:
        rows = [
            row
            for row in variant_rows(catalog, one.name)
            if row.stage in (Stage.LIVE, Stage.CANARY)
        ]
        kinds = tuple(sorted({_kind(row) for row in rows}))
        profiles = {
            (str(p.variant), str(p.device_kind)): p for p in catalog.profiles if p.task == one.name
        }
        for device_kind in sorted({device.device_kind for row in rows for device in row.devices}):
            marks = _marks(rows, profiles, device_kind, kinds)
            charts.append(Chart(task=one.name, device_kind=device_kind, marks=marks, kinds=kinds))
    return tuple(charts)


def frontier_steps(marks: Iterable[Mark]) -> list[tuple[float, float]]:
    """(p95 in ms, best accuracy so far): what is reached by a deadline, ascending."""
    best, steps = 0.0, []
    for mark in sorted(marks, key=lambda mark: (mark.p95_ms, -mark.accuracy)):
        if mark.accuracy > best:
            best = mark.accuracy
            steps.append((mark.p95_ms, best))
    return steps


def rows_per_s(point: LatencyPoint) -> float:
    return 1_000 * point.batch_size / max(point.p50_ms, 1e-3)


def _marks(
    rows: Sequence[VariantSchema],
    profiles: dict[tuple[str, str], Profile],
    device_kind: str,
    kinds: tuple[str, ...],
) -> tuple[Mark, ...]:
    marks = [
        Mark(
            name=row.name,
            kind=_kind(row),
            tone=min(kinds.index(_kind(row)), TONES - 1),
            accuracy=row.accuracy,
            low=row.accuracy_low,
            high=row.accuracy_high,
            usd_per_1k=device.price_usd_per_1k,
            points=profiles[row.name, device_kind].points,
            frontier=not device.dominated,
        )
        for row in rows
        for device in row.devices
        if device.device_kind == device_kind
    ]
    return tuple(sorted(marks, key=lambda mark: (mark.frontier, mark.p95_ms, mark.name)))


def _kind(row: VariantSchema) -> str:
    """The end of a variant's name, its number of threads left out."""
    kind = row.name.removeprefix(f"{row.model_version}-")
    threads = row.options.get("threads")
    return kind.removesuffix(f"-t{threads}") if threads else kind
