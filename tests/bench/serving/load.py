"""A client in a process of its own: one-row queries over keep-alive connections.

``python -m tests.bench.serving.load`` reads a job from standard input and prints what came of it,
both as JSON; ``run`` does that from another process. A job with a ``rate`` is an open loop: queries
are due at the moments of a Poisson process, whatever the server does, and latency counts from when
a query was due, so that a server that falls behind cannot slow its clients down to look better.
Without one, every connection sends its next query when the last is answered.
"""

import asyncio
import gc
import json
import os
import random
import subprocess
import sys
import time
from array import array
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Any, cast

import uvloop

ROWS = 16
"""Different rows that are asked in turn."""
WARM_UP_S = 0.5
PATIENCE_S = 2.0
"""How long answers are waited for after the last query was due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    port: int
    connections: int
    seconds: float
    task: str = "digits"
    width: int = 64
    """Numbers in a row."""
    rate: float | None = None
    """Queries per second of an open loop."""
    within_ms: float = 20.0
    """An answer is good if it is 200 and took no longer."""
    decimals: int = 0
    """Of the numbers; without any they are the whole ones up to 16, as in ``digits``."""
    slo_ms: float | None = None
    """What is asked for; None leaves it to the task."""
    core: int | None = None
    """The one core that the client may use."""
    seed: int = 0
    path: str = "/v1/query"
    shape: Sequence[int] = ()
    """How numbers are nested in a row; flat without it."""
    flat: bool = False
    """Whether a body is ``{"x": [numbers]}``, as another server than ours is asked."""
    binary: bool = False
    """Whether rows are bytes of a tensor ``x``, by the standard's binary extension: float32."""
    words: int = 0
    """Whether the numbers of binary rows are int64 instead, below this."""
    obeys: bool = False
    """In a closed loop, whether a refused client comes back when it is told, not at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a job; the warm-up counts only in ``answered``."""

    answered: int
    """Queries answered since the process began."""
    asked: int
    seconds: float
    statuses: dict[str, int]
    good: int
    cpu_cores: float
    """Processor time of the client per second."""
    ms: dict[str, dict[str, float]]
    """Mean, p50, p90 and p99 of ``total`` and of ``refused``, the times of those answers alone that
    are not 200, from when they were sent; with one connection, also of ``run`` and ``queue`` as
    replies say, and of ``added``, which is the total without ``run``."""

    @property
    def qps(self) -> float:
        return self.statuses.get("200", 0) / self.seconds

    @property
    def good_share(self) -> float:
        return self.good / self.asked


def run(job: Job) -> Outcome:
    """Do a job in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.serving.load"],
        input=json.dumps(asdict(job)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=job.seconds + 60,
    )
    return Outcome(**json.loads(done.stdout))


async def drive(job: Job) -> Outcome:
    """Do a job on this event loop."""
    driver = ClosedLoop(job) if job.rate is None else OpenLoop(job)
    return await driver.outcome()


def summary(samples: Sequence[float]) -> dict[str, float]:
    """Mean, p50, p90 and p99; zeros where there is nothing."""
    ordered = sorted(samples) or [0.0]
    count = len(ordered)
    found = {f"p{p}": ordered[min(count - 1, count * p // 100)] for p in (50, 90, 99)}
    return {"mean": sum(ordered) / count, **found}


def requests(job: Job) -> list[bytes]:
    rng = random.Random(job.seed)
    if job.binary:
        return [_binary(job, rng) for _ in range(ROWS)]
    made = []
    for _ in range(ROWS):
        row = [
            round(rng.random(), job.decimals) if job.decimals else float(rng.randint(0, 16))
            for _ in range(job.width)
        ]
        asked: dict[str, Any] = {"task": job.task, "inputs": [nested(row, job.shape)]}
        if job.slo_ms is not None:
            asked["slo"] = {"latency_ms": job.slo_ms}
        body = json.dumps({"x": row} if job.flat else asked).encode()
        made.append(
            b"POST %s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
            % (job.path.encode(), job.port, len(body), body)
        )
    return made


def _binary(job: Job, rng: random.Random) -> bytes:
    if job.words:
        kind, row = "INT64", array("q", rng.choices(range(job.words), k=job.width)).tobytes()
    else:
        kind, row = "FP32", array("f", (rng.random() for _ in range(job.width))).tobytes()
    tensor: dict[str, Any] = {
        "name": "x",
        "datatype": kind,
        "shape": [1, *(job.shape or (job.width,))],
    }
    tensor["parameters"] = {"binary_data_size": len(row)}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return (
        b"POST /v2/models/%s/infer HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n"
        b"inference-header-content-length: %d\r\n"
        b"content-type: application/octet-stream\r\ncontent-length: %d\r\n\r\n%s%s"
        % (job.task.encode(), job.port, len(head), len(head) + len(row), head, row)
    )


def nested(row: Sequence[Any], shape: Sequence[int]) -> Sequence[Any]:
    """A row of numbers as lists of this shape."""
    for length in reversed(shape[1:]):
        row = [row[at : at + length] for at in range(0, len(row), length)]
    return row


class Connection(asyncio.Protocol):
    """One connection with at most one query on the way."""

    def __init__(self, driver: "Driver") -> None:
        self.driver = driver
        self.transport: asyncio.Transport
        self.due_s = self.asked_s = 0.0
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def ask(self, due_s: float) -> None:
        self.due_s = due_s
        self.asked_s = time.perf_counter()
        self.transport.write(next(self.driver.requests))

    def data_received(self, data: bytes) -> None:
        now_s = time.perf_counter()
        if self.received:
            data = self.received + data
        head = data.find(b"\r\n\r\n")
        if head >= 0:
            at = data.index(b"\r\ncontent-length: ") + 18
            if len(data) == head + 4 + int(data[at : data.index(b"\r", at)]):
                self.received = b""
                self.driver.answered(self, data[9:12], data[head + 4 :], now_s)
                return
        self.received = data

    def connection_lost(self, exc: Exception | None) -> None:
        self.driver.lost(self)


class Driver:
    """Asks and counts. ``answered`` and ``lost`` are called by the connections."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.requests = cycle(requests(job))
        self.connections: list[Connection] = []
        self.total = 0
        self.statuses: Counter[bytes] = Counter()
        self.took_ms: list[float] = []
        self.refused_ms: list[float] = []
        self.good = 0
        self.bodies: list[bytes] = []
        self.measured_from_s = self.end_s = float("inf")
        self.finished = asyncio.Event()

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(self.job.connections):
            _, made = await loop.create_connection(
                lambda: Connection(self), "127.0.0.1", self.job.port
            )
            self.connections.append(made)

    async def drive(self) -> None:
        raise NotImplementedError

    def answered(self, by: Connection, status: bytes, body: bytes, now_s: float) -> None:
        self.total += 1
        if self.measured_from_s <= by.due_s < self.end_s:
            took_ms = (now_s - by.due_s) * 1000
            self.took_ms.append(took_ms)
            self.statuses[status] += 1
            if status != b"200":
                self.refused_ms.append((now_s - by.asked_s) * 1000)
            self.good += status == b"200" and took_ms <= self.job.within_ms
            if self.job.connections == 1:
                self.bodies.append(body)

    def lost(self, by: Connection) -> None:
        if not self.finished.is_set():
            self.statuses[b"lost"] += 1
            self.finished.set()

    def asked(self) -> int:
        """Queries that were due while it was measured."""
        return len(self.took_ms)

    async def outcome(self) -> Outcome:
        """Do the whole job."""
        await self.connect()
        job = self.job
        begin_s = time.perf_counter()
        self.measured_from_s = begin_s + WARM_UP_S
        self.end_s = self.measured_from_s + job.seconds
        clock = asyncio.create_task(self._cpu_s())
        await self.drive()
        self.finished.set()
        for connection in self.connections:
            connection.transport.abort()
        return Outcome(
            answered=self.total,
            asked=self.asked(),
            seconds=job.seconds,
            statuses={status.decode(): count for status, count in self.statuses.items()},
            good=self.good,
            cpu_cores=await clock / job.seconds,
            ms=self.parts(),
        )

    async def _cpu_s(self) -> float:
        """Processor time of this process while it is measured."""
        await asyncio.sleep(WARM_UP_S)
        used_s = time.process_time()
        await asyncio.sleep(self.job.seconds)
        return time.process_time() - used_s

    def parts(self) -> dict[str, dict[str, float]]:
        """The whole time, what each reply says of its time at the worker, and the difference."""
        total = {"total": summary(self.took_ms), "refused": summary(self.refused_ms)}
        told = not (self.job.flat or self.job.binary)
        if not self.bodies or self.statuses.keys() != {b"200"} or not told:
            return total
        timed = list(zip(self.took_ms, map(json.loads, self.bodies), strict=True))
        return total | {
            "run": summary([reply["run_ms"] for _, reply in timed]),
            "queue": summary([reply["queue_ms"] for _, reply in timed]),
            "added": summary([ms - reply["run_ms"] for ms, reply in timed]),
        }


class ClosedLoop(Driver):
    """The next query goes out when the last one is answered."""

    async def drive(self) -> None:
        for connection in self.connections:
            connection.ask(time.perf_counter())
        # Longer by a little, so that the last ones that count are answered.
        await asyncio.sleep(WARM_UP_S + self.job.seconds + 0.1)

    def answered(self, by: Connection, status: bytes, body: bytes, now_s: float) -> None:
        super().answered(by, status, body, now_s)
        wait_s = json.loads(body).get("retry_after_s") if status != b"200" and self.job.obeys else 0
        if wait_s:
            asyncio.get_running_loop().call_later(wait_s, self._ask_again, by)
        else:
            by.ask(time.perf_counter())

    def _ask_again(self, by: Connection) -> None:
        if not by.transport.is_closing():
            by.ask(time.perf_counter())


class OpenLoop(Driver):
    """Queries are due at moments that were drawn before; those without a connection wait."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        assert job.rate is not None
        rng = random.Random(job.seed)
        self.offsets_s: list[float] = []
        at_s = rng.expovariate(job.rate)
        while at_s < WARM_UP_S + job.seconds:
            self.offsets_s.append(at_s)
            at_s += rng.expovariate(job.rate)
        self.due: deque[float] = deque()
        self.free: list[Connection] = []

    def asked(self) -> int:
        return sum(offset_s >= WARM_UP_S for offset_s in self.offsets_s)

    async def drive(self) -> None:
        begin_s = self.measured_from_s - WARM_UP_S
        self.due.extend(begin_s + offset_s for offset_s in self.offsets_s)
        self.free.extend(self.connections)
        # The loop's timers count milliseconds; every answer that arrives looks for due ones, too.
        while self.due and not self.finished.is_set():
            self._send_due()
            await asyncio.sleep(0.001)
            if time.perf_counter() > self.end_s + PATIENCE_S:
                return
        while len(self.free) < len(self.connections) and not self.finished.is_set():
            await asyncio.sleep(0.01)
            if time.perf_counter() > self.end_s + PATIENCE_S:
                return

    def _send_due(self) -> None:
        due, free, now_s = self.due, self.free, time.perf_counter()
        while due and free and due[0] <= now_s:
            free.pop().ask(due.popleft())

    def answered(self, by: Connection, status: bytes, body: bytes, now_s: float) -> None:
        super().answered(by, status, body, now_s)
        self.free.append(by)
        self._send_due()


def main() -> None:
    job = Job(**json.load(sys.stdin))
    if job.core is not None:
        os.sched_setaffinity(0, {job.core})
    gc.disable()
    found: dict[str, Any] = asdict(uvloop.run(drive(job)))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
