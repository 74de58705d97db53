"""Plans that the control loop makes, and what comes of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from controlplane.controller.met_workers.worker_pool import WorkerPool
from tests.controlplane.controller.loop.asked import A, B, crowd, routed
from tests.controlplane.fleet import eventually, fleet
from variants.errors import Overloaded
from variants.types import ModelName, Stage, TaskName
from workers.channel.client import WorkerConnection
from workers.types import LoadSpec, ReplicaStatus

pytestmark = pytest.mark.slow


async def test_demand_is_divided_for_its_objective_and_workers_are_told(tmp_path: Path) -> None:
    async with fleet(tmp_path, objective="accuracy") as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        await crowd(it, lambda: routed(it), qps=50)
        plan = it.catalog.latest_plan()
        assert plan is not None
        assert [(r.task, r.latency_ms, r.variant, r.worker) for r in plan.routes] == [
            ("digits", 100.0, A, "w1")
        ]
        assert "divided anew" in plan.explanation[0]
        await eventually(lambda: bool(it.catalog.ticks(1)[0].body["expected"]))
        body = it.catalog.ticks(1)[0].body
        assert (body["objective"], body["expected"][0]["slo_ms"]) == ("accuracy", 120.0)


async def test_what_leaves_makes_room_in_the_same_tick(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a", memory_mib=60.0)
        it.control()
        await it.until_ready(w1=[A])
        it.register("b", memory_mib=60.0)
        await asyncio.sleep(5 * it.settings.tick_s)
        it.catalog.set_stage([TaskName("digits")], ModelName("a"), 1, Stage.RETIRED)
        await it.until_ready(w1=[B])
        await eventually(lambda: it.kinds_of_events().count("loaded") == 2)
        assert it.kinds_of_events() == [
            "controller_started", "worker_joined", "loaded", "unloaded", "loaded",
        ]  # fmt: skip
        begun = [tick.body["actions"] for tick in it.catalog.ticks(100)]
        assert ["unload", "load"] in [[action["action"] for action in each] for each in begun]


class Full:
    """A connection to a worker that says it has no room, a few times."""

    def __init__(self, connection: WorkerConnection) -> None:
        self.connection = connection

    async def load(self, spec: LoadSpec, timeout_s: float) -> ReplicaStatus:
        if FullPool.refusals:
            FullPool.refusals -= 1
            raise Overloaded("no room")
        return await self.connection.load(spec, timeout_s)


class FullPool(WorkerPool):
    refusals = 3

    @asynccontextmanager
    async def at(self, worker: str) -> AsyncIterator[WorkerConnection]:
        async with super().at(worker) as connection:
            yield cast(WorkerConnection, Full(connection))


async def test_a_load_that_finds_no_room_is_tried_again_and_is_no_failure(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        it.control(pool_of=FullPool)
        await it.until_ready(w1=[A])
        await eventually(lambda: "loaded" in it.kinds_of_events())
        assert FullPool.refusals == 0
        assert it.kinds_of_events() == ["controller_started", "worker_joined", "loaded"]
