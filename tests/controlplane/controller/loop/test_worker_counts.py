"""How many workers of each kind run."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, cast

import pytest

from controlplane.cluster.ray_adapter import WorkerAddress
from controlplane.controller.fleet_targets import ONE_MORE
from controlplane.controller.learned_state import decoded
from planner.forecasting.chance_room import STAGES
from planner.forecasting.demand_estimator import DemandEstimator
from planner.types import Decision
from tests.controlplane.controller.loop.asked import A, B, crowd, routed
from tests.controlplane.fleet import KIND, LocalCluster, eventually, fleet
from tests.planner.builders import DIGITS
from variants.errors import ClusterUnavailable
from variants.types import DeviceKindName

pytestmark = pytest.mark.slow


async def test_the_inventory_scales_up_and_down(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        it.catalog.set_inventory(KIND, 2)
        await it.until_ready(w1=[A], w2=[A])
        it.catalog.set_inventory(KIND, 1)
        await it.until_ready(w1=[A])
        assert it.cluster.scaled == [2, 1]
        assert await it.directory() == ["w1"]


async def test_one_more_worker_runs_while_others_are_replaced_and_ends_by_itself(
    tmp_path: Path,
) -> None:
    """Also where who asked for it was killed: what stands in the live state expires."""
    async with fleet(tmp_path) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        await it.live.put_replacing([KIND])
        await it.until_ready(w1=[A], w2=[A])
        spare = it.settings.spare_cores
        assert (it.cluster.kept, spare > 0) == ([spare, 0], True)
        [scaled] = [one.message for one in it.catalog.events(1_000) if one.kind == "scaled"]
        assert scaled == f"to 2 instead of 1: {ONE_MORE}"
        await it.live.end_replacing()
        await it.until_ready(w1=[A])
        assert it.cluster.scaled == [2, 1]
        assert it.cluster.kept == [spare, 0, spare]


async def test_one_more_worker_runs_too_where_plans_decide_and_leaves_when_it_is_given_back(
    tmp_path: Path,
) -> None:
    """Plans ended it at once, so an upgrade of the only worker had a gap. They keep what was there
    for long, so it would have stayed."""
    async with fleet(tmp_path, workers=2, elastic=True, linger_s=3.0) as it:
        it.register("a")
        loop = it.control().loop
        await it.until_ready(w1=[A], w2=[A])
        await crowd(it, lambda: it.cluster.scaled == [1], qps=5)
        loop.settings.linger_s = 3_600.0

        await it.live.put_replacing([KIND])
        await crowd(it, lambda: it.cluster.scaled == [1, 2], qps=5)
        began_s = monotonic()
        await crowd(it, lambda: monotonic() - began_s > 2.0, qps=5)
        assert it.cluster.scaled == [1, 2]
        await it.live.end_replacing()
        await crowd(it, lambda: it.cluster.scaled == [1, 2, 1], qps=5)


async def test_what_is_not_needed_goes_sooner_where_what_comes_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DemandEstimator, "watched", property(lambda _: 0.0))
    async with fleet(tmp_path, workers=2, elastic=True, linger_s=3.0) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A], w2=[A])
        began_s = monotonic()
        await crowd(it, lambda: monotonic() - began_s > 2.0, qps=5)
        assert it.cluster.scaled == []
        monkeypatch.setattr(DemandEstimator, "steady", property(lambda _: 0.5))
        await crowd(it, lambda: it.cluster.scaled == [1], qps=5)
        await eventually(lambda: "scaled" in it.kinds_of_events())
        [scaled] = [one.message for one in it.catalog.events(1_000) if one.kind == "scaled"]
        assert scaled == "to 1 instead of 2: fewer suffice, and what comes hardly changes"


async def test_a_number_that_others_changed_is_put_right_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.controller.fleet_targets.TARGETS_EVERY_S", 0.0)
    async with fleet(tmp_path) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        await eventually(lambda: "loaded" in it.kinds_of_events())
        it.cluster.count = 2
        await eventually(lambda: "scaled" in it.kinds_of_events())
        await asyncio.sleep(5 * it.settings.tick_s)
        assert it.cluster.scaled == [1]
        assert it.kinds_of_events().count("scaled") == 1


async def test_a_correction_counts_until_a_plan_with_it_may_be_acted_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        loop = it.control().loop
        await it.until_ready(w1=[A])
        seen: list[bool] = []
        news = [True]

        async def refused(decision: Decision) -> bool:
            seen.append(loop._corrected)
            return False

        monkeypatch.setattr(loop._live_latency, "look", lambda *_: bool(news and news.pop()))
        with monkeypatch.context() as away:
            away.setattr(loop._leader, "may_act", refused)
            await eventually(lambda: len(seen) >= 3)
        assert all(seen[1:])
        await eventually(lambda: not loop._corrected)


async def test_a_kind_that_nobody_deployed_stops_nothing(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.catalog.set_inventory(DeviceKindName("gpu-9"), 1)
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        await eventually(lambda: "loaded" in it.kinds_of_events())
        assert it.cluster.scaled == []
        await eventually(lambda: it.kinds_of_events().count("scale_failed") == 1)

        it.register("b")  # it is tried again later and later, whatever else changes
        await it.until_ready(w1=[A, B])
        assert it.kinds_of_events().count("scale_failed") == 1
        it.catalog.set_inventory(DeviceKindName("gpu-9"), 2)
        await eventually(lambda: it.kinds_of_events().count("scale_failed") == 2)


async def test_scaled_to_none_and_back_over_a_restart(tmp_path: Path) -> None:
    async with fleet(tmp_path, workers=2) as it:
        it.register("a")
        first = it.control()
        await it.until_ready(w1=[A], w2=[A])
        it.catalog.set_inventory(KIND, 0)
        await it.until_ready()
        assert await it.directory() == []
        await first.stop()
        it.control()
        await eventually(lambda: it.catalog.ticks(1)[0].body["epoch"] == 2)
        it.catalog.set_inventory(KIND, 1)
        await it.until_ready(w3=[A])
        assert it.cluster.scaled == [0, 1]


class Silent:
    """A cluster that cannot list workers of kind ``gpu-9``; ``away`` says nothing at all."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.away = False
        self.scaled: list[tuple[str, int]] = []

    async def workers(self, kinds: Iterable[str]) -> list[WorkerAddress]:
        if self.away or "gpu-9" in set(kinds):
            raise ClusterUnavailable("they cannot be listed")
        return await self.cluster.workers(kinds)

    async def targets(self, kinds: Iterable[str]) -> dict[str, int]:
        if self.away:
            raise ClusterUnavailable("Ray Serve does not answer")
        return {**await self.cluster.targets(kinds), "gpu-9": 1}

    async def failed_starts(self, kinds: Iterable[str]) -> dict[str, str]:
        return await self.cluster.failed_starts(kinds)

    async def lend_room(self, cores: int, given: int) -> None:
        await self.cluster.lend_room(cores, given)

    async def scale(self, kind: str, count: int) -> None:
        self.scaled.append((kind, count))
        if kind == KIND:
            await self.cluster.scale(kind, count)


async def test_a_kind_that_cannot_be_listed_stops_neither_the_others_nor_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.controller.fleet_targets.TARGETS_EVERY_S", 0.0)
    async with fleet(tmp_path) as it:
        it.register("a")
        it.catalog.set_inventory(DeviceKindName("gpu-9"), 2)
        silent = Silent(it.cluster)
        it.cluster = cast(LocalCluster, silent)
        try:
            it.control()
            await it.until_ready(w1=[A])
            assert silent.scaled[0] == ("gpu-9", 2)
            # With all of it away, what is there goes on.
            silent.away = True
            it.register("b")
            await it.until_ready(w1=[A, B])
            assert await it.directory() == ["w1"]
            silent.away = False
            it.catalog.set_inventory(KIND, 2)
            await it.until_ready(w1=[A, B], w2=[A, B])
        finally:
            it.cluster = silent.cluster


class Slow:
    """A cluster that takes its time to scale, as where a kind is deployed for it first."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.asked: list[int] = []
        self.goes_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)

    async def scale(self, kind: str, count: int) -> None:
        self.asked.append(count)
        await self.goes_on.wait()
        await self.cluster.scale(kind, count)


async def test_no_turn_waits_for_workers_that_are_deployed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.controller.fleet_targets.TARGETS_EVERY_S", 0.0)
    async with fleet(tmp_path) as it:
        slow = Slow(it.cluster)
        it.cluster = cast(LocalCluster, slow)
        try:
            it.register("a")
            it.control()
            await it.until_ready(w1=[A])
            it.catalog.set_inventory(KIND, 2)
            await eventually(lambda: bool(slow.asked))
            it.register("b")
            await it.until_ready(w1=[A, B])
            assert slow.asked == [2]
            slow.goes_on.set()
            await it.until_ready(w1=[A, B], w2=[A, B])
            assert (slow.asked, it.kinds_of_events().count("scaled")) == ([2], 1)
        finally:
            it.cluster = slow.cluster


async def test_an_elastic_fleet_shrinks_once_its_demand_is_known_and_grows_at_once(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path, workers=2, elastic=True, linger_s=3.0) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A], w2=[A])
        began_s = monotonic()
        await crowd(it, lambda: it.cluster.scaled == [1], qps=5)
        assert monotonic() - began_s > 2.0
        await crowd(it, lambda: it.cluster.scaled == [1, 2], qps=1_200)


async def test_after_a_restart_no_worker_goes_before_the_demand_is_known_anew(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path, workers=2, elastic=True, linger_s=3_600.0) as it:
        it.register("a")
        first = it.control()
        await it.until_ready(w1=[A], w2=[A])
        await crowd(it, lambda: routed(it), qps=5)
        await first.stop()
        it.control()
        await eventually(lambda: it.catalog.ticks(1)[0].body["epoch"] == 2)
        began_s = monotonic()
        await crowd(it, lambda: monotonic() - began_s > 2.0, qps=5)
        assert it.cluster.scaled == []


async def test_how_much_arrivals_vary_is_looked_at_where_workers_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        loop = it.control().loop
        await it.until_ready(w1=[A])
        monkeypatch.setattr(loop._arrivals.dispersion, "of_tasks", lambda: {DIGITS: 4.0})
        assert (await loop._observe()).dispersion == {DIGITS: 4.0}


async def test_the_room_for_chance_follows_what_gateways_count_and_survives_a_restart(
    tmp_path: Path,
) -> None:
    """A step of ten seconds in which nothing is lost takes a stage of it."""

    def room() -> Mapping[str, Any]:
        found = it.catalog.learned("demand")
        assert found is not None
        kept: Mapping[str, Any] = decoded(found[1])["estimator"]["room"]
        return kept

    async with fleet(tmp_path, workers=1, elastic=True, linger_s=60.0) as it:
        it.register("a")
        first = it.control()
        await it.until_ready(w1=[A])
        began_s = monotonic()
        while (passed_s := monotonic() - began_s) < 13.0:
            rows = int(1_000 * passed_s)
            told = {"met": rows, "missed": 0, "errors": {"OVERLOADED": 10, "INVALID_INPUT": rows}}
            demand = {"digits|100.0|": 2 * rows + 10}
            await it.live.put_gateway("g1", {"demand": demand, "tasks": {"digits": told}})
            await asyncio.sleep(0.2)
        await first.stop()
        learned = room()
        assert learned["stages"][-1] == STAGES - 1
        assert learned["lost"] == 0.0  # a gateway counts from its second report on
        assert 5_000 < learned["asked"] < 14_000

        second = it.control()
        await eventually(lambda: it.catalog.ticks(1)[0].body["epoch"] == 2)
        await second.stop()
        assert room()["stages"] == learned["stages"]
