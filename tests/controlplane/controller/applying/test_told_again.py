"""What a worker could not be told is told again, later and later, until it was heard."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from controlplane.controller.applying.plan_applier import Lever, PlanApplier
from controlplane.controller.events.journal import Journal
from controlplane.controller.met_workers.worker_pool import WorkerPool
from controlplane.load_specs import Specs
from planner.types import Decision, Load, ReplicaTarget
from tests.controlplane.builders import digits_catalog, worker
from variants.artifacts.store import FileArtifactStore
from variants.errors import DeadlineExceeded, ModellessError, ReplicaLost, RuntimeFailed
from variants.types import Plan, QuarantineLift, ReplicaState, TaskName, VariantName, WorkerId
from workers.types import LoadSpec

A = VariantName("linear-v1-onnx-fp32")
KEY = (WorkerId("w1"), TaskName("digits"), A)
SILENT = DeadlineExceeded("it did not finish LOAD within 5 s")


class Pool:
    """One worker, which takes what it is told, or fails as the test says."""

    def __init__(self) -> None:
        self.fault: ModellessError | None = None
        self.told: list[float] = []
        """Shares, those included that it did not take."""

    @asynccontextmanager
    async def at(self, worker: str) -> AsyncIterator["Pool"]:
        yield self

    async def readmit(self, task: str, variant: str, timeout_s: float) -> None:
        self.told.append(0.0)
        if self.fault is not None:
            raise self.fault

    async def load(self, spec: LoadSpec, timeout_s: float) -> None:
        self.told.append(spec.share)
        if self.fault is not None:
            raise self.fault


class Telling:
    """A control loop that has one target to tell, with a clock of the test's."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 0.0
        self.pool = Pool()
        self.catalog = digits_catalog()
        self.journal = Journal(self.catalog)
        self.specs = Specs(self.catalog.snapshot(), FileArtifactStore(folder))
        self.applier = PlanApplier(
            cast(Lever, None), cast(WorkerPool, self.pool), self.journal,
            lambda: self.now_s, lambda *_: None,
        )  # fmt: skip

    def decision(self, share: float) -> Decision:
        return Decision(
            plan=Plan(version=1, epoch=1, placements=(), workers={}), changed=False, actions=(),
            targets={KEY: ReplicaTarget(share=share, longest_batch_ms=20.0)},
        )  # fmt: skip

    async def turn(self, share: float = 0.5) -> list[float]:
        """One turn of the loop; what the worker was told in it."""
        before = len(self.pool.told)
        self.applier.know(self.decision(share), (1, ""), self.specs, {"w1": worker("w1", A)})
        self.applier.tell_targets()
        for _ in range(5):
            await asyncio.sleep(0)
        return self.pool.told[before:]

    async def told_at_s(self, until_s: int) -> list[float]:
        """The seconds at which it is told, in a turn a second."""
        found: list[float] = []
        while self.now_s < until_s:
            found += [self.now_s] * len(await self.turn())
            self.now_s += 1.0
        return found

    async def events(self) -> list[tuple[str, str, str]]:
        await self.journal.store_events()
        return [(one.kind, one.subject, one.message) for one in self.catalog.events(100)]


@pytest.fixture
def telling(tmp_path: Path) -> Telling:
    return Telling(tmp_path)


@pytest.mark.parametrize("fault", [SILENT, RuntimeFailed("no"), ReplicaLost("it broke")])
async def test_a_worker_is_told_later_and_later_until_it_has_heard(
    telling: Telling, fault: ModellessError
) -> None:
    telling.pool.fault = fault
    assert await telling.told_at_s(8) == [0, 1, 3, 7]
    telling.pool.fault = None
    assert await telling.told_at_s(40) == [15]


async def test_the_wait_has_an_end_as_the_share_is_an_older_plans(telling: Telling) -> None:
    telling.pool.fault = SILENT
    assert (await telling.told_at_s(200))[-3:] == [121, 151, 181]


async def test_that_it_fails_is_told_once_and_of_a_worker_that_is_lost_elsewhere(
    telling: Telling,
) -> None:
    telling.pool.fault = ReplicaLost("it broke")
    await telling.told_at_s(10)
    assert await telling.events() == []
    telling.pool.fault = SILENT
    await telling.told_at_s(100)
    assert await telling.events() == [("tell_failed", f"digits/{A} on w1", str(SILENT))]


async def test_what_was_heard_is_not_told_again_and_a_new_share_is_told_at_once(
    telling: Telling,
) -> None:
    assert [await telling.turn(share) for share in (0.5, 0.5, 0.7)] == [[0.5], [], [0.7]]


async def test_a_load_whose_worker_has_left_before_its_turn_is_no_failure(
    telling: Telling, caplog: pytest.LogCaptureFixture
) -> None:
    await telling.turn()
    load = Load(worker=KEY[0], task=KEY[1], variant=A)
    before = len(telling.pool.told)
    assert telling.applier.apply([load], {}) == [load]
    telling.applier.know(telling.decision(0.5), (1, ""), telling.specs, {})
    for _ in range(5):
        await asyncio.sleep(0)
    assert (len(telling.pool.told), await telling.events()) == (before, [])
    assert not caplog.records


async def test_a_quarantine_that_was_lifted_is_ended_later_and_later_too(
    telling: Telling, caplog: pytest.LogCaptureFixture
) -> None:
    telling.pool.fault = SILENT
    held = replace(worker("w1", A).replicas[0], state=ReplicaState.QUARANTINED, quarantined_s=1.0)
    there = {"w1": replace(worker("w1"), replicas=(held,))}
    tried_at_s: list[float] = []
    while telling.now_s < 20.0:
        before = len(telling.pool.told)
        telling.applier.readmit([QuarantineLift(task=KEY[1], variant=A, at_s=2.0)], there)
        for _ in range(5):
            await asyncio.sleep(0)
        tried_at_s += [telling.now_s] * (len(telling.pool.told) - before)
        telling.now_s += 1.0
    assert (tried_at_s, len(caplog.records)) == ([0, 1, 3, 7, 15], 1)
