"""How much arrivals vary, of streams of which it is known."""

from collections.abc import Iterable
from math import cos, pi

import numpy as np
import pytest

from planner.headroom.dispersion import SETTLED_S, Dispersion
from variants.types import TaskName

DIGITS, LETTERS = TaskName("digits"), TaskName("letters")


def watched(counts: Iterable[float], every_s: float = 1.0) -> float | None:
    seen = Dispersion()
    for count in counts:
        seen.count({DIGITS: float(count)}, every_s)
    return seen.of_tasks().get(DIGITS)


@pytest.mark.parametrize("every_s", [0.8, 1.0, 2.5])
@pytest.mark.parametrize("rate", [3.0, 50.0, 2_000.0])
def test_queries_of_one_row_that_come_by_chance_have_one(rate: float, every_s: float) -> None:
    drawn = np.random.default_rng(0).poisson(rate * every_s, 600)

    assert watched(drawn, every_s) == pytest.approx(1.0, abs=0.5)


def test_rows_that_come_together_vary_as_many_times_more() -> None:
    queries = np.random.default_rng(1).poisson(40.0, 600)

    assert watched(8 * queries) == pytest.approx(8.0, rel=0.4)


def test_bursts_vary_more() -> None:
    draw = np.random.default_rng(2)
    bursts = draw.poisson(np.where(draw.random(600) < 0.2, 200.0, 10.0))

    found = watched(bursts)
    assert found is not None
    assert found > 50.0


def test_a_load_that_swings_slowly_does_not() -> None:
    rates = [500.0 * (1.0 - 0.8 * cos(2 * pi * second / 600)) for second in range(600)]

    found = watched(np.random.default_rng(3).poisson(rates))
    assert found == pytest.approx(1.0, abs=0.6)


def test_what_is_more_regular_than_chance_counts_as_chance() -> None:
    assert watched([50.0] * 60) == 1.0


def test_nothing_is_said_before_it_was_watched_for_some_time() -> None:
    assert watched([50.0] * round(SETTLED_S)) is None
    assert watched([50.0] * (round(SETTLED_S) + 1)) is not None
    assert watched([0.0] * 60) is None


def test_a_task_of_which_nothing_comes_any_more_counts_on() -> None:
    seen = Dispersion()
    for _ in range(60):
        seen.count({DIGITS: 20.0, LETTERS: 5.0}, 1.0)
    for _ in range(20):
        seen.count({LETTERS: 5.0}, 1.0)

    assert seen.of_tasks().keys() == {DIGITS, LETTERS}
    assert seen.of_tasks()[LETTERS] == 1.0


def test_no_time_is_no_count() -> None:
    seen = Dispersion()
    seen.count({DIGITS: 5.0}, 0.0)

    assert seen.of_tasks() == {}


def test_a_task_that_is_counted_no_more_is_forgotten() -> None:
    seen = Dispersion()
    seen.count({DIGITS: 1.0, LETTERS: 0.0}, 1.0)
    for _ in range(1_800):
        seen.count({LETTERS: 0.0}, 1.0)

    assert len(seen) == 1
