"""The upper concave hull of accuracy over time: what no mixture of two others replaces."""

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

Point = tuple[float, float, T]
"""(time, accuracy, what it is)."""


def upper_hull(points: Iterable[Point[T]]) -> list[Point[T]]:
    """The points that no mixture of two others replaces, ascending in time and accuracy.

    Args:
        points: ascending by time; of those at one time, the most accurate first.
    """
    hull: list[Point[T]] = []
    for point in points:
        if hull and point[1] <= hull[-1][1]:
            continue
        while len(hull) > 1 and _below(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _below(one: Point[T], mid: Point[T], two: Point[T]) -> bool:
    """Whether a mixture of the outer points is at least as accurate as the middle, in its time."""
    return (mid[1] - one[1]) * (two[0] - one[0]) <= (two[1] - one[1]) * (mid[0] - one[0])
