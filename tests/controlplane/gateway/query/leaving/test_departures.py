"""Clients that have gone, and what is under way for them."""

import asyncio
from collections.abc import Iterator

from controlplane.gateway.query.departures import REST_TIMES, Departures, Gone
from tests.workers.builders import until


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now_ms = 1_000.0

    def __call__(self) -> float:
        return self.now_ms


class Under:
    """Something that is under way, and what it has been told."""

    def __init__(self, clock: Clock, takes_ms: float = 0.0) -> None:
        self.clock, self.takes_ms = clock, takes_ms
        self.told: list[Gone] = []

    def left_by(self, gone: Gone) -> None:
        self.told.append(gone)
        self.clock.now_ms += self.takes_ms


class Broken(Under):
    def left_by(self, gone: Gone) -> None:
        super().left_by(gone)
        raise ValueError("a mistake")


def one(status: int, body: bytes, headers: bytes) -> None:
    raise AssertionError


def other(status: int, body: bytes, headers: bytes) -> None:
    raise AssertionError


async def test_all_that_is_under_way_is_told_once_of_all_who_went_in_a_moment() -> None:
    clock = Clock()
    broken, flying, reading = Broken(clock), Under(clock), Under(clock)
    departures = Departures(clock, lambda: iter([broken, flying]))
    departures.others.add(reading)
    departures.left(one)
    clock.now_ms += 5.0
    departures.left(other)
    departures.left(one)  # once more
    await until(lambda: reading.told)
    assert broken.told == flying.told == reading.told == [{one: 1_000.0, other: 1_005.0}]


async def test_what_changes_meanwhile_is_no_mistake() -> None:
    """What is under way may end as it is told, and who goes then is told of later."""
    clock = Clock()
    last = Under(clock)

    class Ending(Under):
        def left_by(self, gone: Gone) -> None:
            super().left_by(gone)
            departures.others.clear()
            if one in gone:
                departures.left(other)

    ending = Ending(clock)
    departures = Departures(clock, lambda: [ending])
    departures.others.add(last)
    departures.left(one)
    await until(lambda: len(ending.told) == 2)
    assert [set(told) for told in ending.told] == [{one}, {other}]


async def test_looks_take_no_more_than_a_twentieth_of_the_time() -> None:
    clock = Clock()
    many = Under(clock, takes_ms=15.0)

    def in_flight() -> Iterator[Under]:
        yield many

    departures = Departures(clock, in_flight)
    departures.left(one)
    await until(lambda: len(many.told) == 1)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    departures.left(one)
    await until(lambda: len(many.told) == 2)
    assert loop.time() - began_s >= REST_TIMES * 15.0 / 1_000
