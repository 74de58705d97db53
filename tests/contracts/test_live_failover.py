"""The live state where the way to its server is slow, is cut, or leads to another server."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from redis import Redis

from controlplane.live_state import LiveState, connection
from controlplane.startup.valkey import EmbeddedValkey
from tests.contracts.way import way_to
from tests.controlplane.fleet import eventually
from variants.errors import StateUnavailable

W1 = {"id": "w1", "address": "unix:/w1", "device_kind": "cpu-1"}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[EmbeddedValkey, EmbeddedValkey]]:
    found = EmbeddedValkey(tmp_path / "a"), EmbeddedValkey(tmp_path / "b")
    for server in found:
        server.start()
    yield found
    for server in found:
        server.stop()


async def test_after_a_failover_what_is_written_goes_where_the_name_leads_now(
    servers: tuple[EmbeddedValkey, EmbeddedValkey],
) -> None:
    """A server that became a replica goes on to answer over the connections that it has."""
    first, second = servers
    async with way_to(first.url) as way:
        live = LiveState(way.url)
        assert await live.put_workers(1, [W1])
        with Redis(unix_socket_path=urlsplit(first.url).path) as former:
            former.replicaof("127.0.0.1", 1)
        way.server = urlsplit(second.url).path
        with pytest.raises(StateUnavailable, match="read only replica"):
            await live.put_workers(2, [W1])
        assert await live.put_workers(2, [W1])
        await live.put_gateway("g1", {})
        async with asyncio.TaskGroup() as group:
            found = [group.create_task(live.workers()) for _ in range(8)]
        assert [one.result() for one in found] == [{"epoch": 2, "workers": [W1]}] * 8
        await live.close()


@pytest.mark.parametrize("write", ["controller", "gateway", "operation", "history"])
async def test_whatever_was_refused_first_leads_to_the_new_server(
    servers: tuple[EmbeddedValkey, EmbeddedValkey], write: str
) -> None:
    async def written(live: LiveState) -> None:
        match write:
            case "controller":
                await live.put_controller({"turned_s": 1.0})
            case "gateway":
                await live.put_gateway("g1", {})
            case "operation":
                await live.put_operation("o1", {})
            case _:
                await live.put_history({})

    first, second = servers
    async with way_to(first.url) as way:
        live = LiveState(way.url)
        await written(live)
        with Redis(unix_socket_path=urlsplit(first.url).path) as former:
            former.replicaof("127.0.0.1", 1)
        way.server = urlsplit(second.url).path
        with pytest.raises(StateUnavailable, match="read only replica"):
            await written(live)
        await written(live)
        await live.close()


async def test_who_listens_over_a_connection_that_is_cut_listens_anew(
    servers: tuple[EmbeddedValkey, EmbeddedValkey], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody tells a client that a router has forgotten its connection."""
    monkeypatch.setattr(connection, "QUIET_S", 0.3)
    async with way_to(servers[0].url) as way:
        live, direct = LiveState(way.url, timeout_s=1.0), LiveState(servers[0].url)
        heard: list[str] = []

        async def listen() -> None:
            while True:
                try:
                    async with aclosing(live.changes()) as changes:  # type: ignore[type-var]
                        async for what in changes:
                            heard.append(what)
                except StateUnavailable as error:
                    heard.append(str(error))

        listening = asyncio.create_task(listen())

        async def told() -> bool:
            await direct.notify("plan")
            return "plan" in heard

        await eventually(told)
        await asyncio.sleep(1.0)  # a server that has nothing to say is no fault
        assert set(heard) == {"plan"}
        heard.clear()
        way.lose()
        await eventually(told)
        assert "no reply within 1 s" in heard[0]
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        for each in (live, direct):
            await each.close()


async def test_a_server_that_takes_its_time_is_waited_for_and_answers_to_whom_asked(
    servers: tuple[EmbeddedValkey, EmbeddedValkey],
) -> None:
    """What came too late is not taken for the answer to the next question."""
    async with way_to(servers[0].url) as way:
        live = LiveState(way.url, timeout_s=1.0)
        for name in "abc":
            await live.put_operation(name, {"name": name})
        way.delay_s = 0.1
        async with asyncio.TaskGroup() as group:
            asked = {name: group.create_task(live.operation(name)) for name in "abc"}
        assert {name: one.result() for name, one in asked.items()} == {
            name: {"name": name} for name in "abc"
        }
        way.delay_s = 1.5
        with pytest.raises(StateUnavailable, match="no reply within 1 s"):
            await live.operation("a")
        way.delay_s = 0.0

        async def answers() -> bool:
            try:
                return await live.operation("b") == {"name": "b"}
            except StateUnavailable:
                return False

        await eventually(answers)
        for name in "cabcab":
            assert await live.operation(name) == {"name": name}
        await live.close()
