"""Rounding cuts: whole devices never break them, and their coefficients are concave."""

from itertools import pairwise
from math import floor

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.solver.columns.rounding import LEAST, Cut, coefficient


def cut(scale: float, missing: float = 1.0) -> Cut:
    whole = floor(scale * missing)
    return Cut(demand=0, scale=scale, rest=scale * missing - whole, least=whole + 1.0)


def test_two_fifths_of_a_device_need_a_whole_one() -> None:
    hull = cut(2.4).hull(1 / 2.4)

    assert [coefficient(hull, part / 2.4) for part in (0.0, 0.2, 0.4, 1.0)] == pytest.approx(
        [0.0, 0.5, 1.0, 1.0]
    )


def test_a_large_device_counts_as_the_small_ones_that_it_replaces() -> None:
    hull = cut(2.4).hull(1.0)

    assert coefficient(hull, 1.0) == pytest.approx(3.0)


@given(
    st.floats(1.05, 12.0),
    st.floats(0.1, 1.0),
    st.lists(st.floats(0.02, 1.0), min_size=1, max_size=3),
    st.data(),
)
def test_devices_that_serve_everything_keep_the_cut(
    scale: float, missing: float, most: list[float], data: st.DataObject
) -> None:
    """Of each sort of device so many as it takes, each with any part that it can serve."""
    rest = scale * missing - floor(scale * missing)
    assume(LEAST <= rest <= 1 - LEAST)
    made = cut(scale, missing)
    served = reached = 0.0
    while served < missing:
        longest = data.draw(st.sampled_from(most))
        part = data.draw(st.floats(longest / 10, longest))
        served += part
        reached += coefficient(made.hull(longest), part)

    assert reached >= made.least - 1e-6


@given(st.floats(1.05, 12.0), st.floats(0.02, 1.0))
def test_the_coefficient_is_concave_and_no_less_than_rounding_gives(
    scale: float, most: float
) -> None:
    assume(LEAST <= scale - floor(scale) <= 1 - LEAST)
    made = cut(scale)
    hull = made.hull(most)

    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(hull)]
    assert all(later <= slope + 1e-6 for slope, later in pairwise(slopes))
    for step in range(21):
        part = most * step / 20
        whole = floor(scale * part)
        rounded = whole + min(1.0, (scale * part - whole) / made.rest)
        assert coefficient(hull, part) >= rounded - 1e-6
