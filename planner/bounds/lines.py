"""Bounds that are linear in the number of queries in time, and how many of them are enough."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np


@dataclass(frozen=True, slots=True)
class Line:
    """A bound that is linear in the number of queries in time."""

    start: float
    slope: float

    def at(self, in_time: float) -> float:
        """The bound for so many queries in time."""
        return self.start + self.slope * in_time


def tight_lines(
    wanted: Sequence[int],
    solved: Callable[[int], tuple[Line, float] | None],
    close: float,
) -> list[Line]:
    """Lines above a concave function that is 0 at 0, tight where it is wanted.

    Between two points where it is known the function is above their chord, and below the lines of
    both. Where that leaves little open, nothing is solved.

    Args:
        wanted: where, ascending.
        solved: a line that is tight at a point, with the function's value there, or None.
        close: what may stay open, as a part of the function's value.
    """
    lines: list[Line] = []
    known: list[tuple[float, float]] = [(0.0, 0.0)]
    for level in _outside_first(wanted):
        upper = min((line.at(level) for line in lines), default=inf)
        if lines and upper - _chord(known, level) <= close * abs(upper):
            continue
        found = solved(level)
        if found is not None:
            lines.append(found[0])
            known.append((float(level), min(found[1], found[0].at(level))))
    return lines


def _outside_first(wanted: Sequence[int]) -> list[int]:
    """The largest, the smallest, then what is in the middle of the rest."""
    found: list[int] = []
    left = list(wanted)
    while left:
        found += dict.fromkeys((left[-1], left[0], left[len(left) // 2]))
        left = [level for level in left if level not in found]
    return found


def _chord(known: Sequence[tuple[float, float]], level: float) -> float:
    """Below any concave curve through the known points; minus infinity beyond them."""
    points = sorted(known)
    if level > points[-1][0]:
        return -inf
    return float(np.interp(level, [x for x, _ in points], [y for _, y in points]))
