"""Workers of a kind that are scaled, and what is told where none are deployed."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from controlplane.controller.applying.plan_applier import Lever, PlanApplier
from controlplane.controller.events.journal import Journal
from controlplane.controller.met_workers.worker_pool import WorkerPool
from controlplane.load_specs import Specs
from planner.types import Decision, Scale
from tests.controlplane.builders import digits_catalog
from variants.artifacts.store import FileArtifactStore
from variants.errors import ClusterUnavailable
from variants.types import DeviceKindName, Plan

KIND = DeviceKindName("cpu-4")


class Scaled:
    """How many workers of each kind were asked for."""

    def __init__(self) -> None:
        self.to: list[tuple[str, int]] = []
        self.fault: Exception | None = None

    async def scale(self, kind: DeviceKindName, count: int) -> None:
        if self.fault is not None:
            raise self.fault
        self.to.append((kind, count))


class Scaling:
    """A control loop that wants workers, with a clock of the test's."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 0.0
        self.lever = Scaled()
        self.catalog = digits_catalog()
        self.journal = Journal(self.catalog)
        self.specs = Specs(self.catalog.snapshot(), FileArtifactStore(folder))
        self.applier = PlanApplier(
            cast(Lever, self.lever), cast(WorkerPool, None), self.journal,
            lambda: self.now_s, lambda *_: None,
        )  # fmt: skip

    async def turn(self, count: int, *, deployed: bool = False, specs: Specs | None = None) -> int:
        """Want so many; how often it was told so far that this failed."""
        self.now_s += 1.0
        plan = Plan(version=1, epoch=1, placements=(), workers={KIND: count})
        decision = Decision(plan=plan, changed=False, actions=())
        self.applier.know(decision, (1, ""), specs or self.specs, {})
        self.applier.apply([Scale(device_kind=KIND, count=count)], {KIND} if deployed else set())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return self.journal.told.get("scale_failed", 0)


async def test_workers_that_are_not_deployed_are_told_once_they_stay_so(tmp_path: Path) -> None:
    """Serve ends workers before the control loop where all is stopped: that is no failure."""
    loop = Scaling(tmp_path)
    assert await loop.turn(2) == 0
    assert await loop.turn(2) == 1
    assert loop.lever.to == []


async def test_it_is_told_again_for_another_number_and_not_for_another_catalog(
    tmp_path: Path,
) -> None:
    loop = Scaling(tmp_path)
    for _ in range(9):
        again = Specs(loop.catalog.snapshot(), FileArtifactStore(tmp_path))
        told = await loop.turn(2, specs=again)
    assert told == 1
    assert await loop.turn(3) == 2


async def test_what_is_deployed_meanwhile_is_scaled(tmp_path: Path) -> None:
    loop = Scaling(tmp_path)
    assert await loop.turn(2) == 0
    assert await loop.turn(2, deployed=True) == 0
    assert loop.lever.to == [(KIND, 2)]


@pytest.mark.parametrize(
    ("fault", "said"),
    [(ClusterUnavailable("no answer"), "no answer"), (KeyError("x"), "unexpected: KeyError('x')")],
)
async def test_what_fails_is_logged_in_one_entry_with_its_traceback_where_nobody_foresaw_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: Exception, said: str
) -> None:
    loop = Scaling(tmp_path)
    loop.lever.fault = fault
    assert await loop.turn(2, deployed=True) == 1
    (entry,) = caplog.records
    assert (entry.levelname, entry.getMessage()) == ("WARNING", f"scale_failed {KIND}: {said}")
    assert (entry.exc_info is None) == isinstance(fault, ClusterUnavailable)
