"""How much of the room for chance is kept, by what queries come to."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.forecasting.chance_room import EVIDENCE, STAGES, TOLERATED, ChanceRoom

AHEAD = 4


def whole() -> ChanceRoom:
    return ChanceRoom(step_s=10.0, horizon_s=10.0 * AHEAD)


def after(steps: Sequence[tuple[float, float]], it: ChanceRoom | None = None) -> list[float]:
    """The part after each step of queries that ended, and lost ones."""
    it = it or whole()
    found = []
    for asked, lost in steps:
        it.observe(asked, lost)
        found.append(it.part)
    return found


def test_all_of_it_is_kept_before_anything_is_known() -> None:
    assert whole().part == 1.0


def test_where_nothing_is_lost_it_shrinks_by_more_each_time_until_none_is_left() -> None:
    assert after([(5_000, 0)] * 7) == [0.95, 0.85, 0.65, 0.25, 0.0, 0.0, 0.0]


def test_once_more_was_lost_than_may_be_it_shrinks_a_stage_at_a_time() -> None:
    parts = after([(5_000, 0)] * 5 + [(5_000, 26)] + [(5_000, 0)] * 4)
    assert parts[4:] == [0.0, 0.15, 0.1, 0.05, 0.0, 0.0]


def test_it_shrinks_by_no_more_stages_than_there_were_queries_for() -> None:
    """Of 500 queries a step, two stages may be taken away at once."""
    assert after([(500, 0)] * 4) == [0.95, 0.85, 0.75, 0.65]


def test_what_was_remembered_before_strides_grew_goes_on_by_a_stage_at_a_time() -> None:
    it = whole()
    memory = {name: value for name, value in it.memory().items() if name != "stride"}
    it.recall(memory)
    assert after([(5_000, 0)] * 3, it) == [0.95, 0.9, 0.85]


def test_it_owes_what_was_lost_beyond_what_may_be_until_that_is_made_good() -> None:
    it = whole()
    owes = []
    for lost in (0, 25, 50, 0, 0):
        it.observe(5_000, lost)
        owes.append(it.owes)
    assert owes == [False, False, True, False, False]


def test_few_queries_are_no_reason_to_keep_less() -> None:
    """Of a query a second, one that is lost in three minutes is too much already."""
    steps = int(EVIDENCE / 10)
    assert after([(10, 0)] * steps) == [1.0] * (steps - 1) + [0.95]
    assert after([(0, 0)] * 1_000) == [1.0] * 1_000


def test_it_grows_at_once_where_more_is_lost_than_may_be_and_the_more_is_lost_the_more() -> None:
    def grown(lost_part: float) -> float:
        return after([(5_000, 0)] * STAGES + [(5_000, 5_000 * lost_part)])[-1]

    assert grown(0.9 * TOLERATED) == 0.0
    assert 0.0 < grown(1.1 * TOLERATED) < grown(3 * TOLERATED) < 1.0
    assert grown(0.1) == 1.0


def test_what_is_lost_while_more_workers_start_is_not_counted_as_if_they_were_there() -> None:
    """The second and third step are those of the fleet that lost queries in the first."""
    parts = after([(5_000, 0)] * (STAGES + AHEAD) + [(5_000, 50)] * 3)
    assert parts[-1] == parts[-2] == parts[-3]


def test_it_stays_until_as_much_more_was_asked_as_makes_good_for_what_was_lost() -> None:
    lost = 5 * TOLERATED * 5_000
    parts = after([(5_000, 0)] * 10 + [(5_000, lost)] + [(5_000, 0)] * 8)
    assert parts[10] == 0.5
    assert parts[11:14] == [0.5] * 3
    assert parts[-1] < 0.5


steps = st.lists(
    st.tuples(st.integers(0, 5_000), st.floats(0.0, 0.05)).map(lambda s: (s[0], s[0] * s[1])),
    max_size=200,
)


@given(steps=steps)
def test_between_two_moments_at_which_it_shrinks_no_more_is_lost_than_may_be(
    steps: list[tuple[float, float]],
) -> None:
    """Whatever comes, without the fading of debts, which is slow beside these few steps."""
    it = ChanceRoom(step_s=1e-9, horizon_s=4e-9)
    parts = [1.0, *after(steps, it)]
    shrinks = [k for k, (one, next_) in enumerate(pairwise(parts)) if next_ < one]
    for first, last in pairwise(shrinks):
        between = steps[first + 1 : last + 1]
        asked, lost = (sum(step[k] for step in between) for k in (0, 1))
        assert lost <= TOLERATED * asked * (1 + 1e-6) + 1e-6


@given(steps=steps)
def test_it_is_a_part_that_only_grows_by_what_is_lost_and_shrinks_by_stages(
    steps: list[tuple[float, float]],
) -> None:
    parts = [1.0, *after(steps)]
    too_much = False
    for (one, next_), (asked, lost) in zip(pairwise(parts), steps, strict=True):
        too_much = too_much or lost > TOLERATED * asked
        assert 0.0 <= next_ <= 1.0
        assert next_ >= one - 1.0001 / STAGES or not too_much
        assert next_ <= one or lost > TOLERATED * asked


@given(steps=steps, more=steps)
def test_a_successor_goes_on_from_what_is_remembered(
    steps: list[tuple[float, float]], more: list[tuple[float, float]]
) -> None:
    one, other = whole(), whole()
    after(steps, one)
    other.recall(one.memory())
    assert (other.part, other.asked, other.lost) == (one.part, one.asked, one.lost)
    assert after(more, other) == after(more, one)


@pytest.mark.parametrize(
    "wrong", [{"stages": []}, {"stages": [STAGES + 1]}, {"stages": "all"}, {"debt": None}]
)
def test_what_is_no_memory_of_one_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        whole().recall({**whole().memory(), **wrong})
