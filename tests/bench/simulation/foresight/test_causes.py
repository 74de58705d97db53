"""What came of plans, and what the regret falls by."""

import pytest

from planner.policies.modelless import Modelless
from planner.simulate import simulate
from planner.simulation.tally import Tally
from planner.types import Objective
from tests.bench.simulation.foresight.causes import GIVEN, causes, following
from tests.bench.simulation.regret.counterfactuals import World
from tests.planner.simulation.builders import Asked, Model, setting, trace

GOOD = Model(accuracy=0.9, latency_ms=12.0, name="good")
QUICK = Model(accuracy=0.7, latency_ms=4.0, name="quick")


def world(qps: float) -> World:
    known = setting(GOOD, QUICK, objective=Objective.ACCURACY, tick_s=2.0)
    rows = [Asked(3.0 + number / qps, 200.0) for number in range(int(15 * qps))]
    return World(0, 0, known, trace(*rows))


def test_a_plan_that_is_followed_has_what_it_says() -> None:
    """Ten queries per second, for which there is time by the good variant."""
    known = world(10.0)
    ticks, runs = Modelless.tick, Tally.ran
    with following() as found:
        report = simulate(known.setting, known.trace, "modelless", clock=lambda: 0.0)
    assert (Modelless.tick, Tally.ran) == (ticks, runs)
    assert 100 < found.queries <= report.in_time
    assert found.planned == pytest.approx(0.9 * found.queries)
    assert found.off == 0


def test_a_plan_that_leaves_room_is_below_what_prices_find() -> None:
    """Seventy per second take 0.84 of the device by the good variant: an even plan has less."""
    found = causes(world(70.0))
    assert found.keys() == {"regret", "plan", "off routes", "gained there", *GIVEN}
    assert found["plan"] > found["regret"] >= 0.0
    assert 0.0 <= found["off routes"] <= 1.0
    assert found["loads"] == pytest.approx(0.0, abs=0.02)
