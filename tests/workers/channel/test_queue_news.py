"""What a worker tells of its queue, to those who want it and to nobody else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from planner.types import FormingBatch, QueueNews
from tests.workers.builders import ask, config, connect, echo_spec, row, running, until
from variants.errors import InvalidInput
from variants.types import TaskName, VariantName
from workers.channel.client import WorkerConnection
from workers.channel.queue_news import (
    SHORTEST_S,
    Wanted,
    decode_news,
    decode_wanted,
    encode_news,
    encode_wanted,
)
from workers.host import WorkerHost
from workers.types import LoadSpec, ReplyCode

NEWS = QueueNews(12.5, [FormingBatch(TaskName("t"), VariantName("v"), 3, 8, 4.0)])
WITH_REPLIES = Wanted(replies=True, every_s=0.0)
NEVER = Wanted(replies=False, every_s=0.0)
SLOW = {"latency_ms": "300"}
"""Options of an echo variant whose batches take so long."""
Both = tuple[WorkerHost, WorkerConnection, WorkerConnection]


def test_news_are_read_as_they_were_written() -> None:
    assert decode_news(encode_news(NEWS)) == NEWS
    assert decode_news(encode_news(QueueNews(0.0))) == QueueNews(0.0, [])


@pytest.mark.parametrize(
    "wrong",
    [b"[]", b"{", b"{}", b'{"backlog_ms":1}', b'{"backlog_ms":"x","forming":[]}',
     b'{"backlog_ms":1,"forming":[["t","v",1]]}',
     b'{"backlog_ms":1,"forming":[["t","v",1,2,null]]}'],
)  # fmt: skip
def test_wrong_news_are_refused(wrong: bytes) -> None:
    with pytest.raises(InvalidInput):
        decode_news(wrong)


def test_what_is_wanted_is_read_as_it_was_written_and_never_too_often() -> None:
    for wanted in (WITH_REPLIES, NEVER, Wanted(replies=True, every_s=0.25)):
        assert decode_wanted(encode_wanted(wanted)) == wanted
    assert decode_wanted(b'{"every_s":1e-9}') == Wanted(replies=False, every_s=SHORTEST_S)
    assert decode_wanted(b'{"every_s":-1}') == NEVER
    with pytest.raises(InvalidInput):
        decode_wanted(b'{"every_s":[]}')


def named(name: str) -> LoadSpec:
    """One of two variants."""
    return echo_spec(
        variant=VariantName(name), options=SLOW, latency=((1, 300.0), (8, 310.0)),
        longest_batch_ms=800.0,
    )  # fmt: skip


@asynccontextmanager
async def slow(
    folder: Path,
) -> AsyncIterator[tuple[WorkerHost, WorkerConnection, WorkerConnection]]:
    """A worker whose batches take long, and the connections of two gateways."""
    worker = config(folder)
    async with running(worker) as (host, one):
        two = await connect(one.address, worker)
        for name in ("v", "w"):
            await one.load(named(name), 60.0)
        try:
            yield host, one, two
        finally:
            two.close()


async def test_a_reply_brings_the_batch_that_forms_of_others_queries(tmp_path: Path) -> None:
    async with slow(tmp_path) as (host, one, two):
        told: list[QueueNews] = []
        one.follow(WITH_REPLIES, told.append)
        first = asyncio.create_task(ask(one, named("v"), row(1)))
        await until(lambda: host._running()._running)
        # What is due first runs next; a batch of the other variant forms behind it.
        waiting = [
            asyncio.create_task(ask(two, named("v"), row(2), budget_ms=20_000.0)),
            *(asyncio.create_task(ask(two, named("w"), row(3))) for _ in range(2)),
        ]
        assert (await first).code is ReplyCode.OK
        await until(lambda: told)
        [batch] = told[0].forming
        assert (batch.task, batch.variant, batch.rows) == ("task", "w", 2)
        assert 0.0 < batch.in_ms < told[0].backlog_ms
        assert all(reply.code is ReplyCode.OK for reply in await asyncio.gather(*waiting))
        assert len(told) == 1  # the others' replies are not its own


async def test_who_does_not_ask_is_told_nothing(tmp_path: Path) -> None:
    async with slow(tmp_path) as (_, one, two):
        told: list[QueueNews] = []
        two.follow(NEVER, told.append)
        await asyncio.gather(*(ask(each, named("v"), row(1)) for each in (one, two)))
        await asyncio.sleep(0.1)
        assert not told


async def test_by_the_clock_it_tells_as_long_as_there_is_something_to_tell(tmp_path: Path) -> None:
    async with slow(tmp_path) as (host, one, two):
        told: list[QueueNews] = []
        two.follow(Wanted(replies=False, every_s=0.02), told.append)
        await asyncio.sleep(0.1)
        assert not told  # nothing has been asked
        await ask(one, named("v"), row(1))
        assert len(told) >= 2
        assert told[0].backlog_ms > 0.0
        await until(lambda: not host._server.looking)
        await two.history([], 0, 60.0)  # by now all has come that was sent
        known = len(told)
        await asyncio.sleep(0.1)
        assert len(told) == known
        await ask(two, named("v"), row(1))  # and again
        assert len(told) > known


async def test_no_mistake_in_telling_costs_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither where it is told nor where it is heard."""
    async with slow(tmp_path) as (host, one, two):

        def mistaken(*_: object) -> QueueNews:
            raise IndexError("nothing waits")

        one.follow(WITH_REPLIES, mistaken)  # type: ignore[arg-type]
        assert (await ask(one, named("v"), row(1))).code is ReplyCode.OK
        await until(lambda: "nothing waits" in caplog.text)
        caplog.clear()
        told: list[QueueNews] = []
        two.follow(WITH_REPLIES, told.append)
        monkeypatch.setattr(host._running(), "queue_news", mistaken)
        assert (await ask(two, named("v"), row(1))).code is ReplyCode.OK
        assert "telling of the queue" in caplog.text
        assert not told
        assert (await ask(one, named("v"), row(1))).code is ReplyCode.OK


async def test_a_worker_of_a_release_that_tells_nothing_is_not_asked(tmp_path: Path) -> None:
    """It would end the connection for a frame that it does not know."""
    async with slow(tmp_path) as (host, one, _):
        one.status = replace(one.status, tells_queue=False)
        one.follow(WITH_REPLIES, lambda _: None)
        await ask(one, named("v"), row(1))
        assert all(peer.wanted == NEVER for peer in host._server.peers)


async def test_it_says_how_many_have_sent_queries_lately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with slow(tmp_path) as (host, one, two):
        assert host.status().askers == 0
        await ask(one, named("v"), row(1))
        assert host.status().askers == 1
        await ask(two, named("v"), row(1))
        assert host.status().askers == 2
        now_s = host._server.time_s()
        monkeypatch.setattr(host._server, "time_s", lambda: now_s + 11.0)
        assert host.status().askers == 0
        two.close()
