"""Listening sockets that go from one gateway to another, over real sockets."""

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from controlplane.gateway.handover import SUFFIX, Handover
from tests.controlplane.fleet import eventually, fleet, gateway
from tests.controlplane.gateway.test_gateway import ROW, A, ready
from tests.workers.builders import until


class Gateway:
    """One with sockets of which it takes no connection."""

    def __init__(self, folder: Path, name: str) -> None:
        self.taken: list[socket.socket] = []
        self.refuses = False
        self.handover = Handover(
            folder / f"g-{name}{SUFFIX}", f"g-*{SUFFIX}", self._take,
            lambda: self.taken[-1] if self.taken else None, self._given,
        )  # fmt: skip

    async def _take(self, listening: socket.socket) -> None:
        if self.refuses:
            listening.close()
            raise OSError("it leaves as well")
        self.taken.append(listening)

    def _given(self, listening: socket.socket) -> None:
        self.taken.remove(listening)
        listening.close()


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


async def test_one_that_starts_takes_a_spare_one_so_that_they_do_not_become_more(
    tmp_path: Path,
) -> None:
    leaves, stays, comes = (Gateway(tmp_path, name) for name in "abc")
    await stays.handover.start()
    assert await comes.handover.ask() is None
    own = listening()
    assert await leaves.handover.give(own)
    found = await comes.handover.ask()
    assert found is not None
    assert found.getsockname() == own.getsockname()
    await until(lambda: not stays.taken)
    assert await comes.handover.ask() is None
    for one in (own, found):
        one.close()
    await stays.handover.stop()


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
    assert await leaves.handover.ask() is None
    own.close()
    await other.handover.stop()


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
        async with gateway(it) as (third, _):
            server = other._server
            assert server is not None
            await eventually(lambda: server.spare() is None)
            assert third.ready()
