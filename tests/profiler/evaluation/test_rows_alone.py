"""That no row's answer depends on the other rows of its batch."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from profiler.evaluation.rows_alone import check_alone, moved_by_far
from tests.profiler.evaluation.test_accuracy import SCORES, Lookup, rows
from variants.errors import InvalidArtifact, RuntimeFailed
from workers.runtimes.protocol import Tensor


class Twofold(Lookup):
    """Has a second output, which is what a function makes of a batch's rows ``(rows, 1)``."""

    def __init__(self, second: Callable[[Tensor], Tensor]) -> None:
        super().__init__(SCORES)
        self._second = second

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        return [*super().run(inputs), self._second(inputs[0])]


@pytest.mark.parametrize(
    "second",
    [
        lambda rows: rows - rows.mean(axis=0),
        lambda rows: rows.argsort(axis=0),
        lambda rows: np.broadcast_to(rows.sum(), rows.shape) > 3,
        lambda rows: np.full(rows.shape, len(rows)),
    ],
    ids=["numbers", "places", "yes or no", "how many"],
)
def test_no_output_may_depend_on_the_other_rows(second: Callable[[Tensor], Tensor]) -> None:
    """Only the first one was looked at."""
    check_alone(Lookup(SCORES), rows(20), ["scores"])
    with pytest.raises(
        InvalidArtifact, match=r"a batch in output 'second': alone.* leaves it out$"
    ):
        check_alone(Twofold(second), rows(20), ["scores", "second"])


def test_an_output_that_is_another_each_time_is_named() -> None:
    random = np.random.default_rng(0)
    runtime = Twofold(lambda rows: random.random(rows.shape))
    with pytest.raises(InvalidArtifact, match="other numbers each time in output 'second', by up"):
        check_alone(runtime, rows(20), ["scores", "second"])


def test_whole_numbers_that_are_scored_may_not_depend_on_the_other_rows_in_any_row() -> None:
    class Places(Lookup):
        def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
            found = inputs[0].astype(np.int64)
            found[:3] += 100 * (len(found) > 1)
            return [found]

    with pytest.raises(InvalidArtifact, match="depends on the other rows in a batch: alone"):
        check_alone(Places(SCORES), rows(20), ["places"])


def test_rounding_may_decide_between_places_that_are_as_good() -> None:
    def second(rows: Tensor) -> Tensor:
        found = rows.astype(np.int64)
        found[:3] += len(found) > 1
        return found

    check_alone(Twofold(second), rows(20), ["scores", "second"])
    wide = Twofold(lambda rows: np.arange(100) == len(rows) - 1 + rows)
    check_alone(wide, rows(20), ["scores", "second"])


class Numbers(Lookup):
    """Has one output, which is what a function makes of a batch's rows ``(rows, 1)``."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__(SCORES)
        self._function = function

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        return [self._function(inputs[0])]


NORMAL = np.random.default_rng(0).normal(size=(300, 1)).astype(np.float32)


@pytest.mark.parametrize(
    "function",
    [
        lambda rows: 300 + 5 * (rows - rows.mean(axis=0)),
        lambda rows: 300 + 5 * rows + 3 * np.sign(rows.sum()),
        lambda rows: rows - (np.arange(len(rows)) >= 8)[:, None],
    ],
    ids=["normalised over the batch", "moved by the batch", "from the ninth row on"],
)
def test_answers_that_are_close_together_may_not_depend_on_the_other_rows(
    function: Callable[[Tensor], Tensor],
) -> None:
    """What moved was little beside 300, or lay behind the rows that were tried."""
    with pytest.raises(InvalidArtifact, match="depends on the other rows in a batch: alone"):
        check_alone(Numbers(function), [NORMAL], ["values"])


def test_one_row_that_is_far_from_all_others_may_not_change_their_answers() -> None:
    far = NORMAL.copy()
    far[217] = 50.0
    flips = Numbers(lambda rows: -rows if rows.max() > 20 else rows)
    check_alone(flips, [NORMAL], ["values"])
    with pytest.raises(InvalidArtifact, match="alone, evaluation row 42 is answered"):
        check_alone(flips, [far], ["values"])


def test_what_scales_by_the_whole_batch_may_round_by_it() -> None:
    def quantised(rows: Tensor) -> Tensor:
        scale = np.abs(rows).max() / 127
        return np.asarray(300 + scale * np.round(rows / scale))

    check_alone(Numbers(quantised), [NORMAL], ["values"])
    far = moved_by_far(Numbers(quantised), [NORMAL], ["values"])
    assert far.startswith("a row that is far from all others changes the answers of those beside")


def test_what_a_far_row_does_to_others_is_told_and_what_it_gets_itself_is_not() -> None:
    def moved(function: Callable[[Tensor], Tensor], rows: Tensor = NORMAL) -> str:
        return moved_by_far(Numbers(function), [rows], ["values"])

    assert "by up to inf" in moved(lambda rows: rows + (np.nan if rows.max() > 100 else 0))
    assert "changes" in moved(lambda rows: -rows if rows.max() > 20 else rows)
    assert moved(lambda rows: np.where(rows > 100, np.nan, rows)) == ""
    assert moved(np.tanh) == ""
    assert moved(lambda rows: rows / rows.max(), np.arange(20)[:, None]) == ""  # such as of words

    class Table(Lookup):
        def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
            if inputs[0].max() > 2:
                raise RuntimeFailed("indices element out of data bounds")
            return super().run(inputs)

    assert moved_by_far(Table(SCORES), rows(20), ["scores"]) == ""


def test_answers_that_hardly_differ_may_round_otherwise_beside_others() -> None:
    same = Numbers(lambda rows: np.ones(rows.shape) + 1e-6 * (len(rows) > 1))
    check_alone(same, [NORMAL], ["values"])
    check_alone(same, [NORMAL[:1]], ["values"])
