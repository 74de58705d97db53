"""Releases that speak other versions of the channel: agreed on, or told once and left alone."""

import asyncio
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from planner.types import Client
from tests.workers.builders import ask, config, echo_spec, row, running, secret_of, until, vid
from tests.workers.channel import version_1
from tests.workers.channel.test_pool import Listener
from variants.errors import Overloaded
from variants.types import WorkerId
from workers.channel.client import WorkerConnection
from workers.channel.frames import OLDEST, VERSION, Splitter, small_payload
from workers.channel.handshake import ClientHandshake, NoCommonVersion, offer
from workers.channel.pool import ConnectionPool
from workers.types import ReplyCode, WorkerStatus

W = WorkerId("w1")


def told() -> dict[str, Any]:
    return asdict(
        WorkerStatus(
            worker="w1", device_kind="cpu-1", pid=1, memory_mib=100.0, reserved_mib=0.0,
            draining=False, backlog_us=0, busy_ratio=0.0,
            replicas=(),
        )
    )  # fmt: skip


async def test_a_gateway_of_version_1_is_answered(tmp_path: Path) -> None:
    """With a priority, with none, and with one that version 2 cannot hold."""
    worker = config(tmp_path)
    async with running(worker) as (_, connection):
        await connection.load(echo_spec(), 60.0)
        reader, writer = await asyncio.open_unix_connection(connection.address.partition(":")[2])
        status = await version_1.gateway(reader, writer, secret_of(worker))
        assert status["worker"] == "w1"
        for number, priority in enumerate((0, 1, 70_000)):
            query = [float(number), 2.0, 3.0, 4.0]
            writer.write(version_1.infer(number, vid(echo_spec()), 60_000_000, priority, query))
            assert await version_1.answer(reader) == (number, 0, query)
        assert (await ask(connection, echo_spec(), row(1))).code is ReplyCode.OK
        writer.close()


async def test_a_worker_of_version_1_gets_queries_as_it_knows_them(tmp_path: Path) -> None:
    """It knows no clients, no checks, and a query without a priority by a zero."""
    path = str(tmp_path / "s")
    old = version_1.Worker(bytes(32), told())
    server = await asyncio.start_unix_server(old.serve, path)
    connection = await WorkerConnection.open(
        f"unix:{path}", bytes(32), on_status=lambda _: None, on_lost=print
    )
    replies: list[Any] = []
    connection.infer(7, 1, 10**6, row(1, 2, 3, 4), replies.append, client=Client("a", 1.0))
    connection.infer(7, 1, 10**6, row(5, 6, 7, 8), replies.append, priority=3)
    await until(lambda: len(replies) == 2)
    assert [reply.outputs[0].tolist() for reply in replies] == [[[1, 2, 3, 4]], [[5, 6, 7, 8]]]
    with pytest.raises(Overloaded, match="older release"):
        await connection.check("task", "v", 1.0)
    assert (old.queries, set(old.kinds)) == ([(7, 0), (7, 3)], {version_1.INFER})
    connection.close()
    server.close()


async def test_a_worker_that_shares_no_version_is_told_of_once_and_not_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "s")
    future = version_1.Worker(bytes(32), told(), version=VERSION + 1)
    server = await asyncio.start_unix_server(future.serve, path)
    listener = Listener()
    pool = ConnectionPool(bytes(32), listener)
    address = f"unix:{path}"
    with caplog.at_level(logging.INFO, "workers.channel"):
        for _ in range(5):
            for worker, where in pool.update({W: address}).items():
                await pool.open(worker, where)
    (line,) = [one.message for one in caplog.records]
    assert line == (
        f"worker w1 gets no queries from here: it speaks version {VERSION + 1} of the channel and"
        f" this side versions {OLDEST} to {VERSION}: they are too many releases apart;"
        " upgrade the older one"
    )
    assert (future.connections, listener.said) == (1, [])
    await until(lambda: future.others)
    assert future.others == [VERSION]  # it was told what the gateway speaks
    assert pool.update({W: f"unix:{path}-other"}) == {W: f"unix:{path}-other"}  # another process
    server.close()


async def test_an_older_version_cannot_be_forced_from_between(tmp_path: Path) -> None:
    """Who takes the offer out of a HELLO, or the newer version out of it, breaks the proof."""
    async with running(config(tmp_path)) as (_, connection):
        reader, writer = await asyncio.open_unix_connection(connection.address.partition(":")[2])
        splitter = Splitter(512)
        data, _ = splitter.feed(await reader.read(1_000))
        hello = small_payload(data)
        secret = secret_of(config(tmp_path))
        assert hello.endswith(offer(b"w1"))
        version, proof = ClientHandshake(secret).answer(hello[: -len(b"\0\x02")], OLDEST)
        assert version == 1
        writer.write(version_1.small(version_1.AUTH, proof))
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize(
    ("oldest", "newest", "agreed"),
    [(1, 2, 2), (1, 9, 2), (2, 9, 2), (1, None, 1), (2, None, 2), (2, 1, 2)],
)
def test_the_highest_that_both_speak(oldest: int, newest: int | None, agreed: int) -> None:
    """A worker that offers nothing speaks what its header says; so did version 2 at first."""
    name = b"w1" if newest is None else b"w1\0" + bytes([newest])
    client = ClientHandshake(bytes(32))
    assert client.answer(bytes(32) + name, oldest).version == agreed
    assert client.negotiated is (newest is not None)


@pytest.mark.parametrize(("oldest", "newest"), [(3, None), (3, 9), (0, None)])
def test_no_common_version(oldest: int, newest: int | None) -> None:
    name = b"w1" if newest is None else b"w1\0" + bytes([newest])
    with pytest.raises(NoCommonVersion):
        ClientHandshake(bytes(32)).answer(bytes(32) + name, oldest)
