"""Refusals that are given again: for how long, and for whom."""

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, inf
from typing import Any

import orjson
import pytest

from controlplane.gateway.overload.repeated_refusals import (
    LONGEST_MS,
    MOST,
    Holds,
    RepeatedRefusals,
    wording,
)
from controlplane.gateway.query.early_refusals import LAG_PART
from controlplane.gateway.query.query_errors import expired_error
from controlplane.http_errors import error_body, error_headers, status_of
from planner.selection.refusal import crowded, shed
from planner.selection.routes import EMPTY
from planner.types import ANYBODY, Query
from tests.controlplane.gateway.overload.test_recent_refusals import LATENCY_MS, ONE, Path
from tests.planner.builders import DIGITS, NOW_MS, catalog, key, profile, snapshot, variant, worker
from variants.errors import DeadlineExceeded, Overloaded
from variants.types import WorkerId
from workers.types import ReplyCode

QUERY = Query(DIGITS, 1, NOW_MS, 40.0)
OUTLINE = (b'{"task": "digits", "inputs": ', b"]}", 2)
BY = (WorkerId("w1"),)
ALWAYS = Holds(inf, inf, BY)
FULL = Overloaded('every variant that meets the SLO ("so") has too long a queue')
LATE = DeadlineExceeded("not answered within 40 ms")


@pytest.mark.parametrize("error", [FULL, LATE], ids=["overloaded", "late"])
@pytest.mark.parametrize("wait_ms", [6, 250, 1_000, 1_500])
def test_it_reads_as_if_it_had_been_made_anew(error: Any, wait_ms: int) -> None:
    worded = wording(error)
    error = type(error)(error.message)
    if worded.waits:
        error.retry_after_s = wait_ms / 1_000
    body, headers = worded.written(b"abc", wait_ms)
    assert orjson.loads(body) == error_body(error, "abc")
    assert (worded.code, worded.status) == (error.code, status_of(error))
    lines = headers.decode().split("\r\n")
    told = {"x-request-id": "abc", **{k.lower(): v for k, v in error_headers(error).items()}}
    assert lines.pop() == ""
    assert dict(line.split(": ") for line in lines) == told


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
    assert path.path.demand.take() == {(DIGITS, LATENCY_MS, None, None): 6}
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
    assert path.path.demand.take() == {(DIGITS, LATENCY_MS, None, None): 4}


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
    assert path.path.demand.take() == {(DIGITS, LATENCY_MS, None, None): 6}
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
