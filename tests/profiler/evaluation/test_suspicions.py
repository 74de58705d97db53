"""What is said of a model that would be far better if it were used otherwise."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from profiler.evaluation.suspicions import LEAST_ROWS, suspicion
from variants.metrics.metric import Metric, MetricKind, parse_metric
from workers.runtimes.protocol import Tensor

TOP1 = Metric(kind=MetricKind.TOP1)
PIXELS, LABELS = load_digits(return_X_y=True)
PIXELS, LABELS = (PIXELS / 16).astype(np.float32), LABELS.astype(np.int64)
TRAIN, HELD_OUT = slice(0, 1_200), slice(1_200, None)


class Centroids:
    """The nearest mean of a class answers, of rows that are prepared as those of its training."""

    def __init__(self, rows: Tensor, labels: Tensor) -> None:
        flat = rows.reshape(len(rows), -1)
        self.means = np.stack([flat[labels == each].mean(axis=0) for each in range(10)])

    def __call__(self, rows: Sequence[Tensor]) -> Tensor:
        flat = rows[0].reshape(len(rows[0]), -1).astype(np.float64)
        return np.asarray(-((flat[:, None, :] - self.means[None]) ** 2).sum(axis=2))


def said(
    rows: Tensor,
    labels: Tensor,
    model: Callable[[Sequence[Tensor]], Tensor],
    metric: Metric = TOP1,
    classes: Sequence[str] = (),
) -> str:
    return suspicion(metric, model([rows]), labels, [rows], model, classes)


DIGITS = Centroids(PIXELS[TRAIN], LABELS[TRAIN])
ROWS, RIGHT = PIXELS[HELD_OUT], LABELS[HELD_OUT]


def test_of_a_model_that_is_used_rightly_nothing_is_said() -> None:
    assert said(ROWS, RIGHT, DIGITS) == ""


@pytest.mark.parametrize("seed", range(12))
def test_of_a_model_that_knows_nothing_nothing_is_said(seed: int) -> None:
    draw = np.random.default_rng(seed)
    weights = draw.standard_normal((64, 10))
    assert said(ROWS, RIGHT, lambda rows: rows[0] @ weights - (ROWS @ weights).mean(axis=0)) == ""


@pytest.mark.parametrize("right", [0.3, 0.5, 0.7, 0.85])
def test_of_a_model_that_is_wrong_by_chance_nothing_is_said(right: float) -> None:
    draw = np.random.default_rng(7)
    answers = np.where(draw.random(len(RIGHT)) < right, RIGHT, draw.integers(0, 10, len(RIGHT)))
    scores = np.eye(10)[answers]
    assert suspicion(TOP1, scores, RIGHT, [ROWS], lambda rows: scores[: len(rows[0])]) == ""


def test_what_is_no_better_than_always_one_label_is_not_said() -> None:
    """A model that knows nothing may be worse than that, and then everything makes it better."""
    draw = np.random.default_rng(0)
    labels = np.where(draw.random(400) < 0.75, 1, 0)
    answers = np.where(draw.random(400) < 0.9, 0, 1)  # the rarer label, to nearly all rows
    scores = np.eye(2)[answers]
    rows = draw.random((400, 1, 8, 8)).astype(np.float32)

    def better(changed: Sequence[Tensor]) -> Tensor:
        return np.tile(np.eye(2)[1], (len(changed[0]), 1))

    assert suspicion(TOP1, scores, labels, [rows], better) == ""


def test_labels_in_another_order_are_found() -> None:
    order = np.array([0, 2, 1, 3, 4, 5, 6, 9, 8, 7])
    told = said(ROWS, order[RIGHT], DIGITS, classes=[f"class {at}" for at in range(10)])
    assert told.startswith("it would be right in 8")
    assert "'class 1' is answered 'class 2', 'class 2' is answered 'class 1'" in told
    assert "7" in told


@pytest.mark.parametrize(("by", "how"), [(1, "more"), (-1, "less")])
def test_labels_that_are_one_off_are_found(by: int, how: str) -> None:
    model = DIGITS if by == 1 else Centroids(PIXELS[TRAIN], LABELS[TRAIN])

    def eleven(rows: Sequence[Tensor]) -> Tensor:
        scores = model(rows)
        beside = np.full((len(scores), 1), -1e9)
        parts = (scores, beside) if by == 1 else (beside, scores)
        return np.concatenate(parts, axis=1)

    told = said(ROWS, RIGHT + (1 if by == 1 else 0), eleven)
    assert f"if it answered one {how}: are classes counted from 0" in told


def _pictures() -> tuple[NDArray[np.float32], Tensor]:
    """Digits in colours that tell the class: red, green and blue parts differ."""
    tint = np.random.default_rng(0).random((10, 3)).astype(np.float32)
    grey = PIXELS.reshape(-1, 1, 8, 8)
    return np.asarray(0.3 * grey + 0.7 * tint[LABELS][:, :, None, None]), LABELS


@pytest.mark.parametrize(
    ("spoilt", "named"),
    [
        (lambda x: x[:, ::-1].copy(), "with the channels of pictures in the other order"),
        (lambda x: 255 * x, "with inputs divided by 255"),
        (lambda x: x / 255, "with inputs times 255"),
        (
            lambda x: 255 * x[:, ::-1],
            "with inputs divided by 255, and their channels in the other order",
        ),
    ],
)
def test_pictures_that_are_prepared_otherwise_are_found(
    spoilt: Callable[[Tensor], Tensor], named: str
) -> None:
    pictures, labels = _pictures()
    model = Centroids(pictures[TRAIN], labels[TRAIN])
    assert said(pictures[HELD_OUT], labels[HELD_OUT], model) == ""
    rows = np.ascontiguousarray(spoilt(pictures[HELD_OUT]), dtype=np.float32)
    told = said(rows, labels[HELD_OUT], model)
    assert f"{named}: do the rows go through the same steps" in told


def test_pictures_that_are_normalised_otherwise_are_found() -> None:
    pictures, labels = _pictures()
    mean = np.array([0.485, 0.456, 0.406], np.float32)[:, None, None]
    std = np.array([0.229, 0.224, 0.225], np.float32)[:, None, None]
    trained = (pictures[TRAIN] - mean) / std
    told = said(pictures[HELD_OUT], labels[HELD_OUT], Centroids(trained, labels[TRAIN]))
    assert "normalised by the mean and deviation of ImageNet: do the rows" in told


def test_grey_pictures_that_lie_on_their_side_are_found() -> None:
    upright = PIXELS.reshape(-1, 1, 8, 8)
    model = Centroids(upright[TRAIN], LABELS[TRAIN])
    lying = np.ascontiguousarray(np.swapaxes(upright[HELD_OUT], 2, 3))
    assert "with height and width of pictures exchanged" in said(lying, RIGHT, model)


def test_features_that_are_not_standardised_are_found() -> None:
    mean, std = PIXELS[TRAIN].mean(axis=0), PIXELS[TRAIN].std(axis=0)
    std = np.where(std > 0, std, 1)
    model = Centroids((PIXELS[TRAIN] - mean) / std, LABELS[TRAIN])
    told = said(ROWS + 2, RIGHT, model)
    assert "with each feature less its mean and divided by its deviation" in told


def test_one_answer_to_all_rows_is_told() -> None:
    def same(rows: Sequence[Tensor]) -> Tensor:
        return np.tile(np.eye(10)[3], (len(rows[0]), 1))

    told = said(ROWS, RIGHT, same, classes=[f"class {at}" for at in range(10)])
    assert told.startswith("it answers 'class 3' to 100")
    # Where nearly all rows have that label, it is what a good model may do.
    rare = np.where(np.arange(len(RIGHT)) % 8 == 0, 1, 3)
    assert said(ROWS, rare, same) == ""


def test_too_few_rows_say_nothing() -> None:
    few = slice(0, LEAST_ROWS - 1)
    assert said(ROWS[few], (RIGHT[few] + 1) % 10, DIGITS) == ""


@pytest.mark.parametrize("metric", ["r2", "within:1"])
def test_targets_on_another_scale_are_found(metric: str) -> None:
    draw = np.random.default_rng(0)
    answers = draw.standard_normal((200, 1))
    noise = draw.standard_normal((200, 1))
    by = parse_metric(metric)

    def told(targets: Tensor) -> str:
        return suspicion(by, answers, targets, [answers], lambda rows: rows[0])

    assert told(answers + 0.3 * noise) == ""
    assert told(noise) == ""
    assert told(100 * answers + 40 + 5 * noise).startswith("99.76 times")
    assert "are the targets on the scale" in told(100 * answers + 40 + 5 * noise)


def test_of_numbers_of_tokens_nobody_is_asked_for_their_scale() -> None:
    labels = np.arange(200) % 4
    outputs = np.tile(np.array([0.0, 0.0, 1.0, 0.0], np.float32), (200, 1))
    tokens = np.ones((200, 8), np.int64)
    assert suspicion(TOP1, outputs, labels, [tokens], lambda _: outputs) == ""
    told = suspicion(TOP1, outputs, labels, [tokens.astype(np.float32)], lambda _: outputs)
    assert told.startswith("it answers 2 to 100")
