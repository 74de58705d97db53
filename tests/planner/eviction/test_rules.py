"""Eviction: which variants leave, by which rule."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.eviction.registry import RULES
from planner.eviction.rules import (
    LEAST_LOAD_S,
    MOST_LOAD_S,
    VIOLATION_S,
    Resident,
    absence_s,
    loss_s,
)
from planner.eviction.turns import AHEAD_S, SOON_S, turn_of
from planner.eviction.victims import (
    HYSTERESIS,
    is_protected,
    room_for,
    turn_gain,
    victims,
    worth,
)
from variants.errors import InvalidInput
from variants.registry import Entry

NOW_S = 1_000.0


def resident(
    key: str,
    memory_mib: float = 100.0,
    *,
    load_s: float = 1.0,
    popularity: float = 1.0,
    used_s_ago: float = 60.0,
    loaded_s_ago: float = 600.0,
    in_use: bool = False,
    inflation: float = 0.0,
    asked: bool = True,
) -> Resident[str]:
    return Resident(
        key=key,
        memory_mib=memory_mib,
        load_s=load_s,
        popularity=popularity,
        last_used_s=NOW_S - used_s_ago,
        in_use=in_use,
        loaded_s=NOW_S - loaded_s_ago,
        inflation=inflation,
        asked=asked,
    )


def test_modelless_weighs_popularity_reload_cost_and_memory() -> None:
    cheap_to_reload = resident("a", load_s=1, popularity=8)
    rarely_used = resident("b", load_s=4, popularity=1)
    large = resident("c", memory_mib=400, load_s=4, popularity=5)
    assert victims([cheap_to_reload, rarely_used, large], 100, NOW_S) == ("b",)
    assert victims([cheap_to_reload, large], 100, NOW_S) == ("c",)


def test_lru_takes_the_longest_unused() -> None:
    assert victims([resident("a"), resident("b", used_s_ago=61)], 1, NOW_S, "lru") == ("b",)


def test_lfu_takes_the_least_popular() -> None:
    assert victims([resident("a", popularity=2), resident("b")], 1, NOW_S, "lfu") == ("b",)


def test_gdsf_ages_what_was_popular_long_ago() -> None:
    old = resident("a", popularity=9)
    new = resident("b", popularity=1, inflation=0.1)
    assert victims([old, new], 1, NOW_S, "gdsf") == ("a",)
    assert worth(old, "gdsf") == pytest.approx(0.09)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_what_is_in_use_stays_under_every_rule(rule: str) -> None:
    used = resident("a", popularity=0, used_s_ago=500, in_use=True)
    assert victims([used, resident("b")], 100, NOW_S, rule) == ("b",)
    assert victims([used], 100, NOW_S, rule) is None


def test_what_was_just_loaded_stays() -> None:
    fresh = resident("a", popularity=0, loaded_s_ago=1)
    assert victims([fresh, resident("b")], 100, NOW_S) == ("b",)
    assert victims([fresh], 100, NOW_S) is None
    assert victims([fresh], 100, NOW_S, min_residency_s=0) == ("a",)


def test_what_no_query_asked_for_is_not_protected() -> None:
    filler = resident("a", popularity=0, loaded_s_ago=1, asked=False)
    assert victims([filler, resident("b")], 100, NOW_S) == ("a",)


def test_protection_is_no_longer_than_ten_loads() -> None:
    quick = resident("a", load_s=0.024, popularity=0, loaded_s_ago=0.25)
    assert victims([quick], 100, NOW_S) == ("a",)
    assert victims([quick._replace(loaded_s=NOW_S - 0.2)], 100, NOW_S) is None


def test_what_is_worth_less_always_leaves_for_a_query_that_waits() -> None:
    fresh = resident("a", popularity=0.5, loaded_s_ago=0.0)
    newcomer = resident("new", popularity=0.7)
    assert room_for(newcomer, [fresh], 100, NOW_S, waiting=True) == ("a",)
    assert room_for(newcomer._replace(popularity=0.6), [fresh], 100, NOW_S, waiting=True) is None


def test_a_waiting_query_weighs_as_much_as_a_small_rate() -> None:
    newcomer = resident("new", popularity=0.0)
    rare = resident("rare", popularity=0.4)
    hot = resident("hot", popularity=0.6)
    assert room_for(newcomer, [rare], 100, NOW_S, waiting=True) == ("rare",)
    assert room_for(newcomer, [rare], 100, NOW_S, waiting=False) is None
    assert room_for(newcomer, [hot], 100, NOW_S, waiting=True) is None


def test_two_of_equal_worth_do_not_trade_places_for_queries_to_come() -> None:
    one, other = resident("a", popularity=1.0), resident("b", popularity=1.1)
    assert room_for(other, [one], 100, NOW_S, waiting=False) is None
    assert room_for(resident("b", popularity=1.3), [one], 100, NOW_S, waiting=False) == ("a",)


def test_two_of_equal_worth_take_turns_only_where_queries_can_wait_for_a_turn() -> None:
    one, other = resident("a", popularity=5.0), resident("b", popularity=5.1)
    assert room_for(other, [one], 100, NOW_S, waiting=True) is None
    assert room_for(other, [one], 100, NOW_S, waiting=True, patience_s=4.9) is None
    assert room_for(other, [one], 100, NOW_S, waiting=True, patience_s=5.0) == ("a",)


def test_no_variant_leaves_in_vain() -> None:
    small, large = resident("a", 50, popularity=0), resident("b", 200)
    assert victims([small, large], 200, NOW_S) == ("b",)
    assert victims([small, large], 0, NOW_S) == ()


def test_an_unknown_rule_names_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=", ".join(sorted(RULES))):
        victims([resident("a")], 1, NOW_S, "fifo")


def longest_loaded(resident: Resident[str]) -> float:
    """First in, first out."""
    return resident.loaded_s


def test_a_rule_is_one_function_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "fifo-of-a-test", Entry(target=f"{__name__}:longest_loaded"))
    old, new = resident("a", loaded_s_ago=900.0), resident("b")
    assert victims([new, old], 100, NOW_S, "fifo-of-a-test") == ("a",)


residents = st.lists(
    st.builds(
        resident,
        st.uuids().map(str),
        st.integers(0, 8).map(float),
        load_s=st.integers(0, 3).map(float),
        popularity=st.integers(0, 3).map(float),
        used_s_ago=st.integers(0, 3).map(float),
        loaded_s_ago=st.sampled_from((0.0, 600.0)),
        in_use=st.booleans(),
    ),
    max_size=8,
)


@given(
    residents,
    st.integers(0, 8).map(float),
    st.integers(0, 3).map(float),
    st.integers(0, 40).map(float),
    st.booleans(),
)
def test_room_for_a_newcomer_never_costs_more_than_it_saves(
    loaded: list[Resident[str]],
    memory_mib: float,
    popularity: float,
    need_mib: float,
    waiting: bool,
) -> None:
    newcomer = resident("new", memory_mib, popularity=popularity)
    chosen = room_for(newcomer, loaded, need_mib, NOW_S, waiting=waiting)
    by_key = {r.key: r for r in loaded}
    idle = [r for r in loaded if not r.in_use]
    if chosen is None:
        # What frees enough is worth more, or in use: nothing of less worth was spared.
        if waiting and sum(r.memory_mib for r in idle) >= need_mib:
            least = victims(idle, need_mib, NOW_S, min_residency_s=0.0)
            assert HYSTERESIS * sum(loss_s(by_key[key]) for key in least or ()) >= loss_s(newcomer)
        return
    assert not any(by_key[key].in_use for key in chosen)
    assert sum(by_key[key].memory_mib for key in chosen) >= need_mib
    assert sum(loss_s(by_key[key]) for key in chosen) <= loss_s(newcomer) + 0.5


@given(residents, st.integers(0, 40).map(float), st.sampled_from(sorted(RULES)))
def test_victims_suffice_and_each_is_needed(
    loaded: list[Resident[str]], need_mib: float, rule: str
) -> None:
    sizes = {r.key: r.memory_mib for r in loaded}
    may_go = [
        r for r in loaded if not r.in_use and (rule != "modelless" or not is_protected(r, NOW_S))
    ]
    chosen = victims(loaded, need_mib, NOW_S, rule)
    if chosen is None:
        assert sum(r.memory_mib for r in may_go) < need_mib
        return
    freed_mib = sum(sizes[name] for name in chosen)
    assert set(chosen) <= {r.key for r in may_go}
    assert freed_mib >= need_mib
    assert all(freed_mib - sizes[name] < need_mib for name in chosen)


def test_a_turn_brings_what_finds_its_variant_less_what_does_so_no_more() -> None:
    often, seldom = resident("often", popularity=3.0), resident("seldom", popularity=0.5)
    newcomer = resident("new", popularity=2.0, load_s=4.0)
    assert turn_gain(newcomer, [often, seldom], 0.0) == 2.0 / 4.0
    assert turn_gain(newcomer, [often, seldom], 100.0) == (2.0 - 0.5) / 4.0
    assert turn_gain(newcomer, [often, seldom], 200.0) == (2.0 - 3.5) / 4.0
    assert turn_gain(newcomer, [often, seldom], 201.0) == -inf
    assert turn_gain(newcomer._replace(load_s=0.0), [], 0.0) == 2.0 / LEAST_LOAD_S


def test_nothing_leaves_for_a_load_whose_turn_comes_late() -> None:
    assert turn_of(0.0).now
    assert turn_of(AHEAD_S / 2).now
    assert not turn_of(AHEAD_S).now
    assert turn_of(4.0, waiting=True, patience_s=5.0) == (True, True, False)
    assert turn_of(4.0, waiting=True, patience_s=3.0) == (False, False, False)
    assert turn_of(4.0, waiting=False, patience_s=5.0) == (False, False, False)


def test_a_load_for_queries_to_come_waits_for_a_turn_that_comes_soon() -> None:
    assert turn_of(SOON_S / 2) == (False, False, True)
    assert not turn_of(SOON_S).soon
    assert not turn_of(SOON_S / 2, waiting=True, patience_s=SOON_S).soon
    assert not turn_of(SOON_S / 2, waiting=True).soon


def test_a_query_that_cannot_wait_does_not_cost_all_of_a_long_load() -> None:
    """It is refused, whether or not the variant is loaded then."""
    waits, cannot = absence_s(2.0, 4.0, 0.0), absence_s(2.0, 4.0, 1.0)
    assert (waits, cannot) == (8.0, 2.0 * (MOST_LOAD_S + VIOLATION_S))
    assert absence_s(2.0, 4.0, 0.5) == (waits + cannot) / 2
    quick = MOST_LOAD_S / 2
    assert absence_s(1.0, quick, 1.0) == quick + VIOLATION_S
