"""Listening sockets that go from one gateway to another, over real sockets."""

import asyncio
import errno
import os
import socket
import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.gateway.gateway import Gateway as Made
from controlplane.gateway.http.http_server import HttpServer
from controlplane.gateway.listening import bind
from controlplane.gateway.neighbours import handover
from controlplane.gateway.neighbours.handover import (
    JOIN,
    NOW,
    SUFFIX,
    YES,
    Handover,
    _reads_no_more,
)
from tests.controlplane.fleet import FailingCatalog, eventually, fleet, gateway
from tests.controlplane.gateway.test_gateway import ROW, A, ready
from variants.catalog.memory import MemoryCatalog


class Gateway:
    """One with sockets of which it takes no connection."""

    def __init__(self, folder: Path, name: str) -> None:
        self.taken: list[socket.socket] = []
        self.refuses = False
        self.refused: list[socket.socket] = []
        self.handover = Handover(folder / f"g-{name}{SUFFIX}", f"g-*{SUFFIX}", self)

    async def take_socket(self, listening: socket.socket) -> None:
        if self.refuses:
            self.refused.append(listening)
            raise OSError("it leaves as well")
        self.taken.append(listening)

    def has_room(self, connections: Sequence[socket.socket]) -> bool:
        if self.refuses:
            self.refused.extend(connections)
        return not self.refuses

    async def take_connections(self, connections: Sequence[socket.socket]) -> None:
        self.taken.extend(connections)

    def busy(self) -> float:
        return 0.25


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0), reuse_port=True)


async def test_connections_that_nobody_has_taken_yet_are_not_lost(tmp_path: Path) -> None:
    leaves, stays = Gateway(tmp_path, "a"), Gateway(tmp_path, "b")
    await stays.handover.start()
    own = listening()
    with socket.create_connection(own.getsockname()) as client:
        assert await leaves.handover.give(own)
        own.close()
        client.sendall(b"hello")
        peer, _ = await asyncio.get_running_loop().sock_accept(stays.taken[0])
        assert peer.recv(5) == b"hello"
        peer.close()
    await stays.handover.stop()
    stays.taken[0].close()


async def test_no_process_that_is_started_later_holds_what_was_handed_over(tmp_path: Path) -> None:
    """A listening socket that is held and never read gets a part of all new connections."""
    leaves, stays = Gateway(tmp_path, "a"), Gateway(tmp_path, "b")
    await stays.handover.start()
    client, kept = connected()
    with listening() as own, client, kept:
        assert await leaves.handover.give(own)
        assert await leaves.handover.give_connections(tmp_path / f"g-b{SUFFIX}", [kept])
        await eventually(lambda: len(stays.taken) == 2)
        assert [os.get_inheritable(one.fileno()) for one in stays.taken] == [False, False]
    await stays.handover.stop()
    for one in stays.taken:
        one.close()


async def test_too_many_open_files_end_it_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves, stays = Gateway(tmp_path, "a"), Gateway(tmp_path, "b")
    loop = asyncio.get_running_loop()
    accept, refused = loop.sock_accept, [OSError(errno.EMFILE, "too many open files")]

    async def at_first_refused(listening: socket.socket) -> tuple[socket.socket, Any]:
        if refused:
            raise refused.pop()
        return await accept(listening)

    monkeypatch.setattr(loop, "sock_accept", at_first_refused)
    await stays.handover.start()
    own = listening()
    assert await leaves.handover.give(own)
    own.close()
    await stays.handover.stop()
    stays.taken[0].close()


@pytest.mark.parametrize("case", ["nobody is there", "it leaves as well", "it was killed"])
async def test_what_nobody_takes_stays_with_its_gateway(tmp_path: Path, case: str) -> None:
    leaves, other = Gateway(tmp_path, "a"), Gateway(tmp_path, "b")
    if case == "it leaves as well":
        other.refuses = True
        await other.handover.start()
    if case == "it was killed":
        (tmp_path / f"g-b{SUFFIX}").touch()
    own = listening()
    assert await leaves.handover.give(own) is False
    assert all(one.fileno() < 0 for one in other.refused)
    own.close()
    await other.handover.stop()


def connected() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection."""
    with listening() as own:
        client = socket.create_connection(own.getsockname())
        return client, own.accept()[0]


async def test_connections_go_to_the_gateway_that_is_named(tmp_path: Path) -> None:
    gives, takes, other = (Gateway(tmp_path, name) for name in "abc")
    await takes.handover.start()
    await other.handover.start()
    pairs = [connected() for _ in range(3)]

    assert await gives.handover.busy_others() == {
        tmp_path / f"g-b{SUFFIX}": 0.25,
        tmp_path / f"g-c{SUFFIX}": 0.25,
    }
    served = [one for _, one in pairs]
    assert await gives.handover.give_connections(tmp_path / f"g-b{SUFFIX}", served)
    await eventually(lambda: len(takes.taken) == 3)

    assert not other.taken
    for (client, own), taken in zip(pairs, takes.taken, strict=True):
        own.close()
        client.sendall(b"hello")
        assert await asyncio.get_running_loop().sock_recv(taken, 5) == b"hello"
        taken.close()
        client.close()
    await takes.handover.stop()
    await other.handover.stop()


@pytest.mark.parametrize("case", ["nobody is there", "it has no room", "it does not answer"])
async def test_connections_that_are_not_taken_stay(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "PATIENCE_S", 0.05)
    gives, other = Gateway(tmp_path, "a"), Gateway(tmp_path, "b")
    path = tmp_path / f"g-b{SUFFIX}"
    if case == "it has no room":
        other.refuses = True
        await other.handover.start()
    if case == "it does not answer":
        hangs = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        hangs.bind(str(path))
        hangs.listen()
    client, own = connected()

    assert await gives.handover.give_connections(path, [own]) is False
    assert await gives.handover.busy_others() == ({path: 0.25} if other.refuses else {})

    assert not other.taken
    await eventually(lambda: all(one.fileno() < 0 for one in other.refused))
    client.sendall(b"hello")
    assert own.recv(5) == b"hello"
    if case == "it does not answer":
        hangs.close()
    own.close()
    client.close()
    await other.handover.stop()


async def test_what_its_sender_may_still_read_is_not_taken(tmp_path: Path) -> None:
    """It sent connections and was gone, or gave up, before it heard that they would be taken."""
    takes = Gateway(tmp_path, "b")
    await takes.handover.start()
    client, own = connected()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.connect(str(tmp_path / f"g-b{SUFFIX}"))
        socket.send_fds(peer, [JOIN], [own.fileno()])
        assert await asyncio.to_thread(peer.recv, 1) == YES
    await takes.handover.stop()
    assert not takes.taken
    client.close()
    own.close()


def test_who_says_too_late_that_it_reads_no_more_is_told() -> None:
    """Else both gateways would close the connections: one has given up, the other given them."""
    takes, gives = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with takes, gives:
        takes.settimeout(0.01)
        assert not _reads_no_more(takes)
        with pytest.raises(BrokenPipeError):
            gives.sendall(NOW)


async def test_a_gateway_leaves_while_clients_keep_their_connections(
    tmp_path: Path, port: int
) -> None:
    """The next answer on a connection says that it ends; who connects anew finds the other one."""
    async with fleet(tmp_path, port=port) as it, AsyncExitStack() as stays:
        it.register("a")
        it.control()
        async with gateway(it) as (leaves, kept):
            await eventually(lambda: ready(leaves) == {"w1": [A]})
            before = await kept.post("/v1/query", json=ROW)
            other, _ = await stays.enter_async_context(gateway(it))
            await eventually(lambda: ready(other) == {"w1": [A]})
            stopping = asyncio.create_task(leaves.stop())
            await eventually(lambda: not leaves.ready())
            last = await kept.post("/v1/query", json=ROW)
            assert (before.status_code, last.status_code) == (200, 200)
            assert "close" not in before.headers.get("connection", "")
            assert last.headers["connection"] == "close"
            await stopping
        for _ in range(20):
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as fresh:
                assert (await fresh.post("/v1/query", json=ROW)).status_code == 200
        server = other.servers.http
        assert server is not None
        # Nothing draws a second share of new connections to it for good.
        await eventually(lambda: len(server.servers) == 1)


async def test_what_waits_at_a_socket_that_is_closed_is_answered(tmp_path: Path, port: int) -> None:
    async with fleet(tmp_path, port=port) as it, gateway(it) as (stays, _):
        server = stays.servers.http
        assert server is not None
        taken = listening()
        host, own_port = taken.getsockname()
        with socket.create_connection((host, own_port)) as waits:
            await server._settle(await unheard(server, taken), taken.dup())
            waits.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(waits, b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert (await loop.sock_recv(waits, 12)).startswith(b"HTTP/1.1 ")


async def test_where_all_stop_nothing_is_handed_over(tmp_path: Path, port: int) -> None:
    async with fleet(tmp_path, port=port) as it, gateway(it) as (stays, _):
        async with gateway(it) as (leaves, _):
            await leaves.stop(others_stay=False)
        server = stays.servers.http
        assert server is not None
        assert len(server.servers) == 1
        assert stays.ready()


class SlowCatalog(FailingCatalog):
    """A catalog whose methods wait until ``goes_on`` is set."""

    def __init__(self, catalog: MemoryCatalog) -> None:
        super().__init__(catalog)
        self.asked, self.goes_on = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        method = super().__getattr__(name)

        def call(*arguments: Any, **named: Any) -> Any:
            self.asked.set()
            assert self.goes_on.wait(60)
            return method(*arguments, **named)

        return call


async def test_a_gateway_that_is_stopped_while_it_starts_has_taken_no_connection(
    tmp_path: Path, port: int
) -> None:
    """As the one that Ray Serve starts in place of a gateway that an upgrade has replaced."""
    async with fleet(tmp_path, port=port) as it:
        catalog = SlowCatalog(MemoryCatalog())
        made = Made(it.settings, catalog, it.store, it.secret)
        starting = asyncio.create_task(made.start())
        await eventually(catalog.asked.is_set)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
        stopping = asyncio.create_task(made.stop())
        await asyncio.sleep(0)
        catalog.goes_on.set()
        await asyncio.gather(starting, stopping)
        assert made.servers.http is None
        bind(it.settings, alone=True).close()


async def unheard(server: HttpServer, taken: socket.socket) -> asyncio.Server:
    """The server takes connections from this socket, and hears of none."""
    heard = await server._listen(taken)
    asyncio.get_running_loop().remove_reader(taken)
    return heard
