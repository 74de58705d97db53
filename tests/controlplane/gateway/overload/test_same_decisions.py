"""Refusals that are given again change no decision."""

from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, cast

import numpy as np
import pytest

from controlplane.gateway.query.query_path import QueryPath
from planner.selection.routes import EMPTY
from planner.types import ANYBODY, Client
from tests.controlplane.gateway.overload.refused import body, inference
from tests.controlplane.gateway.overload.test_recent_refusals import LATENCY_MS, Path
from tests.planner.builders import (
    DIGITS,
    NOW_MS,
    catalog,
    key,
    profile,
    snapshot,
    task,
    variant,
    worker,
)
from variants.types import WorkerId
from workers.channel.reply import Reply
from workers.types import ReplyCode


class Queue:
    """A worker in virtual time: one query after the other, and no query late."""

    def __init__(self, run: "Run") -> None:
        self.run = run
        self.free_ms = 0.0

    def infer(self, *arguments: Any) -> None:
        left_ms, replied = arguments[2] / 1_000, arguments[4]
        due_ms = self.run.now_ms + left_ms
        self.run.later(0.15, lambda: self.arrive(due_ms, replied))

    def catch_up(self) -> None:
        """It answers by itself."""

    def arrive(self, due_ms: float, replied: Any) -> None:
        now_ms, service_ms = self.run.now_ms, self.run.service_ms
        done_ms = max(self.free_ms, now_ms) + service_ms
        if done_ms > due_ms - 0.15:
            self.reply(replied, ReplyCode.OVERLOADED)
            return
        self.free_ms = done_ms
        self.run.later(done_ms - now_ms, lambda: self.reply(replied, ReplyCode.OK))

    def reply(self, replied: Any, code: ReplyCode) -> None:
        backlog_us = int(1_000 * max(0.0, self.free_ms - self.run.now_ms))
        outputs = [np.zeros((1, 10), np.float32)] if code is ReplyCode.OK else []
        run_us = int(1_000 * self.run.service_ms)
        answer = Reply(code, 1, 0, run_us, backlog_us, "", outputs)
        self.run.later(0.15, lambda: replied(answer))


class Run:
    """Two kinds of clients ask the same as fast as each other; those of one cannot be told apart,
    each query of the others has an id of its own."""

    def __init__(self, service_ms: float, latency_ms: float, qps: float, workers: int) -> None:
        self.now_ms, self.service_ms = NOW_MS, service_ms
        self.due: list[tuple[float, int, Any]] = []
        self.number = count()
        self.answered = {"alike": 0, "apart": 0}
        self.asked = {"alike": 0, "apart": 0}
        self.clients = {"alike": ANYBODY, "apart": ANYBODY}
        self.priorities = {"alike": "", "apart": ""}
        self.times = {"alike": 1.0, "apart": 1.0}
        self.latency_ms, self.gap_ms = latency_ms, 2_000 / qps
        names = [WorkerId(f"w{at + 1}") for at in range(workers)]
        one = catalog([variant("a")], [profile("a", service_ms, max_batch=8)])
        self.path = QueryPath(loader=cast(Any, None), clock_ms=lambda: self.now_ms)
        self.path.update(
            snapshot=snapshot(one, *((worker(name), {key("a")}) for name in names)),
            routes=EMPTY,
            tasks={DIGITS: task()},
            connections=cast(Any, {name: Queue(self) for name in names}),
        )
        self.looks = 0
        look = self.path._expected_error

        def counted(*arguments: Any) -> Any:
            self.looks += 1
            return look(*arguments)

        self.path._expected_error = counted  # type: ignore[assignment]

    def later(self, wait_ms: float, what: Any) -> None:
        heappush(self.due, (self.now_ms + wait_ms, next(self.number), what))

    def ask(self, kind: str) -> None:
        tail = "" if kind == "alike" else f', "id": "{next(self.number)}"'
        tail += f', "parameters": {{"latency_slo_ms": {self.latency_ms}}}'
        tail = tail.replace("}", self.priorities[kind] + "}")
        row = "[" + " " * 1_000 + "0.25, " * 63 + "0.25]"

        def respond(status: int, _body: bytes, _headers: bytes) -> None:
            assert status in (200, 503)
            self.answered[kind] += status == 200

        body = inference(row, tail=tail).replace(b'"x"', b'"pixels"')
        self.asked[kind] += 1
        self.path.handle_v2(
            DIGITS, None, body, None, self.now_ms, respond, client=self.clients[kind]
        )

    def outcome(self, seconds: float) -> dict[str, int]:
        random = Random(1)
        end_ms = self.now_ms + 1_000 * seconds
        for kind in self.answered:
            at_ms = 0.0
            while at_ms < 1_000 * seconds:
                at_ms += random.expovariate(self.times[kind] / self.gap_ms)
                self.later(at_ms, partial(self.ask, kind))
        while self.due and self.due[0][0] < end_ms:
            self.now_ms, _, what = heappop(self.due)
            what()
        return self.answered


@pytest.mark.parametrize(
    ("service_ms", "latency_ms", "qps", "workers"),
    [(1.0, 40.0, 6_000.0, 1), (0.5, 40.0, 10_000.0, 1), (3.0, 100.0, 4_000.0, 2)],
)
async def test_who_asks_as_others_do_is_answered_as_often_as_who_does_not(
    service_ms: float, latency_ms: float, qps: float, workers: int
) -> None:
    """With a longer memory, those that cannot be told apart got a tenth of the room.

    Not to the query: while a refusal is given again, an answer may show that there is more room.
    """
    seconds = 0.4
    run = Run(service_ms, latency_ms, qps, workers)
    every = Run(service_ms, latency_ms, qps, workers)
    every.path.repeated.add = lambda *_: None  # type: ignore[method-assign]
    found, looked = run.outcome(seconds), every.outcome(seconds)
    assert found == pytest.approx(looked, abs=0.03 * sum(looked.values()))
    assert run.looks < 0.9 * every.looks
    assert sum(found.values()) > 0.8 * workers * seconds * 1_000 / service_ms


@pytest.mark.parametrize("memory", [True, False], ids=["remembered", "asked each time"])
@pytest.mark.parametrize("modest", ["alike", "apart"])
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.campaign)])
async def test_a_client_below_its_share_is_not_refused_because_one_above_was(
    memory: bool, modest: str, workers: int
) -> None:
    """One asks ten times as much as the other; here the workers know of neither."""
    heavy = "apart" if modest == "alike" else "alike"
    run = Run(1.0, 40.0, 600.0 * workers, workers)
    run.clients = {modest: Client("modest"), heavy: Client("heavy")}
    run.times = {modest: 1.0, heavy: 10.0}
    if not memory:
        run.path.repeated.add = lambda *_: None  # type: ignore[method-assign]
    found = run.outcome(4.0)
    assert found[modest] > 0.95 * run.asked[modest]
    assert found[heavy] < 0.5 * run.asked[heavy]
    assert sum(found.values()) > 0.8 * workers * 4_000.0


@pytest.mark.parametrize("memory", [True, False], ids=["remembered", "asked each time"])
async def test_a_higher_priority_is_not_refused_because_a_lower_one_was(memory: bool) -> None:
    run = Run(1.0, 40.0, 600.0, 1)
    run.priorities["apart"] = ', "priority": 1'
    run.times["alike"] = 5.0
    if not memory:
        run.path.repeated.add = lambda *_: None  # type: ignore[method-assign]
    found = run.outcome(4.0)
    assert found["apart"] > 0.9 * run.asked["apart"]
    assert sum(found.values()) > 0.8 * 4_000.0


async def test_what_one_client_was_refused_says_nothing_of_another() -> None:
    path = Path(ReplyCode.OVERLOADED)
    path.ask()
    path.ask()
    row = [[0.25] * 64]
    body_ = body(row, slo={"latency_ms": LATENCY_MS})
    for client in (Client("a"), Client("a"), Client("b")):
        path.path.handle_v1(body_, NOW_MS, path.answered, client=client)
    assert {outline[3:] for outline in path.path.repeated._kept} == {(), ("a",), ("b",)}
