"""What workers loaded and evicted for queries is asked beside the turns of the control loop."""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import cast

import pytest

from controlplane.controller.events.journal import Journal
from controlplane.controller.events.recorder import StatusRecorder
from controlplane.controller.events.status_events import Departure
from controlplane.controller.met_workers.worker_pool import WorkerPool
from tests.controlplane.builders import worker
from variants.catalog.memory import MemoryCatalog
from variants.errors import DeadlineExceeded
from variants.types import TaskName, VariantName
from workers.types import Occurrence, OccurrenceKind

EVICTED = Occurrence(
    seq=1, kind=OccurrenceKind.EVICTED, task=TaskName("t"), variant=VariantName("v"), why="room"
)


class Pool:
    """One worker, which answers once it ``goes_on``, or fails."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.fails = False
        self.asked: list[tuple[int, ...]] = []
        """With each question, what the worker was told to forget."""

    def departures(self) -> dict[str, Departure]:
        return {}

    async def history(self, worker: str, told: Collection[int], after: int) -> list[Occurrence]:
        self.asked.append(tuple(told))
        if self.fails:
            raise DeadlineExceeded("it did not answer")
        await self.goes_on.wait()
        return [EVICTED] if after < 1 else []


class Turns:
    """Turns of a control loop with one worker that evicted something, on a clock of the test's."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.catalog = MemoryCatalog()
        self.journal = Journal(self.catalog)
        self.recorder = StatusRecorder(self.catalog, self.journal, lambda: self.now_s)
        self.pool = Pool()

    async def turn(self) -> None:
        pool = cast(WorkerPool, self.pool)
        self.recorder.workers({"w1": replace(worker("w1"), occurrences=1)}, pool, {})
        self.recorder.ask_on_demand(pool)
        await asyncio.sleep(0)  # whatever else a turn waits for
        self.recorder.on_demand()
        await self.journal.store_events()
        self.recorder.stored(pool)

    def evicted(self) -> int:
        return [event.kind for event in self.catalog.events(100)].count("evicted")


@pytest.fixture
def turns() -> Turns:
    return Turns()


async def test_turns_go_on_while_a_worker_is_asked_and_ask_it_once(turns: Turns) -> None:
    for _ in range(3):
        await asyncio.wait_for(turns.turn(), 1.0)
    assert (turns.pool.asked, turns.evicted()) == ([()], 0)
    turns.pool.goes_on.set()
    for _ in range(3):
        await turns.turn()
    assert turns.evicted() == 1


async def test_what_is_stored_the_worker_may_forget_at_once(turns: Turns) -> None:
    turns.pool.goes_on.set()
    await turns.turn()
    await asyncio.sleep(0)
    assert (turns.evicted(), turns.pool.asked) == (1, [(), (1,)])


async def test_a_worker_that_does_not_answer_is_asked_less_and_less(turns: Turns) -> None:
    turns.pool.fails = True
    asked_at_s: list[float] = []
    while turns.now_s < 60.0:
        before = len(turns.pool.asked)
        await turns.turn()
        asked_at_s += [turns.now_s] * (len(turns.pool.asked) - before)
        turns.now_s += 1.0
    assert asked_at_s == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0]


async def test_one_that_stops_has_workers_forget_what_it_told(turns: Turns) -> None:
    await turns.recorder.lead(1, None)
    turns.pool.goes_on.set()
    pool = cast(WorkerPool, turns.pool)
    turns.recorder.workers({"w1": replace(worker("w1"), occurrences=1)}, pool, {})
    turns.recorder.ask_on_demand(pool)
    await asyncio.sleep(0)
    turns.recorder.on_demand()
    await turns.recorder.stop(pool)
    assert turns.pool.asked == [(), (1,)]
