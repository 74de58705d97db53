"""What the latest counts say before a bucket has ended."""

import numpy as np

from planner.forecasting.latest_counts import LatestCounts


def counted(*spans: tuple[float, float]) -> LatestCounts:
    """Of one key, (seconds, count) each."""
    latest = LatestCounts()
    latest.widen(1)
    for elapsed_s, count in spans:
        latest.add(elapsed_s, np.array([count]))
    return latest


def test_a_first_count_that_began_before_its_key_is_left_out() -> None:
    assert counted((1.0, 20.0)).since_begun == [20.0]
    assert counted((1.0, 20.0), (1.0, 100.0)).since_begun == [100.0]
    assert counted((1.0, 20.0), (1.0, 100.0), (1.0, 80.0)).since_begun == [90.0]


def test_a_key_that_is_seldom_asked_for_is_not_forgotten_at_once() -> None:
    assert counted((1.0, 1.0), *[(1.0, 0.0)] * 9).since_begun == [0.1]


def test_what_came_after_a_long_first_count_says_more_once_it_is_as_long() -> None:
    assert counted((30.0, 30.0), (1.0, 3.0)).since_begun == [33.0 / 31.0]


def test_the_latest_are_those_of_two_seconds() -> None:
    latest = counted((1.0, 5.0), (1.0, 10.0), (1.0, 30.0))
    assert latest.recent_s == 2.0
    assert latest.recent == [20.0]


def test_a_key_that_comes_later_has_its_own_beginning() -> None:
    latest = counted((1.0, 5.0), (1.0, 5.0))
    latest.widen(1)
    latest.add(1.0, np.array([5.0, 3.0]))
    assert latest.since_begun.tolist() == [5.0, 3.0]
    latest.keep(np.array([1]))
    latest.add(1.0, np.array([7.0]))
    assert latest.since_begun.tolist() == [7.0]
    assert latest.recent.tolist() == [5.0]


def test_how_far_apart_counts_lie_is_told_in_what_chance_makes_of_single_rows() -> None:
    random = np.random.default_rng(0)
    counts = random.poisson(100.0, 500)
    assert 0.9 < counted(*[(1.0, float(n)) for n in counts]).rough[0] < 1.1
    rows = counted(*[(1.0, 64.0 * n) for n in random.poisson(1.0, 500)])
    assert rows.rough[0] > 5.0
    two_seconds = [(2.0, float(n)) for n in random.poisson(200.0, 250)]
    assert 0.9 < counted(*two_seconds).rough[0] < 1.2


def test_a_step_is_one_distance_of_many() -> None:
    random = np.random.default_rng(1)
    before = [(1.0, float(n)) for n in random.poisson(100.0, 60)]
    after = [(1.0, float(n)) for n in random.poisson(25.0, 60)]
    assert counted(*before, *after).rough[0] < 1.3


def test_how_far_apart_counts_lie_outlives_a_restart() -> None:
    first, second = counted((1.0, 100.0), (1.0, 0.0), (1.0, 100.0)), LatestCounts()
    second.recall(first.memory(), 1)
    assert second.rough == first.rough
    memory = dict(first.memory())
    del memory["rough"], memory["looks"]
    second.recall(memory, 1)
    assert second.rough == [1.0]
