"""What the gateway does for one query: calls of functions, which are as many on every machine."""

import gc
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any, cast

import numpy as np
import pytest

from controlplane.gateway.canaries.recent_answers import RecentAnswers
from controlplane.gateway.overload.repeated_refusals import outline_of
from controlplane.gateway.query.parsing import ParsedQuery, parse_v1
from controlplane.gateway.query.query_context import VAIN_LOOKS
from controlplane.gateway.query.query_errors import expired_error
from controlplane.gateway.query.query_path import QueryPath
from planner.selection.routes import EMPTY
from planner.types import ANYBODY, Choice, Query
from tests.planner.builders import NOW_MS, catalog, key, profile, snapshot, task, variant, worker
from variants.errors import Overloaded
from variants.types import TaskName, TensorSpec, WorkerId
from workers.channel.client import WorkerConnection
from workers.channel.reply import Reply
from workers.types import ReplyCode

WARM = 64
"""Queries before those that are counted: the first of a kind finds out more."""


class Worker:
    """A connection to a worker that says the same to every query, at once."""

    heard_s = 0.0

    def __init__(self, reply: Reply) -> None:
        self.reply = reply

    def infer(self, *asked: Any) -> None:
        replied: Callable[[Reply], None] = asked[4]
        replied(self.reply)

    def catch_up(self) -> None:
        """There is nothing that waits."""


class Asked:
    """A query path with one variant on one worker; its clock stands still."""

    def __init__(self, reply: Reply) -> None:
        self.statuses: Counter[int] = Counter()
        self.path = QueryPath(loader=cast(Any, None), clock_ms=lambda: NOW_MS)
        asked = replace(
            task(),
            inputs=(TensorSpec(name="x", dtype="float32", shape=(16,)),),
            outputs=(TensorSpec(name="y", dtype="float32", shape=(2,)),),
        )
        seen = snapshot(catalog([variant("a")], [profile("a")]), (worker("w1"), {key("a")}))
        self.path.update(
            snapshot=seen,
            routes=EMPTY,
            tasks={TaskName(asked.name): asked},
            connections={WorkerId("w1"): cast(WorkerConnection, Worker(reply))},
        )
        self.v1 = json.dumps({"task": asked.name, "inputs": [[0.5] * 16]}).encode()

    def ask(self) -> None:
        self.path.handle_v1(self.v1, NOW_MS, self.respond)

    def ask_in_bytes(self) -> None:
        """The same over the Open Inference Protocol, with its binary extension."""
        raw = np.full((1, 16), 0.5, np.float32).tobytes()
        tensor = {
            "name": "x", "datatype": "FP32", "shape": [1, 16],
            "parameters": {"binary_data_size": len(raw)},
        }  # fmt: skip
        head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        length = str(len(head)).encode()
        (name,) = self.path.tasks
        self.asked_in_bytes = partial(
            self.path.handle_v2, name, None, head + raw, length, NOW_MS, self.respond
        )
        self.asked_in_bytes()

    def respond(self, status: int, _body: bytes, _headers: bytes) -> None:
        self.statuses[status] += 1


def calls(do: Callable[[], None]) -> tuple[int, int]:
    """Calls of functions of Python, and of built-in ones."""
    found: Counter[str] = Counter()

    def count(_frame: FrameType, event: str, _: Any) -> None:
        found[event] += 1

    before, collected = sys.getprofile(), gc.isenabled()
    gc.disable()  # what it finalises meanwhile may be of any test
    sys.setprofile(count)
    try:
        do()
    finally:
        sys.setprofile(before)
        if collected:
            gc.enable()
    return found["call"], found["c_call"]


@pytest.fixture
async def answered() -> Asked:
    outputs = [np.ndarray((1, 2), np.float32, bytes(8))]
    return Asked(Reply(ReplyCode.OK, 1, 20, 10, 0, "", outputs))


async def test_an_answered_query_costs_so_many_calls(answered: Asked) -> None:
    for _ in range(WARM):
        answered.ask()
    python, builtin = calls(answered.ask)
    assert answered.statuses == {200: WARM + 1}
    assert python <= 59, f"{python} calls of Python's functions"
    assert builtin <= 53, f"{builtin} calls of built-in ones"


async def test_an_answer_in_the_place_of_an_older_one_costs_no_more(answered: Asked) -> None:
    """Most are, once as many were given as are remembered."""
    answered.path.answers = RecentAnswers(most=WARM // 2)
    for _ in range(WARM):
        answered.ask()
    python, builtin = calls(answered.ask)
    assert python <= 59, f"{python} calls of Python's functions"
    assert builtin <= 54, f"{builtin} calls of built-in ones"


async def test_one_in_bytes_costs_so_many(answered: Asked) -> None:
    for _ in range(WARM):
        answered.ask_in_bytes()
    python, builtin = calls(answered.asked_in_bytes)
    assert answered.statuses == {200: WARM + 1}
    assert python <= 79, f"{python} calls of Python's functions"
    assert builtin <= 90, f"{builtin} calls of built-in ones"


async def test_one_that_was_late_makes_few_of_the_next_ones_dearer(answered: Asked) -> None:
    """A stall of the machine must not make what is asked after it take half as long again."""
    path = answered.path
    late = expired_error(Query(TaskName("digits"), 1, NOW_MS, 20.0))
    for _ in range(WARM):
        answered.ask()
    ordinary = calls(answered.ask)
    path.fail(late, answered.respond)
    assert calls(answered.ask) > ordinary, "the next one is not looked at"
    for _ in range(VAIN_LOOKS):
        answered.ask()
    assert calls(answered.ask) <= ordinary
    for _ in range(4):  # while some are refused the others are looked at
        path.fail(late, answered.respond)
        for _ in range(VAIN_LOOKS - 1):
            answered.ask()
        assert path.under_pressure()


async def test_where_others_were_late_and_none_refused_workers_are_not_looked_at(
    answered: Asked,
) -> None:
    path, body = answered.path, answered.v1
    for _ in range(WARM):
        answered.ask()
    ordinary = calls(answered.ask)[0]
    for _ in range(2):  # with the first, what it asks for is known
        path.fail(expired_error(Query(TaskName("digits"), 1, NOW_MS, 20.0)), answered.respond)
        path.handle_v1(body, NOW_MS - 5_000.0, answered.respond)
    assert answered.statuses == {200: WARM + 1, 504: 4}
    late = calls(answered.ask)[0]
    assert late <= ordinary + 15, f"{late} calls of Python's functions"
    path.fail(Overloaded("no room"), answered.respond)
    assert calls(answered.ask)[0] > late
    assert answered.statuses == {200: WARM + 3, 503: 1, 504: 4}


@pytest.fixture
async def refused() -> Asked:
    """Its worker has just said that it has no room, and has work for 20 ms."""
    made = Asked(Reply(ReplyCode.OVERLOADED, 0, 0, 0, 20_000, "no room", []))
    made.ask()
    made.ask()
    return made


async def test_what_was_refused_a_moment_ago_is_refused_by_so_many_calls(refused: Asked) -> None:
    outline = outline_of(refused.v1)

    def ask_again() -> None:
        done = refused.path.refuse_at_once(outline, refused.respond, NOW_MS, 0.0, ANYBODY)
        assert done

    ask_again()
    python, builtin = calls(ask_again)
    assert refused.statuses == {503: 4}
    assert python <= 23, f"{python} calls of Python's functions"
    assert builtin <= 11, f"{builtin} calls of built-in ones"


def test_what_is_made_of_a_body_has_all_fields(answered: Asked) -> None:
    """They are made without their constructors, which would say what is missing."""
    path = answered.path
    parsed = parse_v1(answered.v1, path.tasks, NOW_MS, 7)
    assert parsed == ParsedQuery(parsed.task, parsed.query, parsed.tensors)
    asked = Query(parsed.task.name, 1, NOW_MS, parsed.task.slo.latency_ms, draw=7)
    assert parsed.query == asked
    chosen = path.choose(asked, NOW_MS)
    assert isinstance(chosen, Choice)
    assert len(chosen) == len(Choice._fields)
