"""Declared peaks in the control loop: what is planned for, what is told, and workers in time."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import time

import pytest

from controlplane.controller.events.journal import Journal
from controlplane.controller.peak_calendar import PeakCalendar
from planner.types import Demand
from planner.worker_starts import CAUTION
from tests.controlplane.builders import DIGITS, digits_catalog, worker
from tests.controlplane.fleet import KIND, eventually, fleet, gateway
from tests.ports import free_port
from variants.catalog.memory import MemoryCatalog
from variants.types import DeviceKindName, Peak

NOW_S = 1_800_000_000.0
CPU_4 = DeviceKindName("cpu-4")
DEMAND = (Demand(task=DIGITS.name, latency_ms=50.0, accuracy=None, qps=10.0),)
SALE = Peak(start_s=NOW_S + 60.0, end_s=NOW_S + 120.0, factor=3.0, note="sale")


class Watched:
    """A calendar with one peak, its clock, and what it tells."""

    def __init__(self, *peaks: Peak) -> None:
        self.catalog: MemoryCatalog = digits_catalog()
        self.journal = Journal(self.catalog)
        self.now_s = NOW_S
        self.calendar = PeakCalendar(self.journal, lambda: self.now_s)
        self.declare(*peaks)

    def declare(self, *peaks: Peak) -> None:
        self.calendar.know(
            tuple(self.catalog.add_peak(peak) for peak in peaks), self.catalog.snapshot()
        )

    def at(self, now_s: float) -> tuple[list[float], tuple[str, ...]]:
        """Rates to plan for, and the sentences."""
        self.now_s = now_s
        found = self.calendar.foresee(DEMAND, DEMAND, [CPU_4], 1.0)
        assert [d.qps for d in found.envelope] == [d.qps for d in found.expected]
        return [d.qps for d in found.expected], found.declared


async def told(it: Watched) -> Iterator[tuple[str, str]]:
    await it.journal.store_events()
    return ((e.kind, e.message) for e in reversed(it.catalog.events(100)))


async def test_a_peak_is_planned_for_in_time_and_told() -> None:
    it = Watched(SALE)
    # A start takes 6 s where none was seen, one variant 0.5 s to load, and a tick 1 s.
    lead_s = CAUTION * 6.5 + 3.0
    assert it.at(NOW_S + 60.0 - lead_s - 0.1) == ([10.0], ())
    rates, sentences = it.at(NOW_S + 60.0 - lead_s)
    assert rates == [30.0]
    assert sentences == (
        "Peak 1 is planned for: 3 times as many queries of all tasks (sale), "
        "from 2027-01-15 08:01:00 UTC until 2027-01-15 08:02:00 UTC.",
    )
    assert it.at(NOW_S + 119.0)[0] == [30.0]
    assert it.at(NOW_S + 120.0) == ([10.0], ())
    assert list(await told(it)) == [
        ("peak_due", "3 times as many queries of all tasks (sale): it begins in 13 s"),
        ("peak_begun", "3 times as many queries of all tasks (sale)"),
        ("peak_over", "it is over"),
    ]


async def test_a_peak_that_is_taken_back_counts_no_more() -> None:
    it = Watched(SALE)
    assert it.at(NOW_S + 70.0)[0] == [30.0]
    it.declare()
    assert it.at(NOW_S + 71.0) == ([10.0], ())
    assert [kind for kind, _ in await told(it)] == ["peak_due", "peak_over"]


def test_workers_that_start_slowly_are_ordered_earlier() -> None:
    it = Watched(SALE)
    for now_s, wanted, there in ((0.0, 1, 1), (1.0, 2, 1), (31.0, 2, 2)):
        statuses = [worker(f"w{number}") for number in range(there)]
        it.calendar.see({CPU_4: wanted}, statuses, now_s)
    assert it.at(NOW_S)[0] == [10.0]
    assert it.at(NOW_S + 60.0 - CAUTION * 30.0)[0] == [30.0]


def test_a_worker_that_drains_is_not_there() -> None:
    it = Watched(SALE)
    it.calendar.see({CPU_4: 1}, [worker("a")], 0.0)
    it.calendar.see({CPU_4: 2}, [worker("a"), replace(worker("b"), draining=True)], 5.0)
    assert it.calendar.orders.usual_s == {}


@pytest.mark.slow
async def test_an_elastic_fleet_is_there_before_a_declared_peak(tmp_path: Path) -> None:
    port = free_port()
    async with (
        fleet(tmp_path, workers=2, elastic=True, linger_s=1, port=port) as it,
        gateway(it),  # without one nobody counts, and the demand is never known
    ):
        name = it.register("a")
        it.control()

        async def serving() -> int:
            """Workers that hold the variant."""
            return sum(name in held for held in it.ready().values())

        async def one() -> bool:
            return it.cluster.count == 1 and await serving() == 1

        await eventually(one, "one worker while nobody asks")
        begin_s = time() + 20.0
        lasts = Peak(start_s=begin_s, end_s=begin_s + 3_600.0, task=DIGITS.name, qps=1_500.0)
        peak = it.catalog.add_peak(lasts)
        assert it.cluster.count == 1
        # The start that a controller expects is shorter than that: it waits.
        await eventually(lambda: it.cluster.count == 2, "a second worker", timeout_s=90.0)

        async def two() -> bool:
            return await serving() == 2

        await eventually(two, "two workers that serve", timeout_s=90.0)
        plan = it.catalog.latest_plan()
        assert plan is not None
        sized, declared = plan.explanation[:2]
        assert sized.startswith("Workers are there for 1,500 rows per second")
        assert declared.startswith("Peak 1 is planned for: 1,500 queries/s of task")
        assert plan.workers == {KIND: 2}
        # Nothing came of it, and so the worker goes when the peak is taken back.
        it.catalog.remove_peak(peak.id)
        await eventually(one, "one worker again")
        assert [kind for kind in it.kinds_of_events() if kind.startswith("peak")] in (
            ["peak_due", "peak_over"],
            ["peak_due", "peak_begun", "peak_over"],
        )
