"""The control loop over real worker processes, a real Valkey and a catalog in memory."""

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest

from tests.controlplane.fleet import KIND, FailingCatalog, Fleet, eventually, fleet
from variants.errors import StaleEpoch
from variants.memory import MemoryCatalog
from variants.sql import open_catalog
from variants.types import DeviceKindName

A, B = "a-v1-echo-fp32", "b-v1-echo-fp32"


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
        assert sorted(it.kinds_of_events()) == ["loaded", "loaded", "worker_joined"]

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


async def test_a_lost_worker_leaves_the_directory_before_the_next_tick(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        first = it.control()
        await it.until_ready(w1=[A])
        await first.stop()
        it.settings.tick_s = 30.0
        it.control()
        await eventually(lambda: it.catalog.ticks(1)[0].body["epoch"] == 2)
        it.cluster.kill("w1")
        await eventually(lambda: unlisted(it, "w1"), timeout_s=10)


async def listed(it: Fleet, worker: str) -> bool:
    return worker in await it.directory()


async def unlisted(it: Fleet, worker: str) -> bool:
    return worker not in await it.directory()


async def test_the_inventory_scales_up_and_down(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        it.catalog.set_inventory(KIND, 2)
        await it.until_ready(w1=[A], w2=[A])
        it.catalog.set_inventory(KIND, 1)
        await it.until_ready(w1=[A])
        assert it.cluster.scaled == [2, 1]
        assert await it.directory() == ["w1"]


async def test_a_kind_that_nobody_deployed_stops_nothing(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.catalog.set_inventory(DeviceKindName("gpu-9"), 1)
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        await eventually(lambda: "loaded" in it.kinds_of_events())
        assert it.cluster.scaled == []
        assert it.kinds_of_events().count("scale_failed") == 1


async def test_a_controller_that_restarts_finds_everything_as_it_should_be(tmp_path: Path) -> None:
    catalog = open_catalog(f"sqlite:///{tmp_path / 'catalog.db'}")
    async with fleet(tmp_path, catalog=catalog) as it:
        it.register("a")
        it.register("b")
        first = it.control()
        await it.until_ready(w1=[A, B])
        await eventually(lambda: it.kinds_of_events().count("loaded") == 2)
        await first.stop()
        before = (it.catalog.latest_plan(), it.catalog.events(100))
        ticks = len(it.catalog.ticks(100))

        it.control()
        await eventually(lambda: len(it.catalog.ticks(100)) == ticks + 1)
        await asyncio.sleep(5 * it.settings.tick_s)
        newest = it.catalog.ticks(1)[0]
        assert newest.body["epoch"] == 2
        assert newest.body["actions"] == []
        assert (it.catalog.latest_plan(), it.catalog.events(100)) == before
        assert len(it.catalog.ticks(100)) == ticks + 1
    catalog.close()


async def test_of_two_controllers_the_older_gives_up(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        older = it.control()
        await it.until_ready(w1=[A])
        newer = it.control()
        with pytest.raises(StaleEpoch):
            await asyncio.wait_for(older.task, 5)
        assert not newer.task.done()
        directory = await it.live.workers()
        assert directory is not None
        assert directory["epoch"] == 2


async def test_without_live_state_the_database_fences_the_older_controller(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        older = it.control()
        await it.until_ready(w1=[A])
        it.valkey.stop()
        it.control()
        await eventually(lambda: it.catalog.ticks(1)[0].body["epoch"] == 2)
        it.register("b")
        with pytest.raises(StaleEpoch):
            await asyncio.wait_for(older.task, 5)


async def test_epochs_of_another_catalog_in_the_live_state_fool_nobody(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        await it.live.put_workers(1_000, [])
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        directory = await it.live.workers()
        assert directory is not None
        assert directory["epoch"] == 1


async def test_without_live_state_loading_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        assert it.valkey.pid is not None
        os.kill(it.valkey.pid, signal.SIGKILL)
        caplog.clear()
        it.register("b")
        await eventually(lambda: it.kinds_of_events().count("loaded") == 2)
        await asyncio.sleep(5 * it.settings.tick_s)
        warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
        assert len(warnings) == 1, [r.getMessage() for r in warnings]

        it.valkey.start()
        await it.until_ready(w1=[A, B])
        assert await it.directory() == ["w1"]


async def test_without_database_the_stored_plan_is_kept_up_and_no_other_is_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = FailingCatalog(MemoryCatalog())
    async with fleet(tmp_path, catalog=catalog) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        await eventually(lambda: "loaded" in it.kinds_of_events())
        plan = it.catalog.latest_plan()
        caplog.clear()
        catalog.away = True
        it.cluster.kill("w1")
        # The new worker is published, but a plan that names it cannot be stored.
        await eventually(lambda: listed(it, "w2"))
        await asyncio.sleep(5 * it.settings.tick_s)
        assert await it.ready() == {"w2": []}
        gone = [r for r in caplog.records if "away" in r.getMessage()]
        assert len(gone) == 1

        catalog.away = False
        await it.until_ready(w2=[A])
        newest = it.catalog.latest_plan()
        assert plan is not None
        assert newest is not None
        assert newest.version > plan.version
        await eventually(lambda: it.kinds_of_events().count("loaded") == 2)
        # What happened meanwhile was not forgotten.
        assert it.kinds_of_events() == [
            "worker_joined", "loaded", "worker_lost", "worker_joined", "loaded",
        ]  # fmt: skip


async def test_a_load_that_fails_is_told_once_and_tried_less_and_less(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        it.register("broken", latency_ms="never")
        it.control()
        await it.until_ready(w1=[A])
        await eventually(lambda: "load_failed" in it.kinds_of_events())
        await asyncio.sleep(1.5)
        tries = [
            action
            for tick in it.catalog.ticks(1_000)
            for action in tick.body["actions"]
            if action["variant"] == "broken-v1-echo-fp32"
        ]
        assert it.kinds_of_events().count("load_failed") == 1
        assert 1 <= len(tries) <= 3


async def test_many_variants_do_not_overrun_a_worker(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        names = [it.register(f"m{n:02}", memory_mib=1.0) for n in range(70)]
        it.control()
        await it.until_ready(w1=names)
        assert "worker_lost" not in it.kinds_of_events()
