"""What clients say, beside what was measured: when it contradicts, and for how long it counts."""

import random

import pytest

from planner.feedback.by_class import Said
from planner.feedback.evidence import SPAN_ROWS, SPAN_S, STEP, Evidence, Finding, words
from variants.metrics.metric import Metric, MetricKind

MEASURED, ROWS = 0.95, 540


def heard(right: int, wrong: int, at_s: float = 0.0) -> Evidence:
    made = Evidence()
    made.add(right, wrong, at_s)
    return made


def test_what_agrees_with_the_measurement_is_no_finding() -> None:
    evidence = heard(950, 50)
    assert not evidence.judge(MEASURED, 1.0)
    assert evidence.finding is None


@pytest.mark.parametrize(
    ("right", "wrong", "found"),
    [
        (0, 3, False),  # three wrong rows are chance, or three clients who were annoyed
        (0, 30, True),
        (160, 40, True),
        (184, 16, False),
        (1_990, 10, True),  # better than measured
        (940, 60, False),
    ],
)
def test_it_contradicts_where_chance_does_not_explain_it(
    right: int, wrong: int, found: bool
) -> None:
    evidence = heard(right, wrong)
    assert evidence.judge(MEASURED, 1.0) is found
    assert evidence.finding == (Finding(right / (right + wrong), right + wrong) if found else None)


def test_less_than_a_point_is_not_worth_another_choice() -> None:
    assert not heard(189_000, 11_000).judge(0.954, 1.0)
    assert heard(188_000, 12_000).judge(0.954, 1.0)


def test_looking_after_each_row_seldom_finds_what_is_not_there() -> None:
    """A test for one look would find it in most of these runs."""
    false = 0
    for seed in range(40):
        rng, evidence = random.Random(seed), Evidence()
        for _ in range(500):
            right = rng.random() < MEASURED
            evidence.add(right, not right, 0.0)
            if evidence.judge(MEASURED, 1.0):
                false += 1
                break
    assert false == 0


def test_a_lasting_change_is_found_within_some_hundred_rows() -> None:
    needed = []
    for seed in range(20):
        rng, evidence = random.Random(seed), Evidence()
        for row in range(2_000):
            right = rng.random() < 0.80
            evidence.add(right, not right, 0.0)
            if evidence.judge(MEASURED, 1.0):
                needed.append(row)
                break
    assert len(needed) == 20
    assert sorted(needed)[10] < 300


def test_a_share_that_hardly_moves_stays_what_it_was() -> None:
    evidence = heard(160, 40)
    assert evidence.judge(MEASURED, 1.0)
    before = evidence.finding
    evidence.add(1, 0, 2.0)
    assert not evidence.judge(MEASURED, 2.0)
    assert evidence.finding is before
    evidence.add(30, 0, 3.0)
    assert evidence.judge(MEASURED, 3.0)
    assert before is not None
    assert evidence.finding is not None
    assert evidence.finding.accuracy - before.accuracy > STEP


def test_what_was_said_is_forgotten_so_that_the_variant_is_tried_again() -> None:
    evidence = heard(0, 100)
    evidence.judge(MEASURED, 1.0)
    assert not evidence.judge(MEASURED, SPAN_S + 1.0)  # still in the span before
    assert evidence.finding is not None
    assert evidence.judge(MEASURED, 2 * SPAN_S + 2.0)
    assert evidence.rows == 0


def test_what_has_become_good_again_outweighs_what_was_said_before() -> None:
    evidence = heard(0, SPAN_ROWS)
    evidence.judge(MEASURED, 1.0)
    for at_s in (2.0, 3.0, 4.0):
        evidence.add(19 * SPAN_ROWS // 20, SPAN_ROWS // 20, at_s)
    evidence.judge(MEASURED, 5.0)
    assert evidence.finding is None


def test_a_clock_that_is_set_back_forgets_nothing_and_keeps_nothing_for_ever() -> None:
    evidence = heard(0, 100, at_s=1e9)
    assert evidence.judge(MEASURED, 1_000.0)
    assert evidence.rows == 100
    evidence.judge(MEASURED, 1_000.0 + 2 * SPAN_S + 1.0)
    assert evidence.rows == 0


def test_it_is_kept_and_recalled() -> None:
    evidence = heard(0, 100)
    evidence.judge(MEASURED, 1.0)
    again = Evidence.of(evidence.plain())
    assert (again.finding, again.rows) == (evidence.finding, 100)
    assert again.plain() == evidence.plain()
    for odd in ({}, {"before": 1, "now": [0, 0], "since_s": None, "finding": None}):
        with pytest.raises((KeyError, TypeError)):
            Evidence.of(odd)


def test_the_words_say_both_numbers() -> None:
    assert words(Finding(0.8, 200), MEASURED, ROWS) == (
        "right 80 % of 200 rows by feedback, 95 % of 540 when measured"
    )


BALANCED = Metric(kind=MetricKind.BALANCED)


def test_a_mean_over_classes_is_judged_by_class() -> None:
    """95 of 100 rows are right, and half of the rare class is missed."""
    evidence = Evidence()
    evidence.add(950, 50, 0.0, {0: Said(900, 0, 50), 1: Said(50, 50, 0)})
    assert not evidence.judge(0.95, 1.0)  # as a share of rows
    assert evidence.judge(0.95, 1.0, BALANCED, 2)
    assert evidence.finding == Finding(0.75, 1_000)
    assert not evidence.judge(0.95, 2.0, BALANCED, 2)
    # Of a hundred classes of which but two were met, the others may make up for it.
    assert evidence.judge(0.95, 2.0, BALANCED, 100)
    assert evidence.finding is None


def test_classes_are_forgotten_and_kept_as_rows_are() -> None:
    evidence = Evidence()
    evidence.add(50, 50, 0.0, {0: Said(50, 0, 50), 1: Said(0, 50, 0)})
    evidence.add(10, 0, SPAN_S + 1.0, {0: Said(10, 0, 0)})
    assert evidence.judge(0.95, SPAN_S + 1.0, BALANCED, 2)
    again = Evidence.of(evidence.plain())
    assert again.plain() == evidence.plain()
    assert not again.judge(0.95, SPAN_S + 2.0, BALANCED, 2)
    assert again.finding == Finding(0.5, 110)
    assert again.judge(0.95, 2 * SPAN_S + 2.0, BALANCED, 2)
    assert again.plain()["finding"] is None
    assert again.rows == 10


def test_what_an_earlier_release_kept_has_no_classes() -> None:
    kept = {"before": [0, 0], "now": [20, 30], "since_s": 1.0, "finding": None}
    evidence = Evidence.of(kept)
    assert not evidence.judge(0.95, 2.0, BALANCED, 2)
    assert evidence.judge(0.95, 2.0)


def test_the_words_name_the_metric() -> None:
    found = Finding(0.7, 200)
    assert words(found, 0.85, ROWS, BALANCED) == (
        "balanced accuracy 70 % on 200 rows by feedback, 85 % on 540 when measured"
    )
    assert words(found, 0.85, ROWS, Metric(kind=MetricKind.F1)).startswith("macro F1 70 % on 200")
