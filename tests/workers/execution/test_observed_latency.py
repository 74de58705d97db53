"""What a worker learns and tells of how long batches take."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.workers.builders import ask, echo_spec, row, running, until
from tests.workers.execution.asking import CONTROL_S, SLOW
from workers.channel.client import WorkerConnection
from workers.execution import batch_runner
from workers.execution.replies import send_outputs
from workers.types import ReplicaStatus, ReplyCode, WorkerConfig


async def test_the_correction_follows_what_is_observed(worker: WorkerConfig) -> None:
    """A variant that takes 30 ms and says 10 is refused a budget of 20 once it has been seen."""
    optimist = replace(SLOW, latency=((1, 10.0),))
    async with running(worker) as (_, connection):
        await connection.load(optimist, CONTROL_S)
        for _ in range(10):
            assert (await ask(connection, optimist, row(1))).code is ReplyCode.OK
        reply = await ask(connection, optimist, row(1), budget_ms=20)
        assert reply.code is ReplyCode.OVERLOADED


async def test_live_latency_is_told_as_a_multiple_of_the_profile(worker: WorkerConfig) -> None:
    pessimist = replace(SLOW, typical=((1, 300.0), (8, 300.0)))
    async with running(worker) as (_, connection):
        await connection.load(pessimist, CONTROL_S)
        for _ in range(10):
            await ask(connection, pessimist, row(1))
        await until(lambda: told(connection).batches >= 10)
        assert told(connection).live_ratio < 1.0
        await connection.load(replace(pessimist, typical=((1, 30.0),)), CONTROL_S)
        await until(lambda: told(connection).batches == 0)
        assert told(connection).live_ratio == 1.0


async def test_what_batches_take_that_follow_on_one_another_is_told(worker: WorkerConfig) -> None:
    """Seven lone queries leave open what a pause costs; twenty that wait for one another do not."""
    spec = replace(SLOW, typical=((1, 30.0),), latency=((1, 30.0),))
    async with running(worker) as (_, connection):
        await connection.load(spec, CONTROL_S)
        for _ in range(7):
            await ask(connection, spec, row(1), budget_ms=5_000)
            await asyncio.sleep(0.01)
        await until(lambda: told(connection).batches >= 7)
        [(rows, _, unsure)] = told(connection).busy
        assert rows == 1
        for _ in range(4):
            await asyncio.gather(
                *(ask(connection, spec, row(1), budget_ms=5_000) for _ in range(5))
            )
        await until(lambda: told(connection).busy[0][2] < unsure)
        assert told(connection).busy_sure > 1.0


async def test_what_passes_between_batches_is_part_of_what_a_queue_is_predicted_to_take(
    worker: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answering a batch takes 20 ms here."""

    def send(*args: Any) -> None:
        time.sleep(0.02)
        send_outputs(*args)

    monkeypatch.setattr(batch_runner, "send_outputs", send)
    profile = ((1, 10.0),)
    spec = echo_spec(options={"latency_ms": "10"}, latency=profile, typical=profile)
    async with running(worker) as (host, connection):
        await connection.load(spec, CONTROL_S)
        await asyncio.gather(*[ask(connection, spec, row(0)) for _ in range(30)])
        here = host._executor
        assert here is not None
        [replica] = here.replicas.values()
        assert replica.queue.between_ms > 10.0


async def test_a_worker_tells_what_batches_take_and_how_often_it_was_right(
    worker: WorkerConfig,
) -> None:
    spec = replace(SLOW, typical=SLOW.latency)
    async with running(worker) as (_, connection):
        await connection.load(spec, CONTROL_S)
        assert (told(connection).latency, told(connection).within) == ((), None)
        for _ in range(6):
            await ask(connection, spec, row(1))
        await until(lambda: told(connection).batches >= 6)
        ((rows, mean_ms, p95_ms),) = told(connection).latency
        assert rows == 1
        assert 30.0 <= mean_ms <= p95_ms
        within = told(connection).within
        assert within is not None
        assert 0.0 <= within <= 1.0


def told(connection: WorkerConnection) -> ReplicaStatus:
    (only,) = connection.status.replicas
    return only
