"""The overload of ``tests.bench.serving.overload`` in virtual time: what the one core is used for.

``python -m tests.bench.fronts.overload_model`` plays gateway and worker on one core with the
product's own decisions (``QueryPath``, ``DeadlineQueue``, ``LiveCosts``) and costs that were
counted; what else the machine does is not in it. The core goes to whichever of three threads has
had least of it, in slices, as Linux has it: the event loop of the gateway, that of the worker, and
the thread that runs batches. Numbers are the same on every machine. For each load it says what
becomes of queries, how long the core did what, and what batches were like.
"""

import argparse
import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, NamedTuple, cast

import numpy as np

from controlplane.gateway.http.exchange import told_wait_ms
from controlplane.gateway.http.turn_clock import PACE_MS, TurnClock
from controlplane.gateway.overload.repeated_refusals import outline_of
from controlplane.gateway.query.query_path import QueryPath
from planner.batching.deadline_queue import DeadlineQueue
from planner.batching.live_costs import LiveCosts
from planner.batching.protocol import Verdict
from planner.batching.variant_queues import Item
from planner.latency_table import latency_table
from planner.live_model import LiveModel
from planner.selection.routes import EMPTY
from planner.types import ANYBODY, DEFAULT_PRIORITY, Choice, Query, Refusal
from tests.bench.fronts.virtual_core import Core, Loop, Steps, Thread
from tests.planner.builders import catalog, key, profile, snapshot, task, variant, worker
from variants.types import LatencyPoint, TaskName, TensorSpec, WorkerId
from workers.channel.client import WorkerConnection
from workers.channel.reply import Reply
from workers.types import ReplyCode

SLO_MS = 30.0
TICK_MS = 4.0
"""In which the kernel says when bytes came."""
AT_ONCE_MS, AGAIN_MS, LOOKED_MS, SENT_MS, REPLY_MS = 0.028, 0.04, 0.12, 0.19, 0.08
GIVEN_MS = 0.02
TURN_MS, SUBMIT_MS, REFUSE_MS, FINISH_MS = 0.015, 0.02, 0.06, 0.17
"""Processor time of a refusal at once, one in the ordinary way, one after a look at workers, a
query that is sent, a reply that is read and answered; of a refusal that was held; of a turn; of a
query at the worker, taken or refused, and of a batch's answers."""
ONE_MS, ROW_MS = 0.25, 2.0
"""Of a batch, and of each row in it."""
SIZES = (1, 2, 4, 8, 16)
CLIENT_MS = 0.45
"""From a client to the gateway's socket, and back."""
RETRYING = 32

SCORES = [np.full((1, 10), 0.1, np.float32)]


class Sent(NamedTuple):
    """A frame to the worker."""

    until_ms: float
    reply: Callable[[Reply], None]


class Job(Item):
    __slots__ = ("arrived_ms", "sent")

    def __init__(self, queue: Any, sent: Sent, arrived_ms: float) -> None:
        self.queue, self.sent, self.arrived_ms = queue, sent, arrived_ms
        self.deadline_ms = sent.until_ms
        self.rows, self.priority, self.client = 1, DEFAULT_PRIORITY, ANYBODY


@dataclass(slots=True)
class Counts:
    ends: Counter[str] = field(default_factory=Counter)
    """What became of queries."""
    ways: Counter[str] = field(default_factory=Counter)
    """How they were taken."""
    batches: list[int] = field(default_factory=list)
    """Rows of each."""


class Client:
    """Who asks, one query after the other."""

    told_ms = 0.0
    """When he was told to come back; 0 of one whose next query has nothing to do with the last."""

    def __init__(self, again_ms: Callable[[float], float] | None = None) -> None:
        """``again_ms``: how long after an answer he asks again, of how long he was told to wait;
        None: he does not."""
        self.again_ms = again_ms


class Model:
    """Clients, a gateway and a worker."""

    def __init__(self, seed: int) -> None:
        self.core = core = Core()
        self.random = Random(seed)
        self.counts = Counts()
        self.arrived: list[tuple[float, Client]] = []
        """When queries came to the gateway's socket, and whose."""
        self.outbox: list[Sent] = []
        self.frames: list[Sent] = []
        """In the worker's socket."""
        self.replies: list[tuple[Sent, Reply]] = []
        """In the gateway's."""
        self.done: list[tuple[list[Job], float, float]] = []
        """Batches that ran, when they began and what they took."""
        self.batch: list[Job] | None = None
        self.clock = lambda: core.now_ms
        self.loop = Loop(core, lambda: core.wake(self.gateway))
        self.turn = TurnClock(self.clock)
        self.turn._loop = cast(Any, self.loop)
        self._make_path()
        self.queue = DeadlineQueue()
        points = tuple((rows, ONE_MS + ROW_MS * rows) for rows in SIZES)
        table = latency_table(points)
        self.costs = LiveCosts(self.queue)
        self.variant = self.queue.add_variant(str(self.task.name), table)
        self.learned = LiveModel(table, table)
        self.gateway = Thread("gateway", self._gateway())
        self.worker = Thread("worker", self._worker())
        self.runtime = Thread("batches", self._runtime())
        core.threads += [self.gateway, self.worker, self.runtime]

    def _make_path(self) -> None:
        self.path = QueryPath(loader=cast(Any, None), clock_ms=self.clock)
        spec = TensorSpec(name="x", dtype="float32", shape=(64,))
        self.task = replace(task(), inputs=(spec,))
        points = tuple(
            LatencyPoint(batch_size=rows, p50_ms=ms, p95_ms=ms, p99_ms=ms)
            for rows, ms in ((rows, ONE_MS + ROW_MS * rows) for rows in SIZES)
        )
        seen = snapshot(
            catalog([variant("a")], [replace(profile("a"), points=points)]),
            (worker("w1"), {key("a")}),
        )
        self.path.update(
            snapshot=seen,
            routes=EMPTY,
            tasks={TaskName(self.task.name): self.task},
            connections={WorkerId("w1"): cast(WorkerConnection, self)},
        )
        row = "0.5, " * 63 + "0.5"
        slo = f'"slo": {{"latency_ms": {SLO_MS}}}'
        self.body = f'{{"task": "{self.task.name}", "inputs": [[{row}]], {slo}}}'.encode()
        self.outline = outline_of(self.body)
        self.chosen = 0
        choose = self.path.choose

        def counted(query: Query, now_ms: float) -> Choice | Refusal:
            self.chosen += 1
            return choose(query, now_ms)

        self.path.choose = counted  # type: ignore[method-assign]

    # -- as WorkerConnection ----------------------------------------------------------------------

    heard_s = float("inf")

    def infer(self, *asked: Any) -> None:
        self.outbox.append(Sent(self.core.now_ms + asked[2] / 1_000, asked[4]))

    def catch_up(self) -> None:
        """Nothing: ``_gateway`` paces its turns itself."""

    # -- the gateway ------------------------------------------------------------------------------

    def _gateway(self) -> Steps:
        core = self.core
        while True:
            if not (self.arrived or self.replies or self.loop.due):
                yield None
                continue
            while self.loop.due:
                self.loop.due.popleft()()
                yield GIVEN_MS
            taken, self.arrived = self.arrived, []
            self.random.shuffle(taken)  # as the kernel lists connections
            self.turn.arrived_ms()
            paced_ms = core.now_ms
            yield from self._hear()
            for came_ms, client in taken:
                yield self._read(came_ms, client)
                if core.now_ms - paced_ms >= PACE_MS:
                    paced_ms = core.now_ms
                    self._flush()
                    yield from self._hear()
            self._flush()
            soon, self.loop.soon = self.loop.soon, []
            for call in soon:
                call()
            yield TURN_MS

    def _hear(self) -> Steps:
        replies, self.replies = self.replies, []
        for sent, reply in replies:
            sent.reply(reply)
            yield REPLY_MS

    def _flush(self) -> None:
        if self.outbox:
            self.frames += self.outbox
            self.outbox = []
            self.core.wake(self.worker)

    def _read(self, came_ms: float, client: Client) -> float:
        """Look at a query; what that takes."""
        path, turn, core = self.path, self.turn, self.core
        arrived_ms = turn.arrived_ms()
        told_ms = client.told_ms if client.told_ms > arrived_ms else 0.0

        def respond(status: int, _body: bytes, headers: bytes) -> None:
            self._answered(came_ms, client, status, told_wait_ms(status, headers))

        def lain_ms() -> float:
            ticks = core.now_ms // TICK_MS - came_ms // TICK_MS
            return turn.lain_ms(ticks * TICK_MS)

        chosen, sent = self.chosen, len(self.outbox)
        if path.under_pressure() and path.refuse_at_once(
            self.outline, respond, arrived_ms, told_ms, ANYBODY, lain_ms
        ):
            way, takes_ms = "at once", AT_ONCE_MS
        else:
            path.handle_v1(self.body, arrived_ms, respond, told_ms=told_ms, lain_ms=lain_ms)
            way, takes_ms = "ordinary", AGAIN_MS
            if len(self.outbox) > sent:
                way, takes_ms = "sent", SENT_MS
            elif self.chosen > chosen:
                way, takes_ms = "looked", LOOKED_MS
        self.counts.ways[way] += 1
        return takes_ms

    def _answered(self, came_ms: float, client: Client, status: int, wait_ms: float) -> None:
        now_ms = self.core.now_ms
        in_time = now_ms - came_ms + 2 * CLIENT_MS <= SLO_MS
        ended = ("in time" if in_time else "late") if status == 200 else "refused"
        self.counts.ends[ended] += 1
        if client.again_ms is not None:
            client.told_ms = now_ms + wait_ms if wait_ms else 0.0
            self.core.at(
                now_ms + 2 * CLIENT_MS + client.again_ms(wait_ms), partial(self.ask, client)
            )

    # -- the worker -------------------------------------------------------------------------------

    def _worker(self) -> Steps:
        kept_waiting = False
        while True:
            if not self.frames and not self.done:
                yield None
                continue
            for jobs, began_ms, took_ms in self.done:
                kept_waiting = yield from self._finish(jobs, began_ms, took_ms, kept_waiting)
            self.done.clear()
            frames, self.frames = self.frames, []
            for sent in frames:
                yield self._submit(sent)
            if self.batch is None:
                self._step()

    def _finish(
        self, jobs: list[Job], began_ms: float, took_ms: float, kept_waiting: bool
    ) -> Generator[float, None, bool]:
        now_ms = self.core.now_ms
        self.batch = None
        self.queue.finished(self.variant, now_ms, took_ms)
        waiting = self.queue.count > 0
        backlog_us = int(1_000 * self.queue.backlog_ms(now_ms))
        yield FINISH_MS / 2
        for job in jobs:
            queue_us = int(1_000 * (began_ms - job.arrived_ms))
            self._reply(
                job.sent,
                Reply(
                    ReplyCode.OK, len(jobs), queue_us, int(1_000 * took_ms), backlog_us, "", SCORES
                ),
            )
        late = sum(job.deadline_ms < now_ms for job in jobs)
        self.costs.ran(
            self.variant, self.learned, len(jobs), began_ms, took_ms,
            kept_waiting=kept_waiting, queries=len(jobs), late=late,
        )  # fmt: skip
        yield FINISH_MS / 2
        return waiting

    def _submit(self, sent: Sent) -> float:
        now_ms = self.core.now_ms
        job = Job(self.variant, sent, now_ms)
        verdict = self.queue.admit(job, now_ms)
        if verdict is Verdict.ADMITTED:
            return SUBMIT_MS
        self.counts.ways["refused by the worker"] += 1
        backlog_us = int(1_000 * self.queue.backlog_ms(now_ms))
        self._reply(sent, Reply(ReplyCode.OVERLOADED, 0, 0, 0, backlog_us, verdict.value, []))
        return REFUSE_MS

    def _step(self) -> None:
        now_ms = self.core.now_ms
        expired = self.queue.pop_expired(now_ms)
        self.costs.gave_up(len(expired))
        for item in expired:
            backlog_us = int(1_000 * self.queue.backlog_ms(now_ms))
            self._reply(cast(Job, item).sent, Reply(ReplyCode.EXPIRED, 0, 0, 0, backlog_us, "", []))
        batch = self.queue.next_batch(now_ms)
        if batch is not None:
            self.batch = cast(list[Job], batch.items)
            self.core.wake(self.runtime)

    def _runtime(self) -> Steps:
        while True:
            if self.batch is None or self.done:
                yield None
                continue
            jobs, began_ms = self.batch, self.core.now_ms
            yield (ONE_MS + ROW_MS * len(jobs)) * self.random.lognormvariate(0.0, 0.05)
            self.counts.batches.append(len(jobs))
            self.done.append((jobs, began_ms, self.core.now_ms - began_ms))
            self.core.wake(self.worker)
            yield None

    def _reply(self, sent: Sent, reply: Reply) -> None:
        self.replies.append((sent, reply))
        self.core.wake(self.gateway)

    # -- clients ----------------------------------------------------------------------------------

    def ask(self, client: Client) -> None:
        """A query reaches the gateway's socket."""
        self.arrived.append((self.core.now_ms, client))
        self.core.wake(self.gateway)

    def poisson(self, qps: float, until_ms: float) -> None:
        """Have others ask so often, whatever becomes of it."""
        at_ms, client = self.core.now_ms, Client()
        while at_ms < until_ms:
            at_ms += 1_000 * self.random.expovariate(qps)
            self.core.at(at_ms, partial(self.ask, client))

    def closed(self, clients: int, again_ms: Callable[[float], float]) -> None:
        """Have so many clients ask, each as soon as he was answered and has waited."""
        for _ in range(clients):
            self.ask(Client(again_ms))


class Load(NamedTuple):
    name: str
    begin: Callable[[Model, float], None]
    """Given until when it lasts."""


async def play(load: Load, seconds: float, seed: int) -> Model:
    made = Model(seed)
    warm_ms = made.core.now_ms + 1_000.0
    until_ms = warm_ms + 1_000 * seconds
    running = asyncio.get_running_loop()
    asyncio.events._set_running_loop(cast(Any, made.loop))
    try:
        load.begin(made, until_ms)
        made.core.run(warm_ms)
        made.counts = Counts()
        for thread in made.core.threads:
            thread.total_ms = 0.0
        made.core.run(until_ms)
    finally:
        asyncio.events._set_running_loop(running)
    return made


def loads(capacity: float, times: Iterable[float]) -> Iterator[Load]:
    def poisson(qps: float, made: Model, until_ms: float) -> None:
        made.poisson(qps, until_ms)

    for each in times:
        yield Load(f"{each:g} times the capacity", partial(poisson, each * capacity))
    yield Load(
        f"{RETRYING} that retry at once", lambda made, _: made.closed(RETRYING, lambda _: 0.0)
    )
    yield Load(f"{RETRYING} that wait as told", lambda made, _: made.closed(RETRYING, float))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fronts.overload_model")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--times", default="0.9,1.5,2,3,5,10", metavar="X,...")
    parser.add_argument("--capacity", type=float, default=400.0, help="queries per second")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    print(
        "| per second | in time | late for the client | refused | at once | in the ordinary way |",
        end="",
    )
    print(" after a look | sent | refused by the worker | rows in a batch | gateway's share |")
    print("|---" + "|--:" * 10 + "|")
    for load in loads(given.capacity, map(float, given.times.split(","))):
        ends: Counter[str] = Counter()
        ways: Counter[str] = Counter()
        batches: list[int] = []
        gateway_ms = 0.0
        for seed in range(given.seeds):
            made = asyncio.run(play(load, given.seconds, seed))
            ends += made.counts.ends
            ways += made.counts.ways
            batches += made.counts.batches
            gateway_ms += made.gateway.total_ms
        seconds = given.seconds * given.seeds
        counts = [ends[each] for each in ("in time", "late", "refused")]
        counts += [
            ways[each]
            for each in ("at once", "ordinary", "looked", "sent", "refused by the worker")
        ]
        cells = [f"{each / seconds:.0f}" for each in counts]
        cells += [f"{sum(batches) / max(1, len(batches)):.1f}", f"{gateway_ms / 1e3 / seconds:.2f}"]
        print(f"| {load.name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
