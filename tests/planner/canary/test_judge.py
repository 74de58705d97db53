"""What the evidence shows: seldom a wrong verdict, however often one looks, and regressions found.

Simulated queries are drawn as gateways draw them, and one looks after every fourhundredth.
"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.canary.judge import (
    MARGIN,
    Counts,
    Evidence,
    Judgement,
    Verdict,
    evidence_of,
    judge,
)
from planner.canary.sequences import bounds

AFTER = 1_000


def played(
    late: float, beside: float, seed: int, *, queries: int = 24_000, bursts: bool = False
) -> Judgement:
    """The first verdict of a share of a tenth, or what is known in the end.

    Args:
        late: the share of queries that are late at the canary.
        beside: the same at the live version.
        bursts: everything is late, and nothing is, in turns of 200 queries at random; the shares
            hold on the whole.
    """
    random = Random(seed)
    canary, live = [0, 0], [0, 0]
    now = Judgement(verdict=Verdict.NOT_YET, words="")
    worst = 0.0
    for number in range(1, queries + 1):
        if bursts and number % 200 == 1:
            worst = random.random()
        own = random.random() < 0.1
        share = late if own else beside
        is_late = worst < share if bursts else random.random() < share
        (canary if own else live)[is_late] += 1
        if number % 400 == 0:
            now = judge(
                Evidence(
                    canary=Counts(in_time=canary[0], late=canary[1]),
                    live=Counts(in_time=live[0], late=live[1]),
                ),
                AFTER,
            )
            if now.verdict is not Verdict.NOT_YET:
                return now
    return now


def test_one_that_is_no_worse_is_seldom_called_so() -> None:
    """At most 5 in 100 may be; of 40 more than 7 would be by chance in 1 of 1,000 cases."""
    verdicts = [played(0.05, 0.05, seed, queries=6_000).verdict for seed in range(40)]
    assert verdicts.count(Verdict.WORSE) <= 7


def test_nor_where_lateness_comes_in_bursts() -> None:
    verdicts = [played(0.05, 0.05, seed, queries=6_000, bursts=True).verdict for seed in range(40)]
    assert verdicts.count(Verdict.WORSE) <= 7


@pytest.mark.parametrize(("late", "beside"), [(0.05, 0.003), (0.1, 0.03), (1.0, 0.5)])
def test_a_regression_is_found(late: float, beside: float) -> None:
    found = [played(late, beside, seed) for seed in range(5)]
    assert {one.verdict for one in found} == {Verdict.WORSE}
    assert "late" in found[0].words


def test_one_that_is_as_good_is_found_good() -> None:
    verdicts = [played(0.003, 0.003, seed).verdict for seed in range(5)]
    assert verdicts == [Verdict.GOOD] * 5


def test_one_that_is_worse_by_more_than_the_margin_is_seldom_called_good() -> None:
    verdicts = [played(0.01 + 1.5 * MARGIN, 0.01, seed).verdict for seed in range(10)]
    assert verdicts.count(Verdict.GOOD) <= 3


def test_it_is_not_good_before_enough_queries_were_diverted() -> None:
    evidence = Evidence(canary=Counts(in_time=AFTER - 1), live=Counts(in_time=100_000))
    assert judge(evidence, AFTER).verdict is Verdict.NOT_YET
    assert judge(evidence, AFTER).words.startswith("999 of 1,000 queries were diverted: failed")
    assert judge(evidence, AFTER - 1).verdict is Verdict.GOOD


def test_nothing_is_known_of_what_was_not_asked() -> None:
    nothing = judge(Evidence(), AFTER)
    assert nothing == Judgement(verdict=Verdict.NOT_YET, words="0 of 1,000 queries were diverted")


def test_what_fails_is_told_with_its_numbers() -> None:
    evidence = Evidence(canary=Counts(failed=40, in_time=60), live=Counts(in_time=2_000))
    found = judge(evidence, AFTER)
    assert found.verdict is Verdict.WORSE
    assert found.words.startswith(
        "failed 40.0 % of 100, beside 0.0 % of 2,000 at the live versions; that is at least "
    )
    assert found.words.endswith("chance included; 100 of 1,000 queries were diverted")


def test_wrong_rows_count_where_clients_have_judged_both() -> None:
    canary = Counts(in_time=2_000, right=60, wrong=40)
    live = Counts(in_time=20_000, right=970, wrong=30)
    assert judge(Evidence(canary=canary, live=live), AFTER).verdict is Verdict.WORSE
    unknown = Counts(in_time=20_000)
    assert judge(Evidence(canary=canary, live=unknown), AFTER).verdict is Verdict.GOOD
    little = Evidence(canary=Counts(in_time=2_000, right=10), live=live)
    assert judge(little, AFTER).verdict is Verdict.NOT_YET
    assert judge(little, AFTER).words.endswith("not known well enough yet: wrong")


def test_what_gateways_have_counted_is_added_up() -> None:
    arm = {
        "in_time": 5, "late": 1, "failed": 0, "answers": 6, "latency_ms": 12.0, "right": 2,
        "wrong": 1,
    }  # fmt: skip
    one = {"canary": arm, "live": arm, "not_diverted": {"overloaded": 2}}
    found = evidence_of([one, one])
    assert (found.canary.queries, found.canary.mean_ms, found.canary.judged) == (12, 2.0, 6)
    assert found.live == found.canary
    assert found.not_diverted == {"overloaded": 4}


@given(st.integers(1, 5_000), st.floats(0, 1), st.floats(0.001, 0.2))
def test_bounds_hold_what_was_seen_and_are_narrower_for_more(
    of: int, part: float, alpha: float
) -> None:
    count = round(part * of)
    low, high = bounds(count, of, alpha)
    assert 0.0 <= low <= count / of <= high <= 1.0
    narrow, wide = bounds(10 * count, 10 * of, alpha), (low, high)
    assert narrow[1] - narrow[0] <= wide[1] - wide[0] + 1e-9


def test_a_share_stays_within_its_bounds_at_all_looks() -> None:
    """Of 60 courses of 1,000 queries, looked at after each tenth: one in ten may leave them."""
    left = 0
    for seed in range(60):
        random, count = Random(seed), 0
        for of in range(1, 1_001):
            count += random.random() < 0.1
            if of % 10 == 0:
                low, high = bounds(count, of, 0.1)
                if not low <= 0.1 <= high:
                    left += 1
                    break
    assert left <= 15
