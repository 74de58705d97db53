"""Popularity: what the book of arrivals believes."""

from itertools import cycle, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.eviction.popularity import Popularity

MINUTE = (60.0,)
"""One time constant: nothing to choose between."""


def asked(book: Popularity[str], keys: str, every_s: float = 1.0, from_s: float = 0.0) -> float:
    """Ask for one key after the other; returns the time of the last."""
    for index, key in enumerate(keys):
        book.seen(key, from_s + index * every_s)
    return from_s + (len(keys) - 1) * every_s


def test_a_steady_key_has_its_rate() -> None:
    book = Popularity[str](MINUTE)
    now_s = asked(book, "a" * 1_000, every_s=0.5)
    assert book.rate("a", now_s) == pytest.approx(2.0, rel=0.01)


def test_keys_share_the_rate_by_how_often_they_came() -> None:
    book = Popularity[str]((10_000.0,))
    now_s = asked(book, "aaab" * 500)
    a, b = book.rates("ab", now_s)
    assert a / b == pytest.approx(3.0, rel=0.01)
    assert a + b == pytest.approx(1.0, rel=0.01)


def test_a_young_book_divides_by_what_it_has_seen() -> None:
    book = Popularity[str]((3_600.0,))
    now_s = asked(book, "a" * 11)
    assert book.rate("a", now_s) == pytest.approx(11 / 11, rel=0.01)


def test_one_query_is_no_infinite_rate() -> None:
    book = Popularity[str](MINUTE)
    book.seen("a", 5.0)
    assert book.rate("a", 5.0) == pytest.approx(1.0, rel=0.01)


def test_a_key_that_is_not_asked_any_more_fades() -> None:
    book = Popularity[str](MINUTE)
    now_s = asked(book, "a" * 600)
    before = book.rate("a", now_s)
    assert book.rate("a", now_s + 60) == pytest.approx(before / 2.718, rel=0.01)


def test_a_newcomer_is_not_as_popular_as_its_one_query_says() -> None:
    """Of 10 keys and 9 queries, 1 was for ``a``; credits pull 1 / 9 towards 1 / 10."""
    book = Popularity[str]((1e9,))
    now_s = asked(book, "abcdefghi", every_s=0.001)
    book.seen("j", now_s)
    a, unseen = book.rates("az", now_s)
    assert a / unseen == pytest.approx(1.3 / 0.3, rel=0.01)


def test_what_is_unknown_has_no_rate_before_the_first_query() -> None:
    assert Popularity[str]().rates("ab", 10.0) == [0.0, 0.0]


def test_queries_that_come_together_count_each() -> None:
    one, together = Popularity[str](MINUTE), Popularity[str](MINUTE)
    for key, queries in (("a", 3), ("b", 1)):
        together.seen(key, 0.0, queries)
        for _ in range(queries):
            one.seen(key, 0.0)
    assert together.rates("ab", 1.0) == pytest.approx(one.rates("ab", 1.0))


def test_steady_popularity_makes_it_trust_the_longest_memory() -> None:
    book = Popularity[str]((1.0, 1_000.0))
    asked(book, "".join(islice(cycle("aababcabcd"), 2_000)))
    assert book.weights[1] > 0.9


def test_popularity_that_moves_makes_it_trust_the_shortest() -> None:
    book = Popularity[str]((1.0, 1_000.0))
    asked(book, "".join(key * 20 for key in "abcdefghij" * 5), every_s=0.1)
    assert book.weights[0] > 0.9


def test_new_keys_say_nothing_about_time_constants() -> None:
    """Under the shortest, every key is equally probable, so each newcomer would speak for it."""
    book = Popularity[int]()
    before = book.weights
    for key in range(200):
        book.seen(key, float(key))
    assert book.weights == before


def test_it_changes_its_mind_when_the_world_does() -> None:
    book = Popularity[str]((1.0, 1_000.0))
    now_s = asked(book, "abcdefghij" * 200)
    assert book.weights[1] > 0.9
    asked(book, "".join(key * 20 for key in "abcdefghij" * 5), 0.1, now_s)
    assert book.weights[0] > 0.9


def test_the_longest_unseen_is_forgotten_when_there_are_too_many() -> None:
    book = Popularity[str](MINUTE, max_keys=2)
    now_s = asked(book, "abac")
    assert len(book) == 2
    a, b, c, unseen = book.rates("abcz", now_s)
    assert a > c > b == unseen


def test_a_long_silence_and_a_clock_that_goes_back_do_no_harm() -> None:
    book = Popularity[str]()
    asked(book, "aaab")
    book.seen("a", 1e9)
    book.seen("b", 0.0)
    a, b = book.rates("ab", 1e9)
    assert a == pytest.approx(b, rel=1e-6)


# Sums of these gaps are exact in floating point, so that no rounding decides whether two queries
# count as simultaneous.
gaps_s = (0.0, 1 / 128, 1.0, 300.0, 1e5)
arrivals = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(gaps_s)), max_size=40)


@given(arrivals)
def test_rates_are_finite_and_follow_only_from_what_was_seen(
    gaps: list[tuple[str, float]],
) -> None:
    first, second = Popularity[str](max_keys=3), Popularity[str](max_keys=3)
    now_s = 0.0
    for key, gap_s in gaps:
        now_s += gap_s
        first.seen(key, now_s)
        second.seen(key, now_s)
    assert first.rates("abcd", now_s) == second.rates("abcd", now_s)
    assert all(0.0 <= rate < 1e3 for rate in first.rates("abcd", now_s))
    assert sum(first.weights) == pytest.approx(1.0)
    assert len(first) <= 3


@given(arrivals, st.sampled_from((1.0, 1e6)))
def test_moving_the_clock_changes_nothing(gaps: list[tuple[str, float]], from_s: float) -> None:
    """Scales are brought back now and then, which changes no rate."""
    here, there = Popularity[str](), Popularity[str]()
    now_s = 0.0
    for key, gap_s in gaps:
        now_s += gap_s
        here.seen(key, now_s)
        there.seen(key, from_s + now_s)
    assert here.rates("abcd", now_s) == pytest.approx(there.rates("abcd", from_s + now_s), rel=1e-3)
