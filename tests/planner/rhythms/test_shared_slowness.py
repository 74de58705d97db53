"""What variants that run say of those that do not."""

from math import log

import pytest

from planner.rhythms.shared_slowness import LEAST, MACHINE, OWN, SURE, shared_slowness

SLOW = log(3.0)


def test_the_more_variants_are_slow_the_more_it_is_believed() -> None:
    ratios = []
    for count in (1, 2, 5, 50):
        found = shared_slowness([(SLOW, 0.05)] * count)
        assert found is not None
        ratios.append(found.ratio)
    assert ratios == sorted(ratios)
    assert ratios[0] == pytest.approx(SLOW * MACHINE**2 / (MACHINE**2 + OWN**2))
    assert ratios[-1] == pytest.approx(SLOW, rel=0.01)


def test_it_is_less_sure_than_what_was_seen() -> None:
    errors = [found.error for n in (1, 50) if (found := shared_slowness([(SLOW, 0.05)] * n))]
    assert errors[0] > errors[1] > OWN


@pytest.mark.parametrize(
    "shown",
    [[], [(LEAST, 0.05)], [(-SLOW, 0.05)], [(SLOW, 2 * SURE)], [(SLOW, 0.05), (0.0, 0.05)]],
)
def test_nothing_is_said_by_none_by_little_by_quick_or_unsure_ones_and_by_one_of_two(
    shown: list[tuple[float, float]],
) -> None:
    assert shared_slowness(shown) is None


def test_one_profile_that_is_far_off_says_nothing_of_the_others() -> None:
    near = shared_slowness([(0.6, 0.05)] * 3)
    assert shared_slowness([(0.6, 0.05), (0.6, 0.05), (4.0, 0.05)]) == near
