"""The story that the control loop tells, over real workers, gateways and a real Valkey."""

import asyncio
import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from controlplane.controller.events import sightings
from controlplane.gateway.gateway import Gateway
from controlplane.live_state import state as live_state
from controlplane.load_specs import Specs
from tests.controlplane.fleet import KIND, Fleet, eventually, fleet
from tests.ports import free_port
from variants.types import Event, TaskName
from workers.channel.client import WorkerConnection

pytestmark = pytest.mark.slow

A, B = "a-v1-echo-fp32", "b-v1-echo-fp32"


def told(it: Fleet, *kinds: str) -> list[Event]:
    """Events of these kinds, oldest first."""
    return [event for event in reversed(it.catalog.events(1_000)) if event.kind in kinds]


async def until_told(it: Fleet, kind: str, count: int = 1) -> list[Event]:
    await eventually(lambda: len(told(it, kind)) >= count, kind)
    found = told(it, kind)
    assert len(found) == count, found
    return found


async def test_workers_that_are_scaled_down_have_left_and_say_why(tmp_path: Path) -> None:
    async with fleet(tmp_path, workers=2) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A], w2=[A])
        it.catalog.set_inventory(KIND, 1)
        [left] = await until_told(it, "worker_left")
        assert left.subject == "w2"
        assert left.message == "worker w2 is gone: scaled down to 1 instead of 2: the inventory"
        assert told(it, "worker_lost") == []


async def test_a_plan_is_told_with_its_version_and_why(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        first, *_ = await until_told(it, "planned")
        assert first.subject.startswith("version ")
        assert first.message.startswith("Changed: w1 gets 1 variant. w1 (cpu-1) holds ")


async def test_a_successor_tells_whom_it_follows_and_that_one_that_it_had_stopped(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        first = it.control()
        await it.until_ready(w1=[A])
        await first.stop()
        it.control()
        started = await until_told(it, "controller_started", 2)
        [stopped] = told(it, "controller_stopped")
        assert [event.subject for event in started] == ["epoch 1", "epoch 2"]
        assert (stopped.subject, stopped.message) == ("epoch 1", "it was told to stop")
        assert "took over from epoch 1, which had been stopped" in started[1].message


async def test_a_worker_that_was_lost_together_with_its_controller_is_told_by_the_successor(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        first = it.control()
        await it.until_ready(w1=[A])
        await eventually(lambda: told(it, "loaded"))
        first.loop._leader.epoch = first.loop._recorder._epoch = 0  # as if killed: it says no word
        await first.stop()
        it.cluster.kill("w1")
        it.control()
        [lost] = await until_told(it, "worker_lost")
        assert (lost.subject, lost.message) == (
            "w1",
            "worker w1 is gone: it was lost while no control loop was running",
        )
        joined = await until_told(it, "worker_joined", 2)
        assert [event.subject for event in joined] == ["w1", "w2"]
        assert "which ended without a word" in told(it, "controller_started")[1].message


async def test_a_live_state_that_comes_back_empty_is_told_once(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.control()
        await eventually(it.directory)
        assert it.valkey.pid is not None
        os.kill(it.valkey.pid, signal.SIGKILL)
        [lost] = await until_told(it, "live_state_lost")
        assert "gateways go on" in lost.message
        it.valkey.start()
        [back] = await until_told(it, "live_state_restarted")
        assert "it came back empty and was filled again" in back.message
        # Restarted so quickly that no call has failed.
        it.valkey.start()
        await until_told(it, "live_state_restarted", 2)
        assert told(it, "live_state_back") == []


async def test_a_gateway_tells_its_start_and_stop_and_is_missed_when_it_tells_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with fleet(tmp_path, port=free_port()) as it:
        it.control()
        first = Gateway(it.settings, it.catalog, it.store, it.secret)
        await first.start()
        [started] = await until_told(it, "gateway_started")
        assert started.subject == first.id
        assert f"listens on 127.0.0.1:{it.settings.port}" in started.message
        await first.stop()
        [stopped] = await until_told(it, "gateway_stopped")
        assert stopped.subject == first.id
        of_gateway = [one for one in caplog.records if one.name == "controlplane.gateway.gateway"]
        logged = [one.getMessage() for one in of_gateway]
        assert logged == [f"{one.kind} {one.subject}: {one.message}" for one in (started, stopped)]
        assert not [one for one in caplog.records if one.name.startswith("uvicorn")]

        # One that is stopped before it listens, as the one more of an upgrade may be.
        second = Gateway(it.settings, it.catalog, it.store, it.secret)
        await second.stop()
        assert [one.subject for one in told(it, "gateway_stopped")] == [first.id]

        # Nobody hears of one before it listens: Serve may end it until then without a word.
        third = Gateway(it.settings, it.catalog, it.store, it.secret)
        begun, held, start = asyncio.Event(), asyncio.Event(), third.servers.start

        async def later(*arguments: Any) -> Any:
            begun.set()
            await held.wait()
            return await start(*arguments)

        monkeypatch.setattr(third.servers, "start", later)
        starting = asyncio.create_task(third.start())
        await begun.wait()
        await asyncio.sleep(0.3)
        assert third.id not in await it.live.gateways()
        held.set()
        await starting
        await third.stop()

        monkeypatch.setattr(live_state, "GATEWAY_TTL_S", 2)
        monkeypatch.setattr(sightings, "SILENT_S", 1.0)
        await it.live.put_gateway("killed", {"tasks": {}})
        [lost] = await until_told(it, "gateway_lost")
        assert lost.subject == "killed"


async def test_loads_and_evictions_for_queries_are_told_once_across_controllers(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path) as it:
        it.register("a", memory_mib=60.0)
        first = it.control()
        await it.until_ready(w1=[A])
        await eventually(lambda: told(it, "loaded"))
        directory = await it.live.workers()
        assert directory is not None
        connection = await WorkerConnection.open(
            directory["workers"][0]["address"],
            it.secret,
            on_status=lambda _: None,
            on_lost=lambda _: None,
        )
        it.register("b", memory_mib=60.0)
        specs = Specs(it.catalog.snapshot(), it.store)
        spec = specs.of(TaskName("digits"), B, KIND)

        async def asked() -> bool:
            """A gateway's load: refused while A is protected after its own."""
            try:
                await connection.load(spec, 60.0, make_room=True, need="50 ms")
            except Exception:
                return False
            return True

        await eventually(asked)
        [evicted] = await until_told(it, "evicted")
        [loaded] = await until_told(it, "loaded_on_demand")
        assert evicted.subject == f"digits/{A} on w1"
        assert f"made room for digits/{B}" in evicted.message
        assert loaded.subject == f"digits/{B} on w1"
        assert loaded.message.startswith("for a query (50 ms), in ")
        await first.stop()
        it.control()
        await until_told(it, "controller_started", 2)
        await asyncio.sleep(5 * it.settings.tick_s)
        assert len(told(it, "evicted", "loaded_on_demand")) == 2
        connection.close()
