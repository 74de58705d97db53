"""The upper hull: what no mixture of two other points replaces."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from planner.upper_hull import upper_hull

whole = st.integers(0, 30).map(float)
points = st.lists(st.tuples(whole, whole), max_size=12).map(
    lambda found: [(time, worth, n) for n, (time, worth) in enumerate(found)]
)


def ascending(found: list[tuple[float, float, int]]) -> list[tuple[float, float, int]]:
    return sorted(found, key=lambda point: (point[0], -point[1]))


def test_what_lies_under_a_line_between_two_others_is_left_out() -> None:
    quick, middle, best = (1.0, 0.7, "quick"), (2.0, 0.8, "middle"), (3.0, 1.0, "best")
    slow = (4.0, 0.9, "slow")

    assert upper_hull([quick, middle, best, slow]) == [quick, best]
    assert upper_hull([quick, (2.0, 0.9, "good"), best]) == [quick, (2.0, 0.9, "good"), best]
    assert upper_hull([quick]) == [quick]
    assert upper_hull(()) == []


@given(points)
def test_each_step_is_worth_less_than_the_one_before_it(
    found: list[tuple[float, float, int]],
) -> None:
    hull = upper_hull(ascending(found))
    gains = [(two[1] - one[1]) / (two[0] - one[0]) for one, two in pairwise(hull)]
    assert all(gain > 0.0 for gain in gains)
    assert all(later < gain for gain, later in pairwise(gains))


@given(points)
def test_nothing_that_is_left_out_is_above_it(found: list[tuple[float, float, int]]) -> None:
    """Neither above a line between two of it nor beyond its ends."""
    hull = upper_hull(ascending(found))
    for time, worth, _ in found:
        before = [point for point in hull if point[0] <= time]
        behind = [point for point in hull if point[0] >= time]
        assert before
        one, two = before[-1], behind[0] if behind else before[-1]
        part = 0.0 if one is two or two[0] == one[0] else (time - one[0]) / (two[0] - one[0])
        assert worth <= one[1] + part * (two[1] - one[1]) + 1e-9
