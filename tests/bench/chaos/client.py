"""The client: queries that are sent when they are due, whatever becomes of those before.

``python -m tests.bench.chaos.client '{...}'`` runs in a process of its own, with the fields of
``Job`` as JSON, until SIGTERM comes, and writes the ledger. Each query has a number of its own as
input, and the models echo: an answer that belongs to another query is found out.
"""

import asyncio
import json
import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import uvloop

from tests.bench.chaos.ledger import Entry, Outcome, write

PATIENCE_S = 10.0
"""How long after its deadline an answer is still waited for, to say what came."""
TICK_S = 0.02
"""How often the client looks whether it is kept from running."""
STALL_S = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    port: int
    ledger: str
    seconds: float
    qps: float
    seed: int
    first: int
    """The first query's number: what was asked in another trial is not asked again."""
    tasks: list[str]
    floors: list[float | None]
    latencies_ms: list[float]
    best_effort: float = 0.1
    """Part of the queries that take an answer after their deadline as well."""
    pinned: list[tuple[str, str]] | None = None
    """A fifth of the queries asks for one of these: task and variant."""


@dataclass(slots=True)
class Sent:
    """A query under way."""

    query: int
    sent_s: float
    latency_ms: float
    done: "asyncio.Future[Entry]"

    def end(
        self, outcome: Outcome, *, code: str = "", worker: str = "",
        slo_met: bool | None = None, detail: str = "",
    ) -> None:  # fmt: skip
        if not self.done.done():
            self.done.set_result(
                Entry(
                    query=self.query, sent_s=self.sent_s, latency_ms=self.latency_ms,
                    ended_s=time.monotonic(), outcome=outcome, code=code, worker=worker,
                    slo_met=slo_met, detail=detail[:500],
                )
            )  # fmt: skip


class Connection(asyncio.Protocol):
    """One connection, with at most one query under way."""

    def __init__(self, idle: "list[Connection]") -> None:
        self._idle = idle
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self.sent: Sent | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, sent: Sent, request: bytes) -> None:
        assert self._transport is not None
        self.sent = sent
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        lines = head.decode("latin-1").lower().split("\r\n")
        fields = dict(line.partition(":")[::2] for line in lines[1:])
        length = int(fields.get("content-length", "0"))
        if len(rest) < length:
            return
        sent, self.sent, self._buffer = self.sent, None, b""
        if sent is None or len(rest) > length:
            self.close()
            if sent is not None:
                sent.end(Outcome.UNTYPED, detail=f"more than one answer: {rest[length:]!r}")
            else:  # after the answer of a query that is over: its entry says what it was
                print(f"an answer to nothing: {head!r} {rest!r}", file=sys.stderr)
            return
        judge(sent, int(lines[0].split(" ", 2)[1]), rest)
        if fields.get("connection", "").strip() == "close":
            self.close()
        else:
            self._idle.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._idle:
            self._idle.remove(self)
        if self.sent is not None:
            self.sent.end(Outcome.RESET, detail=f"{exc!r} {self._buffer!r}")
            self.sent = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def judge(sent: Sent, status: int, body: bytes) -> None:
    """End a query with what came for it."""
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        sent.end(Outcome.UNTYPED, detail=f"{status} {body!r}")
    elif status == 200:
        right = told.get("outputs") == [[float(sent.query), 1.0, 2.0, 3.0]]
        typed = right and isinstance(told.get("slo_met"), bool)
        outcome = Outcome.ANSWERED if typed else Outcome.UNTYPED
        worker = str(told.get("worker"))
        detail = "" if typed else f"{status} {body!r}"
        sent.end(outcome, worker=worker, slo_met=told.get("slo_met"), detail=detail)
    elif isinstance(code := told.get("code"), str) and told.get("error"):
        sent.end(Outcome.REFUSED, code=code, detail=str(told["error"]))
    else:
        sent.end(Outcome.UNTYPED, detail=f"{status} {body!r}")


class Client:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._idle: list[Connection] = []
        self._stalls: list[tuple[float, float]] = []
        """When this process had not run, from and to."""
        self._enough = asyncio.Event()

    async def run(self) -> list[Entry]:
        watch = asyncio.create_task(self._watch())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._enough.set)
        begin_s = time.monotonic()
        asked: list[asyncio.Task[Entry]] = []
        for number, (at_s, request, latency_ms) in enumerate(self._drawn(), self._job.first):
            wait_s = begin_s + at_s - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            if self._enough.is_set():
                break
            asked.append(asyncio.create_task(self._ask(number, request, latency_ms)))
        entries = await asyncio.gather(*asked)
        watch.cancel()
        return list(entries)

    def _drawn(self) -> Iterator[tuple[float, bytes, float]]:
        job, draw = self._job, random.Random(self._job.seed)
        at_s, number = 0.0, job.first - 1
        while (at_s := at_s + draw.expovariate(job.qps)) < job.seconds:
            number += 1
            task, latency_ms = draw.choice(job.tasks), draw.choice(job.latencies_ms)
            slo = {"latency_ms": latency_ms, "accuracy": draw.choice(job.floors)}
            body = {"inputs": [[number, 1, 2, 3]], "best_effort": draw.random() < job.best_effort}
            if job.pinned and draw.random() < 0.2:
                task, variant = draw.choice(job.pinned)
                slo["accuracy"], body["variant"] = None, variant
            body |= {"task": task, "slo": {k: v for k, v in slo.items() if v is not None}}
            content = json.dumps(body).encode()
            head = b"POST /v1/query HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-length: %d\r\n\r\n"
            yield at_s, head % (job.port, len(content)) + content, latency_ms

    async def _ask(self, number: int, request: bytes, latency_ms: float) -> Entry:
        sent = Sent(
            number, time.monotonic(), latency_ms, asyncio.get_running_loop().create_future()
        )
        connection = self._idle.pop() if self._idle else await self._connected(sent)
        if connection is not None:
            connection.ask(sent, request)
            try:
                async with asyncio.timeout(latency_ms / 1000 + PATIENCE_S):
                    await asyncio.shield(sent.done)
            except TimeoutError:
                connection.sent = None
                connection.close()
                sent.end(Outcome.SILENT)
        entry = await sent.done
        stalled_s = sum(
            min(end_s, entry.ended_s) - max(begin_s, entry.sent_s)
            for begin_s, end_s in self._stalls
            if end_s > entry.sent_s and begin_s < entry.ended_s
        )
        return with_stall(entry, stalled_s)

    async def _connected(self, sent: Sent) -> Connection | None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(sent.latency_ms / 1000 + PATIENCE_S):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._idle), "127.0.0.1", self._job.port
                )
        except TimeoutError:
            sent.end(Outcome.SILENT, detail="the connection was not taken")
        except OSError as error:
            sent.end(Outcome.UNCONNECTED, detail=repr(error))
        else:
            return connection
        return None

    async def _watch(self) -> None:
        """Note when this process was kept from running."""
        while True:
            due_s = time.monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            now_s = time.monotonic()
            if now_s - due_s > STALL_S:
                self._stalls.append((due_s, now_s))


def with_stall(entry: Entry, stalled_s: float) -> Entry:
    return replace(entry, stalled_s=round(stalled_s, 4)) if stalled_s else entry


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    entries = uvloop.run(Client(job).run())
    write(Path(job.ledger), entries)


if __name__ == "__main__":
    main()
