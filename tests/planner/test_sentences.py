"""The words of choices and refusals: prices are of a million queries, as people are shown them."""

from planner import sentences as explain
from planner.types import Reason
from tests.planner.builders import catalog, profile, query, snapshot, variant


def test_each_reason_of_a_choice_has_its_words() -> None:
    assert set(explain.CHOSEN) == set(Reason)
    assert not [words for words in explain.CHOSEN.values() if "_" in words]


def test_what_is_asked_names_the_ceiling_of_a_million_queries() -> None:
    asked = query(latency_ms=20, accuracy=0.95, cost=0.0005, rows=3)
    assert explain.asked(asked) == "20 ms, accuracy 95.00 %, at most 0.5 USD per million, 3 rows"


def test_a_price_is_above_its_ceiling_also_where_both_are_nearly_equal() -> None:
    (view,) = snapshot(catalog([variant("a")], [profile("a")])).tasks.values()
    (candidate,) = view.by_cost
    assert explain.above_ceiling(candidate, 0.0005) == "a row alone costs 1 > 0.5 USD per million"
    assert (
        explain.above_ceiling(candidate, 0.00099999)
        == "a row alone costs 1 > 0.99999 USD per million"
    )
