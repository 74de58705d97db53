"""Residency: the account of one memory, and GreedyDual's clock in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.eviction.popularity import Popularity
from planner.eviction.registry import RULES
from tests.bench.planning.residency import Residency
from variants.errors import InvalidInput

RULE_NAMES = st.sampled_from(sorted(RULES))


class Fixed:
    """A book in which all is known."""

    def __init__(self, **rates: float) -> None:
        self._rates = rates

    def seen(self, key: str, now_s: float) -> None:
        raise AssertionError("a residency only asks")

    def rates(self, keys: object, now_s: float) -> list[float]:
        assert isinstance(keys, dict)
        return [self._rates[key] for key in keys]


def device(rule: str = "modelless", residency_s: float = 0.0, **rates: float) -> Residency[str]:
    """100 MiB."""
    return Residency(100.0, Fixed(**rates), rule, min_residency_s=residency_s)


def test_modelless_asks_the_book() -> None:
    memory = device(a=2, b=1)
    memory.load("a", 50, 1, 0)
    memory.load("b", 50, 1, 1)
    assert memory.make_room(50, 2) == ("b",)


def test_what_fits_needs_no_room() -> None:
    memory = device(a=1)
    memory.load("a", 60, 1, 0)
    assert memory.make_room(40, 0) == ()
    assert memory.free_mib == 40


def test_room_is_made_by_evicting() -> None:
    memory = device(a=1)
    memory.load("a", 60, 1, 0)
    memory.evict("a", 0)
    assert (memory.free_mib, list(memory)) == (100, [])


def test_what_is_in_use_stays() -> None:
    memory = device("lru")
    memory.load("a", 100, 1, 0)
    assert memory.make_room(10, 9, in_use={"a"}) is None


def test_what_does_not_fit_is_not_loaded() -> None:
    memory = device()
    with pytest.raises(ValueError, match=r"b needs 101.0 MiB, 100.0 MiB are free"):
        memory.load("b", 101.0, 1, 0)


def test_an_unknown_rule_is_refused_at_once() -> None:
    with pytest.raises(InvalidInput, match="fifo"):
        device("fifo")


def test_residency_binds_where_loads_take_time() -> None:
    fresh, instant = device(residency_s=5.0, a=1), device(a=1)
    for memory in (fresh, instant):
        memory.load("a", 100, 1, 0)
    assert fresh.make_room(10, 4) is None
    assert fresh.make_room(10, 5) == ("a",)
    assert instant.make_room(10, 0) == ("a",)


def test_lfu_counts_since_the_load() -> None:
    memory = device("lfu")
    memory.load("a", 50, 1, 0)
    memory.used("a", 1)
    memory.evict("a", 0)
    memory.load("b", 50, 1, 2)
    memory.used("b", 3)
    memory.load("a", 50, 1, 4)
    assert memory.make_room(50, 5) == ("a",)


def test_gdsf_ages_what_was_used_before_others_left() -> None:
    """a is worth 0.08; then b (0.06) and c (0.06 + 0.04) leave, and d enters at 0.10 + 0.02."""
    memory = device("gdsf")
    memory.load("a", 50, 4, 0)
    memory.load("b", 50, 3, 1)
    assert memory.make_room(50, 2) == ("b",)
    memory.evict("b", 0)
    memory.load("c", 50, 2, 3)
    assert memory.make_room(50, 4) == ("a",)
    assert [r.inflation for r in memory.residents(4)] == [0.0, 0.06]


@given(
    RULE_NAMES,
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20), st.booleans()), max_size=60),
)
def test_memory_is_never_exceeded_and_nothing_in_use_leaves(
    rule: str, queries: list[tuple[int, int, bool]]
) -> None:
    book = Popularity[int]()
    memory = Residency(100.0, book, rule, min_residency_s=5.0)
    sizes = [1.0, 5.0, 10.0, 20.0, 25.0, 40.0, 50.0, 60.0, 90.0, 100.0]
    now_s, busy = 0.0, -1
    for key, gap_s, stays_busy in queries:
        now_s += gap_s
        book.seen(key, now_s)
        if key in memory:
            memory.used(key, now_s)
        else:
            victims = memory.make_room(sizes[key], now_s, {busy})
            if victims is None:
                continue
            assert busy not in victims
            for victim in victims:
                memory.evict(victim, 0)
            memory.load(key, sizes[key], 1.0, now_s)
        if stays_busy:
            busy = key
        assert memory.free_mib >= 0
        assert sum(sizes[key] for key in memory) + memory.free_mib == 100.0
