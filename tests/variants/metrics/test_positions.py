"""Accuracy where each position of a row is judged by itself: the same as of so many rows."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from variants.metrics.metric import check_output, parse_metric
from variants.metrics.positions import IGNORED, judged_positions
from variants.metrics.scoring import NEAREST_ROWS, agreement, constant, score
from variants.types import TensorSpec

Array = NDArray[Any]
JUDGED = np.array([[1, 1, 0, 0], [1, 0, 1, 1], [0, 0, 0, 0]], np.bool_)
"""Of three rows with four positions each; nothing is known of the last row."""
METRICS = ("within:0.5", "within:10%", "r2", "cosine")


def labels(of: Array = JUDGED) -> Array:
    found = np.random.default_rng(0).integers(0, 5, of.shape)
    return np.where(of, found, IGNORED)


def targets(*rest: int) -> Array:
    """``(rows, positions, *rest)`` with NaN where nothing is judged."""
    found = np.random.default_rng(1).normal(size=(*JUDGED.shape, *rest)).astype(np.float32)
    found[~JUDGED] = np.nan
    return found


@pytest.mark.parametrize("metric", ["top1", "top5"])
def test_classes_are_counted_where_there_is_a_label(metric: str) -> None:
    scores = np.random.default_rng(2).random((3, 4, 7))
    truth = labels()
    by = parse_metric(metric)
    found, same = score(by, scores, truth, 0), score(by, scores[JUDGED], truth[JUDGED])
    assert found.accuracy == same.accuracy
    # What stands where nothing is judged changes nothing.
    scores[~JUDGED] = 1e9 * np.arange(7)
    assert score(by, scores, truth, 0) == found


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("rest", [(3,), (2, 2)])
def test_numbers_are_compared_where_there_is_a_target(metric: str, rest: tuple[int, ...]) -> None:
    by, truth = parse_metric(metric), targets(*rest)
    answers = np.nan_to_num(truth, nan=9.0) + np.random.default_rng(3).normal(
        scale=0.4, size=truth.shape
    )
    found, same = score(by, answers, truth, 0), score(by, answers[JUDGED], truth[JUDGED])
    assert (found.accuracy, found.note) == (same.accuracy, same.note)
    answers, truth = (np.moveaxis(one, 1, -1) for one in (answers, truth))
    turned = score(by, answers, truth, len(rest))
    assert turned.accuracy == pytest.approx(found.accuracy, abs=1e-6)


def test_judged_rows_are_counted_not_their_positions() -> None:
    # Positions of a row are not independent: an interval by their number would be too narrow.
    assert score(parse_metric("top1"), np.zeros((3, 4, 7)), labels(), 0).rows == 2
    assert score(parse_metric("r2"), np.zeros((3, 4, 2)), targets(2), 0).rows == 2


def test_neighbours_are_looked_for_among_positions_of_all_rows() -> None:
    nearest = parse_metric("nearest")
    vectors = np.array([[[1, 0], [0, 1], [1, 0]], [[0, 2], [3, 0], [5, 5]]], np.float32)
    truth = np.array([[4, 6, IGNORED], [6, 4, IGNORED]])
    assert score(nearest, vectors, truth, 0).accuracy == 1.0
    truth[0, 0] = 5
    assert score(nearest, vectors, truth, 0).accuracy == 0.5


def test_of_many_positions_neighbours_are_looked_for_among_some() -> None:
    draw = np.random.default_rng(0)
    vectors, truth = draw.normal(size=(4, 3_000, 2)), draw.integers(0, 2, (4, 3_000))
    assert NEAREST_ROWS < 4 * 3_000
    found = score(parse_metric("nearest"), vectors, truth, 0)
    assert (found.accuracy * NEAREST_ROWS) % 1 == 0
    assert found.rows == 4


@pytest.mark.parametrize("metric", ["top1", *METRICS, "nearest"])
def test_answers_agree_position_by_position(metric: str) -> None:
    by = parse_metric(metric)
    reference = np.random.default_rng(4).normal(size=(3, 4, 5)).astype(np.float32)
    answers = reference.copy()
    answers[0, 0] = -10 * reference[0, 0]
    answers[2] = -10 * reference[2]  # of which nothing is judged
    assert agreement(by, answers, reference, 0, labels()) == 4 / 5
    assert agreement(by, answers, reference, 0) == 7 / 12
    assert agreement(by, reference, reference, 0) == 1.0


def test_the_same_answer_at_every_position() -> None:
    truth = np.array([[1, 1, 0, IGNORED], [1, 2, IGNORED, IGNORED]])
    assert constant(parse_metric("top1"), truth, 0) == 3 / 5
    assert constant(parse_metric("r2"), targets(2), 0) == 0.0


def test_a_target_that_is_partly_known_is_judged() -> None:
    one = np.array([[[1.0, np.nan], [np.nan, np.nan]]])
    assert judged_positions(one, 0).tolist() == [[True, False]]
    assert judged_positions(np.moveaxis(one, 1, 2), 1).tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("metric", "shape", "along", "wrong"),
    [
        ("top1", (8, 3), 0, None),
        ("top1", (3, 8), 1, "must be scores, float [batch, positions, classes]"),
        ("top1", (8,), 0, "must be scores, float [batch, positions, classes]"),
        ("top1", (8, 1), 0, "must be scores, float [batch, positions, classes]"),
        ("within:1", (8,), 0, None),
        ("r2", (2, 8), 1, None),
        ("cosine", (8, 16), 0, None),
        ("cosine", (8,), 0, "must have a vector for each position for the metric cosine"),
        ("nearest", (8,), 0, "must have a vector for each position for the metric nearest"),
    ],
)
def test_which_outputs_can_be_judged_by_position(
    metric: str, shape: tuple[int, ...], along: int, wrong: str | None
) -> None:
    spec = TensorSpec(name="y", dtype="float32", shape=shape)
    assert check_output(parse_metric(metric), spec, along) == wrong


@pytest.mark.parametrize("metric", ["top1", "top5", "within:5%", "nearest"])
def test_what_an_accuracy_means_says_positions(metric: str) -> None:
    means = parse_metric(metric).means(by_position=True)
    assert "share of the positions " in means
    assert "row" not in means
    assert parse_metric(metric).means() == means.replace("position", "row")
