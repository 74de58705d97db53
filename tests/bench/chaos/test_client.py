"""The client against a small server: the outcome that each kind of answer has in the ledger."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.bench.chaos.client import Client, Job
from tests.bench.chaos.ledger import Entry, Outcome
from tests.ports import free_port

REFUSAL = b'{"error": "too much", "code": "OVERLOADED"}'


def job(port: int) -> Job:
    return Job(
        port=port, ledger="", seconds=0.3, qps=50.0, seed=1, first=1, tasks=["t"], floors=[None],
        latencies_ms=[300.0],
    )  # fmt: skip


def reply(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)


def answer(query: float) -> bytes:
    told = {"outputs": [[query, 1, 2, 3]], "worker": "w", "slo_met": True}
    return reply(200, json.dumps(told).encode())


@asynccontextmanager
async def server(how: str) -> AsyncIterator[int]:
    """Answers all queries in one way; yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.partition(b"content-length: ")[2].partition(b"\r")[0])
                number = json.loads(await reader.readexactly(size))["inputs"][0][0]
                match how:
                    case "answers":
                        writer.write(answer(number))
                    case "refuses":
                        writer.write(reply(503, REFUSAL))
                    case "mixes up":
                        writer.write(answer(number + 1))
                    case "has no code":
                        writer.write(reply(500, b"Internal Server Error"))
                    case "says it twice":
                        writer.write(answer(number) + answer(number))
                    case "resets":
                        writer.transport.abort()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    running = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with running:
        yield running.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("how", "outcome", "code"),
    [
        ("answers", Outcome.ANSWERED, ""),
        ("refuses", Outcome.REFUSED, "OVERLOADED"),
        ("mixes up", Outcome.UNTYPED, ""),
        ("has no code", Outcome.UNTYPED, ""),
        ("says it twice", Outcome.UNTYPED, ""),
        ("resets", Outcome.RESET, ""),
    ],
)
async def test_what_comes_is_written_down(how: str, outcome: Outcome, code: str) -> None:
    async with server(how) as port:
        entries = await Client(job(port)).run()
    assert {(entry.outcome, entry.code) for entry in entries} == {(outcome, code)}
    assert [entry.query for entry in entries] == list(range(1, len(entries) + 1))


async def test_where_nobody_listens_nobody_had_the_query() -> None:
    entries: list[Entry] = await Client(job(free_port())).run()
    assert {entry.outcome for entry in entries} == {Outcome.UNCONNECTED}
