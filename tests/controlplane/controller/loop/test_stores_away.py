"""What goes on while the live state or the database is away."""

import asyncio
import logging
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from redis import Redis

from controlplane.live_state import PREFIX
from tests.controlplane.controller.loop.asked import A, B, crowd, routed
from tests.controlplane.fleet import FailingCatalog, eventually, fleet, register_echo
from tests.variants.catalog.copies import fail_over, rows_of
from variants.catalog.memory import MemoryCatalog
from variants.catalog.sql import open_catalog

pytestmark = pytest.mark.slow


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

        def warnings() -> list[str]:
            return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]

        await eventually(warnings)
        await asyncio.sleep(5 * it.settings.tick_s)
        assert len(warnings()) == 1, warnings()

        it.valkey.start()
        await it.until_ready(w1=[A, B])
        assert await it.directory() == ["w1"]


async def test_while_the_database_is_locked_a_new_worker_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    catalog = open_catalog(f"sqlite:///{path}", 0.2)
    async with fleet(tmp_path, catalog=catalog) as it:
        it.register("a")
        it.register("b")
        it.control()
        await it.until_ready(w1=[A, B])
        await eventually(lambda: it.kinds_of_events().count("loaded") == 2)
        version = it.catalog.marks().plan_version
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            it.cluster.kill("w1")
            await it.until_ready(w2=[A, B])
            assert it.catalog.marks().plan_version == version
            other.execute("ROLLBACK")
        await eventually(lambda: it.catalog.marks().plan_version > version)
        plan = it.catalog.latest_plan()
        assert plan is not None
        assert {placement.worker for placement in plan.placements} == {"w2"}
        await eventually(lambda: it.kinds_of_events().count("loaded") == 4)
    catalog.close()


async def test_a_replica_that_lagged_takes_over_the_database(tmp_path: Path) -> None:
    """It gives the number of a lost revision to another one."""
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    catalog = open_catalog(url)
    async with fleet(tmp_path, catalog=catalog) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        lagging = rows_of(url)
        it.register("b")
        await it.until_ready(w1=[A, B])
        revision = catalog.revision()
        other = f"sqlite:///{tmp_path / 'other.db'}"
        with closing(open_catalog(other)) as elsewhere:
            fail_over(other, lagging)
            c = register_echo(elsewhere, it.store, it.folder, "c")
            assert elsewhere.revision() == revision
        fail_over(url, rows_of(other))
        await it.until_ready(w1=[A, c])
    catalog.close()


async def test_a_plan_that_the_database_has_lost_is_stored_again(tmp_path: Path) -> None:
    """Gateways go by what stands there, and nothing else may change for long."""
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    catalog = open_catalog(url)
    async with fleet(tmp_path, catalog=catalog) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        await eventually(lambda: "loaded" in it.kinds_of_events())
        plan = catalog.latest_plan()
        assert plan is not None
        fail_over(url, {**rows_of(url), "plans": ()})
        await eventually(catalog.latest_plan)
        again = catalog.latest_plan()
        assert again is not None
        assert (again.version, again.placements) == (plan.version + 1, plan.placements)
    catalog.close()


async def test_without_database_a_new_worker_is_loaded_and_no_plan_is_made(
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
        # The new worker is published and loaded, but a plan that names it cannot be stored.
        await it.until_ready(w2=[A])
        assert await it.directory() == ["w2"]

        def gone() -> list[str]:
            return [r.getMessage() for r in caplog.records if "away" in r.getMessage()]

        await eventually(gone)
        await asyncio.sleep(5 * it.settings.tick_s)
        assert len(gone()) == 1, gone()

        catalog.away = False
        assert it.catalog.latest_plan() == plan
        await eventually(lambda: it.catalog.latest_plan() != plan)
        newest = it.catalog.latest_plan()
        assert plan is not None
        assert newest is not None
        assert newest.version > plan.version
        await eventually(lambda: "catalog_back" in it.kinds_of_events())
        # What happened meanwhile was not forgotten.
        assert it.kinds_of_events() == [
            "controller_started", "worker_joined", "loaded", "catalog_lost", "worker_lost",
            "worker_joined", "loaded", "catalog_back",
        ]  # fmt: skip


async def test_a_live_state_that_takes_nothing_does_not_say_that_nothing_is_asked(
    tmp_path: Path,
) -> None:
    """What gateways have told expires there, and they can tell nothing new."""
    async with fleet(tmp_path) as it:
        it.register("a")
        controller = it.control()
        await it.until_ready(w1=[A])
        await crowd(it, lambda: routed(it), qps=50)
        with Redis.from_url(it.valkey.url) as server:
            server.config_set("maxmemory-policy", "noeviction")
            server.config_set("maxmemory", 1)
            await eventually(lambda: "live_state_lost" in it.kinds_of_events())
            server.delete(f"{PREFIX}gateway:g1")
            before = controller.loop._arrivals.demand
            await asyncio.sleep(2.0)  # a report is counted every 0.75 s
            assert controller.loop._arrivals.demand == before != ()
