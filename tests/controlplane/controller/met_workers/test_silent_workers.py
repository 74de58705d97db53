"""Workers that say nothing: for how long they are left alone, and who ends them."""

import asyncio
from collections.abc import Mapping

from controlplane.controller.events.journal import Journal
from controlplane.controller.met_workers.silent_workers import (
    END_AFTER_S,
    MOST_OF_A_TURN_S,
    SilentWorkers,
)
from controlplane.controller.met_workers.worker_pool import SILENT_S
from tests.controlplane.builders import worker
from variants.catalog.memory import MemoryCatalog
from variants.errors import ClusterUnavailable
from variants.types import WorkerId
from workers.types import WorkerStatus

W1 = WorkerId("w1")


class Pool:
    """One worker that says nothing, on this machine or on another one."""

    def __init__(self, *, here: bool = True, status: WorkerStatus | None = None) -> None:
        self.here = here
        self.silences = {W1: (status or worker("w1"), 100.0)}
        self.ended: list[str] = []

    def silent(self) -> Mapping[WorkerId, tuple[WorkerStatus, float]]:
        return self.silences

    def end(self, worker: WorkerId, why: str) -> bool:
        self.ended.append(f"{worker}: {why}")
        return self.here


class Cluster:
    def __init__(self) -> None:
        self.ended: list[tuple[str, str]] = []
        self.away = False

    async def end_worker(self, worker: str, kind: str) -> None:
        self.ended.append((worker, kind))
        if self.away:
            raise ClusterUnavailable("Ray's control store does not answer")


class Watch:
    """Turns of the control loop over one such worker."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.cluster = pool, Cluster()
        self.journal = Journal(MemoryCatalog())
        self.workers = SilentWorkers(pool, self.cluster, self.journal)
        self.now_s = 1_000.0

    async def look(self, turns: int, every_s: float = 1.0) -> int:
        """So many turns later; how many ended the worker."""
        before = len(self.pool.ended)
        for _ in range(turns):
            self.now_s += every_s
            self.workers.look(self.now_s)
            await asyncio.sleep(0)
        return len(self.pool.ended) - before


TURNS = round(END_AFTER_S - SILENT_S)
"""Of a second each, between the first one that finds it silent and the one that ends it."""


async def test_it_is_ended_when_its_time_is_over_and_its_departure_says_why() -> None:
    watch = Watch(Pool())

    assert await watch.look(TURNS) == 0
    assert await watch.look(1) == 1
    assert watch.pool.ended == [
        "w1: it said nothing for 10 s and was ended, so that Ray Serve starts another one"
    ]
    assert watch.cluster.ended == []


async def test_one_of_another_machine_is_ended_by_the_cluster() -> None:
    watch = Watch(Pool(here=False))

    await watch.look(TURNS + 1)

    assert watch.cluster.ended == [("w1", worker("w1").device_kind)]


async def test_one_that_is_there_again_meanwhile_begins_anew() -> None:
    watch = Watch(Pool())

    await watch.look(TURNS)
    silence, watch.pool.silences = watch.pool.silences[W1], {}
    await watch.look(1)
    watch.pool.silences = {W1: (silence[0], silence[1] + TURNS + 1)}

    assert await watch.look(TURNS) == 0
    assert await watch.look(1) == 1


async def test_one_that_has_spoken_between_two_turns_begins_anew() -> None:
    watch = Watch(Pool())

    await watch.look(TURNS)
    watch.pool.silences = {W1: (worker("w1"), 100.0 + TURNS)}

    assert await watch.look(TURNS) == 0


async def test_where_the_control_loop_was_held_up_it_counts_no_more_than_two_seconds() -> None:
    watch = Watch(Pool())

    turns = round((END_AFTER_S - SILENT_S) / MOST_OF_A_TURN_S)
    assert await watch.look(turns, every_s=60.0) == 0
    assert await watch.look(1, every_s=60.0) == 1


async def test_one_that_loads_is_left_to_ray_serve() -> None:
    loads = worker("w1", loading=["a"])
    watch = Watch(Pool(status=loads))

    assert await watch.look(60) == 0


async def test_one_that_does_not_end_is_ended_again_later() -> None:
    watch = Watch(Pool(here=False))
    watch.cluster.away = True

    await watch.look(TURNS + 1)
    assert watch.journal.why("end of w1") == "Ray's control store does not answer"
    watch.cluster.away = False
    assert await watch.look(9) == 0
    assert await watch.look(1) == 1
    assert not watch.journal.troubled("end of w1")


async def test_what_ray_does_unexpectedly_is_told_until_the_worker_is_gone() -> None:
    watch = Watch(Pool(here=False))

    async def end_worker(worker: str, kind: str) -> None:
        raise AttributeError("Ray is another one")

    watch.cluster.end_worker = end_worker  # type: ignore[method-assign]
    await watch.look(TURNS + 1)
    assert "Ray is another one" in watch.journal.why("end of w1")
    watch.pool.silences.clear()
    await watch.look(1)
    assert not watch.journal.troubled("end of w1")


async def test_what_is_under_way_is_given_up_at_the_end() -> None:
    watch = Watch(Pool(here=False))
    hangs = asyncio.Event()

    async def end_worker(worker: str, kind: str) -> None:
        await hangs.wait()

    watch.cluster.end_worker = end_worker  # type: ignore[method-assign]
    await watch.look(TURNS + 1)
    await asyncio.wait_for(watch.workers.close(), 1.0)
