"""What not knowing the arrivals costs where there is always a device."""

import numpy as np
import pytest

from planner.types import Objective
from tests.bench.simulation.foresight.unforeseen import Option, unforeseen, worth_unforeseen
from tests.planner.simulation.builders import Asked, Model, setting, trace

FREE, DEAR = 0.0, 0.02
"""Of accuracy for a millisecond."""


def option(*ms: float, accuracy: float = 0.9, price: float = DEAR) -> Option:
    return Option(accuracy, (0.0, *ms), np.array([price]))


def worth(*options: Option, rate_per_ms: float, latency_ms: float = 100.0) -> float:
    return float(worth_unforeseen([*options], np.array([rate_per_ms]), latency_ms)[0])


def test_time_that_costs_nothing_has_each_query_answered_by_the_most_accurate() -> None:
    found = worth(option(10.0, price=FREE), option(4.0, accuracy=0.7), rate_per_ms=0.1)
    assert found == pytest.approx(0.9)


def test_who_comes_alone_pays_for_a_batch_of_its_own() -> None:
    assert worth(option(10.0, 11.0), rate_per_ms=0.0) == pytest.approx(0.9 - 10.0 * DEAR)


def test_where_many_come_each_pays_for_its_part_of_the_largest_batch() -> None:
    found = worth(option(10.0, 11.0), rate_per_ms=100.0)
    assert found == pytest.approx(0.9 - 5.5 * DEAR, abs=0.002)


def test_in_between_it_is_what_waiting_for_one_more_is_worth() -> None:
    """A batch has two rows if another query comes within the 89 ms that the first can wait; it has
    89 of 100 ms in steps of 2.5: 35 of them."""
    waits = 1.0 - np.exp(-0.01 * 2.5 * 35)
    alone, both = 0.9 - 10.0 * DEAR, 1.8 - 11.0 * DEAR
    # One of two or one of one: by how many batches begin for each query.
    expected = ((1 - waits) * alone + waits * both) / (1 + waits)
    assert worth(option(10.0, 11.0), rate_per_ms=0.01) == pytest.approx(expected, abs=0.002)


def test_a_lighter_variant_answers_who_would_be_alone_too_long() -> None:
    quick = option(2.0, accuracy=0.8)
    assert worth(option(10.0, 11.0), quick, rate_per_ms=0.0) == pytest.approx(0.8 - 2.0 * DEAR)


def test_nothing_is_left_where_there_is_time_for_all_one_by_one() -> None:
    given = setting(Model(accuracy=0.9, latency_ms=12.0), objective=Objective.ACCURACY)
    asked = trace(*(Asked(5.0 + number / 20, 200.0) for number in range(100)))
    assert unforeseen(given, asked, 100) == pytest.approx(0.0, abs=1e-6)


def test_queries_of_one_task_with_several_slos_are_not_told() -> None:
    given = setting(Model(accuracy=0.9, latency_ms=12.0), objective=Objective.ACCURACY)
    asked = trace(Asked(5.0, 200.0), Asked(6.0, 300.0))
    with pytest.raises(ValueError, match="different latency SLOs"):
        unforeseen(given, asked, 2)
