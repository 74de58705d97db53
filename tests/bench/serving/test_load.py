"""The benchmark's client against a small server: what it counts is what was answered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.bench.serving.load import Job, drive

pytestmark = pytest.mark.slow

REPLY = b'{"run_ms": 1.5, "queue_ms": 0.5}'
JOB = Job(port=0, connections=1, seconds=0.2)


@asynccontextmanager
async def server(status: int) -> AsyncIterator[tuple[int, list[int]]]:
    """Answers every query in two pieces; yields its port and a list that gets each body's size."""
    sizes: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.partition(b"content-length: ")[2].partition(b"\r")[0])
                await reader.readexactly(size)
                sizes.append(size)
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status, len(REPLY)))
                await asyncio.sleep(0)
                writer.write(REPLY)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1")
    async with listening:
        yield listening.sockets[0].getsockname()[1], sizes


async def test_a_closed_loop_counts_every_answer_and_reads_what_replies_say() -> None:
    async with server(200) as (port, sizes):
        found = await drive(replace(JOB, port=port))
    assert found.statuses == {"200": found.asked}
    assert 0 < found.asked < found.answered <= len(sizes)
    assert found.ms["run"] == {"mean": 1.5, "p50": 1.5, "p90": 1.5, "p99": 1.5}
    assert found.ms["queue"] == {"mean": 0.5, "p50": 0.5, "p90": 0.5, "p99": 0.5}
    assert found.ms["added"]["p50"] == pytest.approx(found.ms["total"]["p50"] - 1.5)


async def test_an_error_is_no_good_answer_however_fast() -> None:
    async with server(503) as (port, _):
        found = await drive(replace(JOB, port=port, connections=3, within_ms=10_000))
    assert found.statuses == {"503": found.asked}
    assert (found.good, found.qps) == (0, 0)


async def test_an_open_loop_asks_what_its_schedule_says() -> None:
    async with server(200) as (port, sizes):
        job = replace(JOB, port=port, connections=4, rate=500.0, within_ms=10_000)
        found = await drive(job)
    assert found.good == found.asked == found.statuses["200"]
    assert found.answered == len(sizes)
    assert found.asked == pytest.approx(500 * 0.2, abs=50)


async def test_queries_without_an_answer_count_as_asked() -> None:
    """A server that never answers: all that was due is asked for, nothing is good."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(silent, "127.0.0.1")
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        found = await drive(replace(JOB, port=port, connections=2, rate=500.0))
    assert found.asked > 2
    assert (found.good, found.answered, found.statuses) == (0, 0, {})
