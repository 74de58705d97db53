"""Queries that wait until a gateway has met its workers."""

import asyncio

from controlplane.gateway.query.waiting import AT_ONCE, Waiting
from planner.types import Query, Refusal, RefusalCode
from variants.errors import Overloaded
from variants.types import TaskName

QUERY = Query(task=TaskName("letters"), rows=1, received_ms=0.0, latency_ms=100.0)
COLD = Refusal(code=RefusalCode.COLD, message="not loaded")
INFEASIBLE = Refusal(code=RefusalCode.SLO_INFEASIBLE, message="too tight")


class One:
    """A query that is held again until ``ready``."""

    def __init__(self, waiting: Waiting, log: list["One"]) -> None:
        self.waiting = waiting
        self.log = log
        self.done = False
        self.ready = True
        self.error: Exception | None = None

    def dispatch(self, query: Query) -> None:
        assert query == QUERY
        self.log.append(self)
        if not self.ready:
            self.waiting.hold(self, query, COLD)

    def fail(self, error: Exception) -> None:
        self.done = True
        self.error = error


def held(count: int, waiting: Waiting, log: list[One]) -> list[One]:
    made = [One(waiting, log) for _ in range(count)]
    assert all(waiting.hold(one, QUERY, COLD) for one in made)
    return made


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_they_are_tried_again_in_their_order_a_few_in_each_turn() -> None:
    waiting, log = Waiting(), list[One]()
    made = held(3 * AT_ONCE, waiting, log)
    waiting.try_again()
    assert log == []
    await turns(1)
    assert log == made[:AT_ONCE]
    await turns(3)
    assert (log, len(waiting)) == (made, 0)


async def test_what_still_finds_nothing_is_held_again() -> None:
    waiting, log = Waiting(), list[One]()
    first, second = held(2, waiting, log)
    first.ready = False
    waiting.try_again()
    await turns(3)
    assert (log, len(waiting)) == ([first, second], 1)
    first.ready = True
    waiting.try_again()
    waiting.try_again()
    await turns(3)
    assert (log, len(waiting)) == ([first, second, first], 0)


async def test_what_more_workers_do_not_change_is_not_held() -> None:
    waiting = Waiting()
    assert not waiting.hold(One(waiting, []), QUERY, INFEASIBLE)
    assert len(waiting) == 0


async def test_there_is_room_for_so_many_and_a_place_becomes_free() -> None:
    waiting, log = Waiting(most=2), list[One]()
    first, _ = held(2, waiting, log)
    third = One(waiting, log)
    assert waiting.hold(third, QUERY, COLD)
    assert isinstance(third.error, Overloaded)
    assert third.error.message == (
        "2 queries wait for this gateway, which has just started, to connect to its workers"
    )
    assert waiting.give_up(first)
    assert not waiting.give_up(first)
    assert waiting.hold(One(waiting, log), QUERY, COLD)
    assert len(waiting) == 2


async def test_what_was_answered_meanwhile_is_left_alone() -> None:
    waiting, log = Waiting(), list[One]()
    first, second, third = held(3, waiting, log)
    waiting.try_again()
    first.done = True
    waiting.give_up(second)
    await turns(2)
    assert log == [third]


async def test_a_mistake_is_the_answer_of_its_query_only() -> None:
    waiting, log = Waiting(), list[One]()
    first, second = held(2, waiting, log)
    wrong = RuntimeError("a mistake")

    def broken(query: Query) -> None:
        raise wrong

    first.dispatch = broken  # type: ignore[method-assign]
    waiting.try_again()
    await turns(2)
    assert (first.error, log) == (wrong, [second])
