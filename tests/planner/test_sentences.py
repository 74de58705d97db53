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


def test_in_place_of_a_name_that_is_none_stand_those_most_like_it_and_how_many_others() -> None:
    names = ["cnn-v1-fp32", "cnn-v1-int8", "mlp-v1-fp32", "mlp-v1-int8", "mlp-v2-int8"]

    def said(asked: str, known: list[str] = names) -> str:
        return explain.there_are(known, asked)

    assert said("mlp-v1-int9") == "; there are: mlp-v1-int8 and 4 more"
    assert said("mlp-v1") == "; there are: mlp-v1-fp32, mlp-v1-int8 and 3 more"
    assert said("mlp") == "; there are: mlp-v1-fp32, mlp-v1-int8, mlp-v2-int8 and 2 more"
    everything = ", ".join(names)
    assert said("nope") == said("") == f"; there are: {everything}"
    assert said("nope", [*names, "tree"]) == f"; there are: {everything} and 1 more"
    # One that begins otherwise is the most alike in spelling.
    tasks = ["cancer", "diabetes", "digits", "figures", "mood", "wine"]
    assert said("wnie", tasks) == said("Wine", tasks) == "; there are: wine and 5 more"
    assert said("x" * 65 + "wine", tasks).endswith("mood and 1 more")
    assert said("mlp", ["mlp-v1"]) == "; there are: mlp-v1"
    assert said("nope", []) == ""
