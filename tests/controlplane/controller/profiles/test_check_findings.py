"""Checks of profiles: what is made of what they find, and of those that find nothing."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

import pytest

from controlplane.controller.events.journal import Journal
from controlplane.controller.met_workers.worker_pool import WorkerPool
from controlplane.controller.profiles.profile_checks import (
    FAILS_S,
    LOOK_SPARED,
    TIMEOUT_S,
    ProfileChecks,
)
from planner.doubtful_profiles import FIRST_S, SPARED
from planner.types import Demand, Observation
from tests.planner.builders import DIGITS, catalog, profile, variant
from variants.catalog.memory import MemoryCatalog
from variants.errors import DeadlineExceeded, Overloaded, RuntimeFailed
from variants.types import CatalogSnapshot, Profile, ReplicaState, VariantName
from workers.types import Checked, ReplicaStatus, WorkerStatus

A = VariantName("a")
KNOWN = catalog([variant("a")], [profile("a", 1_000.0)])
ASKED = Demand(task=DIGITS, latency_ms=200.0, accuracy=None, qps=5.0)


class Pool:
    """One worker, which answers checks with what the test says next."""

    def __init__(self) -> None:
        self.answer: Checked | Exception = Overloaded("busy")
        self.asked = 0

    @asynccontextmanager
    async def at(self, worker: str) -> AsyncIterator["Pool"]:
        yield self

    async def check(self, task: str, variant: str, timeout_s: float) -> Checked:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Checks:
    """Checks of the only variant, with a clock of the test's."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pool = Pool()
        self.catalog = MemoryCatalog()
        self.journal = Journal(self.catalog)
        self.checks = ProfileChecks(cast(WorkerPool, self.pool), self.journal, lambda: self.now_s)
        self.batches = 0
        self.latency: tuple[tuple[int, float, float], ...] = ()
        self.ready = True
        self.look_s = 0.0
        self.looks = 0

    async def look(self, known: CatalogSnapshot = KNOWN) -> list[str]:
        """One turn, and the check that it begins; what was contradicted before."""
        replica = ReplicaStatus(
            task=DIGITS, variant=A, state=ReplicaState.READY, memory_mib=1.0,
            batches=self.batches, latency=self.latency,
        )  # fmt: skip
        status = WorkerStatus(
            worker="w1", device_kind="cpu-1", memory_mib=9.0, reserved_mib=1.0, draining=False,
            backlog_us=0, busy_ratio=0.0, replicas=(replica,) if self.ready else (),
        )  # fmt: skip
        observation = Observation(
            catalog=known, workers=(), demand=(ASKED,), inventory={}, running={}, plan=None,
            now_s=self.now_s,
        )  # fmt: skip
        found = self.checks.look(known, observation, self._slowly(status))
        for _ in range(5):
            await asyncio.sleep(0)
        return [what for _, what in found]

    def _slowly(self, status: WorkerStatus) -> Iterator[WorkerStatus]:
        """Reading what workers say takes its time."""
        self.looks += 1
        self.now_s += self.look_s
        yield status

    async def wait_for_next(self, most_s: int) -> int:
        """Turns once a second until the next check has begun: after how many seconds."""
        asked = self.pool.asked
        for passed_s in range(1, most_s):
            self.now_s += 1.0
            await self.look()
            if self.pool.asked > asked:
                return passed_s
        return most_s

    async def events(self) -> list[str]:
        """Kinds of all that was told, oldest first."""
        await self.journal.store_events()
        return [event.kind for event in reversed(self.catalog.events(100))]


@pytest.fixture
def checks() -> Checks:
    return Checks()


async def test_a_check_that_is_not_waited_for_to_its_end_is_not_repeated_soon(
    checks: Checks,
) -> None:
    checks.pool.answer = DeadlineExceeded("too long")
    await checks.look()
    assert checks.pool.asked == 1
    wait_s = int(SPARED * TIMEOUT_S)
    assert await checks.wait_for_next(2 * wait_s) == wait_s


async def test_what_fails_on_made_up_numbers_is_run_on_them_less_and_less_often(
    checks: Checks,
) -> None:
    checks.pool.answer = RuntimeFailed("no such token")
    await checks.look()
    waits = [await checks.wait_for_next(10_000) for _ in range(3)]
    assert waits == [FAILS_S, 2 * FAILS_S, 4 * FAILS_S]
    assert await checks.events() == ["profile_check_failed"]


async def test_what_fails_in_an_unexpected_way_waits_as_well(checks: Checks) -> None:
    """It was asked for again each second, and its traceback was logged each time."""
    checks.pool.answer = KeyError("batches")
    for _ in range(100):
        checks.now_s += 1.0
        await checks.look()
    assert checks.pool.asked < 10


class _Profiles(tuple[Profile, ...]):
    """Profiles that count how often somebody goes through them."""

    looks = 0

    def __iter__(self) -> Iterator[Profile]:
        _Profiles.looks += 1
        return super().__iter__()


async def test_profiles_are_not_gone_through_for_each_check_that_begins() -> None:
    """With 10,000 profiles and a check on each of 1,000 workers the event loop stood still for
    seconds."""

    async def looks(workers: int) -> int:
        it = Checks()
        known = replace(KNOWN, profiles=_Profiles(KNOWN.profiles))
        observation = Observation(
            catalog=known, workers=(), demand=(ASKED,), inventory={}, running={}, plan=None,
            now_s=0.0,
        )  # fmt: skip
        replica = ReplicaStatus(task=DIGITS, variant=A, state=ReplicaState.READY, memory_mib=1.0)
        _Profiles.looks = 0
        it.checks.look(known, observation, [
            WorkerStatus(
                worker=f"w{number}", device_kind="cpu-1", memory_mib=9.0, reserved_mib=1.0,
                draining=False, backlog_us=0, busy_ratio=0.0, replicas=(replica,),
            )
            for number in range(workers)
        ])  # fmt: skip
        found = _Profiles.looks
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert it.pool.asked == workers
        return found

    assert await looks(50) == await looks(1)


async def test_what_failed_is_remembered_while_its_worker_is_away(checks: Checks) -> None:
    checks.pool.answer = RuntimeFailed("no such token")
    await checks.look()
    checks.ready, checks.now_s = False, 10.0
    await checks.look()
    checks.ready, checks.now_s = True, 20.0
    await checks.look()
    assert checks.pool.asked == 1


async def test_one_disturbed_batch_confirms_nothing(checks: Checks) -> None:
    checks.pool.answer = Checked(batches=1, took_ms=1_500.0, spent_ms=1500.0, total=1)
    await checks.look()
    assert await checks.wait_for_next(1_000) == SPARED * 1.5
    assert not await checks.events()


async def test_what_seemed_to_be_confirmed_is_contradicted_all_the_same(checks: Checks) -> None:
    checks.pool.answer = Checked(batches=3, took_ms=1_000.0, spent_ms=3000.0, total=3)
    await checks.look()
    assert await checks.events() == ["profile_confirmed"]
    checks.pool.answer = Checked(batches=10, took_ms=3.0, spent_ms=30.0, total=13)
    await checks.wait_for_next(1_000)
    checks.now_s += 1.0
    [what] = await checks.look()
    assert "10 lone batches on w1 took 3 ms each, its profile says 1,000 ms" in what


async def test_a_worker_that_differs_from_its_kind_is_compared_with_itself(
    checks: Checks,
) -> None:
    """Its lone rows took 5 ms lately, and still do."""
    checks.batches, checks.latency = 5, ((1, 5.0, 6.0),)
    await checks.look()
    checks.pool.answer = Checked(batches=3, took_ms=5.0, spent_ms=15.0, total=8)
    waits = [await checks.wait_for_next(1_000) for _ in range(3)]
    assert waits == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S]


async def test_looks_at_a_large_fleet_take_a_small_part_of_the_time(checks: Checks) -> None:
    checks.look_s = 0.5
    while checks.now_s < 100.0:
        await checks.look()
        checks.now_s += 0.1
    assert checks.looks <= 100.0 / (LOOK_SPARED * checks.look_s) + 1
