"""A worker that drains, stops, or has lost its socket."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.workers.builders import ask, connect, echo_spec, row, running, socket_of, until
from tests.workers.execution.asking import CONTROL_S, SLOW, ask_all, named, replica
from tests.workers.gated import Gates
from variants.errors import VariantNotLoadable
from variants.types import ReplicaState
from workers.channel.client import WorkerConnection
from workers.types import ReplyCode, WorkerConfig


def sockets(worker: WorkerConfig) -> list[int]:
    """Modes of the sockets in the worker's folder."""
    return [path.stat().st_mode & 0o777 for path in Path(worker.run_dir).glob("*.sock")]


def remove(connection: WorkerConnection) -> None:
    socket_of(connection).unlink()


async def test_without_trust_in_profiles_a_worker_leaves_in_order_whatever_failed(
    worker: WorkerConfig,
) -> None:
    wrong = named(echo_spec(options={"latency_ms": "soon"}), "wrong")
    async with running(replace(worker, batching="aimd")) as (host, connection):
        await connection.load(echo_spec(), CONTROL_S)
        with pytest.raises(VariantNotLoadable):
            await connection.load(wrong, CONTROL_S)
        assert replica(host.status().replicas, "wrong").state is ReplicaState.FAILED
    assert sockets(worker) == []


async def test_draining_refuses_new_queries_and_answers_the_others(
    worker: WorkerConfig, gates: Gates
) -> None:
    spec = replace(SLOW, runtime="gated")
    async with running(worker) as (host, connection):
        await connection.load(spec, CONTROL_S)
        gates.runs.clear()
        asked = asyncio.create_task(ask_all(connection, spec, [1] * 12))
        await until(lambda: host.status().replicas[0].queued == 12)
        draining = asyncio.create_task(connection.drain(CONTROL_S))
        await until(lambda: connection.status.draining)
        assert (await ask(connection, spec, row(1))).code is ReplyCode.DRAINING
        gates.runs.set()
        assert [reply.code for reply in await asked] == [ReplyCode.OK] * 12
        await draining
        assert host.status().draining
        assert host.told_to_leave


async def test_a_worker_that_stops_by_itself_was_not_told_to_leave(worker: WorkerConfig) -> None:
    async with running(worker) as (host, connection):
        await host.drain_and_stop(CONTROL_S)  # its gateway says that it has heard
        assert connection.status.draining
        assert not host.told_to_leave


async def test_stopping_answers_what_was_admitted_and_removes_the_socket(
    worker: WorkerConfig,
) -> None:
    async with running(worker) as (host, connection):
        lost: list[str] = []
        other = await connect(connection.address, worker, on_lost=lost.append)
        await connection.load(SLOW, CONTROL_S)
        asked = asyncio.create_task(ask_all(other, SLOW, [1] * 12))
        await until(lambda: host.status().replicas[0].queued)
        await host.drain_and_stop(CONTROL_S)
        assert [reply.code for reply in await asked] == [ReplyCode.OK] * 12
        await until(lambda: lost)
        assert sockets(worker) == []


async def test_a_query_on_its_way_to_a_worker_that_leaves_is_refused_and_not_lost(
    worker: WorkerConfig,
) -> None:
    async with running(worker) as (host, connection):
        await connection.load(SLOW, CONTROL_S)
        transport = connection._transport
        assert transport is not None
        transport.pause_reading()  # this side is busy with other things, and hears of it late
        stopping = asyncio.create_task(host.drain_and_stop(CONTROL_S))
        await asyncio.sleep(0.1)  # enough to close everything, if it did not wait
        asked = asyncio.create_task(ask(connection, SLOW, row(1)))
        await asyncio.sleep(0)
        transport.resume_reading()
        assert (await asked).code is ReplyCode.DRAINING
        assert (await ask(connection, SLOW, row(1))).code in (
            ReplyCode.DRAINING,
            ReplyCode.LOST,  # once all have heard of it
        )
        await stopping


async def test_a_worker_that_leaves_does_not_wait_for_who_never_hears_of_it(
    worker: WorkerConfig,
) -> None:
    async with running(worker) as (host, connection):
        assert connection._transport is not None
        connection._transport.pause_reading()
        await host.drain_and_stop(0.05)
        assert sockets(worker) == []


async def test_a_worker_whose_socket_was_removed_listens_again(worker: WorkerConfig) -> None:
    """It left, and so did all others of its machine: for seconds nothing answered."""
    async with running(worker) as (host, connection):
        before = socket_of(connection)
        remove(connection)
        await until(before.exists)
        host.check()
        assert sockets(worker) == [0o600]
        another = await connect(f"unix:{before}", worker)
        assert another.status.worker == connection.status.worker
        another.close()


async def test_the_health_check_sees_a_socket_that_was_removed(worker: WorkerConfig) -> None:
    from variants.errors import Internal

    async with running(worker) as (host, connection):
        host.check()
        assert sockets(worker) == [0o600]
        remove(connection)
        with pytest.raises(Internal, match="was removed"):
            host.check()
