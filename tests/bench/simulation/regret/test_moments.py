"""What is lost from one moment to the next, by the bound for the rest."""

import random
from itertools import pairwise

import pytest

from planner.simulate import bound, simulate
from tests.bench.simulation.regret.moments import Past
from tests.bench.simulation.regret.parts import recorded
from tests.planner.simulation.builders import Asked, Model, setting, trace


def test_it_goes_from_the_bound_to_what_was_violated() -> None:
    """Three seconds of twice what one device has time for, with little before and behind."""
    draw = random.Random(1)
    crowd = [draw.uniform(6.0, 9.0) for _ in range(1_500)]
    calm = [draw.uniform(2.0, 12.0) for _ in range(200)]
    asked = trace(*(Asked(at_s, 400.0) for at_s in sorted([*crowd, *calm])))
    given = setting(
        Model(accuracy=0.9, latency_ms=12.0, name="good"),
        Model(accuracy=0.7, latency_ms=4.0, name="quick"),
    )
    with recorded() as ran:
        report = simulate(given, asked, "modelless", clock=lambda: 0.0)
    past = Past(given, asked, ran)

    found = [past.violated(at_s) for at_s in (1.0, 6.5, 7.5, 9.0, 20.0)]

    assert found[0] == pytest.approx(bound(given, asked).violation_ratio, abs=0.002)
    assert found[-1] == pytest.approx(report.violation_ratio)
    assert report.violation_ratio > found[0] + 0.01
    for before, after in pairwise(found):
        assert after >= before - 0.002
    assert found[3] > found[1] + 0.01
