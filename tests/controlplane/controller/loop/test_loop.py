"""Turns of the control loop over real workers in this process."""

import asyncio
import signal
from collections import Counter
from math import inf, log2
from pathlib import Path
from time import monotonic, time
from typing import Any

import pytest

from controlplane.controller.met_workers import silent_workers, worker_pool
from tests.controlplane.controller.loop.asked import A, B
from tests.controlplane.fleet import CountingCatalog, Fleet, eventually, fleet
from variants.catalog.memory import MemoryCatalog
from variants.types import QuarantineLift, TaskName, VariantName
from workers.process.quarantine import CrashLedger
from workers.types import variant_id

pytestmark = pytest.mark.slow


async def test_everything_registered_is_loaded(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        it.register("b")
        it.control()
        await it.until_ready(w1=[A, B])
        await eventually(lambda: it.kinds_of_events().count("loaded") == 2)
        plan = it.catalog.latest_plan()
        assert plan is not None
        assert sorted(p.variant for p in plan.placements) == [A, B]
        assert plan.epoch == 1
        assert sorted(it.kinds_of_events()) == [
            "controller_started", "loaded", "loaded", "worker_joined",
        ]  # fmt: skip

        # A new registration is loaded without being asked for.
        it.register("c")
        await it.until_ready(w1=[A, B, "c-v1-echo-fp32"])


async def test_nothing_is_written_while_nothing_changes(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        await eventually(lambda: "loaded" in it.kinds_of_events())
        before = (it.catalog.ticks(100), it.catalog.events(100), it.catalog.latest_plan())
        await asyncio.sleep(5 * it.settings.tick_s)
        assert (it.catalog.ticks(100), it.catalog.events(100), it.catalog.latest_plan()) == before


async def test_a_turn_that_finds_nothing_new_asks_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it waits for is most of what a turn takes: requests, and other threads."""
    monkeypatch.setattr("controlplane.controller.arrivals.COUNT_EVERY_S", 0.0)
    catalog = CountingCatalog(MemoryCatalog())
    async with fleet(tmp_path, catalog=catalog) as it:
        it.register("a")
        await it.live.put_gateway("g", {"demand": {}})
        asked = _counted(it, monkeypatch)
        it.control()
        await it.until_ready(w1=[A])
        await eventually(lambda: "loaded" in it.kinds_of_events())
        began = it.turns
        await eventually(lambda: it.turns >= began + 2)  # it had events to store
        counts, turns = asked | catalog.calls, it.turns
        await eventually(lambda: it.turns >= turns + 10)
        after, turned = asked | catalog.calls, it.turns - turns
        each = {name: after[name] - counts[name] for name in after if after[name] > counts[name]}
        # What was told of workers, what one more runs of, what gateways say; and how it went.
        assert each.pop("live state") <= 4 * turned + 4
        assert each.pop("thread") <= 2 * turned + 2 + 1  # for a look at the headroom
        assert each.pop("list of workers", 0) <= 1
        assert each.keys() == {"marks", "peaks"}
        assert max(each.values()) <= turned + 1


def _counted(it: Fleet, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts from now on what the control loop asks of the live state, of threads and of the
    cluster."""
    counts: Counter[str] = Counter()

    def counting(place: object, name: str, what: str) -> None:
        asked = getattr(place, name)

        def ask(*arguments: Any, **named: Any) -> Any:
            counts[what] += 1
            return asked(*arguments, **named)

        monkeypatch.setattr(place, name, ask)

    counting(it.live, "_call", "live state")
    counting(asyncio, "to_thread", "thread")
    counting(it.cluster, "workers", "list of workers")
    return counts


async def test_what_workers_say_is_not_copied_into_the_live_state(tmp_path: Path) -> None:
    """Nobody reads it there, and in each turn it was megabytes of a large fleet."""
    async with fleet(tmp_path) as it:
        name = it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        keys = [key for key in await it.live._redis.keys() if key != b"modelless:history"]
        values = [str(await it.live._redis.get(key)) for key in keys]
        assert b"modelless:workers" in keys
        assert not any(name in value for value in values)


async def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        it.cluster.kill("w1")
        await it.until_ready(w2=[A])
        assert await it.directory() == ["w2"]
        plan = it.catalog.latest_plan()
        assert plan is not None
        assert {p.worker for p in plan.placements} == {"w2"}
        await eventually(lambda: "worker_lost" in it.kinds_of_events())


async def test_a_quarantine_is_lifted_at_workers_that_come_later_too(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        it.register("b")
        folder = it.settings.run_dir / "quarantine"
        crash_twice(folder, "a first time", "and again")
        it.control()
        await it.until_ready(w1=[B])
        await eventually(lambda: "quarantined" in it.kinds_of_events())

        # It is lifted while its only worker is away.
        it.cluster.kill("w1")
        lifted = QuarantineLift(task=TaskName("digits"), variant=VariantName(A), at_s=time())
        it.catalog.lift_quarantine(lifted)
        await it.until_ready(w2=[A, B])
        await eventually(lambda: it.kinds_of_events().count("readmitted") == 1)

        # What fails later is kept out again.
        crash_twice(folder, "once", "twice")
        it.cluster.kill("w2")
        await it.until_ready(w3=[B])


def crash_twice(folder: Path, *why: str) -> None:
    """What two processes leave in which A hangs."""
    for each in why:
        crashes = CrashLedger(str(folder))
        crashes.open()
        crashes.hung(variant_id("digits", A).to_bytes(8, "big"), "digits", A, each)
        crashes.close()


async def test_a_stopped_worker_is_not_planned_for_until_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silent_workers, "END_AFTER_S", inf)  # a busy machine may take its time
    async with fleet(tmp_path, workers=2) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A], w2=[A])

        def placed() -> set[str]:
            plan = it.catalog.latest_plan()
            return {placement.worker for placement in plan.placements} if plan else set()

        await eventually(lambda: placed() == {"w1", "w2"})
        it.cluster.signal("w2", signal.SIGSTOP)
        await eventually(lambda: placed() == {"w1"})
        it.cluster.signal("w2", signal.SIGCONT)
        await eventually(lambda: placed() == {"w1", "w2"})


async def test_a_stopped_worker_is_ended_after_a_while_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silent_workers, "END_AFTER_S", worker_pool.SILENT_S)
    async with fleet(tmp_path) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        it.cluster.signal("w1", signal.SIGSTOP)
        await it.until_ready(w2=[A])
        await eventually(lambda: "worker_lost" in it.kinds_of_events())
        [told] = [one.message for one in it.catalog.events(100) if one.kind == "worker_lost"]
    assert told.startswith("worker w1 is gone: it said nothing for 3 s and was ended")


async def test_a_lost_worker_leaves_the_directory_before_the_next_tick(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        first = it.control()
        await it.until_ready(w1=[A])
        await first.stop()
        it.settings.tick_s = 60.0
        it.control()
        await eventually(lambda: it.catalog.ticks(1)[0].body["epoch"] == 2)
        it.cluster.kill("w1")
        await eventually(lambda: unlisted(it, "w1"), timeout_s=it.settings.tick_s / 2)


async def unlisted(it: Fleet, worker: str) -> bool:
    return worker not in await it.directory()


async def test_a_load_that_fails_is_told_once_and_tried_less_and_less(tmp_path: Path) -> None:
    began_s = monotonic()
    async with fleet(tmp_path) as it:
        it.register("a")
        it.register("broken", latency_ms="never")
        it.control()
        await it.until_ready(w1=[A])

        def tries() -> int:
            return sum(
                action["variant"] == "broken-v1-echo-fp32"
                for tick in it.catalog.ticks(1_000)
                for action in tick.body["actions"]
            )

        await eventually(lambda: tries() >= 2)
        # After 1, 3, 7, ... seconds at the earliest, where a tick takes a tenth of one.
        assert tries() <= 1 + log2(1.0 + monotonic() - began_s)
        assert it.kinds_of_events().count("load_failed") == 1


async def test_many_variants_do_not_overrun_a_worker(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        names = [it.register(f"m{n:02}", memory_mib=1.0) for n in range(70)]
        it.control()
        await it.until_ready(w1=names)
        assert "worker_lost" not in it.kinds_of_events()
