"""What the time of devices went into."""

from collections import Counter

import pytest

from planner.simulate import simulate
from planner.simulation.engine import Engine
from planner.types import Objective
from tests.bench.simulation.regret.spent import (
    came_within,
    least_part,
    most_answered,
    spending,
)
from tests.planner.simulation.builders import GPU, Asked, Model, setting, trace
from variants.types import TaskName


def test_all_time_of_a_device_is_accounted_for() -> None:
    """A row takes 4 ms by the quick variant and 12 ms by the good one, in any batch."""
    given = setting(
        Model(accuracy=0.9, latency_ms=12.0, name="good"),
        Model(accuracy=0.7, latency_ms=4.0, name="quick"),
        objective=Objective.ACCURACY,
    )
    asked = trace(*(Asked(5.0 + number / 120, 200.0) for number in range(600)))
    before = Engine._start
    with spending(given) as found:
        report = simulate(given, asked, "modelless", clock=lambda: 0.0)

    spent = found[GPU]
    assert Engine._start is before
    assert spent.rows == spent.answered[TaskName("a")] == report.in_time
    assert sum(spent.small_ms.values()) == pytest.approx(0.0, abs=1e-6)
    assert spent.slower_ms > 0.0
    assert spent.busy_ms == pytest.approx(4.0 * spent.rows + spent.slower_ms)


def test_only_what_begins_within_the_time_counts() -> None:
    given = setting(Model(latency_ms=10.0), objective=Objective.ACCURACY)
    asked = trace(*(Asked(5.0 + number / 10, 200.0) for number in range(100)))
    with spending(given, 7.0, 9.0) as found:
        simulate(given, asked, "modelless", clock=lambda: 0.0)

    came = came_within(asked, 7.0, 9.0)
    assert came.total() == found[GPU].rows == 20
    assert found[GPU].busy_ms == pytest.approx(200.0)


def test_a_fleet_answers_those_that_take_least_where_it_cannot_answer_all() -> None:
    """In a second there is time for 50 rows of 10 ms and 25 of 20 ms."""
    given = setting(Model("a", latency_ms=10.0), Model("b", latency_ms=20.0))
    came = Counter({TaskName("a"): 50, TaskName("b"): 40})

    assert most_answered(given, came, 1.0) == pytest.approx(75.0)
    assert least_part(given, came, 1.0) == pytest.approx(1.3)
