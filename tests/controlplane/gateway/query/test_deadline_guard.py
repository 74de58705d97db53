"""The guard of deadlines, with a clock that the test sets."""

import asyncio

import pytest

from controlplane.gateway.query.deadline_guard import GUARD_MS, DeadlineGuard
from tests.workers.builders import until


class Waiting:
    """A query that ends in this slot; ``fails`` is a mistake in its answer."""

    def __init__(self, slot: int, *, fails: bool = False) -> None:
        self.slot = slot
        self.fails = fails
        self.expired = 0

    def expire(self) -> None:
        self.expired += 1
        if self.fails:
            raise RuntimeError("no answer")


class Clock:
    now_ms = 0.0
    asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return self.now_ms


async def test_queries_expire_once_their_slot_is_over_and_no_other() -> None:
    clock = Clock()
    guard = DeadlineGuard(clock)
    early, late = Waiting(1), Waiting(10)
    guard.add(early)
    guard.add(late)
    clock.now_ms = 1.5 * GUARD_MS
    await until(lambda: early.expired)
    assert (early.expired, late.expired, len(guard)) == (1, 0, 1)
    clock.now_ms = 10 * GUARD_MS
    await until(lambda: late.expired)
    assert (early.expired, late.expired, len(guard)) == (1, 1, 0)


async def test_one_that_comes_later_and_is_due_earlier_is_answered_in_its_time() -> None:
    clock = Clock()
    guard = DeadlineGuard(clock)
    early, late = Waiting(1), Waiting(5_000)
    guard.add(late)
    guard.add(early)
    clock.now_ms = 1.5 * GUARD_MS
    await until(lambda: early.expired)
    assert (early.expired, late.expired, len(guard)) == (1, 0, 1)


async def test_queries_that_are_answered_in_time_have_the_guard_look_at_nothing() -> None:
    clock = Clock()
    guard = DeadlineGuard(clock)
    for later in range(3):
        query = Waiting(5_000 + later)
        guard.add(query)
        guard.remove(query)
        await asyncio.sleep(2 * GUARD_MS / 1_000)
    assert clock.asked == 1  # to set the timer


async def test_what_is_answered_by_replies_that_lie_there_does_not_expire() -> None:
    clock = Clock()
    answered, late = Waiting(1), Waiting(1)
    guard = DeadlineGuard(clock, lambda: guard.remove(answered))
    guard.add(answered)
    guard.add(late)
    clock.now_ms = 1.5 * GUARD_MS
    await until(lambda: late.expired)
    assert (answered.expired, late.expired, len(guard)) == (0, 1, 0)


async def test_queries_expire_although_replies_cannot_be_read() -> None:
    def fails() -> None:
        raise RuntimeError("no reply")

    clock, late = Clock(), Waiting(1)
    guard = DeadlineGuard(clock, fails)
    guard.add(late)
    clock.now_ms = 1.5 * GUARD_MS
    await until(lambda: late.expired)
    assert len(guard) == 0


async def test_an_answered_query_leaves_nothing_behind_and_may_be_removed_twice() -> None:
    guard = DeadlineGuard(Clock())
    query, other = Waiting(5), Waiting(5)
    guard.add(query)
    guard.add(other)
    guard.remove(query)
    guard.remove(query)
    assert len(guard) == 1
    guard.remove(other)
    assert len(guard) == 0


async def test_a_mistake_in_one_answer_does_not_keep_the_others_from_theirs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    guard = DeadlineGuard(clock)
    queries = [Waiting(1, fails=True), Waiting(1), Waiting(1, fails=True)]
    for query in queries:
        guard.add(query)
    clock.now_ms = 2 * GUARD_MS
    await until(lambda: all(query.expired == 1 for query in queries))
    # The second one is the same again, and counted.
    assert [record.message for record in caplog.records] == ["the guard could not answer a query"]
