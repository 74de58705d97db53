"""How sure a mean over classes is, from what clients said of rows of each."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from planner.canary.sequences import bounds
from planner.feedback.by_class import Said, mean_bounds, mean_of, rows_of
from variants.metrics.metric import Metric, MetricKind
from variants.metrics.scoring import class_accuracy

BALANCED, F1 = Metric(kind=MetricKind.BALANCED), Metric(kind=MetricKind.F1)
BOTH = pytest.mark.parametrize("metric", [BALANCED, F1], ids=str)
ALPHA = 1e-2


def said_of(rows: Iterable[tuple[int, int]]) -> dict[int, Said]:
    """Counts of rows by their right class and the one that was answered."""
    counts: dict[int, list[int]] = {}
    for right, answered in rows:
        of = counts.setdefault(right, [0, 0, 0])
        if right == answered:
            of[0] += 1
            continue
        of[1] += 1
        counts.setdefault(answered, [0, 0, 0])[2] += 1
    return {number: Said(*each) for number, each in counts.items()}


def drawn(rows: int, seed: int, confused: float) -> list[tuple[int, int]]:
    """Rows of three classes, the last of them rare, of which some are taken for the next."""
    rng = np.random.default_rng(seed)
    right = rng.choice(3, rows, p=[0.6, 0.35, 0.05])
    answered = np.where(rng.random(rows) < confused, (right + 1) % 3, right)
    return list(zip(right.tolist(), answered.tolist(), strict=True))


@BOTH
def test_the_mean_is_the_metric_of_the_rows(metric: Metric) -> None:
    rows = drawn(200, 1, 0.3)
    right, answered = np.array(rows).T
    assert mean_of(metric, said_of(rows)) == pytest.approx(class_accuracy(metric, answered, right))
    assert rows_of(said_of(rows)) == 200


@pytest.mark.parametrize("of", [(5, 10), (0, 10), (10, 10), (976, 1_000), (1, 3)])
def test_of_one_class_it_is_the_sequence_of_a_share_at_half_the_error(of: tuple[int, int]) -> None:
    right, rows = of
    said = {0: Said(right, rows - right, 0)}
    assert mean_bounds(BALANCED, said, 1, ALPHA) == pytest.approx(
        bounds(right, rows, ALPHA / 2), abs=1e-4
    )


@BOTH
def test_it_is_the_least_and_largest_mean_of_all_shares_that_are_not_excluded(
    metric: Metric,
) -> None:
    """By going over all pairs of shares, and by the sequence of each."""
    said = {0: Said(30, 10, 3), 1: Said(90, 3, 10)}
    grid = np.linspace(0.0005, 0.9995, 1_000)
    logs: list[Any] = []
    apart: list[Any] = []
    budget = -np.log(ALPHA / 2) * (1 if metric == BALANCED else 2)
    for found, missed, taken in said.values():
        wrong = missed if metric == BALANCED else missed + taken
        alone = found * np.log(grid) + wrong * np.log1p(-grid)
        logs.append(_log_mixture(found, wrong) - alone)
        ends = np.array(bounds(found, found + wrong, ALPHA / 4))
        apart.append(ends if metric == BALANCED else 2 * ends / (1 + ends))
    inside = logs[0][:, None] + logs[1][None, :] <= budget
    each = grid if metric == BALANCED else 2 * grid / (1 + grid)
    means = ((each[:, None] + each[None, :]) / 2)[inside]
    low, high = mean_bounds(metric, said, 2, ALPHA)
    alone_low, alone_high = np.mean(apart, axis=0)
    expected = max(means.min(), alone_low), min(means.max(), alone_high)
    assert (low, high) == pytest.approx(expected, abs=2e-3)
    assert low <= mean_of(metric, said) <= high


def _log_mixture(right: int, wrong: int) -> float:
    """By summing over shares, with the density of Jeffreys' prior."""
    share = (np.arange(200_000) + 0.5) / 200_000
    density = 1 / (np.pi * np.sqrt(share * (1 - share)))
    return float(np.log((density * share**right * (1 - share) ** wrong).mean()))


@BOTH
def test_a_class_of_which_nothing_was_said_may_be_anything(metric: Metric) -> None:
    said = {0: Said(500, 0, 0), 1: Said(500, 0, 0)}
    low, high = mean_bounds(metric, said, 2, ALPHA)
    assert (low, high) == pytest.approx((0.98, 1.0), abs=0.02)
    of_three = mean_bounds(metric, said, 3, ALPHA)
    assert of_three == pytest.approx((2 * low / 3, 1.0), abs=1e-3)
    assert mean_bounds(metric, {}, 3, ALPHA) == (0.0, 1.0)


@BOTH
@pytest.mark.parametrize("confused", [0.02, 0.3])
def test_the_truth_is_seldom_outside_however_often_one_looks(
    metric: Metric, confused: float
) -> None:
    """20 runs with a look after each 100 rows: at an error of 1 in 10, chance has more than 6
    outside less than once in a hundred times."""
    right, answered = np.array(drawn(400_000, 0, confused)).T
    true = class_accuracy(metric, answered, right)
    outside = 0
    for seed in range(20):
        rows = drawn(600, seed + 1, confused)
        looks = (mean_bounds(metric, said_of(rows[:n]), 3, 0.1) for n in range(100, 601, 100))
        outside += any(not low - 1e-3 <= true <= high + 1e-3 for low, high in looks)
    assert outside <= 6


def test_where_a_class_is_rare_a_sequence_for_each_class_excludes_more() -> None:
    said = {0: Said(9_700, 100, 20), 1: Said(80, 20, 100)}
    low, high = mean_bounds(BALANCED, said, 2, ALPHA)
    apart = [bounds(found, found + missed, ALPHA / 4) for found, missed, _ in said.values()]
    assert (low, high) == pytest.approx(np.mean(apart, axis=0), abs=1e-4)


@BOTH
def test_it_is_narrower_than_a_sequence_for_each_class(metric: Metric) -> None:
    rng = np.random.default_rng(0)
    right = rng.integers(0, 10, 2_000)
    answered = np.where(rng.random(2_000) < 0.03, (right + 1) % 10, right)
    said = said_of(zip(right.tolist(), answered.tolist(), strict=True))
    low, high = mean_bounds(metric, said, 10, ALPHA)
    apart = []
    for found, missed, taken in said.values():
        rows = found + missed + (0 if metric == BALANCED else taken)
        share = np.array(bounds(found, rows, ALPHA / 10))
        apart.append(share if metric == BALANCED else 2 * share / (1 + share))
    wide_low, wide_high = np.mean(apart, axis=0)
    assert high - low < 0.7 * (wide_high - wide_low)
