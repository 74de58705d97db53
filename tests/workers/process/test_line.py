"""A line of those that wait: how often it looks, and who goes."""

import asyncio
import time
from collections.abc import Sequence

from workers.process.line import FIRST_S, LONGEST_S, REST, Line, Looked


class Door:
    """Lets those in line go whose names are in ``open``, and notes each look."""

    def __init__(self, *, takes_s: float = 0.0, again_s: float = 1e9) -> None:
        self.open: set[str] = set()
        self.looks: list[tuple[str, ...]] = []
        self.gone: list[str] = []
        self.line = Line(self._look)
        self._takes_s, self._again_s = takes_s, again_s
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, *names: str, longest_s: float = 1e9) -> None:
        self.tasks += [asyncio.create_task(self._wait(name, longest_s)) for name in names]
        await asyncio.sleep(0)

    async def _wait(self, name: str, longest_s: float) -> None:
        await self.line.wait(name, longest_s)
        self.gone.append(name)

    def _look(self, waiting: Sequence[str]) -> Looked[str]:
        self.looks.append(tuple(waiting))
        time.sleep(self._takes_s)
        return Looked([name for name in waiting if name in self.open], self._again_s)


async def test_one_look_serves_all_that_wait_in_the_order_in_which_they_came() -> None:
    door = Door()
    await door.come("a", "b", "c")
    door.open = {"c", "a"}
    door.line.happened()
    await asyncio.wait(door.tasks, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0)
    assert (door.looks[0], door.gone) == (("a", "b", "c"), ["a", "c"])
    door.open = {"b"}
    door.line.happened()
    await asyncio.gather(*door.tasks)
    assert door.gone == ["a", "c", "b"]


async def test_where_nothing_happens_looks_become_ever_more_seldom() -> None:
    door = Door()
    await door.come("a", "b", "c")
    await asyncio.sleep(100 * FIRST_S)
    assert 1 <= len(door.looks) <= 12, "after 5, 10, 20, 40, 80 and then every 100 ms"
    door.open = {"a", "b", "c"}
    async with asyncio.timeout(60 * LONGEST_S):  # what nobody told of is seen nevertheless
        await asyncio.gather(*door.tasks)


async def test_a_look_that_takes_long_is_taken_no_more_often_than_others_can_bear() -> None:
    door = Door(takes_s=0.01)
    await door.come("a")
    until_s = time.monotonic() + 0.5
    while time.monotonic() < until_s:
        door.line.happened()
        await asyncio.sleep(0.001)
    assert 1 <= len(door.looks) <= 1 + 0.5 / (0.01 * REST)
    door.open = {"a"}
    await asyncio.gather(*door.tasks)


async def test_what_changes_by_itself_is_looked_at_then() -> None:
    """And not as seldom as by the pauses alone."""
    door = Door(again_s=FIRST_S)
    await door.come("a")
    await asyncio.sleep(100 * FIRST_S)
    assert len(door.looks) > 16
    door.open = {"a"}
    await asyncio.gather(*door.tasks)


async def test_nobody_waits_longer_than_he_can_and_nobody_looks_for_him_after_that() -> None:
    door = Door()
    await door.come("a", longest_s=0.02)
    await asyncio.gather(*door.tasks)
    looks = len(door.looks)
    door.line.happened()
    await asyncio.sleep(5 * FIRST_S)
    assert (door.gone, len(door.looks)) == (["a"], looks)


async def test_who_is_called_away_leaves_the_line() -> None:
    door = Door()
    await door.come("a", "b")
    door.tasks.pop(0).cancel()
    await asyncio.sleep(0)
    door.open = {"b"}
    door.line.happened()
    await asyncio.gather(*door.tasks)
    assert door.looks[-1] == ("b",)
