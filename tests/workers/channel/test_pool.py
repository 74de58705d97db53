"""The contract of the connection pool that gateway and control loop share, over real workers."""

import asyncio
import logging
import socket
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.workers.builders import config, echo_spec, process, row, running, secret_of, until, vid
from variants.types import WorkerId
from workers.channel.client import WorkerConnection
from workers.channel.pool import ConnectionPool
from workers.channel.reply import Reply
from workers.types import ReplyCode, WorkerStatus

W = WorkerId("w")


@dataclass
class Listener:
    """Remembers what a pool says, in order."""

    said: list[tuple[str, WorkerId]] = field(default_factory=list)
    statuses: list[WorkerStatus] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def joined(self, worker: WorkerId, connection: WorkerConnection) -> None:
        self.said.append(("joined", worker))
        self.statuses.append(connection.status)

    def reported(self, worker: WorkerId, status: WorkerStatus) -> None:
        self.statuses.append(status)

    def left(self, worker: WorkerId, connection: WorkerConnection, reason: str) -> None:
        self.said.append(("left", worker))
        self.reasons.append(reason)


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def pool(tmp_path: Path, listener: Listener) -> ConnectionPool:
    return ConnectionPool(secret_of(config(tmp_path)), listener)


async def test_a_new_worker_joins_with_its_first_report_and_reports_again(
    tmp_path: Path, pool: ConnectionPool, listener: Listener
) -> None:
    async with process(config(tmp_path)) as (_, address):
        assert pool.update({W: address}) == {W: address}
        await pool.open(W, address)
        assert (listener.said, [one.worker for one in listener.statuses]) == (
            [("joined", W)],
            ["w1"],
        )
        assert pool.update({W: address}) == {}
        await pool.connections[W].load(echo_spec(), 60.0)
        await until(lambda: listener.statuses[-1].replicas)
        assert listener.statuses[-1] == pool.connections[W].status
        pool.close()


async def test_opening_twice_is_one_connection(
    tmp_path: Path, pool: ConnectionPool, listener: Listener
) -> None:
    async with running(config(tmp_path)) as (_, other):
        first = asyncio.create_task(pool.open(W, other.address))
        await asyncio.sleep(0)
        assert pool.update({W: other.address}) == {}
        await asyncio.gather(first, pool.open(W, other.address))
        await pool.open(W, other.address)
        assert listener.said == [("joined", W)]
        pool.close()


async def test_a_killed_worker_leaves_with_a_reason_and_is_connected_to_again(
    tmp_path: Path, pool: ConnectionPool, listener: Listener
) -> None:
    async with process(config(tmp_path)) as (child, address):
        await pool.open(W, address)
        child.kill()
        await until(lambda: listener.said == [("joined", W), ("left", W)])
        assert all(listener.reasons)
        assert pool.connections == {}
        assert pool.update({W: address}) == {W: address}


async def test_a_worker_that_leaves_when_it_has_drained_is_no_warning(
    tmp_path: Path,
    pool: ConnectionPool,
    listener: Listener,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "workers.channel.pool")
    async with running(config(tmp_path)) as (_, other):
        await pool.open(W, other.address)
        await pool.connections[W].drain(60.0)
        await until(lambda: listener.statuses[-1].draining)
    await until(lambda: listener.said == [("joined", W), ("left", W)])
    [record] = caplog.records
    assert (record.levelname, record.getMessage()) == (
        "INFO",
        f"worker {W} has left: it had drained",
    )


async def test_a_worker_that_has_moved_is_closed_and_connected_to_where_it_is(
    tmp_path: Path, pool: ConnectionPool, listener: Listener
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = config(elsewhere, secret_path=str(tmp_path / "secret"))
    async with running(config(tmp_path)) as (_, old), running(moved) as (_, new):
        await pool.open(W, old.address)
        assert pool.update({W: new.address}) == {W: new.address}
        assert (listener.said, listener.reasons) == ([("joined", W), ("left", W)], [""])
        await pool.open(W, new.address)
        assert pool.connections[W].address == new.address
        pool.close()


async def test_a_worker_that_is_not_listed_stays_unless_that_is_asked_for(
    tmp_path: Path, pool: ConnectionPool, listener: Listener
) -> None:
    async with running(config(tmp_path)) as (_, other):
        await pool.open(W, other.address)
        assert pool.update({}) == {}
        assert pool.connections.keys() == {W}
        assert pool.update({}, close_unlisted=True) == {}
        assert pool.connections == {}
        assert (listener.said, listener.reasons) == ([("joined", W), ("left", W)], [""])


async def test_a_worker_that_cannot_be_reached_is_logged_once_and_tried_again(
    tmp_path: Path, pool: ConnectionPool, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "workers.channel.pool")
    nothing = f"unix:{tmp_path / 'nothing.sock'}"
    for _ in range(2):
        assert pool.update({W: nothing}) == {W: nothing}
        await pool.open(W, nothing)
    assert (len(caplog.records), listener.said) == (1, [])
    pool.update({})
    await pool.open(W, nothing)
    assert len(caplog.records) == 2


async def test_an_attempt_that_is_cancelled_leaves_nothing_behind(
    tmp_path: Path, pool: ConnectionPool, listener: Listener
) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent.sock"))
        silent.listen()
        address = f"unix:{tmp_path / 'silent.sock'}"
        opening = asyncio.create_task(pool.open(W, address))
        await asyncio.sleep(0)
        assert pool.update({W: address}) == {}
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert pool.update({W: address}) == {W: address}
        assert listener.said == []


async def test_a_closed_pool_answers_what_is_in_flight_as_lost(
    tmp_path: Path, pool: ConnectionPool, listener: Listener
) -> None:
    spec = echo_spec(options={"latency_ms": "300"})
    async with process(config(tmp_path)) as (_, address):
        await pool.open(W, address)
        await pool.connections[W].load(spec, 60.0)
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        pool.connections[W].infer(vid(spec), 1, 10_000_000, row(1), reply.set_result)
        pool.close()
        assert (await reply).code is ReplyCode.LOST
        assert (pool.connections, listener.reasons) == ({}, [""])
