"""What the ledger counts as a query with exactly one typed outcome in time, and what not."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.bench.chaos.ledger import Entry, Fault, Figures, Outcome, wrong

SENT_S = 100.0
ANSWER = Entry(
    query=1, sent_s=SENT_S, latency_ms=300.0, ended_s=SENT_S + 0.1, outcome=Outcome.ANSWERED,
    worker="cpu-1-a", slo_met=True,
)  # fmt: skip
REFUSAL = replace(ANSWER, outcome=Outcome.REFUSED, code="OVERLOADED", slo_met=None)
RESET = replace(ANSWER, outcome=Outcome.RESET, slo_met=None)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (ANSWER, ""),
        (REFUSAL, ""),
        (replace(ANSWER, ended_s=SENT_S + 0.54), ""),
        (replace(ANSWER, ended_s=SENT_S + 0.56), "too late"),
        (replace(REFUSAL, ended_s=SENT_S + 0.56), "too late"),
        (replace(ANSWER, ended_s=SENT_S + 0.66, stalled_s=0.2), ""),
        (replace(ANSWER, ended_s=SENT_S + 0.66, starved_s=0.2), "starved"),
        (replace(ANSWER, outcome=Outcome.SILENT), "silent"),
        (replace(ANSWER, outcome=Outcome.UNTYPED), "untyped"),
        (replace(ANSWER, outcome=Outcome.UNCONNECTED), ""),
        (RESET, "reset"),
    ],
)
def test_one_typed_outcome_until_the_deadline_and_250_ms(entry: Entry, why: str) -> None:
    assert wrong(entry, cut_s=()) == why


@pytest.mark.parametrize(
    ("cut_s", "why"),
    [
        (SENT_S + 0.05, ""),
        (SENT_S - 0.05, ""),
        (SENT_S + 0.2, ""),
        (SENT_S + 0.7, "reset"),
        (SENT_S - 1.0, "reset"),
    ],
)
def test_a_reset_counts_where_a_gateway_was_killed_with_the_query_in_flight(
    cut_s: float, why: str
) -> None:
    assert wrong(RESET, (cut_s,)) == why


def test_the_figures_of_a_trial() -> None:
    lost = replace(REFUSAL, code="REPLICA_LOST", sent_s=SENT_S + 0.5, ended_s=SENT_S + 0.6)
    found = Figures()
    found.add(
        [
            ANSWER,
            replace(ANSWER, slo_met=False, ended_s=SENT_S + 0.4),
            REFUSAL,
            lost,
            replace(lost, sent_s=SENT_S - 1, ended_s=SENT_S - 0.9),
            RESET,
            replace(RESET, outcome=Outcome.UNCONNECTED),
        ],
        Fault(begin_s=SENT_S, end_s=SENT_S),
    )

    assert (found.trials, found.queries, found.answered, found.late) == (1, 7, 2, 1)
    assert found.refused == {"OVERLOADED": 1, "REPLICA_LOST": 2}
    assert (found.reset, found.unconnected) == (1, 1)
    assert found.wrong == Counter(reset=1)
    assert found.routed_s == [0.5]
    assert [example["why"] for example in found.examples] == ["reset"]
