"""The catalog that counts where clients have said something else than was measured."""

import json
from dataclasses import replace

from planner.feedback.accuracies import Accuracies, plain, read
from planner.feedback.evidence import Finding
from planner.selection.select import select
from planner.types import Choice, Refusal
from tests.planner.builders import (
    NOW_MS,
    catalog,
    key,
    profile,
    query,
    snapshot,
    variant,
    worker,
)

A, B = variant("a", 0.95), variant("b", 0.99)
CATALOG = catalog([A, B], [profile("a", 1.0), profile("b", 4.0)])
SAID = {key("a"): Finding(0.8, 1_200)}


def test_what_was_said_stands_in_place_of_what_was_measured() -> None:
    accuracies = Accuracies()
    assert accuracies.at(CATALOG) is CATALOG
    assert accuracies.know(SAID)
    assert not accuracies.know(dict(SAID))
    found = accuracies.at(CATALOG)
    assert accuracies.at(CATALOG) is found
    assert found.variants == (
        replace(A, accuracy=0.8, accuracy_rows=1_200, measured_accuracy=0.95), B
    )  # fmt: skip
    assert accuracies.know({})
    assert accuracies.at(CATALOG) is CATALOG


def test_what_is_said_of_variants_that_are_gone_changes_nothing() -> None:
    accuracies = Accuracies()
    accuracies.know({key("gone"): Finding(0.1, 100)})
    assert accuracies.at(CATALOG) is CATALOG


def test_it_is_told_and_read_back() -> None:
    assert read(json.loads(json.dumps(plain(SAID)))) == SAID
    assert read([["digits", "a"]]) == read(["x"]) == read([[1, 2, "x", 3]]) == {}


def test_queries_go_by_it_and_refusals_name_both_accuracies() -> None:
    accuracies = Accuracies()
    both = (worker(), [key("a"), key("b")])
    before = select(snapshot(CATALOG, both), query(accuracy=0.9), NOW_MS)
    accuracies.know(SAID)
    seen = snapshot(accuracies.at(CATALOG), both)
    after = select(seen, query(accuracy=0.9), NOW_MS)
    assert isinstance(before, Choice)
    assert isinstance(after, Choice)
    assert (before.candidate.variant, after.candidate.variant) == ("a", "b")

    accuracies.know({**SAID, key("b"): Finding(0.85, 300)})
    refused = select(snapshot(accuracies.at(CATALOG), both), query(accuracy=0.9), NOW_MS)
    assert isinstance(refused, Refusal)
    assert refused.reasons == {
        "a": "accuracy 80.00 % < 90.00 % by feedback on 1,200 rows; 95.00 % when measured",
        "b": "accuracy 85.00 % < 90.00 % by feedback on 300 rows; 99.00 % when measured",
    }
