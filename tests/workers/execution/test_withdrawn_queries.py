"""Queries that their client does not wait for any more."""

import asyncio
from dataclasses import replace

import numpy as np

from tests.workers.builders import ask, connect, echo_spec, row, running, until, vid
from tests.workers.execution.asking import CONTROL_S, SLOW
from tests.workers.gated import Gates
from workers.channel.reply import Reply
from workers.runtimes.protocol import Tensor
from workers.types import ReplyCode, WorkerConfig

FULL: list[Tensor] = [np.ones((8, 4), dtype=np.float32)]
"""A whole batch."""


async def test_a_query_that_nobody_waits_for_does_not_run(worker: WorkerConfig) -> None:
    """Nor does one of another connection with the same number leave for it."""
    async with running(worker) as (host, connection):
        other = await connect(connection.address, worker)
        await connection.load(SLOW, CONTROL_S)
        replies: list[Reply] = []
        theirs: list[Reply] = []
        ids = [connection.infer(vid(SLOW), 8, 60_000_000, FULL, replies.append) for _ in range(20)]
        for _ in range(ids[-1] - 1):  # the last of these has the number of the last of the others
            other.infer(vid(SLOW), 1, 60_000_000, row(2), theirs.append)
        for request_id in (9_999, *ids):  # there is no query of the first number
            connection.withdraw(request_id)
        await until(lambda: len(replies) == 20 and len(theirs) == ids[-1] - 1)
        codes = [reply.code for reply in replies]
        assert codes.count(ReplyCode.EXPIRED) >= 10, codes
        assert {reply.code for reply in theirs} == {ReplyCode.OK}
        assert host._running().in_flight == 0
        connection.withdraw(ids[0])  # it has its reply
        assert (await ask(connection, SLOW, row(3))).code is ReplyCode.OK
        other.close()


async def test_a_query_that_waits_for_a_load_may_be_withdrawn(
    worker: WorkerConfig, gates: Gates
) -> None:
    spec = replace(echo_spec(load_s=30.0), runtime="gated")
    gates.loads.clear()
    async with running(worker) as (host, connection):
        loading = asyncio.create_task(connection.load(spec, CONTROL_S))
        await until(lambda: host.status().replicas)
        replies: list[Reply] = []
        number = connection.infer(vid(spec), 1, 60_000_000, row(1), replies.append)
        await until(lambda: host.status().replicas[0].queued == 1)
        connection.withdraw(number)
        await until(lambda: replies)
        assert replies[0].code is ReplyCode.EXPIRED
        gates.loads.set()
        await loading


async def test_what_came_over_a_connection_that_has_ended_does_not_run(
    worker: WorkerConfig, gates: Gates
) -> None:
    """Who had asked is gone, or has it answered elsewhere. The one that runs runs to its end."""
    spec = replace(echo_spec(), runtime="gated")
    async with running(worker) as (host, connection):
        await connection.load(spec, CONTROL_S)
        other = await connect(connection.address, worker)
        gates.runs.clear()
        theirs: list[Reply] = []
        mine: list[Reply] = []
        for _ in range(20):
            other.infer(vid(spec), 8, 60_000_000, FULL, theirs.append)
        await until(lambda: host._running().in_flight == 20)
        connection.infer(vid(spec), 1, 60_000_000, row(1), mine.append)
        await until(lambda: host._running().in_flight == 21)
        other.close()
        await until(lambda: host._running().in_flight <= 2)
        gates.runs.set()
        await until(lambda: mine)
        assert mine[0].code is ReplyCode.OK
        assert host._running().in_flight == 0
        assert not host._running()._left


async def test_a_worker_of_a_release_that_lets_nothing_go_is_told_of_nothing(
    worker: WorkerConfig,
) -> None:
    """It would end the connection for a frame that it does not know."""
    async with running(worker) as (host, connection):
        await connection.load(SLOW, CONTROL_S)
        connection.status = replace(connection.status, withdraws=False)
        replies: list[Reply] = []
        number = connection.infer(vid(SLOW), 1, 60_000_000, row(1), replies.append)
        connection.withdraw(number)
        await until(lambda: replies)
        assert replies[0].code is ReplyCode.OK
        assert not host._running()._withdrawn
