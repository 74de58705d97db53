"""How the command line says how answers are divided among the classes."""

from typing import Any

import pytest

from controlplane.cli.commands.models.answer_words import answer_words, task_words

SHIFT = {"classes": "3", "before": 0.1, "now": 0.3}
ANSWERS: dict[str, Any] = {
    "rows": 900, "first_rows": 2_100, "complete": True, "moved": 0.0, "changed": False,
    "shifts": [], "from_held_out": None, "differs": False, "differences": [],
}  # fmt: skip


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (
            {"complete": False, "moved": None},
            "2,100 until now; later ones are compared with these",
        ),
        ({"moved": None}, "compared with its first 2,100, as soon as there are others"),
        ({}, "0.00 % of 900 lately fall into other classes than of its first 2,100"),
        (
            {"moved": 0.2, "changed": True, "shifts": [SHIFT]},
            "20.00 % of 900 lately fall into other classes than of its first 2,100"
            " (3: 10.00 % before, 30.00 % now)",
        ),
        (
            {"from_held_out": 0.25, "differs": True, "differences": [SHIFT]},
            "0.00 % of 900 lately fall into other classes than of its first 2,100; of the first"
            " ones 25.00 % fall into other classes than of the held-out rows"
            " (3: 10.00 % before, 30.00 % now)",
        ),
    ],
    ids=["too few", "none lately", "as before", "changed", "other than held out"],
)
def test_it_says_what_is_known_of_a_variant(told: dict[str, Any], words: str) -> None:
    assert answer_words(ANSWERS | told) == words
    assert answer_words(None) == ""


def test_it_says_of_which_variants_of_a_task_answers_are_other_ones() -> None:
    row: dict[str, Any] = {"name": "digits"}
    assert task_words(row) == "no change is known"
    row |= {"answers_changed": ["a", "b"], "answers_differ": ["b"]}
    assert task_words(row) == (
        "divided among the classes otherwise than at first: a, b; at first divided otherwise than"
        " those to the held-out rows: b (`modelless variants get digits VARIANT` says how)"
    )
    why = "its answers are no classes of whole rows"
    assert task_words(row | {"answers_unwatched": why}) == f"not watched: {why}"
