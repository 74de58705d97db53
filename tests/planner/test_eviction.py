"""Eviction: who leaves, by which rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.eviction import RULES, Resident, victims, worth

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


def test_nobody_leaves_in_vain() -> None:
    small, large = resident("a", 50, popularity=0), resident("b", 200)
    assert victims([small, large], 200, NOW_S) == ("b",)
    assert victims([small, large], 0, NOW_S) == ()


def test_an_unknown_rule_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="gdsf, lfu, lru, modelless"):
        victims([resident("a")], 1, NOW_S, "fifo")


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


@given(residents, st.integers(0, 40).map(float), st.sampled_from(sorted(RULES)))
def test_victims_suffice_and_each_is_needed(
    loaded: list[Resident[str]], need_mib: float, rule: str
) -> None:
    sizes = {r.key: r.memory_mib for r in loaded}
    may_go = [r for r in loaded if not r.in_use and (rule != "modelless" or r.loaded_s < NOW_S)]
    chosen = victims(loaded, need_mib, NOW_S, rule)
    if chosen is None:
        assert sum(r.memory_mib for r in may_go) < need_mib
        return
    freed_mib = sum(sizes[name] for name in chosen)
    assert set(chosen) <= {r.key for r in may_go}
    assert freed_mib >= need_mib
    assert all(freed_mib - sizes[name] < need_mib for name in chosen)
