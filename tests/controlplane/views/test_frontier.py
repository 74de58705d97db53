"""Which variants are dominated: cases, and the definition as a property."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from controlplane.views.catalog.frontier import dominated
from tests.controlplane.builders import CPU, profile, variant
from variants.types import LatencyPoint, Profile, ProfileSource, Variant

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


def test_within_the_noise_of_measuring_all_is_equal() -> None:
    assert beaten((0.95, 1.0, 2.0), (0.95, 1.02, 2.05)) == []
    assert beaten((0.95, 1.0, 2.0), (0.95, 1.02, 2.10)) == [1]


def batches(one: Variant, *ms: float, memory_mib: float = 10.0) -> Profile:
    """A profile with medians and p95 alike, for batches of 1, 2, 4, ... rows."""
    points = tuple(
        LatencyPoint(batch_size=1 << i, p50_ms=each, p95_ms=each, p99_ms=each)
        for i, each in enumerate(ms)
    )
    return replace(profile(one, p50_ms=1.0, p95_ms=1.0), points=points, memory_mib=memory_mib)


def test_a_better_batch_saves_a_worse_row() -> None:
    quick, wide = variant("quick", accuracy=0.9), variant("wide", accuracy=0.9)
    profiles = [batches(quick, 1, 2, 4), batches(wide, 1.5, 1.6, 1.7)]
    assert dominated([quick, wide], profiles) == set()


def test_who_takes_larger_batches_is_not_dominated_by_who_does_not() -> None:
    quick, wide = variant("quick", accuracy=0.9), variant("wide", accuracy=0.9)
    assert dominated([quick, wide], [batches(quick, 1, 2), batches(wide, 2, 4, 8)]) == set()
    assert dominated([quick, wide], [batches(quick, 1, 2, 4), batches(wide, 1, 2)]) == {
        (CPU.name, wide.name)
    }


def test_less_memory_saves_a_slower_one() -> None:
    quick, small = variant("quick", accuracy=0.9), variant("small", accuracy=0.9)
    profiles = [batches(quick, 1, memory_mib=100), batches(small, 2, memory_mib=10)]
    assert dominated([quick, small], profiles) == set()


def test_a_prediction_counts_with_its_doubt() -> None:
    sure, unsure = variant("sure", accuracy=0.9), variant("unsure", accuracy=0.9)
    guess = replace(batches(unsure, 1.0), source=ProfileSource.PREDICTED)
    guess = replace(guess, points=tuple(replace(p, error=0.3) for p in guess.points))
    assert dominated([sure, unsure], [batches(sure, 1.0), guess]) == {(CPU.name, unsure.name)}


some = st.integers(1, 4)


@given(st.lists(st.tuples(some, some, some), max_size=12))
def test_who_is_dominated_has_somebody_left_who_dominates(grid: list[tuple[int, int, int]]) -> None:
    points = [(accuracy / 4, float(p50), float(p95)) for accuracy, p50, p95 in grid]

    def better(one: Point, other: Point) -> bool:
        at_least = one[0] >= other[0] and one[1] <= other[1] and one[2] <= other[2]
        return at_least and one != other

    out = beaten(*points)
    left = [point for i, point in enumerate(points) if i not in out]
    assert all(any(better(one, points[i]) for one in left) for i in out)
    assert not any(better(one, other) for one in left for other in left)
