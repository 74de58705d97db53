"""What stands in for the world, and what the policy is told meanwhile."""

from dataclasses import replace

import numpy as np
import pytest

from planner.simulate import bound, simulate
from tests.bench.simulation.regret.counterfactuals import (
    COUNTERFACTUALS,
    World,
    evenly,
    larger,
    left,
    without_batches,
    without_loads,
    world,
)
from tests.planner.simulation.builders import Asked, Model, setting, trace

NUMBERS = (20,)
"""A draw with few queries."""


def small() -> World:
    """A few hundred queries, more than the better variant has time for."""
    random = np.random.default_rng(1)
    arrivals = np.sort(random.uniform(5.0, 9.0, 400))
    return World(
        0,
        0,
        setting(
            Model(accuracy=0.9, latency_ms=12.0, name="good"),
            Model(accuracy=0.7, latency_ms=4.0, name="quick"),
        ),
        trace(*(Asked(float(at_s), 200.0) for at_s in arrivals)),
    )


def test_evenly_spaced_queries_are_as_many_in_each_stretch() -> None:
    known = world(20, 0)
    even = evenly(known).trace
    edges_s = np.arange(0.0, 132.0, 2.0)
    for number in range(len(even.tasks)):
        before, after = (
            np.asarray(one.arrival_s)[np.asarray(one.task) == number] for one in (known.trace, even)
        )
        assert np.array_equal(np.histogram(before, edges_s)[0], np.histogram(after, edges_s)[0])
    assert list(even.arrival_s) == sorted(even.arrival_s)


def test_a_larger_world_has_as_many_times_the_devices_and_queries() -> None:
    known = world(20, 0)
    more = larger(known)
    assert [k.count for k in more.setting.kinds] == [3 * k.count for k in known.setting.kinds]
    assert len(more.trace) == pytest.approx(3 * len(known.trace), rel=0.1)


def test_rows_and_loads_take_what_is_said() -> None:
    known = world(20, 0)
    for before, alone in zip(
        known.setting.catalog.profiles,
        without_batches(known).setting.catalog.profiles,
        strict=True,
    ):
        assert alone.points[-1].p50_ms == pytest.approx(before.points[-1].p50_ms)
        assert alone.points[0].p50_ms == pytest.approx(before.points[-1].p50_ms / 8)
    assert all(p.load_s == 0.0 for p in without_loads(known).setting.catalog.profiles)


@pytest.mark.parametrize("name", ["no loads", "foresight", "knowing", "division", "even"])
def test_nothing_that_a_policy_is_given_beats_the_bound_or_outlasts_its_turn(name: str) -> None:
    known = small()
    report = simulate(known.setting, known.trace, "modelless", clock=lambda: 0.0)
    limit = bound(known.setting, known.trace, [report])
    given = next(each for each in COUNTERFACTUALS if each.name == name)
    assert left(given, known, report, limit) >= -1e-3
    again = simulate(known.setting, known.trace, "modelless", clock=lambda: 0.0)
    assert replace(again, plan_ms_p50=0.0) == replace(report, plan_ms_p50=0.0)
