"""What the control loop asks of a live state that takes long to answer."""

import pytest

from controlplane.live_state.seldom import PAUSE, Seldom
from variants.errors import StateUnavailable


class Slow:
    """Answers with the number of the question, after some time of a clock of its own."""

    def __init__(self, took_s: float) -> None:
        self.now_s, self.took_s, self.asked = 0.0, took_s, 0

    def clock_s(self) -> float:
        return self.now_s

    async def ask(self) -> int:
        self.now_s += self.took_s
        self.asked += 1
        return self.asked

    async def fail(self) -> int:
        await self.ask()
        raise StateUnavailable("away")


async def test_what_is_answered_quickly_is_asked_each_time() -> None:
    server = Slow(took_s=0.01)
    seldom: Seldom[int] = Seldom(server.clock_s)
    assert [await seldom.answer(server.ask) for _ in range(3)] == [1, 2, 3]


async def test_after_a_slow_answer_it_is_asked_later() -> None:
    server = Slow(took_s=2.0)
    seldom: Seldom[int] = Seldom(server.clock_s)
    assert await seldom.answer(server.ask) == 1
    server.now_s += PAUSE * 2.0 - 0.1
    assert await seldom.answer(server.ask) is None
    server.now_s += 0.1
    assert await seldom.answer(server.ask) == 2


async def test_after_an_error_that_took_long_too() -> None:
    server = Slow(took_s=2.0)
    seldom: Seldom[int] = Seldom(server.clock_s)
    with pytest.raises(StateUnavailable):
        await seldom.answer(server.fail)
    assert (await seldom.answer(server.ask), server.asked) == (None, 1)
