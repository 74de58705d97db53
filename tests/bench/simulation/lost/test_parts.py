"""What queries are lost for want of."""

from collections import Counter
from math import isnan

import pytest

from planner.simulate import simulate
from planner.simulation.engine import Engine
from planner.simulation.setting import Setting
from planner.simulation.tally import Tally
from planner.simulation.trace import Trace
from planner.types import Objective
from tests.bench.simulation.lost.parts import Lost, losing
from tests.bench.simulation.regret.spent import most_answered
from tests.planner.simulation.builders import Asked, Model, setting, trace
from variants.types import TaskName


def lost_of(given: Setting, asked: Trace) -> tuple[Lost, int]:
    """What was lost, and how many queries the report says were."""
    with losing() as lost:
        report = simulate(given, asked, "modelless", clock=lambda: 0.0)
    return lost, report.late + report.rejected


def test_what_comes_before_a_worker_has_started_waits_for_it() -> None:
    given = setting(objective=Objective.COST, provision_s=30.0)
    lost, violated = lost_of(given, trace(*(Asked(float(second)) for second in range(1, 60))))
    assert lost.why["workers that start"] == 29
    assert lost.why.total() == violated


def test_beyond_what_a_fleet_can_do_all_its_workers_are_busy() -> None:
    """Twice as many as one device has time for, from the fifth second on."""
    before = Engine._arrive, Tally.rejects
    asked = trace(*(Asked(5.0 + number / 200) for number in range(2_000)))
    lost, violated = lost_of(setting(Model(latency_ms=10.0, max_batch=1)), asked)
    assert violated > 800
    assert lost.why["behind others"] + lost.why["time"] + lost.why["late"] == violated
    assert lost.refused[TaskName("a")] + lost.why["late"] == violated
    assert (Engine._arrive, Tally.rejects) == before


def test_only_queries_that_arrive_within_the_time_count() -> None:
    given = setting(objective=Objective.COST, provision_s=30.0)
    asked = trace(*(Asked(float(second)) for second in range(1, 60)))
    with losing(10.0, 20.0) as lost:
        simulate(given, asked, "modelless", clock=lambda: 0.0)
    assert +lost.why == {"workers that start": 10}


def test_who_has_to_answer_a_part_of_each_task_answers_fewer() -> None:
    """In a second there is time for 50 rows of 10 ms and 25 of 20 ms."""
    given = setting(Model("a", latency_ms=10.0), Model("b", latency_ms=20.0))
    came = Counter({TaskName("a"): 50, TaskName("b"): 40})

    assert most_answered(given, came, 1.0, 0.5) == pytest.approx(50 + 25)
    assert most_answered(given, came, 1.0, 0.7) == pytest.approx(44 + 28)
    assert isnan(most_answered(given, came, 1.0, 0.9))
