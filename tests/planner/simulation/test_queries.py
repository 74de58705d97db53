"""What becomes of a query: in time, late or rejected, worked out by hand."""

from collections.abc import Iterable
from typing import ClassVar

import pytest

from planner.simulation.fleet import Fleet
from planner.simulation.policy import Policy
from planner.simulation.results import Interval
from planner.types import Action, Query
from tests.planner.simulation.builders import (
    Asked,
    Fifo,
    Model,
    about,
    expected,
    load,
    play,
    setting,
    totals,
    unload,
)
from tests.planner.simulation.watching import Watched
from variants.types import WorkerId


def test_batches_run_one_after_the_other() -> None:
    # Loaded from 0 to 1 s. The first runs alone, 2.000 to 2.010; the other two wait for it and run
    # as one batch of two, to 2.030, which is the end.
    report = play(setting(), Asked(2.0), Asked(2.001), Asked(2.002), acts={0.0: [load()]})

    assert totals(report) == expected(
        requests=3,
        in_time=3,
        cost_usd=0.002030,
        busy_ratio=0.030 / 2.030,
    )


def test_a_query_waits_for_the_load_and_its_deadline_does_not() -> None:
    # Asked for at 1 s, loaded at 2 s, run until 2.010: a budget of 1,010 ms is just enough.
    report = play(setting(), Asked(1.0, latency_ms=1_010))

    assert totals(report) == expected(
        requests=1,
        in_time=1,
        cost_usd=0.002010,
        busy_ratio=0.010 / 2.010,
    )


def test_a_query_that_cannot_make_it_after_the_load_is_rejected() -> None:
    report = play(setting(), Asked(1.0, latency_ms=1_009))

    assert totals(report) == expected(
        requests=1,
        in_time=0,
        rejected=1,
        cost_usd=0.002,
        busy_ratio=0.0,
    )


def test_finished_after_the_deadline_is_late() -> None:
    # A queue that admits every query: 2.000 to 2.010 and 2.010 to 2.020, the second due at 2.015.
    report = play(
        setting(),
        Asked(2.0, latency_ms=10),
        Asked(2.0, latency_ms=15),
        acts={0.0: [load()]},
        queue=Fifo,
    )

    assert totals(report) == expected(
        requests=2,
        in_time=1,
        late=1,
        cost_usd=0.002020,
        busy_ratio=0.020 / 2.020,
    )


def test_what_the_queue_refuses_is_rejected() -> None:
    report = play(
        setting(),
        Asked(2.0, latency_ms=10),
        Asked(2.0, latency_ms=15),
        acts={0.0: [load()]},
    )

    assert (report.in_time, report.late, report.rejected) == (1, 0, 1)


def test_what_the_queue_refuses_is_tried_once_elsewhere() -> None:
    # The first worker takes the first query of each pair; there are two workers, and three each.
    both = {"a": ("gpu-1", "gpu-2")}
    report = play(
        setting(devices=2),
        *[Asked(2.0, latency_ms=10)] * 3,
        sends=both,
        acts={0.0: [load(), load(worker="gpu-2")]},
    )

    assert (report.in_time, report.rejected) == (2, 1)


def test_a_second_try_is_the_policys_to_give() -> None:
    report = play(
        setting(devices=2),
        *[Asked(2.0, latency_ms=10)] * 3,
        sends={"a": ("gpu-1", "gpu-2")},
        acts={0.0: [load(), load(worker="gpu-2")]},
        again=False,
    )

    assert (report.in_time, report.rejected) == (1, 2)


class Noting(Watched):
    """Notes which worker refused a query, and when."""

    refusals: ClassVar[list[tuple[str, float]]]

    def refused(self, query: Query, worker: WorkerId, now_ms: float) -> None:
        self.refusals.append((worker, now_ms))


def test_the_policy_hears_of_every_refusal_of_a_worker() -> None:
    """On the first try, on the second, and when what waited for a load is late; not of a device
    that failed."""
    Noting.refusals = []
    play(
        setting(devices=2, failures_every_s=8.0),
        Asked(1.0, latency_ms=1_009),
        *[Asked(3.0, latency_ms=10)] * 3,
        Asked(7.999, latency_ms=200),
        sends={"a": ("gpu-1", "gpu-2")},
        acts={0.0: [load(worker="gpu-2")], 2.0: [load()]},
        watch=Noting,
    )

    # The first waits for gpu-1, loaded at 2 s. At 3 s gpu-1 takes one and gpu-2 the next.
    assert Noting.refusals == [
        ("gpu-1", 2_000.0), ("gpu-1", 3_000.0), ("gpu-1", 3_000.0), ("gpu-2", 3_000.0),
    ]  # fmt: skip


def test_floors_and_ceilings_reach_the_policy() -> None:
    # 10 ms at 3.60 USD per hour are 0.01 USD per 1,000 queries.
    report = play(
        setting(),
        Asked(2.0, floor=0.9),
        Asked(3.0, floor=0.91),
        Asked(4.0, ceiling=0.01),
        Asked(5.0, ceiling=0.009),
        acts={0.0: [load()]},
    )

    assert (report.in_time, report.late, report.rejected) == (2, 0, 2)


def test_effective_accuracy_is_of_those_in_time() -> None:
    report = play(
        setting(Model("a", accuracy=0.6), Model("b", accuracy=0.8)),
        Asked(2.0, task="a"),
        Asked(3.0, task="b"),
        Asked(4.0, task="b", latency_ms=5),
        acts={0.0: [load("a"), load("b")]},
    )

    assert report.effective_accuracy == pytest.approx(0.7)
    assert (report.in_time, report.rejected) == (2, 1)


def test_a_variant_in_use_is_unloaded_when_it_is_done() -> None:
    # Runs from 9.995 to 10.005; at 10 s it has to go. Who comes at 10.001 finds it going.
    report = play(
        setting(),
        Asked(9.995),
        Asked(10.001),
        Asked(10.5, latency_ms=2_000),
        acts={0.0: [load()], 10.0: [unload()]},
    )

    assert (report.in_time, report.rejected) == (2, 1)
    assert (report.loads, report.evictions) == (2, 1)


def test_the_timeline_adds_up_to_the_totals() -> None:
    report = play(
        setting(),
        Asked(0.5, latency_ms=2_000),
        Asked(2.5),
        Asked(2.5, latency_ms=5),
        acts={0.0: [load()]},
    )

    assert report.timeline == (
        _interval(0, arrived=1, in_time=1, loads=1, capacity_qps=0.0),
        _interval(1, busy_ratio=0.01),
        _interval(2, arrived=2, in_time=1, rejected=1, busy_ratio=0.01),
    )


def _interval(
    start_s: float,
    *,
    arrived: int = 0,
    in_time: int = 0,
    rejected: int = 0,
    loads: int = 0,
    busy_ratio: float = 0.0,
    capacity_qps: float = 100.0,
) -> Interval:
    """A second of one device, on which the variant serves 100 queries per second."""
    return Interval(
        start_s=start_s,
        arrived=arrived,
        in_time=in_time,
        late=0,
        rejected=rejected,
        accuracy=0.9 if in_time else 0.0,
        devices=1,
        capacity_qps=capacity_qps,
        usd_per_hour=3.6,
        busy_ratio=about(busy_ratio),
        loads=loads,
        evictions=0,
    )


class Hearing(Watched):
    """Notes the rate that each tick hears of; it ticks every five seconds."""

    heard: ClassVar[list[float]]

    def __init__(self, policy: Policy, fleet: Fleet) -> None:
        super().__init__(policy, fleet)
        self.tick_s = 5.0

    def tick(self, now_s: float) -> Iterable[Action]:
        replicas = [r for w in self.fleet.workers.values() for r in w.replicas.values()]
        self.heard.append(sum(replica.rate_qps for replica in replicas))
        return super().tick(now_s)


def test_a_tick_hears_what_was_asked_for_up_to_the_second_before() -> None:
    """Four queries a second from 1.5 s on, and none after 8 s."""
    Hearing.heard = []
    play(
        setting(),
        *[Asked(1.5 + number / 4, latency_ms=500) for number in range(26)],
        Asked(16.0, latency_ms=500),
        acts={0.0: [load()]},
        watch=Hearing,
    )

    nothing, first, second, third = Hearing.heard[:4]
    assert nothing == 0.0
    assert 2.0 < first < 6.0
    assert first != second
    assert third < second
