"""Displacement: what a worker would lose by a load, read from the ladder that it tells."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.eviction.displacement import MOST_RUNGS, after_load, displaced_s, ladder
from planner.eviction.registry import RULES
from planner.eviction.rules import Resident, loss_s
from planner.eviction.victims import ranked, victims
from tests.planner.eviction.test_rules import NOW_S, resident, residents


def test_what_is_worth_least_per_mib_comes_first() -> None:
    held = [resident("hot", popularity=9), resident("large", 400, popularity=8), resident("rare")]
    assert ladder(held, NOW_S) == ((100.0, 1.0), (400.0, 8.0), (100.0, 9.0))


def test_what_is_in_use_is_left_out_and_what_is_protected_comes_last() -> None:
    held = [
        resident("used", popularity=0, in_use=True),
        resident("fresh", popularity=0.5, loaded_s_ago=1),
        resident("old", popularity=3),
    ]
    assert ladder(held, NOW_S) == ((100.0, 3.0), (100.0, 0.5))
    assert ladder(held, NOW_S, min_residency_s=0.0) == ((100.0, 0.5), (100.0, 3.0))


def test_other_rules_say_who_leaves_and_losses_what_that_costs() -> None:
    held = [resident("a", popularity=50), resident("b", popularity=1, used_s_ago=90)]
    losses_s = {"a": 0.2, "b": 7.0}
    assert ladder(held, NOW_S, "lru", losses_s=losses_s) == ((100.0, 7.0), (100.0, 0.2))


def test_a_long_ladder_ends_in_one_rung_for_the_rest() -> None:
    held = [resident(str(n), popularity=n) for n in range(MOST_RUNGS + 4)]
    told = ladder(held, NOW_S)
    assert len(told) == MOST_RUNGS + 1
    assert told[-1] == (400.0, sum(range(MOST_RUNGS, MOST_RUNGS + 4)))


@given(residents)
def test_a_ladder_is_in_the_order_of_the_rule_with_what_each_absence_costs(
    loaded: list[Resident[str]],
) -> None:
    expected = [(r.memory_mib, loss_s(r)) for r in ranked(loaded, "modelless")]
    assert ladder(loaded, NOW_S, min_residency_s=0.0, most=len(loaded) + 1) == tuple(expected)


@pytest.mark.parametrize(
    ("need_mib", "cost_s"),
    [(-5, 0.0), (0, 0.0), (50, 1.5), (100, 2.0), (240, 5.4), (300, 6.0), (301, inf)],
)
def test_a_load_costs_what_leaves_and_half_of_what_leaves_beyond_the_need(
    need_mib: float, cost_s: float
) -> None:
    assert displaced_s([(100.0, 2.0), (200.0, 4.0)], need_mib) == pytest.approx(cost_s)


@given(residents, st.integers(0, 40).map(float))
def test_a_host_that_can_make_room_has_a_price_and_no_other(
    loaded: list[Resident[str]], need_mib: float
) -> None:
    price_s = displaced_s(ladder(loaded, NOW_S), need_mib)
    chosen = victims(loaded, need_mib, NOW_S, min_residency_s=0.0)
    assert (price_s == inf) == (chosen is None)
    if chosen is not None:
        assert 0.0 <= price_s <= sum(loss_s(r) for r in loaded if not r.in_use) + 1e-9


@given(residents, st.integers(0, 40).map(float), st.integers(0, 40).map(float))
def test_more_memory_never_costs_less(
    loaded: list[Resident[str]], one_mib: float, other_mib: float
) -> None:
    rungs = ladder(loaded, NOW_S, min_residency_s=0.0)
    less, more = sorted((one_mib, other_mib))
    assert displaced_s(rungs, less) <= displaced_s(rungs, more) + 1e-9


def test_where_only_rounding_is_missing_what_takes_no_memory_suffices() -> None:
    """Of 0.3 MiB 0.1 are taken, and 0.2 do not fit: 3e-17 are missing."""
    missing_mib = 0.2 - (0.3 - 0.1)

    assert missing_mib > 0.0
    assert displaced_s(((0.0, 1.0), (100.0, 2.0)), missing_mib) == 1.0


@pytest.mark.parametrize("rule", sorted(RULES))
def test_every_rule_has_a_ladder(rule: str) -> None:
    losses_s = {"a": 1.0, "b": 2.0}
    rungs = ladder([resident("a"), resident("b", 50)], NOW_S, rule, losses_s=losses_s)
    assert sum(mib for mib, _ in rungs) == 150.0


def test_what_leaves_for_one_load_does_not_leave_for_the_next() -> None:
    rungs = ((100.0, 0.0), (300.0, 2.0), (50.0, 7.0))
    assert after_load(rungs, 60.0, 60.0) == (0.0, rungs)
    assert after_load(rungs, 50.0, 200.0) == (250.0, rungs[2:])
    assert after_load(rungs, 0.0, 1_000.0) == (-550.0, ())
    free_mib, left = after_load(rungs, 0.0, 100.0)
    assert displaced_s(left, 100.0 - free_mib) > displaced_s(rungs, 100.0) == 0.0
