"""How answers are judged."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.evaluation import accuracy
from profiler.evaluation.accuracy import Judgement, answers, judge, wilson
from variants.errors import InvalidArtifact
from workers.runtimes.protocol import Tensor

SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])


class Lookup:
    """Answers a row that holds n with the n-th of its scores; says which batches it was given."""

    def __init__(self, scores: Tensor) -> None:
        self._scores = scores
        self.batches: list[int] = []

    def load(self) -> None: ...

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        assert inputs[0].flags.c_contiguous
        self.batches.append(len(inputs[0]))
        return [self._scores[inputs[0][:, 0].astype(int)]]

    def close(self) -> None: ...


def rows(count: int) -> list[Tensor]:
    return [np.arange(count, dtype=np.float32)[:, None] % 3]


def test_answers_come_for_all_rows_in_their_order() -> None:
    runtime = Lookup(SCORES)
    found = answers(runtime, rows(7), batch_size=3)
    assert runtime.batches == [3, 3, 1]
    assert np.array_equal(found, SCORES[[0, 1, 2, 0, 1, 2, 0]])


def test_it_is_told_how_many_rows_are_answered() -> None:
    told: list[int] = []
    runtime = Lookup(SCORES)
    answers(runtime, rows(100), batch_size=32, told=told.append)
    assert (told, runtime.batches) == ([8, 40, 72, 100], [8, 32, 32, 28])


def test_a_slow_model_is_given_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "SLOW_S", -1.0)
    runtime = Lookup(SCORES)
    found = answers(runtime, rows(20), batch_size=32)
    assert runtime.batches == [8, 8, 4]
    assert np.array_equal(found, answers(Lookup(SCORES), rows(20), batch_size=20))


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_an_answer_that_is_not_finite_is_refused(wrong: float) -> None:
    scores = SCORES.copy()
    scores[2, 1] = wrong
    with pytest.raises(InvalidArtifact, match="not finite on evaluation row 5"):
        answers(Lookup(scores), [np.array([[0], [1], [0], [1], [0], [2]])], batch_size=4)


def test_answers_for_another_number_of_rows_are_refused() -> None:
    class Short(Lookup):
        def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
            return [super().run(inputs)[0][:1]]

    with pytest.raises(InvalidArtifact, match=r"3 rows with an output of shape \(1, 3\)"):
        answers(Short(SCORES), rows(3))


def test_a_judgement_counts_right_rows_and_those_that_agree() -> None:
    labels, reference = np.array([1, 1, 2]), SCORES[[0, 1, 0]]
    classes: dict[str, Any] = {"answered": [1, 1, 1], "found": [[0, 0], [1, 2], [1, 1]]}
    assert judge(SCORES, labels, "top1", reference) == Judgement(
        accuracy=2 / 3, rows=3, agreement=2 / 3, **classes
    )
    alone = judge(SCORES, labels, "top1", None)
    assert alone == Judgement(accuracy=2 / 3, rows=3, **classes)
    assert alone.found_pairs == ((0, 0), (1, 2), (1, 1))
    assert judge(SCORES, SCORES, "within:0.5", None).answered == []


def test_wilson_against_published_values() -> None:
    """Newcombe 1998, table I, method 3: 81 of 263, 15 of 148, 0 of 20, 1 of 29."""
    published = {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0.0000, 0.1611),
        (1, 29): (0.0061, 0.1718),
    }
    found = {share: wilson(*share) for share in published}
    assert {share: (round(low, 4), round(high, 4)) for share, (low, high) in found.items()} == (
        published
    )


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_of_a_share_holds_it(share: tuple[int, int]) -> None:
    right, count = share
    low, high = wilson(right, count)
    assert 0 <= low <= right / count + 1e-12
    assert right / count - 1e-12 <= high <= 1
