"""Whether predictions come true, and what admission by them refuses and lets be late.

``python -m tests.bench.profiling.calibration`` (``make bench-calibration``). One worker in a
process of its own, variants of the digits family, profiled first as a registration does it. Each
variant gets lone rows as a Poisson process at shares of what it answers in a closed loop, alone and
beside another variant that has half of the load. The same arrivals come twice:

* with their deadlines: the share of batches that took no longer than their predicted p95 (goal 93
  to 97 %), and the shares refused and late;
* without: what a server that refuses nobody answers in time. *Wrongly refused* are the queries that
  were refused with deadlines and in time without.

Time is the worker's own, from a query's arrival there to its answer. Profiles are kept in a file
with ``--profiles``, so that two versions can be compared by the same ones.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from planner.selection.snapshot import MEASURED_MARGIN
from tests.bench.machine import IDLE_CORES, Others, describe
from tests.bench.profiling.repeat import digits, load_spec, profiled, tensor
from tests.workers.builders import ask, config, connect
from variants.types import Digest
from workers.channel.client import WorkerConnection
from workers.channel.reply import Reply
from workers.runtimes.protocol import Tensor
from workers.types import LoadSpec, ReplyCode, WorkerConfig, variant_id

VARIANTS = ("mlp-small-fp32", "cnn-large-fp32", "cnn-large-int8")
BESIDE = "cnn-small-fp32"
LOADS = (0.1, 0.5, 0.9)
IN_FLIGHT = 32
SLO_BATCHES, LEAST_SLO_MS = 5.0, 10.0
"""A query's budget: so many times the profile's p95 of one row, and no less."""
HEAD = (
    "| variant | load | queries | batches | within p95 | p95 over taken | refused "
    "| wrongly refused | came too late | late | late without admission |"
)
NO_DEADLINE_US = 60_000_000
INPUT: list[Tensor] = [np.zeros((1, 64), np.float32)]


@dataclass(frozen=True, slots=True)
class Subject:
    """A loaded variant under test."""

    spec: LoadSpec
    slo_ms: float
    capacity_qps: float = 0.0
    """What is taken for all that it can answer: by default, answers in a closed loop."""

    @property
    def id(self) -> int:
        return variant_id(self.spec.task, self.spec.variant)


@dataclass(frozen=True, slots=True)
class Ended:
    """How queries ended, in the order of their arrivals."""

    replies: list[Reply]
    began: float
    ended: float
    """Of the pass, on the worker's clock in ms."""

    def in_time(self, at: int, slo_ms: float) -> bool:
        reply = self.replies[at]
        took_ms = (reply.queue_us + reply.run_us) / 1000
        return reply.code is ReplyCode.OK and took_ms <= slo_ms


def profiles(names: Sequence[str], file: Path | None) -> dict[str, dict[str, Any]]:
    """Points of each variant as (batch size, p50, p95), from the file if it has them."""
    if file is not None and file.exists():
        known: dict[str, dict[str, Any]] = json.loads(file.read_text())
        if set(names) <= known.keys() and all(Path(k["path"]).exists() for k in known.values()):
            return known
    work = file.parent if file is not None else Path(tempfile.mkdtemp(prefix="ml-"))
    found = {}
    for subject in digits(1, work):
        name = str(subject.spec.variant)
        if name in names:
            points = [s.point for _, s in sorted(profiled(subject).samples.items())]
            found[name] = {
                "path": subject.spec.path,
                "points": [(p.batch_size, p.p50_ms, p.p95_ms) for p in points],
            }
    if file is not None:
        file.write_text(json.dumps(found))
    return found


def subject(name: str, known: dict[str, Any]) -> Subject:
    """A variant as a worker is told of it."""
    points = known["points"]
    spec = replace(
        load_spec(name, Path(known["path"]), tensor("pixels", 64), tensor("scores", 10)),
        artifact=Digest(hashlib.sha256(Path(known["path"]).read_bytes()).hexdigest()),
        latency=tuple((int(rows), p95 * MEASURED_MARGIN) for rows, _, p95 in points),
        typical=tuple((int(rows), p50) for rows, p50, _ in points),
        memory_mib=50.0,
        load_s=0.5,
    )
    return Subject(spec, max(LEAST_SLO_MS, SLO_BATCHES * points[0][2]))


async def closed_loop_qps(connection: WorkerConnection, one: Subject, seconds: float) -> float:
    """Answers per second with ``IN_FLIGHT`` queries in flight."""
    until_s = perf_counter() + seconds
    answered = 0

    async def client() -> None:
        nonlocal answered
        while perf_counter() < until_s:
            reply = await ask(connection, one.spec, INPUT)
            answered += reply.code is ReplyCode.OK

    began_s = perf_counter()
    await asyncio.gather(*[client() for _ in range(IN_FLIGHT)])
    return answered / (perf_counter() - began_s)


def arrivals(rates_qps: Sequence[float], seconds: float, seed: int) -> list[tuple[float, int]]:
    """(second, which of the rates) of a Poisson process each, ascending."""
    draw = random.Random(seed)
    found = []
    for which, rate_qps in enumerate(rates_qps):
        at_s = draw.expovariate(rate_qps)
        while at_s < seconds:
            found.append((at_s, which))
            at_s += draw.expovariate(rate_qps)
    return sorted(found)


async def play(
    connection: WorkerConnection,
    subjects: Sequence[Subject],
    queries: Sequence[tuple[float, int]],
    *,
    deadlines: bool,
) -> Ended:
    """Send queries when they are due; those of the first subject are told of."""
    own: list[asyncio.Future[Reply]] = []
    loop = asyncio.get_running_loop()
    began_s = time.monotonic()
    for at_s, which in queries:
        wait_s = began_s + at_s - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        one = subjects[which]
        budget_us = int(one.slo_ms * 1000) if deadlines else NO_DEADLINE_US
        reply: asyncio.Future[Reply] = loop.create_future()
        connection.infer(one.id, 1, budget_us, INPUT, reply.set_result)
        if which == 0:
            own.append(reply)
    replies = await asyncio.gather(*own)
    await asyncio.sleep(0.2)  # the other variant's queries end, too
    return Ended(replies, began_s * 1000, time.monotonic() * 1000)


@dataclass(frozen=True, slots=True)
class Cell:
    """One line of the result."""

    name: str
    within: Ended
    without: Ended
    slo_ms: float

    def line(self, batches: Sequence[dict[str, Any]], variant: str) -> str:
        """Print what came of it, by the batches that the worker wrote down."""
        ended = self.within
        own = [b for b in batches if b["variant"] == variant]
        mine = [b for b in own if ended.began <= b.get("began_ms", 0.0) <= ended.ended]
        lost = sum(ended.began <= b.get("came_too_late_ms", 0.0) <= ended.ended for b in own)
        covered = sum(b["took_ms"] <= b["p95_ms"] for b in mine) / max(len(mine), 1)
        sharp = float(np.median([b["p95_ms"] / b["took_ms"] for b in mine])) if mine else 0.0
        total = len(ended.replies)
        all_ = max(total, 1)  # a slow variant may get none within a short pass
        refused = [at for at, r in enumerate(ended.replies) if r.code is ReplyCode.OVERLOADED]
        wrongly = sum(self.without.in_time(at, self.slo_ms) for at in refused)
        admitted = total - len(refused)
        late = sum(
            not ended.in_time(at, self.slo_ms)
            for at, r in enumerate(ended.replies)
            if r.code is not ReplyCode.OVERLOADED
        )
        alone = sum(not self.without.in_time(at, self.slo_ms) for at in range(total))
        return (
            f"| {self.name} | {total:,} | {len(mine):,} | {covered:.1%} | {sharp:.2f}"
            f" | {len(refused) / all_:.2%} | {wrongly / all_:.2%} | {lost / all_:.2%}"
            f" | {late / max(admitted, 1):.2%} | {alone / all_:.2%} |"
        )


async def measure(
    subjects: dict[str, Subject], seconds: float, loads: Sequence[float], log: Path
) -> list[tuple[Cell, str]]:
    """All cells with their variant, one after the other; ``log`` has the batches then."""
    folder = log.parent
    cells: list[tuple[Cell, str]] = []
    worker = config(folder, memory_mib=1_000.0)
    async with recorded(worker, log) as address:
        connection = await connect(address, worker)
        for one in subjects.values():
            await connection.load(one.spec, 60.0)
        for name, one in subjects.items():
            await closed_loop_qps(connection, one, 0.3)
            qps = one.capacity_qps or await closed_loop_qps(connection, one, 1.0)
            subjects[name] = replace(one, capacity_qps=qps)
            print(f"{name}: 100 % are {qps:,.0f}/s, SLO {one.slo_ms:.1f} ms", flush=True)
        other = subjects[BESIDE]
        for name in [name for name in subjects if name != BESIDE]:
            one = subjects[name]
            for load in loads:
                for beside in (False, True):
                    part = load / (1 + beside)
                    asked = [one, other][: 1 + beside]
                    rates = [part * each.capacity_qps for each in asked]
                    queries = arrivals(rates, seconds, seed=int(load * 100) + beside)
                    # What was learned without load is no good beside it: both passes warm up.
                    within = await play(connection, asked, queries, deadlines=True)
                    without = await play(connection, asked, queries, deadlines=False)
                    title = f"{name} | {load:.0%}{', beside' if beside else ''}"
                    cells.append((Cell(title, within, without, one.slo_ms), name))
        connection.close()
    return cells


@asynccontextmanager
async def recorded(worker: WorkerConfig, log: Path) -> AsyncIterator[str]:
    """A worker that writes its batches into ``log`` when it ends; its address."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.profiling.recorded_worker",
        json.dumps(asdict(worker)), str(log),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert child.stdout is not None
    try:
        yield (await asyncio.wait_for(child.stdout.readline(), 120.0)).decode().strip()
    finally:
        child.terminate()
        await asyncio.wait_for(child.wait(), 60.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each of two passes a line")
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS)
    parser.add_argument("--variants", nargs="+", default=VARIANTS)
    parser.add_argument("--slo-ms", type=float, nargs="+", help="one for each variant")
    parser.add_argument("--qps", type=float, nargs="+", help="what is taken for 100 %%, likewise")
    parser.add_argument("--profiles", type=Path, help="a file to keep profiles in")
    parser.add_argument("--log", type=Path, help="a file to keep the batches in")
    arguments = parser.parse_args()
    print(describe())
    names = [*arguments.variants, BESIDE]
    known = profiles(names, arguments.profiles)
    with tempfile.TemporaryDirectory(prefix="ml-") as folder, Others() as others:
        log = arguments.log or Path(folder) / "batches.jsonl"
        found = {name: subject(name, known[name]) for name in names}
        for name, slo_ms in zip(arguments.variants, arguments.slo_ms or (), strict=False):
            found[name] = replace(found[name], slo_ms=slo_ms)
        for name, qps in zip([*arguments.variants, BESIDE], arguments.qps or (), strict=False):
            found[name] = replace(found[name], capacity_qps=qps)
        cells = asyncio.run(measure(found, arguments.seconds, arguments.loads, log))
        batches = [json.loads(line) for line in log.read_text().splitlines()]
        print("\n" + HEAD + "\n|---|---|" + "--:|" * (HEAD.count("|") - 3))
        for cell, name in cells:
            print(cell.line(batches, name))
    if others.cores > IDLE_CORES:
        print(f"NOT IDLE: others used {others.cores:.1f} cores")


if __name__ == "__main__":
    main()
