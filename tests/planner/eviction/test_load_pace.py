"""What loads take, in parts of what profiles say."""

import pytest

from planner.eviction.load_pace import load_pace


@pytest.mark.parametrize(
    ("took_s", "profiled_s", "pace"),
    [
        (0.0, 0.0, 1.0),
        (0.2, 0.01, 1.0),  # too little to say
        (9.0, 39.0, 0.25),
        (3.8, 0.8, 2.0),
        (1e3, 1e-3, 16.0),
        (1e-3, 1e3, 1 / 16),
    ],
)
def test_loads_are_so_many_times_as_long_as_by_their_profiles(
    took_s: float, profiled_s: float, pace: float
) -> None:
    assert load_pace(took_s, profiled_s) == pace
