"""Connections that a busy gateway passes on to those that have less to do."""

import asyncio
import errno
import json
import os
import random
import re
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.gateway import Gateway
from controlplane.gateway.neighbours.balance import APART, BUSY, Balance, chosen, parts
from tests.controlplane.fleet import eventually, fleet, gateway
from tests.controlplane.gateway.neighbours.test_handover import connected
from tests.controlplane.gateway.test_gateway import ROW, A, ready


class Connection:
    """One that is moved at once, or later."""

    def __init__(self, received: int = 0) -> None:
        self.received = received
        self.to: Callable[[socket.socket], None] | None = None

    def move(self, to: Callable[[socket.socket], None]) -> None:
        self.to = to


class Others:
    """Gateways that say how busy they are, and take what is sent unless they refuse."""

    def __init__(self, **busy: float) -> None:
        self.busy = {Path(name): share for name, share in busy.items()}
        self.refuses = False
        self.got: Counter[str] = Counter()
        self.asked = 0

    async def busy_others(self) -> dict[Path, float]:
        self.asked += 1
        return self.busy

    async def give_connections(self, other: Path, connections: Sequence[socket.socket]) -> bool:
        await asyncio.sleep(0)
        if not self.refuses:
            self.got[str(other)] += len(connections)
        return not self.refuses


class Back:
    def __init__(self) -> None:
        self.connections: list[socket.socket] = []
        self.passed = 0

    def count(self, passed: int) -> None:
        self.passed += passed

    async def take(self, connections: Sequence[socket.socket]) -> None:
        self.connections += connections


def balance(others: Others, connections: Sequence[Connection]) -> tuple[Balance, Back]:
    back = Back()
    return Balance(others, lambda: connections, back.take, back.count, random.Random(0)), back


@given(st.floats(0, 1), st.lists(st.floats(0, 1), max_size=7))
def test_parts_make_all_as_busy_as_they_are_on_average(own: float, shares: list[float]) -> None:
    others = dict(enumerate(shares))
    found = parts(own, others)
    mean = (own + sum(shares)) / (1 + len(shares))

    if own < BUSY or own - mean < APART:
        assert found == {}
        return
    assert sum(found.values()) * own == pytest.approx(own - mean)
    for at, part in found.items():
        assert part > 0.0
        assert others[at] < others[at] + part * own <= mean + 1e-9


@given(
    st.lists(st.integers(0, 10_000), min_size=1, max_size=200),
    st.lists(st.floats(0, 0.3), min_size=1, max_size=3),
)
def test_no_connection_goes_twice_and_no_gateway_gets_much_too_much(
    sizes: list[int], wanted: list[float]
) -> None:
    asked = {Connection(): size for size in sizes}
    found = chosen(asked, dict(enumerate(wanted)), random.Random(0))

    gone = [one for those in found.values() for one in those]
    assert len(gone) == len(set(gone))
    for at, those in found.items():
        assert all(asked[one] for one in those)
        got = sum(asked[one] for one in those)
        assert got <= 1.5 * wanted[at] * sum(sizes) + 1e-6


async def passed(others: Others, sizes: Sequence[int], busy: float = 1.0) -> int:
    """How many of connections that asked so much are chosen."""
    connections = [Connection() for _ in sizes]
    it, _ = balance(others, connections)
    await it.look(busy, 0.0)
    for one, size in zip(connections, sizes, strict=True):
        one.received += size
    await it.look(busy, 1.0)
    return sum(one.to is not None for one in connections)


async def test_as_much_is_passed_on_as_makes_all_equally_busy() -> None:
    assert await passed(Others(b=0.0), [100] * 32) == 16
    assert await passed(Others(b=0.0, c=0.0, d=0.0), [100] * 32) == 24
    assert await passed(Others(b=0.5), [100] * 32) == 8


async def test_only_what_asks_is_passed_on() -> None:
    assert await passed(Others(b=0.0), [0] * 100 + [100, 100]) == 1


@pytest.mark.parametrize(
    ("others", "sizes", "busy"),
    [
        (Others(), [100] * 8, 1.0),
        (Others(b=0.9), [100] * 8, 1.0),
        (Others(b=0.0), [100] * 8, BUSY - 0.01),
        (Others(b=0.0), [100], 1.0),
        (Others(b=0.0), [10, 10_000, 10], 0.3),
    ],
    ids=["alone", "all are busy", "it is not busy", "one connection", "hardly anything"],
)
async def test_nothing_is_passed_on(others: Others, sizes: list[int], busy: float) -> None:
    assert await passed(others, sizes, busy) == 0


async def test_others_are_asked_only_by_one_that_is_busy_and_may_pass_on() -> None:
    others, connections = Others(b=0.0), [Connection(), Connection()]
    it, _ = balance(others, connections)
    for second in range(5):
        await it.look(0.4, second)
    assert others.asked == 0
    for second in range(5, 12):
        for one in connections:
            one.received += 100
        await it.look(0.9, second)
    assert others.asked == 2  # at 6 and 9; at 5 nothing was known of what comes over each


async def test_connections_go_together_and_come_back_where_they_are_not_taken() -> None:
    others, connections = Others(b=0.0), [Connection() for _ in range(200)]
    it, back = balance(others, connections)
    await it.look(1.0, 0.0)
    for one in connections:
        one.received += 1
    await it.look(1.0, 1.0)
    others.refuses = True
    ways = [one.to for one in connections if one.to is not None]
    assert len(ways) == 100
    sockets = [socket.socket() for _ in ways]
    for to, way in zip(ways[:50], sockets[:50], strict=True):
        to(way)
    await it.close()
    assert back.connections == sockets[:50]
    assert back.passed == 0

    others.refuses = False
    for to, way in zip(ways[50:], sockets[50:], strict=True):
        to(way)
    await it.close()
    assert (back.passed, others.got) == (50, {"b": 50})
    assert all(one.fileno() < 0 for one in sockets[50:])
    for way in sockets[:50]:
        way.close()


# -- real gateways -----------------------------------------------------------------------------


def as_busy_as_it_has_connections(it: Gateway) -> None:
    """Its event loop computes, as it says from now on, for as large a part of the time as it has of
    sixteen connections."""
    neighbours = it._neighbours
    assert neighbours is not None
    neighbours.busy = lambda: served_by(it) / 16


async def test_clients_that_stay_connected_are_spread_and_miss_nothing(
    tmp_path: Path, port: int
) -> None:
    """Sixteen clients ask all the time, over connections that all lead to the first gateway."""
    async with fleet(tmp_path, port=port) as it:
        it.register("a")
        it.control()
        async with gateway(it) as (first, _), httpx.AsyncClient() as client:
            await eventually(lambda: ready(first) == {"w1": [A]})
            stop, statuses, closings = asyncio.Event(), Counter[int](), Counter[str]()

            async def ask(own: socket.socket) -> None:
                reader, writer = await asyncio.open_connection(sock=own)
                body = json.dumps(ROW).encode()
                query = b"content-length: %d\r\n\r\n%s" % (len(body), body)
                while not stop.is_set():
                    writer.write(b"POST /v1/query HTTP/1.1\r\nhost: 127.0.0.1\r\n" + query)
                    answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                    length = int(answer.partition("content-length: ")[2].partition("\r")[0])
                    await reader.readexactly(length)
                    statuses[int(answer.split()[1])] += 1
                    closings["close" if "connection: close" in answer else "kept"] += 1
                writer.close()

            own = [socket.create_connection(("127.0.0.1", port)) for _ in range(16)]
            asking = [asyncio.create_task(ask(one)) for one in own]
            await eventually(lambda: served_by(first) == 16)
            async with gateway(it) as (second, _):
                await eventually(lambda: ready(second) == {"w1": [A]})
                as_busy_as_it_has_connections(first)
                as_busy_as_it_has_connections(second)
                await eventually(lambda: served_by(second) >= 6)
                # Some are on their way.
                await eventually(lambda: served_by(first) + served_by(second) == 16)
                before = statuses.total()
                await eventually(lambda: statuses.total() > before + 200)
                stop.set()
                await asyncio.gather(*asking)
                told = await client.get(f"http://127.0.0.1:{port}/metrics")
            assert set(statuses) == {200}
            assert set(closings) == {"kept"}
            passed = re.search(r"^modelless_connections_passed_total (.*)", told.text, re.MULTILINE)
            assert passed is not None
            assert float(passed[1]) >= 6


def served_by(it: Gateway) -> int:
    server = it.servers.http
    assert server is not None
    return len(server.connections())


async def test_a_connection_stays_where_too_many_files_are_open(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def refuse(file: int) -> int:
        asked.append(file)
        raise OSError(errno.EMFILE, "too many open files")

    async with fleet(tmp_path, port=port) as it:
        it.register("a")
        it.control()
        async with gateway(it) as (own, client):
            await eventually(lambda: ready(own) == {"w1": [A]})
            assert (await client.post("/v1/query", json=ROW)).status_code == 200
            server = own.servers.http
            assert server is not None
            [connection] = server.connections()
            monkeypatch.setattr(os, "dup", refuse)
            connection.move(lambda _: None)
            await eventually(lambda: bool(asked))
            assert (await client.post("/v1/query", json=ROW)).status_code == 200
            assert server.connections() == [connection]


async def test_a_gateway_without_room_takes_nothing(tmp_path: Path, port: int) -> None:
    async with fleet(tmp_path, port=port, max_connections=3) as it:
        it.register("a")
        async with gateway(it) as (first, _):
            server = first.servers.http
            assert server is not None
            pairs = [connected() for _ in range(4)]
            ends = [one for _, one in pairs]
            assert not server.has_room(ends)
            assert server.has_room(ends[:3])
            server.leaving = True
            assert not server.has_room(ends[:1])
            for one in pairs:
                one[0].close()
                one[1].close()
