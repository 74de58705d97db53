"""The control loop over real worker processes, a real Valkey and a catalog in memory."""

import asyncio
import logging
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable, Sequence
from contextlib import asynccontextmanager, closing
from math import inf, log2
from pathlib import Path
from time import monotonic, time
from typing import Any, cast

import pytest
from redis import Redis

from controlplane.cluster.autoscaling.node_requests import Bundle
from controlplane.cluster.autoscaling.node_types import Autoscaler
from controlplane.cluster.autoscaling.ray_autoscaler import ClusterNode
from controlplane.cluster.ray_adapter import WorkerAddress
from controlplane.controller.events.recorder import StatusRecorder
from controlplane.controller.fleet_targets import ONE_MORE
from controlplane.controller.met_workers import silent_workers, worker_pool
from controlplane.controller.met_workers.worker_pool import WorkerPool
from controlplane.live_state import PREFIX
from planner.types import Decision
from tests.controlplane.fleet import (
    KIND,
    CountingCatalog,
    FailingCatalog,
    Fleet,
    LocalCluster,
    eventually,
    fleet,
)
from variants.catalog.memory import MemoryCatalog
from variants.catalog.sql import open_catalog
from variants.errors import ClusterUnavailable, Overloaded, StaleEpoch
from variants.types import (
    DeviceKindName,
    ModelName,
    Plan,
    QuarantineLift,
    Stage,
    TaskName,
    VariantName,
)
from workers.channel.client import WorkerConnection
from workers.process.quarantine import CrashLedger
from workers.types import LoadSpec, ReplicaStatus, variant_id

pytestmark = pytest.mark.slow

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


async def test_one_more_worker_runs_while_others_are_replaced_and_ends_by_itself(
    tmp_path: Path,
) -> None:
    """Also where who asked for it was killed: what stands in the live state expires."""
    async with fleet(tmp_path) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        await it.live.put_replacing([KIND])
        await it.until_ready(w1=[A], w2=[A])
        spare = it.settings.spare_cores
        assert (it.cluster.kept, spare > 0) == ([spare, 0], True)
        [scaled] = [one.message for one in it.catalog.events(1_000) if one.kind == "scaled"]
        assert scaled == f"to 2 instead of 1: {ONE_MORE}"
        await it.live.end_replacing()
        await it.until_ready(w1=[A])
        assert it.cluster.scaled == [2, 1]
        assert it.cluster.kept == [spare, 0, spare]


async def test_one_more_worker_runs_too_where_plans_decide_and_leaves_when_it_is_given_back(
    tmp_path: Path,
) -> None:
    """Plans ended it at once, so an upgrade of the only worker had a gap. They keep what was there
    for long, so it would have stayed."""
    async with fleet(tmp_path, workers=2, elastic=True, linger_s=3.0) as it:
        it.register("a")
        loop = it.control().loop
        await it.until_ready(w1=[A], w2=[A])
        await crowd(it, lambda: it.cluster.scaled == [1], qps=5)
        loop.settings.linger_s = 3_600.0

        await it.live.put_replacing([KIND])
        await crowd(it, lambda: it.cluster.scaled == [1, 2], qps=5)
        began_s = monotonic()
        await crowd(it, lambda: monotonic() - began_s > 2.0, qps=5)
        assert it.cluster.scaled == [1, 2]
        await it.live.end_replacing()
        await crowd(it, lambda: it.cluster.scaled == [1, 2, 1], qps=5)


async def test_a_number_that_others_changed_is_put_right_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.controller.fleet_targets.TARGETS_EVERY_S", 0.0)
    async with fleet(tmp_path) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        await eventually(lambda: "loaded" in it.kinds_of_events())
        it.cluster.count = 2
        await eventually(lambda: "scaled" in it.kinds_of_events())
        await asyncio.sleep(5 * it.settings.tick_s)
        assert it.cluster.scaled == [1]
        assert it.kinds_of_events().count("scaled") == 1


async def test_a_correction_counts_until_a_plan_with_it_may_be_acted_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        loop = it.control().loop
        await it.until_ready(w1=[A])
        seen: list[bool] = []
        news = [True]

        async def refused(decision: Decision) -> bool:
            seen.append(loop._corrected)
            return False

        monkeypatch.setattr(loop._live_latency, "look", lambda *_: bool(news and news.pop()))
        with monkeypatch.context() as away:
            away.setattr(loop._leader, "may_act", refused)
            await eventually(lambda: len(seen) >= 3)
        assert all(seen[1:])
        await eventually(lambda: not loop._corrected)


async def test_a_kind_that_nobody_deployed_stops_nothing(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.catalog.set_inventory(DeviceKindName("gpu-9"), 1)
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        await eventually(lambda: "loaded" in it.kinds_of_events())
        assert it.cluster.scaled == []
        await eventually(lambda: it.kinds_of_events().count("scale_failed") == 1)

        it.register("b")  # it is tried again later and later, whatever else changes
        await it.until_ready(w1=[A, B])
        assert it.kinds_of_events().count("scale_failed") == 1
        it.catalog.set_inventory(DeviceKindName("gpu-9"), 2)
        await eventually(lambda: it.kinds_of_events().count("scale_failed") == 2)


async def test_scaled_to_none_and_back_over_a_restart(tmp_path: Path) -> None:
    async with fleet(tmp_path, workers=2) as it:
        it.register("a")
        first = it.control()
        await it.until_ready(w1=[A], w2=[A])
        it.catalog.set_inventory(KIND, 0)
        await it.until_ready()
        assert await it.directory() == []
        await first.stop()
        it.control()
        await eventually(lambda: it.catalog.ticks(1)[0].body["epoch"] == 2)
        it.catalog.set_inventory(KIND, 1)
        await it.until_ready(w3=[A])
        assert it.cluster.scaled == [0, 1]


class Silent:
    """A cluster that cannot list workers of kind ``gpu-9``; ``away`` says nothing at all."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.away = False
        self.scaled: list[tuple[str, int]] = []

    async def workers(self, kinds: Iterable[str]) -> list[WorkerAddress]:
        if self.away or "gpu-9" in set(kinds):
            raise ClusterUnavailable("they cannot be listed")
        return await self.cluster.workers(kinds)

    async def targets(self, kinds: Iterable[str]) -> dict[str, int]:
        if self.away:
            raise ClusterUnavailable("Ray Serve does not answer")
        return {**await self.cluster.targets(kinds), "gpu-9": 1}

    async def failed_starts(self, kinds: Iterable[str]) -> dict[str, str]:
        return await self.cluster.failed_starts(kinds)

    async def lend_room(self, cores: int, given: int) -> None:
        await self.cluster.lend_room(cores, given)

    async def scale(self, kind: str, count: int) -> None:
        self.scaled.append((kind, count))
        if kind == KIND:
            await self.cluster.scale(kind, count)


async def test_a_kind_that_cannot_be_listed_stops_neither_the_others_nor_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.controller.fleet_targets.TARGETS_EVERY_S", 0.0)
    async with fleet(tmp_path) as it:
        it.register("a")
        it.catalog.set_inventory(DeviceKindName("gpu-9"), 2)
        silent = Silent(it.cluster)
        it.cluster = cast(LocalCluster, silent)
        try:
            it.control()
            await it.until_ready(w1=[A])
            assert silent.scaled[0] == ("gpu-9", 2)
            # With all of it away, what is there goes on.
            silent.away = True
            it.register("b")
            await it.until_ready(w1=[A, B])
            assert await it.directory() == ["w1"]
            silent.away = False
            it.catalog.set_inventory(KIND, 2)
            await it.until_ready(w1=[A, B], w2=[A, B])
        finally:
            it.cluster = silent.cluster


class Slow:
    """A cluster that takes its time to scale, as where a kind is deployed for it first."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.asked: list[int] = []
        self.goes_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)

    async def scale(self, kind: str, count: int) -> None:
        self.asked.append(count)
        await self.goes_on.wait()
        await self.cluster.scale(kind, count)


async def test_no_turn_waits_for_workers_that_are_deployed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.controller.fleet_targets.TARGETS_EVERY_S", 0.0)
    async with fleet(tmp_path) as it:
        slow = Slow(it.cluster)
        it.cluster = cast(LocalCluster, slow)
        try:
            it.register("a")
            it.control()
            await it.until_ready(w1=[A])
            it.catalog.set_inventory(KIND, 2)
            await eventually(lambda: bool(slow.asked))
            it.register("b")
            await it.until_ready(w1=[A, B])
            assert slow.asked == [2]
            slow.goes_on.set()
            await it.until_ready(w1=[A, B], w2=[A, B])
            assert (slow.asked, it.kinds_of_events().count("scaled")) == ([2], 1)
        finally:
            it.cluster = slow.cluster


async def test_a_controller_that_restarts_finds_everything_as_it_should_be(tmp_path: Path) -> None:
    catalog = open_catalog(f"sqlite:///{tmp_path / 'catalog.db'}")
    async with fleet(tmp_path, catalog=catalog) as it:
        it.register("a")
        it.register("b")
        first = it.control()
        await it.until_ready(w1=[A, B])
        await eventually(lambda: it.kinds_of_events().count("loaded") == 2)
        await first.stop()
        before = (it.catalog.latest_plan(), len(it.catalog.events(100)))
        ticks = len(it.catalog.ticks(100))

        it.control()
        await eventually(lambda: len(it.catalog.ticks(100)) == ticks + 1)
        await asyncio.sleep(5 * it.settings.tick_s)
        newest = it.catalog.ticks(1)[0]
        assert newest.body["epoch"] == 2
        assert newest.body["actions"] == []
        newer = it.catalog.events(100)[: -before[1]]
        assert (it.catalog.latest_plan(), [e.kind for e in newer]) == (
            before[0],
            ["controller_started"],
        )
        assert len(it.catalog.ticks(100)) == ticks + 1
    catalog.close()


async def test_of_two_controllers_the_older_gives_up(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        older = it.control()
        await it.until_ready(w1=[A])
        newer = it.control()
        with pytest.raises(StaleEpoch):
            await asyncio.wait_for(older.task, 60)
        assert not newer.task.done()
        directory = await it.live.workers()
        assert directory is not None
        assert directory["epoch"] == 2


class Nodes:
    """The only node drains, so that another one is asked for, and none comes."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def find(self) -> Autoscaler:
        return Autoscaler()

    async def ask(self, bundles: Sequence[Bundle]) -> None:
        self.asked.append(sum(one.count for one in bundles))

    async def nodes(self) -> tuple[ClusterNode, ...]:
        return (ClusterNode(id="a", host="a", address="10.0.0.1", drains_until_s=0.0),)

    async def ends(self, ids: Container[str]) -> dict[str, str]:
        return {}

    async def workers(self, kinds: Iterable[str]) -> dict[str, str]:
        return {"w1": "a"}

    async def drain(self, node: str, why: str, until_s: float) -> str:
        return ""


async def test_who_leads_withdraws_its_request_for_nodes_and_who_was_superseded_does_not(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path) as it:
        older_nodes, nodes = Nodes(), Nodes()
        older = it.control(autoscaler=older_nodes)
        await eventually(lambda: older_nodes.asked == [1])
        newer = it.control(autoscaler=nodes)
        with pytest.raises(StaleEpoch):
            await asyncio.wait_for(older.task, 60)
        await eventually(lambda: bool(nodes.asked))
        await newer.stop()

        assert 0 not in older_nodes.asked
        assert nodes.asked[-1] == 0
        assert not await it.live.asked_for_nodes()


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
            await asyncio.wait_for(older.task, 60)


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


# -- planning ------------------------------------------------------------------------------------


async def asked(it: Fleet, rows: int, *, tightest_ms: float = 120.0) -> None:
    """What a gateway reports that has been asked for so many rows since it started."""
    key = "digits|100.0|"
    await it.live.put_gateway("g1", {"demand": {key: rows}, "tightest": {key: tightest_ms}})


async def routed(it: Fleet) -> bool:
    plan = it.catalog.latest_plan()
    return plan is not None and plan.routes != ()


async def crowd(it: Fleet, condition: Callable[[], object], *, qps: int) -> None:
    """Report demand until a condition is true."""
    began_s = monotonic()

    async def reached() -> bool:
        await asked(it, int(qps * (monotonic() - began_s)))
        found = condition()
        return bool(await found if isinstance(found, Awaitable) else found)

    await eventually(reached)


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


async def test_an_elastic_fleet_shrinks_once_its_demand_is_known_and_grows_at_once(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path, workers=2, elastic=True, linger_s=3.0) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A], w2=[A])
        began_s = monotonic()
        await crowd(it, lambda: it.cluster.scaled == [1], qps=5)
        assert monotonic() - began_s > 2.0
        await crowd(it, lambda: it.cluster.scaled == [1, 2], qps=1_200)


async def test_after_a_restart_no_worker_goes_before_the_demand_is_known_anew(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path, workers=2, elastic=True, linger_s=3_600.0) as it:
        it.register("a")
        first = it.control()
        await it.until_ready(w1=[A], w2=[A])
        await crowd(it, lambda: routed(it), qps=5)
        await first.stop()
        it.control()
        await eventually(lambda: it.catalog.ticks(1)[0].body["epoch"] == 2)
        began_s = monotonic()
        await crowd(it, lambda: monotonic() - began_s > 2.0, qps=5)
        assert it.cluster.scaled == []


async def test_a_controller_that_begins_to_lead_is_not_one_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it recalls may take long, and Serve asks for its health meanwhile."""
    asked = asyncio.Event()
    faults: list[Exception] = []

    async with fleet(tmp_path) as it:
        it.register("a")

        async def lead(self: StatusRecorder, epoch: int, plan: Plan | None) -> None:
            try:
                loop.check()
            except RuntimeError as error:
                faults.append(error)
            asked.set()

        monkeypatch.setattr(StatusRecorder, "lead", lead)
        loop = it.control().loop
        await asyncio.wait_for(asked.wait(), 60)
    assert faults == []
