"""Our own policy: what it knows of the catalog before the first query, and what it plans for."""

from dataclasses import replace
from typing import Any, cast
from unittest.mock import patch

import pytest

from planner.policies.modelless import Modelless, steps_of
from planner.policies.registry import make
from planner.reconcile.tick import tick
from planner.selection.snapshot import build_snapshot
from planner.simulate import offers_of
from planner.simulation.fleet import Fleet
from planner.simulation.policy import Brief
from planner.types import Decision, Objective, Observation
from tests.planner.builders import catalog, kind, profile, variant
from tests.planner.simulation.builders import Asked, Model, engine_of, setting, trace
from variants.types import Stage, TaskName


def test_the_steps_of_slo_classes_are_those_that_gateways_count_by() -> None:
    known = catalog(
        [variant("a", 0.9), variant("b", 0.8), variant("new", 0.99), variant("c", 0.7, "red")],
        [
            profile("a", 5.0, kind="gpu"),
            profile("b", 5.0),
            profile("b", 2.0, kind="gpu"),
            profile("new", 5.0),
            profile("c", 5.0, task="red"),
        ],
        kinds=[kind("cpu-1"), kind("gpu")],
        stages={"new": Stage.CANARY},
    )
    steps = steps_of(Fleet(offers_of(known), ()))

    assert steps[TaskName("red")] == (0.7,)
    assert steps == {
        name: view.accuracies for name, view in build_snapshot(known, ()).tasks.items()
    }
    assert sorted(len(found) for found in steps.values()) == [1, 2]


@pytest.mark.parametrize("by_replies", [False, True])
@pytest.mark.parametrize("objective", [Objective.ACCURACY, Objective.COST])
@pytest.mark.parametrize("in_vain", [(20.5, None), (4.0, None), (45.0, 0.95)])
def test_who_asks_in_vain_takes_no_plan_from_others_of_the_class(
    objective: Objective, by_replies: bool, in_vain: tuple[float, float | None]
) -> None:
    """A row takes 21 ms: 45 ms are enough, and what asks for 20.5 is of the same class."""
    known = replace(
        setting(Model(latency_ms=21.0), devices=2, objective=objective, tick_s=1.0),
        elastic=False, by_replies=by_replies,
    )  # fmt: skip
    asked = [(45.0, None), in_vain]
    rows = [Asked(2.0 + at / 40, asked[at % 2][0], floor=asked[at % 2][1]) for at in range(400)]
    policies: list[Modelless] = []

    def policy(fleet: Fleet) -> Modelless:
        brief = Brief(setting=known, average=lambda: (), clock_s=lambda: 0.0)
        policies.append(cast(Modelless, make("modelless")(brief, fleet)))
        return policies[0]

    _, report = engine_of(known, trace(*rows), policy)

    assert (report.in_time, report.rejected) == (200, 200)
    plan = policies[0].plan
    assert plan is not None
    served = {(each.latency_ms, each.accuracy) for each in plan.routes}
    assert served == {(20.0, None)}
    assert sum(each.qps for each in plan.routes) == pytest.approx(20.0, rel=0.2)


@pytest.mark.parametrize(("together", "times"), [(1, 1.0), (40, 40.0)])
def test_ticks_know_how_much_arrivals_vary(together: int, times: float) -> None:
    """Ten queries a second, evenly or forty of them every fourth second."""
    rows = [Asked(1.0 + at // together * together / 10, 5_000.0) for at in range(1_200)]
    known = setting(Model(latency_ms=5.0), devices=2, objective=Objective.COST)
    seen: list[Observation] = []

    def seeing(observation: Observation, *given: Any, **named: Any) -> Decision:
        seen.append(observation)
        return tick(observation, *given, **named)

    with patch("planner.policies.modelless.tick", seeing):
        engine_of(
            known, trace(*rows),
            lambda fleet: make("modelless")(
                Brief(setting=known, average=lambda: (), clock_s=lambda: 0.0), fleet
            ),
        )  # fmt: skip

    assert seen[0].dispersion == {}
    assert seen[-1].dispersion[TaskName("a")] == pytest.approx(times, rel=0.5)
