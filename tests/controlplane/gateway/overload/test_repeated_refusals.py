"""Repeated refusals: whom a refusal of a moment ago is given again, and that it reads the same."""

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import ceil, inf
from random import Random
from typing import Any, cast

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.gateway.overload.repeated_refusals import (
    LONGEST_MS,
    MOST,
    Holds,
    RepeatedRefusals,
    brackets_in,
    outline_of,
    outline_of_headers,
    outline_of_inference,
    wording,
)
from controlplane.gateway.query.early_refusals import LAG_PART
from controlplane.gateway.query.query_errors import expired_error
from controlplane.gateway.query.query_path import QueryPath
from controlplane.gateway.query.skimming import skim_v1, skim_v2
from controlplane.http_errors import error_body, error_headers, status_of
from planner.selection.refusal import crowded, shed
from planner.selection.routes import EMPTY
from planner.types import ANYBODY, Client, Query
from tests.controlplane.gateway.overload.test_recent_refusals import LATENCY_MS, ONE, Path
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
from variants.errors import DeadlineExceeded, Overloaded
from variants.types import WorkerId
from workers.channel.reply import Reply
from workers.types import ReplyCode

QUERY = Query(DIGITS, 1, NOW_MS, 40.0)
OUTLINE = (b'{"task": "digits", "inputs": ', b"]}", 2)
BY = (WorkerId("w1"),)
ALWAYS = Holds(inf, inf, BY)
FULL = Overloaded('every variant that meets the SLO ("so") has too long a queue')
LATE = DeadlineExceeded("not answered within 40 ms")
ROW = [[0.25] * 64]


def body(inputs: Any = ROW, **fields: Any) -> bytes:
    text = orjson.dumps({"task": DIGITS, "inputs": inputs, **fields})
    return text.replace(b"[", b"[" + b" " * 2_000, 1)


# -- which bodies are the same ------------------------------------------------------------------


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 200), st.booleans())
def test_brackets_are_counted(noise: bytes, begin: int, end: int, changing: bool) -> None:
    body = noise.replace(b"a", b"[") + b"[" * (len(noise) % 20)
    begin, end = sorted((min(begin, len(body)), min(end, len(body))))
    counted = brackets_in(bytearray(body) if changing else body, begin, end)
    assert counted == body.count(b"[", begin, end)


def test_bodies_that_differ_in_their_numbers_have_one_outline() -> None:
    same = {outline_of(body([[float(n)] * 64], slo={"latency_ms": 9})) for n in range(5)}
    assert len(same) == 1
    assert None not in same


@pytest.mark.parametrize(
    "other",
    [
        body(slo={"latency_ms": 10}),
        body([[0.25] * 64] * 2, slo={"latency_ms": 9}),
        body(slo={"latency_ms": 9}, variant="a"),
        body(slo={"latency_ms": 9}, task="letters"),
    ],
)
def test_what_asks_for_something_else_has_another_outline(other: bytes) -> None:
    assert outline_of(other) != outline_of(body(slo={"latency_ms": 9}))


@pytest.mark.parametrize(
    "unusual",
    [
        b"{}",
        b"[" * 3_000,
        b"]" * 2_000 + b"[" * 2_000,
        body([{"a": 1}]),
        body([["1"] * 64]),
        b'{"inputs": [' + b"1," * 2_000 + b"1]}",  # a row for each number, if they are scalars
        b" " * 5_000 + body(),
        body() + b" " * 5_000,
    ],
)
def test_what_is_unusual_has_no_outline(unusual: bytes) -> None:
    assert outline_of(unusual) is None


@given(
    first=st.lists(st.lists(st.integers(0, 9), min_size=64, max_size=64), min_size=1, max_size=3),
    second=st.lists(st.lists(st.integers(0, 9), min_size=64, max_size=64), min_size=1, max_size=3),
    latencies=st.tuples(st.sampled_from([5, 50]), st.sampled_from([5, 50])),
    spaced=st.booleans(),
)
def test_with_one_outline_the_same_is_asked_for(
    first: list[list[int]], second: list[list[int]], latencies: tuple[int, int], spaced: bool
) -> None:
    bodies = [
        body(rows, slo={"latency_ms": ms})
        for rows, ms in zip((first, second), latencies, strict=True)
    ]
    if spaced:
        bodies[1] = bodies[1].replace(b",", b" , ")
    asked = [skim_v1(one, {DIGITS: task()}, NOW_MS, 0) for one in bodies]
    if outline_of(bodies[0]) == outline_of(bodies[1]) is not None:
        assert asked[0] == asked[1]
    if not spaced:
        same = (len(first), latencies[0]) == (len(second), latencies[1])
        assert (outline_of(bodies[0]) == outline_of(bodies[1])) == same


def test_tensors_behind_json_have_one_outline_if_json_and_length_are_the_same() -> None:
    made = b'{"inputs": []}'

    def outline(data: bytes, task: str = "a", pinned: str | None = None) -> object:
        return outline_of_inference(task, pinned, data, str(len(made)).encode())

    assert outline(made + b"1234") == outline(made + b"5678") is not None
    assert outline(made + b"12345678") != outline(made + b"5678")
    assert outline(made + b"1234", "b") != outline(made + b"1234")
    assert outline(made + b"1234", "a", "v") != outline(made + b"1234")
    for wrong in (None, b"", b"x", b"0", b"-1", b"4000", b"99999"):
        assert outline_of_inference("a", None, made + b"1234", wrong) is None


def inference(data: str, *, shape: str = "[1, 64]", more: str = "", tail: str = "") -> bytes:
    one = f'{{"name": "x", "shape": {shape}, "datatype": "FP32"{more}, "data": {data}}}'
    return f'{{"inputs": [{one}]{tail}}}'.encode()


def test_json_of_v2_has_one_outline_if_all_around_the_numbers_is_the_same() -> None:
    def outline(body: bytes, task: str = "a") -> object:
        return outline_of_inference(task, None, body, None)

    numbers = "[" + "0.25, " * 400 + "1]"
    first = outline(inference(numbers))
    assert first is not None
    assert first == outline(inference("[" + "0.5," * 500 + "2]"))
    assert first == outline(inference(f"[{numbers}]"))
    for other in (
        outline(inference(numbers, shape="[2, 32]")),
        outline(inference(numbers, tail=', "parameters": {"priority": 3}')),
        outline(inference(numbers), "b"),
    ):
        assert other is not None
        assert other != first
    assert outline(inference("[0.5]")) == outline(inference("[1]")) is not None  # a short one, too
    for unusual in (
        inference("[" + '"a", ' * 400 + "1]"),
        inference(numbers, more=', "data": [1], "parameters": {"a": 1}'),
        inference(numbers).replace(b'"data"', b'"dat"'),
        inference(numbers) + b" " * 5_000,
        inference(numbers)[:-5].replace(b"}", b""),
    ):
        assert outline(unusual) is None


@settings(max_examples=25)
@given(
    numbers=st.tuples(
        st.lists(st.integers(0, 9), min_size=600, max_size=640),
        st.lists(st.integers(0, 9), min_size=600, max_size=640),
    ),
    rows=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    tails=st.tuples(
        *[st.sampled_from(["", ', "id": "7"', ', "parameters": {"latency_ms": 9}'])] * 2
    ),
    first=st.booleans(),
)
def test_with_one_outline_of_v2_the_same_is_asked_for(
    numbers: tuple[list[int], list[int]],
    rows: tuple[int, int],
    tails: tuple[str, str],
    first: bool,
) -> None:
    bodies = [
        inference(str(each), shape=f"[{count}, 64]", tail=tail)
        for each, count, tail in zip(numbers, rows, tails, strict=True)
    ]
    if first:  # the shape behind the numbers
        bodies[0] = (
            bodies[0].replace(b'"shape": [1, 64], ', b"").replace(b"}]", b', "shape": [1, 64]}]', 1)
        )
    outlines = [outline_of_inference(DIGITS, None, one, None) for one in bodies]
    asked = [skim_v2(one, DIGITS, None, {DIGITS: task()}, NOW_MS, 0) for one in bodies]
    if outlines[0] == outlines[1] is not None:
        assert asked[0] == asked[1]
    if not first:
        assert (outlines[0] == outlines[1]) == (rows[0] == rows[1] and tails[0] == tails[1])


def test_what_headers_say_has_an_outline_of_its_own() -> None:
    outlines = [
        outline_of_headers("a", None, None),
        outline_of_headers("a", None, b""),
        outline_of_headers("a", "v", None),
        outline_of_headers("b", None, b'{"latency_ms":9}'),
    ]
    assert len(set(outlines)) == 4
    assert outline_of_headers("a", None, b"x" * 5_000) is None


# -- how it is written ----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [FULL, LATE], ids=["overloaded", "late"])
@pytest.mark.parametrize("wait_s", [0.0051, 0.25, 1.5])
def test_it_reads_as_if_it_had_been_made_anew(error: Any, wait_s: float) -> None:
    worded = wording(error)
    error = type(error)(error.message)
    if worded.waits:
        error.retry_after_s = wait_s
    body, headers = worded.written(b"abc", wait_s)
    assert orjson.loads(body) == error_body(error, "abc")
    assert (worded.code, worded.status) == (error.code, status_of(error))
    lines = headers.decode().split("\r\n")
    told = {"x-request-id": "abc", **{k.lower(): v for k, v in error_headers(error).items()}}
    assert lines.pop() == ""
    assert dict(line.split(": ") for line in lines) == told


# -- for how long, and for whom -------------------------------------------------------------------


def test_it_is_given_again_for_a_moment_and_to_the_late_for_longer() -> None:
    kept = RepeatedRefusals(expired_error)
    kept.add(OUTLINE, QUERY, FULL, ALWAYS, NOW_MS)
    found = kept.find(OUTLINE)
    assert found is not None
    soon_ms, later_ms = NOW_MS + 19.9, NOW_MS + 20.1
    assert LONGEST_MS == 20.0 == 0.5 * QUERY.latency_ms
    assert kept.again(found, soon_ms, soon_ms) == wording(FULL)
    assert kept.again(found, later_ms, later_ms) is None
    assert kept.again(found, soon_ms - 40.0, soon_ms) == wording(LATE)
    assert kept.again(found, later_ms - 40.0, later_ms) == wording(LATE)
    kept.forget()
    assert kept.find(OUTLINE) is None


def test_who_had_too_little_time_left_says_nothing_of_the_next() -> None:
    kept = RepeatedRefusals(expired_error)
    kept.add(OUTLINE, QUERY, FULL, ALWAYS, NOW_MS)
    kept.add(OUTLINE, QUERY, LATE, ALWAYS, NOW_MS)
    found = kept.find(OUTLINE)
    assert found is not None
    assert kept.again(found, NOW_MS, NOW_MS) == wording(FULL)
    kept.outdate()
    assert kept.again(found, NOW_MS, NOW_MS) is None
    assert kept.again(found, NOW_MS - QUERY.latency_ms, NOW_MS) == wording(LATE)


def test_a_short_deadline_is_looked_at_anew_sooner() -> None:
    kept = RepeatedRefusals(expired_error)
    kept.add(OUTLINE, QUERY._replace(latency_ms=4.0), FULL, ALWAYS, NOW_MS)
    found = kept.find(OUTLINE)
    assert found is not None
    assert kept.again(found, NOW_MS, NOW_MS + 1.9) is not None
    assert kept.again(found, NOW_MS, NOW_MS + 2.1) is None


def test_who_takes_a_late_answer_is_not_refused_for_others() -> None:
    kept = RepeatedRefusals(expired_error)
    kept.add(OUTLINE, QUERY._replace(best_effort=True), FULL, ALWAYS, NOW_MS)
    assert kept.find(OUTLINE) is None


def test_it_is_bounded() -> None:
    kept = RepeatedRefusals(expired_error)
    for at in range(MOST + 10):
        kept.add((b"%d" % at, b"", 0), QUERY, FULL, ALWAYS, NOW_MS)
        assert len(kept) <= MOST


async def test_it_is_what_the_first_was_told_and_counts_like_it() -> None:
    path = Path(ReplyCode.OVERLOADED)
    windows = []
    for number in range(6):
        path.ask([[number / 8] * 64])
        windows.append(path.path.congestion.at(NOW_MS))
    assert path.asked == 1
    assert path.answers == [path.answers[0]] * 6
    assert path.path.take_demand() == {(DIGITS, LATENCY_MS, None, None): 6}
    assert path.path.counters.task(DIGITS).errors == {"OVERLOADED": 6}
    assert windows == sorted(windows, reverse=True)
    assert len(set(windows)) == 6
    assert all(wait_s is not None and ceil(wait_s) > 0 for wait_s in path.waits_s)


async def test_a_gateway_that_is_behind_does_not_look_again() -> None:
    path = Path(ReplyCode.OVERLOADED)
    path.ask()
    path.ask()
    (outline,) = path.path.repeated._kept
    ask = partial(path.path.refuse_at_once, outline, path.answered, told_ms=0.0, client=ANYBODY)
    assert ask(path.now_ms)
    path.path.repeated.outdate()
    lag_ms = LAG_PART * LATENCY_MS
    assert not ask(path.now_ms - 0.9 * lag_ms)
    assert ask(path.now_ms - 1.1 * lag_ms)
    path.now_ms += LATENCY_MS + LONGEST_MS  # that was long ago
    assert not ask(path.now_ms - 1.1 * lag_ms)
    assert path.path.counters.task(DIGITS).errors == {"OVERLOADED": 4}
    assert path.path.take_demand() == {(DIGITS, LATENCY_MS, None, None): 4}


async def test_an_answer_that_is_to_be_held_is_not_given_at_once() -> None:
    path = Path(ReplyCode.OVERLOADED)
    path.ask()
    path.ask()
    (outline,) = path.path.repeated._kept
    ask = path.path.refuse_at_once
    assert not ask(outline, path.answered, NOW_MS, NOW_MS + 30.0, ANYBODY)
    assert ask(outline, path.answered, NOW_MS, NOW_MS - 1.0, ANYBODY)
    assert not ask(None, path.answered, NOW_MS, 0.0, ANYBODY)
    assert path.answers == [path.answers[0]] * 3


async def test_without_a_choice_among_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(ReplyCode.OVERLOADED)
    path.ask()
    path.ask()
    monkeypatch.setattr(path.path, "choose", None)
    monkeypatch.setattr("controlplane.gateway.query.query_path.skim_v1", None)
    path.ask()
    assert path.answers[2] == path.answers[1]


async def test_where_others_might_take_it_every_query_has_its_own_choice() -> None:
    """Two of three workers were drawn and refused: the next query may draw the third."""
    path = Path(*[ReplyCode.OVERLOADED] * 3)
    for _ in range(20):
        path.ask()
    assert path.asked >= 3
    (kept,) = path.path.repeated._kept.values()
    assert path.path.repeated.again(kept, NOW_MS, NOW_MS) is None


class Looking(Path):
    """Counts choices; its workers have work for as long as ``later`` says."""

    def __init__(self, *codes: ReplyCode, variants: Sequence[str] = ("a",)) -> None:
        super().__init__(*codes)
        one = catalog([*map(variant, variants)], [*map(profile, variants)])
        held = {key(name) for name in variants}
        self.path.update(
            snapshot=snapshot(one, *((worker(name), held) for name in self.workers)),
            routes=EMPTY,
            tasks=self.path.tasks,
            connections=self.path.connections,
        )
        self.looks = 0
        choose = self.path.choose

        def counted(query: Query, now_ms: float) -> Any:
            self.looks += 1
            return choose(query, now_ms)

        self.path.choose = counted  # type: ignore[method-assign]

    def later(self, ms: float, busy_ms: float = 10_000.0) -> int:
        """Ask so long after the last one; how many choices that took."""
        self.now_ms += ms
        for one in self.path.snapshot.workers.values():
            one.busy_until_ms = self.now_ms + busy_ms
        before = self.looks
        self.ask()
        return self.looks - before


@pytest.mark.parametrize("workers", [1, 2])
async def test_what_its_only_workers_would_say_again_needs_no_choice(workers: int) -> None:
    path = Looking(*[ReplyCode.OVERLOADED] * workers)
    path.ask()
    assert path.later(0.0) > 0
    windows = [path.path.congestion.at(NOW_MS)]
    for _ in range(3):
        assert path.later(5.1) == 0
        windows.append(path.path.congestion.at(NOW_MS))
    assert path.later(5.1) > 0  # after ``LONGEST_MS`` what else decides is looked at
    assert path.asked == workers
    assert path.answers == [path.answers[0]] * 6
    assert path.path.take_demand() == {(DIGITS, LATENCY_MS, None, None): 6}
    assert windows == sorted(windows, reverse=True)
    assert len(set(windows)) == 4
    assert path.later(12.0, busy_ms=0.0) > 0  # it is quicker than it expected
    assert path.asked > workers


@pytest.mark.parametrize(
    "path",
    [
        lambda: Looking(ReplyCode.OVERLOADED, variants=("a", "b")),
        lambda: Looking(*[ReplyCode.OVERLOADED] * 3),
    ],
    ids=["variants", "workers"],
)
async def test_where_something_else_may_be_chosen_it_is_looked_at_again(
    path: Callable[[], Looking],
) -> None:
    made = path()
    made.ask()
    made.later(0.0)
    assert made.later(15.1) > 0


async def test_it_reads_otherwise_where_others_come_first_by_now() -> None:
    path = Looking(ReplyCode.OVERLOADED)
    path.ask()
    path.later(0.0)
    path.path.lately.add(DIGITS, (False, False, 1), path.now_ms)
    assert path.later(12.0) > 0


def test_it_is_given_for_no_longer_than_its_reason_holds() -> None:
    kept = RepeatedRefusals(expired_error)
    kept.add(OUTLINE, QUERY, FULL, Holds(NOW_MS + 0.5, inf, BY), NOW_MS)
    found = kept.find(OUTLINE)
    assert found is not None
    assert kept.again(found, NOW_MS, NOW_MS + 0.4) is not None
    assert kept.again(found, NOW_MS, NOW_MS + 0.6) is None
    kept.add(OUTLINE, QUERY, FULL, Holds(NOW_MS - 1.0, inf, BY), NOW_MS)
    found = kept.find(OUTLINE)
    assert found is not None
    assert kept.again(found, NOW_MS, NOW_MS) is None
    assert kept.again(found, NOW_MS - 40.0, NOW_MS) == wording(LATE)


def test_who_has_more_time_left_may_get_another_answer() -> None:
    """It was refused because it had waited before it was read."""
    kept = RepeatedRefusals(expired_error)
    kept.add(OUTLINE, QUERY, FULL, Holds(inf, NOW_MS - 5.0, BY), NOW_MS)
    found = kept.find(OUTLINE)
    assert found is not None
    assert kept.again(found, NOW_MS - 6.0, NOW_MS + 1.0) == wording(FULL)
    assert kept.again(found, NOW_MS - 5.0, NOW_MS + 1.0) is None


async def test_it_is_forgotten_when_a_worker_says_that_there_is_room_sooner() -> None:
    path = Path(ReplyCode.OVERLOADED)
    path.ask()
    path.ask()
    assert len(path.path.repeated) == 1
    path.workers[ONE].code = ReplyCode.OK  # its reply says that nothing waits there
    path.now_ms += path.one_more_ms
    path.ask([[1.0] * 64], latency_ms=LATENCY_MS + 1.0)
    assert path.asked == 2
    (kept,) = path.path.repeated._kept.values()  # what was asked for is still known
    assert path.path.repeated.again(kept, NOW_MS, NOW_MS) is None


@pytest.mark.parametrize("refusal", [shed, crowded], ids=["shed", "crowded"])
async def test_what_is_refused_for_others_while_workers_have_room_concerns_one_query(
    refusal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(ReplyCode.OVERLOADED)
    path.ask()
    path.path.refusals.keep(frozenset())
    path.workers[ONE].code = ReplyCode.OK
    due, choose = [1], path.path.choose

    def choice(query: Query, now_ms: float) -> Any:
        if not due:
            return choose(query, now_ms)
        due.pop()
        return refusal(path.path.snapshot, query, now_ms)

    monkeypatch.setattr(path.path, "choose", choice)
    for _ in range(10):
        path.ask()
    assert [status for status, _ in path.answers] == [503, 503, *[200] * 9]


# -- it changes no decision -----------------------------------------------------------------------


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
