"""Two tasks that fit only one at a time stop trading places, and keep to hosts of their own."""

import random

import pytest

from planner.simulate import simulate
from tests.planner.simulation.builders import Asked, Model, setting, trace

A, B = Model("a", memory_mib=600), Model("b", memory_mib=600)


def queries(a_qps: float, b_qps: float, latency_ms: float, seconds: float = 120.0) -> list[Asked]:
    draw = random.Random(1)
    found = []
    for task, qps in (("a", a_qps), ("b", b_qps)):
        at_s = draw.expovariate(qps)
        while at_s < seconds:
            found.append(Asked(at_s, latency_ms, task))
            at_s += draw.expovariate(qps)
    return sorted(found)


@pytest.mark.parametrize("latency_ms", [500.0, 1_500.0])
def test_two_that_are_asked_for_alike_do_not_trade_one_place(latency_ms: float) -> None:
    """Each load takes 1 s. Taking turns would need a load about every six seconds."""
    asked = queries(5.0, 5.0, latency_ms)
    report = simulate(
        setting(A, B, eviction="modelless"), trace(*asked), "modelless", clock=lambda: 0.0
    )
    assert report.loads <= 10
    assert report.in_time >= 0.4 * len(asked)


def test_the_one_that_is_asked_for_more_has_the_place() -> None:
    asked = queries(5.0, 1.0, 1_500.0)
    report = simulate(
        setting(A, B, eviction="modelless"), trace(*asked), "modelless", clock=lambda: 0.0
    )
    assert report.loads <= 3
    assert report.in_time >= 0.95 * sum(one.task == "a" for one in asked)


def test_with_two_devices_each_has_its_own() -> None:
    asked = queries(5.0, 5.0, 1_500.0)
    report = simulate(
        setting(A, B, devices=2, eviction="modelless"),
        trace(*asked),
        "modelless",
        clock=lambda: 0.0,
    )
    assert (report.loads, report.evictions) == (2, 0)
    assert report.in_time >= 0.98 * len(asked)


def test_two_take_turns_where_queries_can_wait_for_as_long_as_what_is_loaded_stays() -> None:
    """Each load takes 0.1 s and is protected for 1 s, as workers of the product count it."""

    def in_time(latency_ms: float) -> int:
        quick = [one._replace(load_s=0.1) for one in (A, B)]
        asked = trace(*queries(6.0, 6.0, latency_ms))
        decided = setting(*quick, eviction="modelless")
        return simulate(decided, asked, "modelless", clock=lambda: 0.0).in_time

    assert in_time(1_500.0) > 1.1 * in_time(500.0)


def test_what_a_device_fills_its_memory_with_leaves_room_for_what_queries_ask_for() -> None:
    """Ten of twenty variants fit, and a device that comes empty loads 4 s for each. What queries
    ask for meanwhile does not wait until all ten are loaded."""
    models = [Model(f"t{number:02}", load_s=4.0) for number in range(20)]
    asked = [Asked(3.0 + 7.0 * at, 12_000.0, one.task) for at, one in enumerate(models[:-6:-1])]
    report = simulate(
        setting(*models, eviction="modelless"), trace(*asked), "modelless", clock=lambda: 0.0
    )

    assert (report.in_time, report.rejected) == (5, 0)
