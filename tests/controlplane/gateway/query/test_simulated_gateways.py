"""A simulated gateway knows of queues what the product's knows: the same queries and replies make
both take every worker to be busy for equally long."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import orjson

from controlplane.gateway.query.parsing import parse_v1
from controlplane.gateway.query.query_path import QueryPath
from planner.policies.several_gateways import Gateway
from planner.selection.routes import resolve
from planner.simulation.fleet import Worker
from planner.types import FormingBatch, Query, QueueNews, WorkerView
from tests.planner.builders import DIGITS, catalog, key, profile, snapshot, task, variant, worker
from variants.types import Prefer, Route, VariantName, WorkerId
from workers.channel.client import WorkerConnection
from workers.channel.reply import Reply
from workers.types import ReplyCode

NAMES = (WorkerId("w1"), WorkerId("w2"))
KNOWN = (
    "busy_until_ms", "own_until_ms", "others_ms", "silence_ms", "replied_ms", "replies", "given_ms"
)  # fmt: skip
LATENCY_MS = 500.0


class Holding:
    """A connection to a worker that replies when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[Reply], None]] = []

    def infer(self, *arguments: Any) -> None:
        self.waiting.append(arguments[4])


class BothGateways:
    """A query path and a simulated gateway, which hear the same."""

    def __init__(self) -> None:
        self.now_ms = 1_000.0
        kind = worker(NAMES[0]).device_kind
        self.views = [WorkerView(id=name, device_kind=kind) for name in NAMES]
        known = catalog([variant("a")], [profile("a", 8.0, max_batch=4)])
        seen = snapshot(known, *((view, {key("a")}) for view in self.views))
        self.connections = {name: Holding() for name in NAMES}
        self.answers: list[int] = []
        self.path = QueryPath(loader=cast(Any, None), clock_ms=lambda: self.now_ms)
        routes = [
            Route(
                task=DIGITS, latency_ms=LATENCY_MS, accuracy=None, variant=VariantName("a"),
                worker=name, batch_size=4, qps=100.0,
            )
            for name in NAMES
        ]  # fmt: skip
        self.path.update(
            snapshot=seen,
            routes=resolve(routes, seen, Prefer.COST),
            tasks={DIGITS: task()},
            connections=cast(dict[WorkerId, WorkerConnection], self.connections),
        )
        self.gateway = Gateway(Prefer.COST, shared=True)
        self.gateway.routes = self.path.routes
        self.backlog_ms = 0.0
        queue = SimpleNamespace(backlog_ms=lambda _: self.backlog_ms)
        self.workers = [
            cast(Worker, SimpleNamespace(id=view.id, view=replace(view), queue=queue))
            for view in self.views
        ]
        self.simulated = self.gateway.see(self.workers)
        self.gateway.before = snapshot(known, *((view, {key("a")}) for view in self.simulated))

    def ask(self, draw: int) -> None:
        before = {name: len(one.waiting) for name, one in self.connections.items()}
        body = {"task": DIGITS, "inputs": [[0.0] * 64], "slo": {"latency_ms": LATENCY_MS}}
        if self.now_ms >= self.gateway.others.due_ms:
            self.gateway.others.look(self.now_ms)
        parsed = parse_v1(orjson.dumps(body), self.path.tasks, self.now_ms, draw)
        self.path.start(parsed, lambda status, *_: self.answers.append(status))
        for name, one in self.connections.items():
            if len(one.waiting) > before[name]:
                (candidate,) = self.path.snapshot.tasks[DIGITS].by_cost
                query = Query(DIGITS, 1, self.now_ms, LATENCY_MS)
                self.gateway.sends(candidate, name, query, self.now_ms)

    def reply(self, index: int, backlog_us: int) -> None:
        waiting = self.connections[NAMES[index]].waiting
        if not waiting:
            return
        outputs = [np.zeros((1, 10), np.float32)]
        waiting.pop(0)(Reply(ReplyCode.OK, 1, 0, 0, backlog_us, "", outputs))
        self.backlog_ms = backlog_us / 1_000
        self.gateway.hears(self.workers[index], self.now_ms)

    def tell(self, index: int, rows: int, backlog_ms: float) -> None:
        """A worker tells of its queue, with a batch that forms there."""
        forming = [FormingBatch(DIGITS, VariantName("a"), rows, 4, backlog_ms / 2)]
        news = QueueNews(backlog_ms, forming)
        self.path.told(self.views[index], news)
        self.gateway.takes(self.workers[index], news, self.now_ms)

    def open(self) -> list[list[tuple[WorkerId, float, int, int]]]:
        """The open batches that each of them knows."""
        return [
            [
                (batch.worker.id, batch.starts_ms, batch.rows, batch.largest)
                for batch in congestion.batches.of(DIGITS, self.now_ms)
            ]
            for congestion in (self.path.congestion, self.gateway.congestion)
        ]


def _known(view: WorkerView) -> dict[str, float]:
    return {name: getattr(view, name) for name in KNOWN}


async def test_both_know_the_same_of_every_worker() -> None:
    both, random = BothGateways(), Random(3)
    sizes: set[int] = set()
    for _ in range(2_000):
        both.now_ms += random.choice((0.0, 0.4, 3.0, 30.0))
        what = random.random()
        if what < 0.45:
            both.ask(random.getrandbits(32))
        elif what < 0.9:
            both.reply(random.randrange(2), random.randrange(60_000))
        else:
            both.tell(random.randrange(2), random.randrange(5), 60 * random.random())
        assert [_known(view) for view in both.simulated] == [_known(view) for view in both.views]
        known, simulated = both.open()
        assert simulated == known
        sizes |= {rows for _, _, rows, _ in known}

    assert both.answers.count(200) > 400
    assert all(view.replies > 100 for view in both.views)
    assert any(view.others_ms > 0.0 for view in both.views)
    assert sizes == {1, 2, 3}
