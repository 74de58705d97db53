"""To which of two sockets that share a port new connections come, over real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controlplane.gateway.neighbours import steering
from controlplane.gateway.neighbours.steering import accepted, lead_away, let_go
from tests.controlplane.fleet import eventually

COUNT = 40


def two_that_share(host: str) -> tuple[socket.socket, socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    first = socket.create_server((host, 0), family=family, reuse_port=True)
    port = first.getsockname()[1]
    both = first, socket.create_server((host, port), family=family, reuse_port=True)
    for one in both:
        one.setblocking(False)
    return both


@asynccontextmanager
async def answering(own: socket.socket) -> AsyncIterator[list[int]]:
    """Take what comes to a socket, and end it; the clients' ports of all that came."""
    ports: list[int] = []

    def takes(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ports.append(writer.get_extra_info("peername")[1])
        writer.close()

    server = await asyncio.start_server(takes, sock=own.dup())
    try:
        yield ports
    finally:
        server.close()
        await server.wait_closed()


def connected(to: socket.socket) -> list[socket.socket]:
    port = to.getsockname()[1]
    host = "::1" if to.family == socket.AF_INET6 else "127.0.0.1"
    return [socket.create_connection((host, port)) for _ in range(COUNT)]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1"])
@pytest.mark.parametrize("place", [0, 1])
async def test_none_comes_any_more_to_a_socket_that_is_to_be_closed(host: str, place: int) -> None:
    """Whichever place it has among them. What waited there is given back."""
    both = two_that_share(host)
    leaving, own = both[place], both[1 - place]
    with leaving, own:
        before = connected(own)
        async with answering(own) as ports:
            waiting = await lead_away(leaving, own)
            after = connected(own)
            assert accepted(leaving) == []
            wanted = {one.getsockname()[1] for one in after}
            await eventually(lambda: wanted <= set(ports))
            there = {one.getpeername()[1] for one in waiting}
            assert there == {one.getsockname()[1] for one in before} - set(ports)
            assert there
            let_go(own)
            again = connected(own)
            assert accepted(leaving)
        for one in (*before, *waiting, *after, *again):
            one.close()


async def test_a_handshake_that_had_begun_is_waited_for() -> None:
    """The kernel keeps a connection for the socket until something comes over it, as it keeps one
    whose last packet is on its way."""
    leaving, own = two_that_share("127.0.0.1")
    leaving.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 30)
    with leaving, own:
        async with answering(own) as ports:
            clients = connected(own)
            await eventually(lambda: len(ports) >= COUNT // 10)
            assert accepted(leaving) == []
            for one in clients:
                asyncio.get_running_loop().call_later(0.05, one.send, b"GET")
            waiting = await lead_away(leaving, own)
            there = {one.getpeername()[1] for one in waiting}
            assert there == {one.getsockname()[1] for one in clients} - set(ports)
            assert there
            let_go(own)
        for one in (*clients, *waiting):
            one.close()


async def test_where_the_kernel_does_not_do_it_what_waits_is_taken_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steering, "ATTACH", 0x7FFF)  # no such option
    leaving, own = two_that_share("127.0.0.1")
    with leaving, own:
        clients = connected(own)
        waiting = await lead_away(leaving, own)
        assert len(waiting) + len(accepted(own)) == COUNT
        let_go(own)
        for one in (*clients, *waiting):
            one.close()


async def test_where_nobody_takes_the_connection_by_which_it_is_found_out_nothing_is_different(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steering, "PATIENCE_S", 0.05)
    leaving, own = two_that_share("127.0.0.1")[::-1]
    with leaving, own:
        assert await lead_away(leaving, own) == []
        clients = connected(own)
        waiting = accepted(leaving)
        assert 0 < len(waiting) < COUNT
        for one in (*clients, *waiting, *accepted(own)):
            one.close()
