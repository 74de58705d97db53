"""Which variants are dominated: cases, and the definition as a property."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.frontier import dominated
from tests.controlplane.builders import CPU, profile, variant
from variants.types import Profile, Variant

Point = tuple[float, float, float]
"""Accuracy, median in ms, p95 in ms."""


def measured(*points: Point) -> tuple[list[Variant], list[Profile]]:
    variants = [variant(f"m{i}", accuracy=accuracy) for i, (accuracy, _, _) in enumerate(points)]
    profiles = [
        profile(one, p50_ms=p50_ms, p95_ms=p95_ms)
        for one, (_, p50_ms, p95_ms) in zip(variants, points, strict=True)
    ]
    return variants, profiles


def beaten(*points: Point) -> list[int]:
    """Indexes of the dominated points."""
    variants, profiles = measured(*points)
    found = dominated(variants, profiles)
    return [i for i, one in enumerate(variants) if (CPU.name, one.name) in found]


def test_slower_and_less_accurate_is_dominated() -> None:
    assert beaten((0.95, 1, 2), (0.90, 2, 4)) == [1]


def test_slower_and_more_accurate_is_not() -> None:
    assert beaten((0.95, 1, 2), (0.99, 2, 4)) == []


def test_equals_do_not_dominate_each_other() -> None:
    assert beaten((0.95, 1, 2), (0.95, 1, 2)) == []


def test_a_better_median_saves_a_worse_p95() -> None:
    assert beaten((0.95, 2, 3), (0.95, 1, 4)) == []


def test_as_fast_and_less_accurate_is_dominated() -> None:
    assert beaten((0.90, 1, 2), (0.95, 1, 2)) == [0]


def test_without_a_profile_nothing_is_dominated() -> None:
    variants, _ = measured((0.9, 1, 2), (0.8, 3, 4))

    assert dominated(variants, []) == set()


small = st.integers(1, 4)


@given(st.lists(st.tuples(small, small, small), max_size=12))
def test_dominated_is_exactly_what_its_definition_says(grid: list[tuple[int, int, int]]) -> None:
    points = [(accuracy / 4, float(p50), float(p95)) for accuracy, p50, p95 in grid]

    def better(one: Point, other: Point) -> bool:
        at_least = one[0] >= other[0] and one[1] <= other[1] and one[2] <= other[2]
        return at_least and one != other

    expected = [i for i, point in enumerate(points) if any(better(o, point) for o in points)]
    assert beaten(*points) == expected
