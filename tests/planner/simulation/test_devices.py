"""Devices that come, go, fail, and what they cost, worked out by hand."""

import pytest

from planner.batching.deadline_queue import DeadlineQueue
from planner.simulation.results import Report
from planner.types import Objective
from tests.planner.simulation.builders import (
    Asked,
    Fifo,
    Model,
    about,
    expected,
    load,
    play,
    scale,
    setting,
    totals,
)

COST = Objective.COST


def test_an_ordered_device_is_billed_at_once_and_usable_later() -> None:
    # Ordered at 0, usable at 30; at 29.9 there is none. Loaded from 30.5 to 31.5. It is 10 ms
    # later when the run ends, and 60 s are billed at least.
    report = play(
        setting(objective=COST),
        Asked(29.9),
        Asked(30.5, latency_ms=1_010),
        acts={0.0: [scale(1)]},
    )

    assert totals(report) == expected(
        requests=2,
        in_time=1,
        rejected=1,
        cost_usd=0.060,
        busy_ratio=0.010 / 60,
    )


def test_a_device_is_billed_until_its_release() -> None:
    report = play(
        setting(objective=COST),
        Asked(40.0, latency_ms=2_000),
        Asked(200.0),
        acts={0.0: [scale(1)], 90.0: [scale(0)]},
    )

    assert totals(report) == expected(
        requests=2,
        in_time=1,
        rejected=1,
        cost_usd=0.090,
        busy_ratio=0.010 / 90,
    )


def test_a_device_that_drains_is_billed_until_its_last_query() -> None:
    # Two batches of one: from 89 to 94 and from 94 to 99 s; released at 90, gone at 99.
    report = play(
        setting(Model(latency_ms=5_000, max_batch=1), objective=COST),
        Asked(89.0, latency_ms=20_000),
        Asked(89.0, latency_ms=20_000),
        Asked(91.0, latency_ms=20_000),
        acts={0.0: [scale(1)], 80.0: [load()], 90.0: [scale(0)]},
    )

    assert totals(report) == expected(
        requests=3,
        in_time=2,
        rejected=1,
        cost_usd=0.099,
        busy_ratio=10 / 99,
    )


def test_a_device_that_drains_goes_when_who_waits_for_its_load_is_refused() -> None:
    # Asked for at 89.5, loaded at 90.5 and then too late for a deadline at 90.505.
    report = play(
        setting(objective=COST),
        Asked(89.5, latency_ms=1_005),
        Asked(300.0),
        acts={0.0: [scale(1)], 90.0: [scale(0)]},
    )

    assert (report.in_time, report.late, report.rejected) == (0, 0, 2)
    assert report.cost_usd == pytest.approx(0.0905)


def test_an_order_that_is_cancelled_costs_a_minute() -> None:
    report = play(
        setting(objective=COST),
        Asked(100.0),
        acts={0.0: [scale(1)], 10.0: [scale(0)]},
    )

    assert (report.rejected, report.cost_usd) == (1, about(0.060))


def test_there_are_no_more_devices_than_the_kind_has() -> None:
    report = play(setting(devices=2, objective=COST), Asked(10.0), acts={0.0: [scale(5)]})

    assert report.cost_usd == pytest.approx(0.120)


def test_a_device_that_drains_is_still_one_of_them() -> None:
    # It drains from 90 to 94 s. The order at 91 is too early, that at 95 is not: usable at 125.
    report = play(
        setting(Model(latency_ms=5_000), objective=COST, tick_s=1.0),
        Asked(89.0, latency_ms=20_000),
        Asked(122.0, latency_ms=20_000),
        Asked(126.0, latency_ms=20_000),
        sends={"a": ("gpu-1", "gpu-2")},
        acts={0.0: [scale(1)], 80.0: [load()], 90.0: [scale(0)], 91.0: [scale(1)],
              95.0: [scale(1)]},
    )  # fmt: skip

    assert (report.in_time, report.rejected) == (2, 1)


def test_of_two_devices_the_one_with_less_to_reload_goes() -> None:
    report = play(
        setting(devices=2, objective=COST),
        Asked(95.0, latency_ms=10),
        sends={"a": ("gpu-2",)},
        acts={0.0: [scale(2)], 80.0: [load(worker="gpu-2")], 90.0: [scale(1)]},
    )

    assert report.in_time == 1
    assert report.cost_usd == pytest.approx(0.090 + 0.09501)


def test_under_accuracy_the_fleet_stays_as_it_is() -> None:
    report = play(
        setting(devices=2),
        Asked(20.0, latency_ms=10),
        acts={0.0: [load()], 10.0: [scale(0)]},
    )

    assert totals(report) == expected(
        requests=1,
        in_time=1,
        cost_usd=0.04002,
        busy_ratio=0.010 / 40.02,
    )


def _two_devices(
    queue: type[DeadlineQueue] | type[Fifo] = DeadlineQueue, again: bool = True
) -> Report:
    """One of two devices fails at 10 s, while each runs a query from 9 to 10.9 s."""
    return play(
        setting(
            Model("a", latency_ms=1_900),
            Model("b", latency_ms=1_900),
            devices=2,
            failures_every_s=10.0,
            provision_s=5.0,
        ),
        Asked(9.0, latency_ms=5_000, task="a"),
        Asked(9.0, latency_ms=5_000, task="b"),
        sends={"a": ("gpu-1", "gpu-2"), "b": ("gpu-2", "gpu-1")},
        acts={
            0.0: [load(task, worker) for task in "ab" for worker in ("gpu-1", "gpu-2")],
        },
        queue=queue,
        again=again,
    )


def test_a_query_whose_device_fails_is_run_elsewhere() -> None:
    # It waits for the other device's batch and runs from 10.9 to 12.8, before its deadline at 14.
    report = _two_devices()

    assert totals(report) == expected(
        requests=2,
        in_time=2,
        loads=4,
        load_s_total=4.0,
        cost_usd=2 * 0.0128,
        busy_ratio=3.8 / 25.6,
    )


def test_a_query_whose_device_fails_is_late_when_nobody_takes_it() -> None:
    report = _two_devices(again=False)

    assert (report.in_time, report.late, report.rejected) == (1, 1, 0)


def test_a_device_that_failed_comes_back_empty() -> None:
    # It fails at 10 and is back at 15: away for the second query, there for the third, which loads.
    report = play(
        setting(failures_every_s=10.0, provision_s=5.0),
        Asked(9.0, latency_ms=10),
        Asked(14.9, latency_ms=2_000),
        Asked(15.1, latency_ms=2_000),
        acts={0.0: [load()]},
    )

    assert totals(report) == expected(
        requests=3,
        in_time=2,
        rejected=1,
        loads=2,
        load_s_total=2.0,
        cost_usd=0.01611,
        busy_ratio=0.020 / 16.11,
    )


def test_under_cost_a_device_that_failed_is_billed_no_more() -> None:
    report = play(
        setting(objective=COST, failures_every_s=100.0),
        Asked(150.0),
        acts={0.0: [scale(1)]},
    )

    assert (report.rejected, report.cost_usd) == (1, about(0.100))
