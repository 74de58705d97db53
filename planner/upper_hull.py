"""The upper concave hull of accuracy over time: what no mixture of two others replaces."""

from collections.abc import Iterable
from math import inf
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
    highest = -inf
    for point in points:
        time, accuracy = point[0], point[1]
        if hull and accuracy <= highest:
            continue
        while len(hull) > 1:
            one, mid = hull[-2], hull[-1]
            # A mixture of the outer points is at least as accurate as the middle, in its time.
            if (mid[1] - one[1]) * (time - one[0]) > (accuracy - one[1]) * (mid[0] - one[0]):
                break
            hull.pop()
        hull.append(point)
        highest = accuracy
    return hull
