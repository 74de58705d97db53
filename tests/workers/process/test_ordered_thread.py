"""Calls in a thread, the most urgent first."""

import asyncio
import threading
from contextlib import suppress

import pytest

from tests.workers.builders import until
from workers.process.ordered_thread import OrderedThread


class Calls:
    """The first call holds the thread until it is let go; those behind it note their turns."""

    def __init__(self) -> None:
        self.thread = OrderedThread("test")
        self.go = threading.Event()
        self.turns: list[str] = []
        self.ranks: dict[str, int] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        begun = threading.Event()

        def hold() -> None:
            begun.set()
            self.go.wait()

        self.tasks.append(asyncio.create_task(self.thread.run(hold, lambda: (0, 0.0))))
        await until(begun.is_set)

    async def add(self, name: str, rank: int) -> None:
        self.ranks[name] = rank
        run = self.thread.run(lambda: self.turns.append(name), lambda: (self.ranks[name], 0.0))
        self.tasks.append(asyncio.create_task(run))
        await asyncio.sleep(0)

    async def end(self) -> list[str]:
        self.go.set()
        await asyncio.gather(*self.tasks)
        self.thread.shutdown()
        return self.turns


async def test_the_most_urgent_comes_first_and_of_equals_the_first() -> None:
    calls = Calls()
    await calls.begin()
    for name, rank in {"a": 3, "b": 2, "c": 3, "d": 1, "e": 2}.items():
        await calls.add(name, rank)
    assert await calls.end() == ["d", "b", "e", "a", "c"]


async def test_what_becomes_urgent_while_it_waits_overtakes() -> None:
    calls = Calls()
    await calls.begin()
    for name in "abc":
        await calls.add(name, 3)
    calls.ranks["c"] = 1
    assert await calls.end() == ["c", "a", "b"]


async def test_what_a_call_raises_is_raised() -> None:
    thread = OrderedThread("test")

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await thread.run(fails, lambda: (0, 0.0))
    assert await thread.run(lambda: 7, lambda: (0, 0.0)) == 7
    assert thread.shutdown()
    with pytest.raises(RuntimeError):
        await thread.run(lambda: 7, lambda: (0, 0.0))


async def test_what_waits_is_dropped_when_it_is_shut_down() -> None:
    calls = Calls()
    await calls.begin()
    await calls.add("late", 1)
    assert not calls.thread.shutdown(0.0), "the first one is under way"
    calls.go.set()
    first, late = calls.tasks
    await first
    with suppress(asyncio.CancelledError):
        await late
    assert late.cancelled()
    assert calls.turns == []


async def test_a_call_that_nobody_waits_for_any_more_is_not_made() -> None:
    calls = Calls()
    await calls.begin()
    await calls.add("given up", 1)
    await calls.add("other", 2)
    calls.tasks.pop(1).cancel()
    await asyncio.sleep(0)
    assert await calls.end() == ["other"]


async def test_what_is_to_be_done_last_is_done_in_the_thread_after_what_is_under_way() -> None:
    calls = Calls()
    await calls.begin()
    threads: list[str] = []

    def last() -> None:
        threads.append(threading.current_thread().name)

    assert not calls.thread.shutdown(0.0, last)
    assert threads == []
    calls.go.set()
    assert calls.thread.shutdown(60.0, last)
    assert threads == ["test"]


def test_a_thread_that_was_never_asked_does_what_is_to_be_done_last() -> None:
    threads: list[str] = []
    thread = OrderedThread("test")
    assert thread.shutdown(60.0, lambda: threads.append(threading.current_thread().name))
    assert threads == ["test"]
    assert OrderedThread("other").shutdown()
