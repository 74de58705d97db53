"""What is drawn, as plain data: diagrams with axes and series, in sections with a table.

The page's renderer (``dashboard/pages/charts.js``) and matplotlib (``plots.figures``) both draw
these values, so that a page and a picture show the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import floor, log10

TONES = 12
"""Colours ``c0`` to ``c11`` of the style sheet; further series share the last one."""
LINE_TONES = 7
"""The first of them, which colour-blind readers can tell apart; further lines differ in stroke."""
STROKES = ("", "dashed", "dotted")


class Scale(StrEnum):
    LINEAR = "linear"
    LOG = "log"
    TIME = "time"
    """Seconds; all diagrams of a section with such an axis have the same times."""


class Form(StrEnum):
    """How the points of a series are drawn."""

    STEPS = "steps"
    """A value holds until the next x, the last one to the end of the axis."""
    AREA = "area"
    """Steps, filled down to the axis."""
    FRONTIER = "frontier"
    """Steps, dashed: the best that is reached up to x."""
    DOTS = "dots"
    CURVE = "curve"
    """Dots joined by straight lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One direction of a diagram."""

    label: str
    """What it measures, without the unit."""
    unit: str
    """Empty where the label says it."""
    least: float
    most: float
    scale: Scale = Scale.LINEAR
    ticks: tuple[tuple[float, str], ...] = ()
    """(value, text); when empty, the renderer marks round values."""
    decimals: int | None = None
    """Digits after the point when a value is read; about three digits in all when None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points that belong together. ``x`` and ``y`` are equally long."""

    name: str
    """Series of one name are the same thing in several diagrams, and a row of the table."""
    tone: str
    """Name of its colour in the style sheet: ``c0`` and so on, ``demand``, ``late``, ``soft``; of
    one of several lines also that it is a ``line``, and its stroke: ``c3 line dashed``."""
    form: Form
    x: Sequence[float]
    y: Sequence[float | None]
    """None where there is no value."""
    label: str = ""
    """Written beside its only dot where there is room."""
    details: tuple[tuple[str, str], ...] = ()
    """(what, value): more to read about it."""
    hollow: Sequence[bool] = ()
    """Whether each point is predicted instead of measured; empty: none is."""
    size: float = 3.0
    """Radius of its dots in pixels."""
    faint: bool = False


Key = tuple[str, str]
"""(name, tone): an entry of a legend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagram:
    """Series over two axes. Areas lie lowest; among the others the first series lies on top."""

    title: str
    detail: str = ""
    """What else a reader must know, beside the title: the unit, or what a size means."""
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of a table. Its name is its first cell, and that of the series that it stands for."""

    name: str
    tone: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Numbers beside the diagrams."""

    head: tuple[str, ...]
    """Of the name, and of each cell."""
    rows: tuple[Row, ...]
    note: str = ""
    """A sentence below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Diagrams that share a legend and a table."""

    title: str = ""
    detail: str = ""
    keys: tuple[Key, ...] = ()
    columns: int = 1
    """Diagrams beside each other."""
    diagrams: tuple[Diagram, ...]
    table: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """The whole content of a page or a picture."""

    heading: str
    title: str
    sections: tuple[Section, ...]


def tone(index: int) -> str:
    """The colour of the series of that number."""
    return f"c{min(index, TONES - 1)}"


def line_tone(index: int) -> str:
    """Colour and stroke of the line of that number; from the 22nd on they come again."""
    stroke = STROKES[index // LINE_TONES % len(STROKES)]
    return f"c{index % LINE_TONES} line {stroke}".rstrip()


def colour_and_stroke(tone: str) -> tuple[str, str]:
    """What a tone names: its colour in the style sheet, and one of ``STROKES``."""
    colour, *more = tone.split()
    return colour, next((word for word in more if word in STROKES), "")


def short(value: float) -> str:
    """A number with about three digits and without an exponent, for reading."""
    if abs(value) >= 100 or value == 0:
        return f"{value:,.0f}"
    digits = max(0, 2 - floor(log10(abs(value))))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text
