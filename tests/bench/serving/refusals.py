"""What a refusal for want of time costs the gateway: after its body was read, and before.

Run with ``python -m tests.bench.serving.refusals`` from the repository's root; it takes a quarter
of a minute. One worker, which does nothing but refuse, so that its side costs nothing; processor
time of the query path, without HTTP and sockets, the lower quartile of 25 rounds.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from controlplane.gateway.query.query_path import QueryPath
from controlplane.gateway.query.v2.datatypes import V2_NAMES
from planner.selection.routes import EMPTY
from tests.bench.serving.reading import quartiles_us
from tests.planner.builders import NOW_MS, catalog, key, profile, snapshot, task, variant, worker
from variants.types import TaskName, TensorSpec, WorkerId
from workers.channel.client import WorkerConnection
from workers.channel.reply import Reply
from workers.types import ReplyCode

SHAPES = ((64,), (3, 32, 32), (3, 64, 64))
LONG_MS = 10_000.0
"""Forgets every refusal before."""


class Refusing:
    """A connection to a worker that refuses at once."""

    def infer(self, *arguments: Any) -> None:
        replied: Callable[[Reply], None] = arguments[4]
        replied(Reply(ReplyCode.OVERLOADED, 1, 0, 0, 0, "", []))

    def catch_up(self) -> None:
        """Nothing is on its way: it has replied at once."""


class Refused:
    """A query path that refuses a query of one image again and again."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.now_ms = NOW_MS
        spec = TensorSpec(name="x", dtype="float32", shape=shape)
        asked = replace(task(), inputs=(spec,))
        seen = snapshot(catalog([variant("a")], [profile("a")]), (worker("w1"), {key("a")}))
        self.path = QueryPath(loader=cast(Any, None), clock_ms=lambda: self.now_ms)
        self.path.update(
            snapshot=seen,
            routes=EMPTY,
            tasks={TaskName(asked.name): asked},
            connections={WorkerId("w1"): cast(WorkerConnection, Refusing())},
        )
        self.task = asked.name
        row = np.random.default_rng(0).random((1, *shape)).round(4)
        entry = {"name": "x", "datatype": V2_NAMES["float32"], "shape": [1, *shape]}
        v2 = {"inputs": [{**entry, "data": row.reshape(-1).tolist()}]}
        self.v1 = json.dumps({"task": self.task, "inputs": row.tolist()}).encode()
        self.v2 = json.dumps(v2).encode()

    def read(self, dialect: Callable[[], None]) -> Callable[[], None]:
        """The refusal of a query while no other was refused lately."""

        def refused() -> None:
            self.now_ms += LONG_MS
            dialect()

        return refused

    def ask_v1(self) -> None:
        self.path.handle_v1(self.v1, self.now_ms, _nobody)

    def ask_v2(self) -> None:
        self.path.handle_v2(self.task, None, self.v2, None, self.now_ms, _nobody)

    def ask_by_headers(self) -> None:
        slo = b'{"latency_ms": 30}'
        done = self.path.turn_away_by_headers(
            self.task, None, slo, self.now_ms, _nobody, None, self.now_ms
        )
        assert done


def _nobody(status: int, body: bytes, headers: bytes) -> None:
    assert status == 503


async def measure() -> None:
    print("| numbers | bytes | v1 read, µs | unread | v2 read, µs | unread | by headers |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for shape in SHAPES:
        one = Refused(shape)
        read_v1, unread_v1, read_v2, unread_v2 = quartiles_us(
            one.read(one.ask_v1), one.ask_v1, one.read(one.ask_v2), one.ask_v2
        )
        one.ask_v1()
        (headers,) = quartiles_us(one.ask_by_headers)
        print(
            f"| {np.prod(shape):,} | {len(one.v1):,} | {read_v1:.0f} | {unread_v1:.0f} |"
            f" {read_v2:.0f} | {unread_v2:.0f} | {headers:.0f} |"
        )


if __name__ == "__main__":
    asyncio.run(measure())
