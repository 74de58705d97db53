"""The headroom is looked at beside the turns, now and then, and told as far as it is known."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from controlplane.controller import headroom_watch
from controlplane.controller.events.journal import Journal
from controlplane.controller.headroom_watch import EVERY_S, HeadroomWatch
from planner.headroom.growth import Headroom, TaskHeadroom
from tests.planner.builders import catalog, demand, observation, profile, report, variant
from variants.catalog.memory import MemoryCatalog
from variants.types import TaskName

SEEN = observation(
    catalog([variant("a")], [profile("a", 10.0)]), report("w1"),
    demand=[demand(10.0, 2_000.0)], inventory={"cpu-1": 1},
)  # fmt: skip


@pytest.fixture
def watch() -> HeadroomWatch:
    return HeadroomWatch(Journal(MemoryCatalog()), shares_cores=True)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The cores that gateways were said to keep busy, look by look."""
    found: list[float] = []

    def look(
        *_: Any,
        gateway_cores: float,
        dispersion: Mapping[TaskName, float],
        clock: Callable[[], float],
        limit_s: float,
    ) -> Headroom:
        found.append(gateway_cores)
        task = TaskHeadroom(task=TaskName("digits"), asked_qps=10.0, factor=2.00049)
        return Headroom(factor=1.50001, tasks=(task,))

    monkeypatch.setattr(headroom_watch, "headroom", look)
    return found


async def looked(watch: HeadroomWatch, now_s: float) -> None:
    watch.look(SEEN, dict, now_s)
    await watch.close()


async def test_what_is_found_is_told_and_nothing_before(
    watch: HeadroomWatch, looks: list[float]
) -> None:
    assert watch.told is None
    await looked(watch, 0.0)
    assert watch.told == {
        "error": 0.0,
        "factor": 1.5,
        "tasks": [{"task": "digits", "asked_qps": 10.0, "factor": 2.0}],
    }


async def test_of_the_solver_and_of_real_profiles(watch: HeadroomWatch) -> None:
    await looked(watch, 0.0)
    assert watch.told is not None
    assert 5.0 < watch.told["factor"] < 10.0


async def test_it_looks_now_and_then_and_never_twice_at_once(
    watch: HeadroomWatch, looks: list[float]
) -> None:
    watch.look(SEEN, dict, 0.0)
    watch.look(SEEN, dict, 0.0)
    await watch.close()
    await looked(watch, EVERY_S - 1)
    assert len(looks) == 1
    await looked(watch, 2 * EVERY_S)
    assert len(looks) == 2


async def test_after_a_look_that_took_long_it_rests_for_long(
    watch: HeadroomWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((0.0, 2.0, 10.0, 10.0))
    monkeypatch.setattr(headroom_watch, "monotonic", lambda: next(clock))
    monkeypatch.setattr(headroom_watch, "headroom", lambda *_, **__: None)
    await looked(watch, 0.0)
    watch.look(SEEN, dict, 99.0)
    assert watch._looking is None
    await looked(watch, 101.0)
    assert list(clock) == []


async def test_what_idle_gateways_take_does_not_grow_with_the_demand(
    watch: HeadroomWatch, looks: list[float]
) -> None:
    watch.gateways([{"busy": 0.52}, {"busy": 0.01}, {}])
    await looked(watch, 0.0)
    assert looks == [pytest.approx(0.5)]


async def test_on_a_cluster_gateways_have_cores_of_their_own(looks: list[float]) -> None:
    watch = HeadroomWatch(Journal(MemoryCatalog()), shares_cores=False)
    watch.gateways([{"busy": 0.5}])
    await looked(watch, 0.0)
    assert looks == [0.0]


async def test_a_look_that_fails_is_told_in_the_log_and_leaves_nothing_old(
    watch: HeadroomWatch, looks: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    await looked(watch, 0.0)

    def fails(*_: Any, **__: Any) -> Headroom:
        raise ZeroDivisionError

    monkeypatch.setattr(headroom_watch, "headroom", fails)
    await looked(watch, 1_000.0)
    await asyncio.sleep(0)
    assert watch.told is None
    assert watch._journal.troubled("look at the headroom")


async def test_of_workers_that_are_gone_nothing_is_told(
    watch: HeadroomWatch, looks: list[float]
) -> None:
    """Not even until the next look is due: `status` would say how much could be served, beside
    that no worker is there."""
    told = []
    for now_s, seen in ((0.0, SEEN), (1.0, replace(SEEN, workers=())), (EVERY_S, SEEN)):
        watch.look(seen, dict, now_s)
        await watch.close()
        told.append(watch.told is not None)
    assert (told, len(looks)) == ([True, False, True], 2)
