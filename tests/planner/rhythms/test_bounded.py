from hypothesis import given
from hypothesis.strategies import floats

from planner.rhythms.bounded import bounded

numbers = floats(-1e9, 1e9)


@given(numbers, numbers, numbers)
def test_it_is_the_value_or_the_bound_beyond_which_it_lies(one: float, a: float, b: float) -> None:
    least, most = sorted((a, b))
    assert bounded(one, least, most) == min(max(one, least), most)
