"""What metrics compute, against scikit-learn's own where it has them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score, f1_score, r2_score
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from variants.errors import InvalidArtifact
from variants.metrics.metric import Metric, parse_metric
from variants.metrics.scoring import (
    NEAREST_ROWS,
    Scored,
    agreement,
    constant,
    cosines,
    is_of_score,
    nearest,
    r2,
    score,
    top1,
    top5,
    within,
)

Array = NDArray[Any]
SEEDS = st.integers(0, 2**32 - 1)
SHAPES = st.sampled_from([(), (1,), (3,), (2, 3)])
KINDS = ("within:0.5", "within:10%", "r2", "cosine", "nearest")
R2, COSINE, NEAREST = map(parse_metric, ("r2", "cosine", "nearest"))


def pair(seed: int, shape: tuple[int, ...], rows: int = 12) -> tuple[Array, Array]:
    """Targets, and answers some way off: ``(rows, *shape)`` float32."""
    draw = np.random.default_rng(seed)
    targets = draw.normal(size=(rows, *shape)) * 10 ** draw.uniform(-3, 3)
    answers = targets + draw.normal(size=targets.shape) * 10 ** draw.uniform(-3, 3)
    return answers.astype(np.float32), targets.astype(np.float32)


def two_axes(values: Array) -> Array:
    return values.reshape(len(values), -1)


# -- by class --------------------------------------------------------------------------------------


def test_top5_counts_labels_among_the_five_highest() -> None:
    scores = np.array([[6, 5, 4, 3, 2, 1, 0]] * 3)
    assert top5(scores, np.array([0, 4, 5])) == 2
    assert top1(scores, np.array([0, 4, 5])) == 1


@given(SEEDS)
def test_of_five_classes_or_less_top5_is_always_right(seed: int) -> None:
    draw = np.random.default_rng(seed)
    assert top5(draw.random((8, 5)), draw.integers(0, 5, 8)) == 8


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@pytest.mark.filterwarnings("ignore:A single label was found")
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=30))
def test_where_each_class_counts_alike_it_is_as_in_scikit_learn(
    pairs: list[tuple[int, int]],
) -> None:
    answers, labels = np.array(pairs).T
    scores = np.eye(5)[answers]

    found = score(parse_metric("balanced"), scores, labels).accuracy
    assert found == pytest.approx(balanced_accuracy_score(labels, answers))
    found = score(parse_metric("f1"), scores, labels).accuracy
    assert found == pytest.approx(f1_score(labels, answers, average="macro"))


@pytest.mark.parametrize("text", ["balanced", "f1"])
@given(labels=st.lists(st.integers(0, 4), min_size=1, max_size=30))
def test_the_best_single_class_is_what_always_saying_it_brings(
    text: str, labels: list[int]
) -> None:
    truth, metric = np.array(labels), parse_metric(text)
    each = [score(metric, np.eye(5)[np.full(len(truth), one)], truth).accuracy for one in range(5)]
    assert constant(metric, truth) == pytest.approx(max(each))


def test_a_class_that_is_never_found_shows_however_rare_it_is() -> None:
    """98 of 100 rows are of one class, and all are taken for it."""
    labels = np.array([1] * 2 + [0] * 98)
    scores = np.eye(2)[np.zeros(100, int)]

    found = {text: score(parse_metric(text), scores, labels) for text in ("top1", "balanced", "f1")}

    assert found["top1"] == Scored(accuracy=0.98, rows=100)
    rare = "its rarest class has 2 rows"
    assert found["balanced"] == Scored(accuracy=0.5, rows=100, note=rare)
    assert found["f1"] == Scored(accuracy=98 / 198, rows=100, note=rare)
    none = score(parse_metric("f1"), np.eye(3)[labels], labels)
    assert none == Scored(accuracy=1.0, rows=100, note="1 of 3 classes without a row")
    assert [is_of_score(one) for one in (rare, none.note, "taught")] == [True, True, False]


# -- by number -------------------------------------------------------------------------------------


def test_within_wants_every_number_of_a_row_within_the_tolerance() -> None:
    targets = np.array([[10.0, -10.0]] * 4, np.float32)
    answers = targets + np.array([[0, 0], [0.5, 0], [0.5, -0.5], [0, 0.75]], np.float32)
    absolute, relative = parse_metric("within:0.5"), parse_metric("within:5%")
    assert within(absolute, answers, targets).tolist() == [True, True, True, False]
    assert within(relative, answers, targets).tolist() == [True, True, True, False]
    assert score(absolute, answers, targets) == Scored(accuracy=0.75, rows=4)
    assert within(relative, answers / 10, targets / 10).tolist() == [True, True, True, False]


def test_a_target_of_zero_is_met_within_percents_by_zero_alone() -> None:
    metric = parse_metric("within:50%")
    assert within(metric, np.array([0.0, 1e-9]), np.zeros(2)).tolist() == [True, False]


@given(SEEDS, SHAPES)
def test_a_wider_tolerance_is_met_by_no_fewer_rows(seed: int, shape: tuple[int, ...]) -> None:
    """The curve of Bi and Bennett never falls, and ends at 1."""
    answers, targets = pair(seed, shape)
    shares = [
        score(parse_metric(f"within:{10.0**power!r}"), answers, targets).accuracy
        for power in range(-6, 7)
    ]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@given(SEEDS, SHAPES)
def test_r2_is_that_of_scikit_learn(seed: int, shape: tuple[int, ...]) -> None:
    answers, targets = pair(seed, shape)
    wanted = r2_score(two_axes(targets).astype(float), two_axes(answers).astype(float))
    assert r2(answers, targets) == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    assert score(R2, answers, targets).accuracy == pytest.approx(max(0.0, wanted), abs=1e-9)


def test_targets_that_do_not_vary_are_met_or_not() -> None:
    targets = np.array([[3.0, 0.0], [3.0, 0.0]])
    for answers in (targets, targets + np.array([[1, 0], [0, 0]])):
        assert r2(answers, targets) == r2_score(targets, answers)


def test_a_negative_r2_counts_as_0_and_is_told() -> None:
    found = score(R2, np.array([3.0, 2.0, 1.0]), np.array([1.0, 2.0, 3.0]))
    assert found == Scored(accuracy=0.0, rows=3, note="R² is -3, which counts as 0")


def test_r2_of_numbers_at_the_end_of_float64() -> None:
    targets = np.array([1e308, -1e308, 5e307])
    assert r2(targets, targets) == 1.0
    assert 0.9 < r2(targets * 0.9, targets) < 1.0


def test_one_row_has_no_r2_and_no_neighbour() -> None:
    with pytest.raises(InvalidArtifact, match="r2 needs at least two evaluation rows"):
        score(R2, np.ones((1, 2)), np.ones((1, 2)))
    with pytest.raises(InvalidArtifact, match="nearest needs at least two evaluation rows"):
        score(NEAREST, np.ones((1, 2)), np.zeros(1, np.int64))


# -- by vector -------------------------------------------------------------------------------------


@given(SEEDS, SHAPES)
@example(117, ())  # a target of 4e-8, which in 32 bits is 0 to scikit-learn
def test_cosines_are_those_of_scikit_learn(seed: int, shape: tuple[int, ...]) -> None:
    answers, targets = pair(seed, shape)
    each = (two_axes(one).astype(np.float64) for one in (answers, targets))
    wanted = np.diag(cosine_similarity(*each))
    assert cosines(answers, targets) == pytest.approx(wanted, abs=1e-5)
    mean = float(np.mean(wanted))
    assert score(COSINE, answers, targets).accuracy == pytest.approx(max(0.0, mean), abs=1e-5)


def test_a_vector_of_zeros_counts_0_and_opposite_ones_are_told() -> None:
    targets = np.array([[1.0, 0.0], [0.0, 2.0]])
    answers = np.array([[3.0, 0.0], [0.0, 0.0]])
    assert cosines(answers, targets).tolist() == [1.0, 0.0]
    assert score(COSINE, -targets, targets) == Scored(
        accuracy=0.0, rows=2, note="the mean cosine similarity is -1, which counts as 0"
    )


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e300])
def test_a_cosine_does_not_depend_on_lengths(size: float) -> None:
    vectors = np.array([[3.0, 4.0]])
    assert cosines(vectors * size, np.array([[3.0, 0.0]]) * size).tolist() == pytest.approx([0.6])


@given(SEEDS)
def test_neighbours_are_those_of_scikit_learn(seed: int) -> None:
    draw = np.random.default_rng(seed)
    vectors, labels = draw.normal(size=(40, 5)), draw.integers(0, 3, 40)
    finder = NearestNeighbors(n_neighbors=2, metric="cosine").fit(vectors)
    others = finder.kneighbors(vectors, return_distance=False)[:, 1]
    assert nearest(vectors, labels).tolist() == (labels[others] == labels).tolist()


def test_leaving_each_row_out_is_what_a_classifier_by_the_nearest_row_does() -> None:
    draw = np.random.default_rng(5)
    vectors, labels = draw.normal(size=(30, 4)) + 1, draw.integers(0, 4, 30)
    right = 0
    for row in range(30):
        rest = np.arange(30) != row
        rule = KNeighborsClassifier(n_neighbors=1, metric="cosine").fit(vectors[rest], labels[rest])
        right += int(rule.predict(vectors[row : row + 1])[0] == labels[row])
    assert score(NEAREST, vectors, labels).accuracy == right / 30


def test_of_many_rows_so_many_are_judged_and_always_the_same() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, NEAREST_ROWS + 1_000)
    vectors = np.eye(2)[labels] + 0.01
    found = score(NEAREST, vectors, labels)
    assert found == Scored(accuracy=1.0, rows=NEAREST_ROWS)
    assert score(NEAREST, vectors, labels) == found


def test_labels_that_occur_once_are_never_right() -> None:
    assert score(NEAREST, np.eye(3) + 1, np.array([7, 8, 2**40])).accuracy == 0.0


# -- all of them -----------------------------------------------------------------------------------


def truth_of(metric: Metric, targets: Array) -> Array:
    return np.arange(len(targets)) % 3 if metric.truth == "labels" else targets


@pytest.mark.parametrize("text", KINDS)
@given(seed=SEEDS, shape=SHAPES)
def test_an_accuracy_lies_between_0_and_1(text: str, seed: int, shape: tuple[int, ...]) -> None:
    metric = parse_metric(text)
    answers, targets = pair(seed, shape)
    truth = truth_of(metric, targets)
    assert 0.0 <= score(metric, answers, truth).accuracy <= 1.0
    assert 0.0 <= agreement(metric, answers, targets) <= 1.0
    assert 0.0 <= constant(metric, truth) <= 1.0
    assert agreement(metric, answers, answers) == 1.0


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("top1", 1.0), ("balanced", 1.0), ("f1", 1.0), ("within:0.5", 0.5), ("within:11%", 0.75),
        ("r2", 0.25), ("cosine", 0.75), ("nearest", 0.75),
    ],
)  # fmt: skip
def test_what_counts_as_the_same_answer(text: str, same: float) -> None:
    """The reference's numbers have a standard deviation of 2 and of 1."""
    reference = np.array([[8.0, 5.0], [12.0, 3.0], [8.0, 3.0], [12.0, 5.0]])
    moved = reference + np.array([[0.0, 0.0], [0.4, 0.0], [0.8, 0.0], [0.0, 4.0]])
    assert agreement(parse_metric(text), moved, reference) == same


def test_two_vectors_of_zeros_are_the_same() -> None:
    zeros = np.zeros((2, 3))
    assert agreement(COSINE, zeros, zeros) == 1.0
    assert agreement(COSINE, zeros + np.array([[0.0], [1.0]]), zeros) == 0.5


@pytest.mark.parametrize(
    ("text", "truth", "share"),
    [
        ("top1", np.array([0, 1, 1, 1]), 0.75),
        ("top5", np.array([0, 1, 2, 3, 4, 5, 0, 1]), 7 / 8),
        ("balanced", np.array([0, 1, 1, 1]), 0.5),
        ("f1", np.array([0, 1, 1, 1]), 3 / 7),
        ("nearest", np.array([-9, 2**50, 2**50]), 2 / 3),
        ("r2", np.array([1.0, 2.0]), 0.0),
        ("within:1", np.array([1.0, 2.0, 3.0, 9.0, 9.5]), 0.4),
        ("cosine", np.array([[2.0, 0.0], [0.0, 5.0]]), 2**-0.5),
    ],
)
def test_what_always_answering_the_same_would_have(text: str, truth: Array, share: float) -> None:
    assert constant(parse_metric(text), truth) == pytest.approx(share)
