"""How the answers of a variant are divided among its classes, first and lately."""

import json

import numpy as np
import pytest

from planner.feedback.answers import FIRST_ROWS, SPAN_ROWS, SPAN_S, Answers, Shift

EVEN = np.full(4, 25)
"""Of 100 answers."""
OTHER = np.array([55, 25, 10, 10])


class Watched:
    """Answers of a variant with four classes, 100 in each minute."""

    def __init__(self) -> None:
        self.answers, self.now_s = Answers(4), 0.0

    def minutes(self, count: int, counts: np.ndarray) -> list[bool]:
        """Each minute, whether it was found that answers have changed, or not any more."""
        found = []
        for _ in range(count):
            self.answers.add(counts, self.now_s)
            found.append(self.answers.judge(self.now_s))
            self.now_s += 60.0
        return found

    def first(self) -> "Watched":
        """All of the first answers."""
        self.minutes(61, EVEN)
        assert self.answers.standing().complete
        return self


def test_the_first_answers_are_those_of_an_hour_and_of_enough_rows() -> None:
    quick, slow = Answers(4), Answers(4)
    quick.add(FIRST_ROWS * EVEN, 0.0)
    quick.add(EVEN, SPAN_S - 1.0)
    assert not quick.standing().complete
    slow.add(EVEN, 0.0)
    slow.add(EVEN, 10 * SPAN_S)
    assert not slow.standing().complete
    quick.judge(SPAN_S)
    assert quick.standing().complete
    assert (quick.standing().first_rows, quick.standing().moved) == (100 * (FIRST_ROWS + 1), None)


def test_answers_that_are_divided_as_before_are_no_change() -> None:
    it = Watched().first()
    assert not any(it.minutes(300, EVEN))
    assert it.answers.standing().moved == 0.0


def test_a_change_is_found_once_and_is_over_once_answers_are_as_before() -> None:
    it = Watched().first()
    it.minutes(100, EVEN)
    found = it.minutes(100, OTHER)
    assert found.count(True) == 1
    assert found.index(True) < 20
    standing = it.answers.standing()
    assert standing.changed
    assert standing.moved is not None
    assert standing.moved > 0.1
    assert {shift.cell for shift in standing.shifts} == {0, 2, 3}
    assert standing.shifts[0].cell == 0
    assert it.minutes(300, EVEN).count(True) == 1
    assert not it.answers.standing().changed


def test_a_small_change_is_not_told_however_sure_it_is() -> None:
    it = Watched().first()
    near = np.array([28, 25, 25, 22])
    assert not any(it.minutes(600, 1_000 * near))
    assert it.answers.standing().moved == pytest.approx(0.03)


def test_answers_in_clumps_have_to_differ_by_more() -> None:
    """100 answers of one class at a time, as from a film."""
    rng, it = np.random.default_rng(0), Watched()

    def clump(shares: list[float]) -> np.ndarray:
        return 100 * rng.multinomial(1, shares)

    for _ in range(61):
        it.minutes(1, clump([0.25] * 4))
    assert not any(it.minutes(1, clump([0.25] * 4))[0] for _ in range(1_000))


def test_where_little_is_asked_a_span_lasts_until_there_are_enough_rows() -> None:
    it = Watched().first()
    it.now_s += SPAN_S
    spans = [it.answers.plain()["spans"]]
    for _ in range(SPAN_ROWS // 100):
        it.answers.add(EVEN, it.now_s)
        it.now_s += 10 * SPAN_S
        it.answers.judge(it.now_s)
        spans.append(it.answers.plain()["spans"])
    assert spans == [1, 1, 1, 1, 2, 2]


def test_first_answers_that_differ_from_those_to_the_held_out_rows_are_no_change() -> None:
    it = Watched().first()
    it.minutes(10, EVEN)
    alike, other = (
        it.answers.standing((260, 240, 255, 245)),
        it.answers.standing((700, 100, 100, 100)),
    )
    assert (alike.differs, alike.from_held_out, alike.changed) == (False, 0.0, False)
    assert (other.differs, other.changed) == (True, False)
    assert other.from_held_out == pytest.approx(0.45)
    assert other.differences[0] == Shift(0, 0.7, 0.25)
    assert it.answers.standing((5, 5)).from_held_out is None  # of another model
    assert it.answers.standing().from_held_out is None


def test_it_goes_on_from_what_was_kept() -> None:
    it = Watched()
    it.minutes(30, EVEN)
    it.answers = Answers.of(json.loads(json.dumps(it.answers.plain())))
    it.minutes(31, EVEN)
    assert it.answers.standing().first_rows == 6_000
    it.minutes(10, EVEN)
    it.minutes(60, OTHER)
    again = Answers.of(json.loads(json.dumps(it.answers.plain())))
    assert again.standing() == it.answers.standing()
    assert again.standing().changed
    assert not again.judge(it.now_s)  # it is not told twice
    with pytest.raises(ValueError, match="counts in place of"):
        Answers.of(it.answers.plain() | {"now": [1]})


def test_a_clock_that_was_set_back_begins_the_span_anew() -> None:
    it = Watched()
    it.minutes(59, EVEN)
    it.now_s = -1e6
    it.minutes(59, EVEN)
    assert not it.answers.standing().complete
    it.minutes(2, EVEN)
    assert it.answers.standing().complete
