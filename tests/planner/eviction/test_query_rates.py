"""QueryRates: counted one by one, told together, and the same rates as a book that sees each."""

from planner.eviction.popularity import Popularity
from planner.eviction.query_rates import QueryRates


def test_rates_are_those_of_a_book_that_was_told_at_once() -> None:
    rates, book = QueryRates[str](), Popularity[str]()
    for second in range(20):
        for _ in range(3):
            rates.query("hot")
        rates.tell(float(second))
        book.seen("hot", float(second), 3)
    assert rates.rates(["hot", "new"], 20.0) == book.rates(["hot", "new"], 20.0)


def test_what_was_just_asked_for_counts_without_being_told() -> None:
    rates = QueryRates[str]()
    rates.query("a")
    assert "a" not in rates
    known, unknown = rates.rates(["a", "b"], 1.0)
    assert known > unknown > 0.0
    assert "a" in rates


def test_who_keeps_rates_sees_that_queries_came_since() -> None:
    """At one time, also while the book was not told of them yet."""
    asked: QueryRates[str] = QueryRates()
    asked.query("a")
    before = asked.rates(("a",), 1.0)
    told = asked.told

    assert (asked.rates(("a",), 1.0), asked.told) == (before, told)

    asked.query("a")
    assert asked.told > told
    told = asked.told
    assert asked.rates(("a",), 1.0) > before
    assert asked.told == told


def test_what_no_query_has_asked_for_may_count_as_nothing() -> None:
    rates: QueryRates[str] = QueryRates()
    assert rates.rates(("a", "b"), 1.0, newcomers=False) == [0.0, 0.0]
    rates.query("a")
    known, _ = rates.rates(("a", "b"), 1.0)
    assert rates.rates(("a", "b"), 1.0, newcomers=False) == [known, 0.0]
