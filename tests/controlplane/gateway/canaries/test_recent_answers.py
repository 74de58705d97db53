"""Which answers clients may still judge, and what comes of that."""

import weakref
from typing import Any

import numpy as np
import pytest

from controlplane.gateway.canaries.recent_answers import LONGEST_MS, RecentAnswers
from tests.variants.catalog_builders import task
from tests.variants.tagging import tagging
from variants.errors import Conflict, InvalidInput, NotFound
from variants.types import TensorSpec

DIGITS = task(labels=("a", "b", "c"))
MIB = 2**20


def scores(*best: int) -> np.ndarray[Any, Any]:
    """One row for each class that is the best in it."""
    return np.eye(3, dtype=np.float32)[list(best)]


def noted(answers: RecentAnswers, id_: str, *best: int, at_ms: float = 0.0) -> bytes:
    return answers.note(id_.encode(), DIGITS, "mlp", [scores(*best)], None, at_ms)


def test_rows_are_right_where_the_best_class_is_the_one_that_was_said() -> None:
    answers = RecentAnswers()
    assert noted(answers, "r-1", 0, 2, 1) == b"x-request-id: r-1\r\n"
    judged, arm = answers.judge("r-1", ["a", "c", "a"], 0.0)
    assert (judged.task, judged.variant, judged.right, judged.wrong, judged.anew, arm) == (
        "digits", "mlp", 2, 1, True, None,
    )  # fmt: skip


def test_the_same_said_again_counts_once_and_something_else_is_refused() -> None:
    answers = RecentAnswers()
    noted(answers, "r-1", 0)
    answers.judge("r-1", ["a"], 0.0)
    again, _ = answers.judge("r-1", ["a"], 1.0)
    assert (again.right, again.anew) == (1, False)
    with pytest.raises(Conflict):
        answers.judge("r-1", ["b"], 2.0)


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (["a", "b"], "2 labels for an answer with 1 row"),
        (["z"], "no class 'z'; there are: a, b"),
        ([], "0 labels for an answer with 1 row"),
    ],
)
def test_labels_have_to_fit_the_answer(labels: list[str], why: str) -> None:
    answers = RecentAnswers()
    noted(answers, "r-1", 0)
    with pytest.raises(InvalidInput, match=why):
        answers.judge("r-1", labels, 0.0)
    assert answers.judge("r-1", ["a"], 0.0)[0].anew


@pytest.mark.parametrize("metric", ["r2", "within:5%", "cosine", "nearest"])
def test_a_task_without_classes_has_none_to_be_right(metric: str) -> None:
    """Whatever its output is: a regression of one number would always be right."""
    answers = RecentAnswers()
    answers.note(b"r-1", task(labels=(), metric=metric), "mlp", [scores(0)], None, 0.0)
    with pytest.raises(InvalidInput, match=f"has no classes .*: its accuracy is by {metric}"):
        answers.judge("r-1", ["0"], 0.0)


def test_a_task_that_answers_each_position_has_no_class_for_a_row() -> None:
    answers = RecentAnswers()
    given = [np.zeros((1, 4, 3), np.float32)]
    answers.note(b"r-1", tagging(4, outputs=tagging(4).outputs[:1]), "mlp", given, None, 0.0)
    with pytest.raises(InvalidInput, match=r"has no classes of rows .*: it answers each position"):
        answers.judge("r-1", ["O"], 0.0)


def test_among_the_best_five_is_right_where_the_accuracy_counts_so() -> None:
    answers = RecentAnswers()
    six = (TensorSpec(name="scores", dtype="float32", shape=(6,)),)
    rows = np.array([[6, 5, 4, 3, 2, 1]] * 3, dtype=np.float32)
    answers.note(b"r-1", task(labels=(), metric="top5", outputs=six), "mlp", [rows], None, 0.0)
    judged, _ = answers.judge("r-1", ["0", "4", "5"], 0.0)
    assert (judged.right, judged.wrong) == (2, 1)


def test_classes_without_names_are_numbered() -> None:
    answers = RecentAnswers()
    answers.note(b"r-1", task(labels=()), "mlp", [scores(0, 2)], None, 0.0)
    with pytest.raises(InvalidInput, match="no class '3'"):
        answers.judge("r-1", ["0", "3"], 0.0)
    assert answers.judge("r-1", ["0", "1"], 0.0)[0].right == 1


def test_what_is_too_old_or_too_many_ago_is_not_known() -> None:
    answers = RecentAnswers(most=3)
    for number in range(5):
        noted(answers, f"r-{number}", 0)
    for forgotten in ("r-0", "r-1", "nobody"):
        with pytest.raises(NotFound):
            answers.judge(forgotten, ["a"], 0.0)
    for known in ("r-2", "r-3", "r-4"):
        assert answers.judge(known, ["a"], LONGEST_MS)[0].right == 1
    with pytest.raises(NotFound):
        answers.judge("r-4", ["a"], LONGEST_MS + 1.0)


def test_large_outputs_leave_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.gateway.canaries.recent_answers.MOST_BYTES", 10 * 12)
    answers = RecentAnswers(most=100)
    for number in range(50):
        noted(answers, f"r-{number}", 1)
    known = [number for number in range(50) if f"r-{number}" in answers._at]
    assert known == list(range(40, 50))
    noted(answers, "many", *[2] * 10)
    assert list(answers._at) == ["many"]


def test_an_id_that_is_given_again_means_the_newest_answer() -> None:
    answers = RecentAnswers(most=3)
    noted(answers, "same", 0)
    noted(answers, "same", 1)
    assert answers.judge("same", ["b"], 0.0)[0].right == 1
    for number in range(2):  # the older one leaves, which takes nothing from the newer one
        noted(answers, f"r-{number}", 0)
    assert answers.judge("same", ["b"], 0.0)[0].right == 1


def test_an_id_that_is_none_is_replaced() -> None:
    answers = RecentAnswers()
    line = noted(answers, "not plain!", 0)
    id_ = line.decode().removeprefix("x-request-id: ").strip()
    assert len(id_) == 16
    assert answers.judge(id_, ["a"], 0.0)[0].right == 1


class Received(bytearray):
    """Bytes that came from a worker, whose end can be seen."""


@pytest.mark.parametrize(("size", "is_kept"), [(64, True), (MIB, False)])
def test_an_answer_keeps_little_else_of_what_came_with_it(size: int, is_kept: bool) -> None:
    answers = RecentAnswers()
    received = Received(size)
    received[8:20] = scores(1).tobytes()
    came = weakref.ref(received)
    view: np.ndarray[Any, Any] = np.ndarray((1, 3), np.float32, received, 8)
    answers.note(b"r-1", DIGITS, "mlp", [view], None, 0.0)
    del received, view
    assert (came() is not None) is is_kept
    assert answers.judge("r-1", ["b"], 0.0)[0].right == 1


@pytest.mark.parametrize(
    ("metric", "classes"), [("top1", []), ("balanced", [(0, 0), (2, 1)]), ("f1", [(0, 0), (2, 1)])]
)
def test_the_classes_of_rows_are_told_where_each_counts_alike(
    metric: str, classes: list[tuple[int, int]]
) -> None:
    answers = RecentAnswers()
    of = task(labels=("a", "b", "c"), metric=metric)
    answers.note(b"r-1", of, "mlp", [scores(0, 1)], None, 0.0)
    judged, _ = answers.judge("r-1", ["a", "c"], 0.0)
    assert (judged.right, list(judged.classes)) == (1, classes)


def test_of_too_many_classes_none_is_told() -> None:
    answers = RecentAnswers()
    many = np.eye(300, dtype=np.float32)[:1]
    answers.note(b"r-1", task(labels=(), metric="balanced"), "mlp", [many], None, 0.0)
    assert list(answers.judge("r-1", ["0"], 0.0)[0].classes) == []
