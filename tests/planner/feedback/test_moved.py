"""Whether answers are divided among classes as they were."""

from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.feedback.moved import dispersion_of, evidence, most_moved, moved


def counts(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_the_evidence_is_the_mean_over_classes_of_a_ratio_of_likelihoods() -> None:
    """Two classes say the same, so the mean is that of one. By hand, with the mixture over shares
    integrated numerically."""
    first, later = counts(8, 2), counts(1, 9)
    shares = (np.arange(1_000_000) + 0.5) / 1_000_000
    prior = 1 / (np.pi * np.sqrt(shares * (1 - shares)))

    def mixed(s: int, n: int) -> float:
        return float((prior * shares**s * (1 - shares) ** (n - s)).mean())

    largest = (9 / 20) ** 9 * (11 / 20) ** 11
    assert exp(evidence(first, later)) == pytest.approx(
        mixed(8, 10) * mixed(1, 10) / largest, rel=2e-3
    )


def test_what_is_the_same_is_no_evidence_and_has_not_moved() -> None:
    assert evidence(counts(500, 500), counts(500, 500)) < 0
    assert moved(counts(500, 500), counts(510, 490)) == 0.0
    assert evidence(counts(0, 0), counts(5, 5)) == evidence(counts(5, 5), counts(0, 0)) == 0.0


def test_what_moved_is_the_share_of_the_answers_that_fall_elsewhere() -> None:
    first, later = counts(5_000, 3_000, 2_000), counts(3_000, 3_000, 4_000)
    assert moved(first, later) == pytest.approx(0.2)
    assert most_moved(first, later, 3) == [0, 2]
    assert evidence(first, later) > 100


def test_answers_in_clumps_are_told_apart_from_single_ones() -> None:
    rng = np.random.default_rng(0)
    single = [rng.multinomial(200, [0.1] * 10) for _ in range(20)]
    clumps = [20 * rng.multinomial(10, [0.1] * 10) for _ in range(20)]
    assert dispersion_of(single) < 1.3
    assert 15 < dispersion_of(clumps) < 25
    assert dispersion_of([]) == dispersion_of([counts(5, 0), counts(7, 0)]) == 1.0


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=2, max_size=300),
    st.floats(1.0, 50.0),
)
def test_whatever_was_counted_what_moved_is_a_share(
    pairs: list[tuple[int, int]], dispersion: float
) -> None:
    first, later = (np.array(each, np.int64) for each in zip(*pairs, strict=True))
    assert 0.0 <= moved(first, later, dispersion) <= 1.0
    assert np.isfinite(evidence(first, later))


def test_it_is_rarely_above_a_bound_however_often_one_looks() -> None:
    """Ville's bound, at 1 in 10, where one looks after each of 400 answers: 300 runs."""
    rng, found = np.random.default_rng(1), 0
    for _ in range(300):
        shares = rng.dirichlet([0.5] * 4)
        first = rng.multinomial(200, shares)
        later = np.cumsum(rng.multinomial(1, shares, size=400), axis=0)
        found += any(evidence(first, each) >= -np.log(0.1) for each in later[::4])
    assert found <= 30
