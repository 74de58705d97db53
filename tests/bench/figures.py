"""What a benchmark found: one number with its unit, its runs and what it should reach."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the report."""

    name: str
    value: float
    unit: str
    runs: tuple[float, ...] = ()
    """What ``value`` is the median of."""
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def reached(self) -> bool:
        """Whether the value is within its bounds."""
        low = self.at_least is None or self.value >= self.at_least
        return low and (self.at_most is None or self.value <= self.at_most)

    def __str__(self) -> str:
        bound = ""
        if self.at_most is not None:
            bound = f"at most {shown(self.at_most)}"
        elif self.at_least is not None:
            bound = f"at least {shown(self.at_least)}"
        if bound:
            bound += "  ok" if self.reached else "  MISSED"
        runs = f"[{', '.join(map(shown, self.runs))}]" if len(self.runs) > 1 else ""
        further = "  ".join(part for part in (bound, runs, self.note) if part)
        return f"  {self.name:<44} {shown(self.value):>8} {self.unit:<10} {further}".rstrip()


def middle(name: str, runs: Sequence[float], unit: str, **further: object) -> Figure:
    """The median of several runs."""
    return Figure(name=name, value=median(runs), unit=unit, runs=tuple(runs), **further)  # type: ignore[arg-type]


def shown(value: float) -> str:
    """Three digits or so, whatever the size."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if value else "0"
