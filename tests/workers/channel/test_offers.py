"""When a gateway offers shared memory to a worker, and what an end does to it."""

import os
from pathlib import Path

import pytest

from tests.services import SHARED_MEMORY
from tests.workers.builders import ask, config, connect, running, until, vid
from tests.workers.channel.test_lending import lend, wide, wide_spec
from tests.workers.gated import Gates
from variants.errors import Conflict
from workers.channel.reply import Reply
from workers.channel.shared_memory import Budget, borrow
from workers.types import ReplyCode

pytestmark = SHARED_MEMORY


async def test_a_refused_offer_is_made_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[object] = []

    def refuse(_: object, offer: object) -> None:
        refused.append(offer)
        raise Conflict("it is far")

    monkeypatch.setattr("workers.execution.listening.peer.borrow", refuse)
    spec = wide_spec()
    async with running(config(tmp_path)) as (_, connection):
        await connection.load(spec, 60.0)
        lending = connection._lending
        assert lending is not None
        for value in range(4):
            assert (await ask(connection, spec, wide(value))).outputs[0][0, 0] == value
            await until(lambda: lending._offering is None)
        assert len(refused) == 1  # not with each query
        monkeypatch.setattr("workers.execution.listening.peer.borrow", borrow)
        lending._offer_at_s = 0.0  # a minute later
        await lend(connection, spec)
        assert (await ask(connection, spec, wide(9))).outputs[0][0, 0] == 9


async def test_without_a_budget_nothing_is_lent(tmp_path: Path) -> None:
    worker, spec = config(tmp_path), wide_spec()
    async with running(worker) as (_, first):
        await first.load(spec, 60.0)
        connection = await connect(first.address, worker, budget=Budget(0))
        assert (await ask(connection, spec, wide(3))).outputs[0][0, 0] == 3
        assert connection._lending is None
        connection.close()


async def test_queries_are_answered_where_shared_memory_cannot_be_closed(
    tmp_path: Path, gates: Gates
) -> None:
    worker, spec = config(tmp_path), wide_spec(runtime="gated")
    lost: list[str] = []
    async with running(worker) as (host, first):
        await first.load(spec, 60.0)
        connection = await connect(first.address, worker, on_lost=lost.append)
        block = await lend(connection, spec)
        gates.runs.clear()
        replies: list[Reply] = []
        connection.infer(vid(spec), 1, 60 * 10**6, wide(1), replies.append)
        executor = host._executor
        assert executor is not None
        await until(lambda: executor.in_flight == 1)
        handle, block.handle = block.handle, -1
        connection._end("it broke")
        os.close(handle)
        assert [reply.code for reply in replies] == [ReplyCode.LOST]
        assert lost == ["it broke"]
        gates.runs.set()
