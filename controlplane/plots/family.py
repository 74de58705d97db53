"""A task's variants as a drawing: accuracy against latency and cost, and how batches behave."""

from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.plots.drawing import (
    Axis,
    Diagram,
    Drawing,
    Form,
    Row,
    Scale,
    Section,
    Series,
    Table,
    short,
    tone,
)
from controlplane.views.catalog.tasks import find_task
from controlplane.views.catalog.variant_schemas import OnDevice, VariantSchema
from controlplane.views.catalog.variants import variant_rows
from variants.errors import InvalidInput
from variants.figures import accuracy_text
from variants.types import CatalogSnapshot, LatencyPoint, Stage

HEAD = ("Best variants", "Accuracy", "p95 ms, 1 row", "USD per million", "Rows/s", "at batch")
SHORTEST_MS = 1e-3
"""Shorter latencies are drawn as this one: a logarithmic axis has no 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """A variant on a device kind."""

    row: VariantSchema
    device: OnDevice
    points: tuple[LatencyPoint, ...]
    kind: str
    """``onnx-int8``: variants of one kind have one colour."""
    tone: str

    @property
    def p95_ms(self) -> float:
        """Of one row, or of the smallest batch that was measured."""
        return max(self.points[0].p95_ms, SHORTEST_MS)

    @property
    def accuracy(self) -> float:
        """In percent."""
        return 100 * self.row.accuracy

    @property
    def frontier(self) -> bool:
        """No other variant beats it."""
        return not self.device.dominated

    @property
    def usd_per_1k(self) -> float:
        """0 where the device has no price."""
        return self.device.price_usd_per_1k or 0.0


def family_drawing(catalog: CatalogSnapshot, task: str | None = None) -> Drawing:
    """A section for each task and device kind that has profiles of answering variants.

    Raises:
        InvalidInput: there is nothing to draw.
        TaskNotFound: there is no such task.
    """
    tasks = catalog.tasks if task is None else (find_task(catalog, task),)
    sections: list[Section] = []
    for one in tasks:
        marks = _marks(catalog, one.name)
        for device_kind in sorted({mark.device.device_kind for mark in marks}):
            here = [mark for mark in marks if mark.device.device_kind == device_kind]
            sections.append(_section(one.name, device_kind, here))
    if not sections:
        raise InvalidInput("there is no variant with a profile to draw")
    title = ", ".join(dict.fromkeys(section.title for section in sections))
    return Drawing(heading="Variants", title=title, sections=tuple(sections))


def rows_per_s(point: LatencyPoint) -> float:
    """Throughput of one batch after the other, at the median latency."""
    return 1_000 * point.batch_size / max(point.p50_ms, SHORTEST_MS)


def frontier_steps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The (latency, accuracy) points that are more accurate than all faster ones, ascending."""
    steps: list[tuple[float, float]] = []
    for ms, accuracy in sorted(points, key=lambda point: (point[0], -point[1])):
        if not steps or accuracy > steps[-1][1]:
            steps.append((ms, accuracy))
    return steps


def _marks(catalog: CatalogSnapshot, task: str) -> list[_Mark]:
    """All answering variants of a task on all device kinds; the best ones first, by latency."""
    rows = [row for row in variant_rows(catalog, task) if row.stage in (Stage.LIVE, Stage.CANARY)]
    kinds = sorted({_kind(row) for row in rows})
    points = {
        (str(p.variant), str(p.device_kind)): p.points for p in catalog.profiles if p.task == task
    }
    marks = [
        _Mark(
            row=row,
            device=device,
            points=points[row.name, device.device_kind],
            kind=_kind(row),
            tone=tone(kinds.index(_kind(row))),
        )
        for row in rows
        for device in row.devices
    ]
    return sorted(marks, key=lambda mark: (not mark.frontier, mark.p95_ms, mark.row.name))


def _section(task: str, device_kind: str, marks: Sequence[_Mark]) -> Section:
    best = [mark for mark in marks if mark.frontier]
    others = len(marks) - len(best)
    variants = "1 more variant, faint, is" if others == 1 else f"{others} more variants, faint, are"
    keys = sorted({(mark.kind, mark.tone) for mark in marks})
    return Section(
        title=task,
        detail=f"on {device_kind}",
        keys=tuple(keys),
        columns=2,
        diagrams=(_accuracy(marks), _batches(marks)),
        table=Table(
            head=HEAD,
            rows=tuple(map(_table_row, best)),
            note=f"{variants} beaten by one of these, whatever is asked." if others else "",
        ),
    )


def _accuracy(marks: Sequence[_Mark]) -> Diagram:
    latencies = [mark.p95_ms for mark in marks]
    low, high = min(mark.accuracy for mark in marks), max(mark.accuracy for mark in marks)
    slack = max(0.1 * (high - low), 0.4)
    dearest = max(mark.usd_per_1k for mark in marks)
    dots = tuple(
        Series(
            name=mark.row.name,
            tone=mark.tone,
            form=Form.DOTS,
            x=(mark.p95_ms,),
            y=(mark.accuracy,),
            label=mark.row.name if mark.frontier else "",
            details=_details(mark),
            hollow=(mark.points[0].error > 0,),
            size=3.5 + 6.0 * (mark.usd_per_1k / dearest) ** 0.5 if dearest else 5.0,
            faint=not mark.frontier,
        )
        for mark in marks
    )
    steps = frontier_steps([(mark.p95_ms, mark.accuracy) for mark in marks])
    reached = Series(
        name="best accuracy up to a latency",
        tone="soft",
        form=Form.FRONTIER,
        x=[ms for ms, _ in steps],
        y=[accuracy for _, accuracy in steps],
    )
    told = ["larger dots cost more"] if dearest else []
    told += ["hollow: predicted"] if any(any(one.hollow) for one in dots) else []
    return Diagram(
        title="Accuracy and latency",
        detail="; ".join(told),
        x=_log_axis("p95 latency of one row", "ms", latencies),
        y=Axis(
            label="accuracy",
            unit="%",
            least=max(low - slack, 0.0),
            most=min(high + slack, 100.0),
            decimals=2,
        ),
        series=(*dots, reached),
    )


def _batches(marks: Sequence[_Mark]) -> Diagram:
    sizes = sorted({point.batch_size for mark in marks for point in mark.points})
    curves = tuple(
        Series(
            name=mark.row.name,
            tone=mark.tone,
            form=Form.CURVE,
            x=[float(point.batch_size) for point in mark.points],
            y=[rows_per_s(point) for point in mark.points],
            hollow=[point.error > 0 for point in mark.points],
            faint=not mark.frontier,
        )
        for mark in marks
    )
    x = _log_axis("rows in a batch", "", [float(size) for size in sizes])
    speeds = [rows_per_s(point) for mark in marks for point in mark.points]
    return Diagram(
        title="Throughput by batch size",
        detail="hollow: predicted" if any(any(one.hollow) for one in curves) else "",
        x=Axis(
            label=x.label,
            unit=x.unit,
            least=x.least,
            most=x.most,
            scale=Scale.LOG,
            ticks=tuple((float(size), str(size)) for size in sizes),
        ),
        y=_log_axis("throughput", "rows/s", speeds),
        series=curves,
    )


def _log_axis(label: str, unit: str, values: Sequence[float]) -> Axis:
    return Axis(
        label=label,
        unit=unit,
        least=0.8 * min(values),
        most=1.25 * max(values),
        scale=Scale.LOG,
    )


def _details(mark: _Mark) -> tuple[tuple[str, str], ...]:
    """What a reader learns of a variant beside its accuracy and latency."""
    best = max(mark.points, key=rows_per_s)
    predicted = any(point.error for point in mark.points)
    price = mark.device.price_usd_per_1k
    return (
        *_interval(mark.row),
        ("USD per million", "–" if price is None else short(1_000 * price)),
        ("throughput", f"{rows_per_s(best):,.0f} rows/s at batch {best.batch_size}"),
        *((("profile", "in part predicted"),) if predicted else ()),
    )


def _interval(row: VariantSchema) -> tuple[tuple[str, str], ...]:
    if row.accuracy_low is None or row.accuracy_high is None:
        return ()
    return (
        (
            "95 % interval",
            f"{accuracy_text(row.accuracy_low)} to {accuracy_text(row.accuracy_high)}",
        ),
    )


def _table_row(mark: _Mark) -> Row:
    best = max(mark.points, key=rows_per_s)
    guess = "~" if any(point.error for point in mark.points) else ""
    price = mark.device.price_usd_per_1k
    low, high = mark.row.accuracy_low, mark.row.accuracy_high
    surely = "" if low is None or high is None else f" ± {50 * (high - low):.2f}"
    return Row(
        name=mark.row.name,
        tone=mark.tone,
        cells=(
            f"{accuracy_text(mark.row.accuracy)}{surely}",
            guess + short(mark.p95_ms),
            "–" if price is None else short(1_000 * price),
            f"{guess}{rows_per_s(best):,.0f}",
            str(best.batch_size),
        ),
    )


def _kind(row: VariantSchema) -> str:
    """The end of a variant's name, its number of threads left out."""
    kind = row.name.removeprefix(f"{row.model_version}-")
    threads = row.options.get("threads")
    return kind.removesuffix(f"-t{threads}") if threads else kind
