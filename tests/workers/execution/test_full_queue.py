"""A worker whose queue one task has filled, in queries or in bytes, behind a real socket."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from planner.batching.deadline_queue import DeadlineQueue
from planner.batching.protocol import MAX_QUEUE
from planner.types import Client
from tests.workers.builders import ask, config, echo_spec, row, running, until, vid
from tests.workers.gated import Gates
from variants.types import TaskName, VariantName
from workers.channel.client import WorkerConnection
from workers.channel.reply import Reply
from workers.execution.executor import Executor
from workers.execution.replicas import Job
from workers.types import LoadSpec, ReplyCode

pytestmark = pytest.mark.slow

HOUR_US = 3_600_000_000
LATENCY = ((1, 1.0), (64, 1.0))
GREEDY = replace(echo_spec(latency=LATENCY), runtime="gated", task=TaskName("greedy"))
MODEST = replace(echo_spec(latency=LATENCY), task=TaskName("modest"), variant=VariantName("w"))


def flood(connection: WorkerConnection, spec: LoadSpec, count: int) -> list[Reply]:
    replies: list[Reply] = []
    for _ in range(count):
        connection.infer(vid(spec), 1, HOUR_US, row(1), replies.append)
    return replies


async def test_a_queue_full_of_another_tasks_queries_takes_a_task_within_its_share(
    tmp_path: Path, gates: Gates
) -> None:
    async with running(config(tmp_path)) as (host, connection):
        await connection.load(GREEDY, 60.0)
        await connection.load(MODEST, 60.0)
        executor = host._running()
        gates.runs.clear()
        one = flood(connection, GREEDY, 1)
        await until(lambda: executor._running is not None)  # the others wait behind it
        replies = flood(connection, GREEDY, MAX_QUEUE)
        await until(lambda: executor.queue.count == MAX_QUEUE)
        mine = asyncio.create_task(ask(connection, MODEST, row(7), budget_ms=600_000.0))
        await until(lambda: replies)
        await until(lambda: vid(MODEST) in {job.replica.variant for job in waiting(executor)})
        gates.open()
        assert (await mine).code is ReplyCode.OK
        await until(lambda: len(replies) == MAX_QUEUE)
    assert one[0].code is ReplyCode.OK
    refused = [reply for reply in replies if reply.code is not ReplyCode.OK]
    assert {(reply.code, reply.message) for reply in refused} == {
        (ReplyCode.OVERLOADED, "the queue is full, and others come first")
    }
    assert len(refused) == 32
    assert executor._held_bytes == executor.in_flight == 0


def waiting(executor: Executor) -> list[Job]:
    queue = executor.queue
    assert isinstance(queue, DeadlineQueue)
    return cast(list[Job], queue._items())


async def test_a_client_within_its_share_is_taken_into_a_queue_that_another_has_filled(
    tmp_path: Path, gates: Gates
) -> None:
    async with running(config(tmp_path)) as (host, connection):
        await connection.load(GREEDY, 60.0)
        executor = host._running()
        gates.runs.clear()
        one = flood(connection, GREEDY, 1)
        await until(lambda: executor._running is not None)
        replies = flood(connection, GREEDY, MAX_QUEUE)
        await until(lambda: executor.queue.count == MAX_QUEUE)
        mine: list[Reply] = []
        modest = Client("modest", 2.0)
        for _ in range(2):
            connection.infer(vid(GREEDY), 1, 2 * HOUR_US, row(7), mine.append, 200, modest)
        await until(lambda: len([job for job in waiting(executor) if job.client == modest]) == 2)
        first, second = (job.client for job in waiting(executor) if job.client == modest)
        assert first is second
        gates.open()
        await until(lambda: len(one) + len(mine) + len(replies) == MAX_QUEUE + 3)
    assert [reply.code for reply in mine] == [ReplyCode.OK] * 2


async def test_clients_are_numbered_anew_when_there_are_too_many(
    tmp_path: Path, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("channel.client", "execution.listening.peer", "execution.listening.server"):
        monkeypatch.setattr(f"workers.{module}.MOST_CLIENTS", 2)
    names = ["a", "b", "c", "a", "c", "d", "b"]
    async with running(config(tmp_path)) as (host, connection):
        await connection.load(GREEDY, 60.0)
        executor = host._running()
        gates.runs.clear()
        one = flood(connection, GREEDY, 1)
        await until(lambda: executor._running is not None)
        replies: list[Reply] = []
        for number, name in enumerate(names):
            budget_us = HOUR_US + 1_000_000 * number
            who = Client(name)
            connection.infer(vid(GREEDY), 1, budget_us, row(1), replies.append, 100, who)
        await until(lambda: executor.queue.count == len(names))
        jobs = sorted(waiting(executor), key=lambda job: job.deadline_ms)
        assert [job.client.name for job in jobs] == names
        gates.open()
        await until(lambda: len(one) + len(replies) == len(names) + 1)


async def test_a_queue_is_full_when_its_bytes_are(tmp_path: Path, gates: Gates) -> None:
    async with running(config(tmp_path)) as (host, connection):
        await connection.load(GREEDY, 60.0)
        await connection.load(MODEST, 60.0)
        executor = host._running()
        executor._max_bytes = 100 * 16  # a row has 16 bytes
        gates.runs.clear()
        replies = flood(connection, GREEDY, 101)
        await until(lambda: replies)
        assert (replies[0].code, replies[0].message) == (
            ReplyCode.OVERLOADED, "the queue is full",
        )  # fmt: skip
        assert executor._held_bytes == 1_600
        mine = asyncio.create_task(ask(connection, MODEST, row(7), budget_ms=600_000.0))
        await until(lambda: len(replies) > 1)
        assert replies[1].message == "the queue is full, and others come first"
        gates.open()
        assert (await mine).code is ReplyCode.OK
        await until(lambda: len(replies) == 101)
    assert executor._held_bytes == 0


async def test_priorities_decide_within_a_task(tmp_path: Path, gates: Gates) -> None:
    async with running(config(tmp_path)) as (host, connection):
        await connection.load(GREEDY, 60.0)
        executor = host._running()
        executor._max_bytes = 50 * 16
        gates.runs.clear()
        low: list[Reply] = []
        high: list[Reply] = []
        flood(connection, GREEDY, 1)
        await until(lambda: executor._running is not None)
        for _ in range(49):
            connection.infer(vid(GREEDY), 1, 60_000_000, row(1), low.append, 200)
        connection.infer(vid(GREEDY), 1, HOUR_US, row(2), high.append, 1)
        await until(lambda: low)
        gates.open()
        await until(lambda: high)
        assert high[0].code is ReplyCode.OK
        assert {reply.code for reply in low} >= {ReplyCode.OVERLOADED}
        await executor.quiet()


async def test_a_short_query_in_a_long_queue_keeps_only_its_own_bytes(
    tmp_path: Path, gates: Gates
) -> None:
    async with running(config(tmp_path)) as (host, connection):
        await connection.load(GREEDY, 60.0)
        executor = host._running()
        gates.runs.clear()
        replies: list[Reply] = []
        large = [np.zeros((1, 16_384), dtype=np.float32)]
        for _ in range(400):
            connection.infer(vid(GREEDY), 1, HOUR_US, row(1), replies.append)
            connection.infer(7, 1, HOUR_US, large, lambda _: None)  # no such variant
        await until(lambda: executor.in_flight == 400)
        buffers = {id(job.data): len(job.data) for job in waiting(executor)}
        assert sum(buffers.values()) < 10_000_000, "26 MB came beside them"
        gates.open()
        await until(lambda: len(replies) == 400)
        assert all(reply.outputs[0].tolist() == [[1, 0, 0, 0]] for reply in replies)
