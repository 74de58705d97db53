"""Queries that are sent at the times of a trace, whatever becomes of those before."""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

PATIENCE_S = 120.0


class Asked(NamedTuple):
    """One query of a trace."""

    at_s: float
    body: dict[str, Any]
    """Sent as JSON to ``/v1/query``."""
    request: bytes | None = None
    """Sent in its place: a whole request whose reply is JSON."""


class Told(NamedTuple):
    """What became of it."""

    at_s: float
    took_ms: float
    """From when it was due to its last byte."""
    status: int
    body: dict[str, Any]


async def play(port: int, queries: Sequence[Asked]) -> list[Told]:
    """Send each query at its time and wait for all of the answers, in the order of the trace."""
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    begin_s = time.perf_counter() + 0.1

    async def connection() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """One that is idle, or a new one: the gateway closes those that are idle for long."""
        while idle:
            reader, writer = idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection("127.0.0.1", port)

    async def one(query: Asked) -> Told:
        reader, writer = await connection()
        writer.write(query.request or _request(port, json.dumps(query.body).encode()))
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.partition(":")[2])
            for line in head.split("\r\n")
            if line.lower().startswith("content-length:")
        )
        found = json.loads(await reader.readexactly(length))
        took_ms = 1_000 * (time.perf_counter() - begin_s - query.at_s)
        idle.append((reader, writer))
        return Told(query.at_s, took_ms, int(head.split(" ", 2)[1]), found)

    sent: list[asyncio.Task[Told]] = []
    for query in queries:
        wait_s = begin_s + query.at_s - time.perf_counter()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        sent.append(asyncio.create_task(one(query)))
    async with asyncio.timeout(PATIENCE_S):
        told = list(await asyncio.gather(*sent))
    for _, writer in idle:
        writer.close()
    return told


def _request(port: int, body: bytes) -> bytes:
    return (
        b"POST /v1/query HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%s" % (port, len(body), body)
    )
