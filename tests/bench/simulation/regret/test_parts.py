"""What the parts of a regret add up to."""

import random

import pytest

from planner.simulate import bound, simulate
from tests.bench.simulation.regret.parts import parts, recorded
from tests.planner.simulation.builders import Asked, Model, setting, trace


def test_the_parts_are_all_of_the_regret() -> None:
    """More is asked of one device than its better variant has time for."""
    draw = random.Random(1)
    arrivals = sorted(draw.uniform(5.0, 12.0) for _ in range(700))
    asked = trace(*(Asked(at_s, 200.0) for at_s in arrivals))
    given = setting(
        Model(accuracy=0.9, latency_ms=12.0, name="good"),
        Model(accuracy=0.7, latency_ms=4.0, name="quick"),
    )
    with recorded() as ran:
        report = simulate(given, asked, "modelless", clock=lambda: 0.0)
    lost = parts(given, asked, report, ran)
    regret = bound(given, asked, [report]).beside(report).regret_accuracy
    assert regret > 0.005
    assert sum(lost.values()) == pytest.approx(regret, abs=0.001)
    assert all(each >= -1e-6 for each in lost.values())
