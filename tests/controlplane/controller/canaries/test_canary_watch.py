"""What the control loop does of canaries, over a catalog in memory."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from controlplane.controller.canaries.canary_watch import KEEP_EVERY_S, NAME, CanaryWatch
from controlplane.controller.events.journal import Journal
from controlplane.live_state import LiveState
from planner.types import Demand, Objective
from tests.variants.catalog_builders import registration, version
from variants.catalog.memory import MemoryCatalog
from variants.errors import StaleEpoch, StateUnavailable
from variants.types import Canary, DeviceKindName, ModelName, Stage, TaskName

DIGITS, MLP = TaskName("digits"), ModelName("mlp")


class Live:
    """Keeps what the control loop tells."""

    def __init__(self) -> None:
        self.told: Mapping[str, Any] = {}
        self.away = False

    async def put_canaries(self, found: Mapping[str, Any]) -> None:
        if self.away:
            raise StateUnavailable("the live state does not answer")
        self.told = found


class Loop:
    """A leading control loop with one canary, ``mlp-v2``."""

    def __init__(self, *, promote: bool = False, share: float = 0.1) -> None:
        self.catalog, self.live, self.now_s = MemoryCatalog(), Live(), 0.0
        self.catalog.register(registration())
        self.catalog.register(
            replace(registration(number=2), version=version(number=2, stage=Stage.CANARY))
        )
        (self.canary,) = self.catalog.set_canary(
            Canary(task=DIGITS, model=MLP, version=2, share=share, promote=promote)
        )
        self.epoch = self.catalog.acquire_leadership("here")
        self.watch = self.another()

    def another(self) -> CanaryWatch:
        live, journal = cast("LiveState", self.live), Journal(self.catalog)
        self.journal = journal
        return CanaryWatch(self.catalog, live, journal, lambda: self.now_s, lambda: 0.0)

    async def turn(self, **gateways: tuple[int, int]) -> None:
        """By gateway: queries that were late at the canary, of so many; live ones all are in time,
        ten for each."""
        self.watch.count({name: self.report(*counts) for name, counts in gateways.items()})
        await self.watch.follow(self.catalog.snapshot(), self.epoch)
        await self.journal.store_events()

    def report(self, late: int, of: int) -> dict[str, Any]:
        nothing = dict.fromkeys(
            ("in_time", "late", "failed", "answers", "latency_ms", "right", "wrong"), 0
        )
        trial = {
            "canary": {**nothing, "in_time": of - late, "late": late},
            "live": {**nothing, "in_time": 10 * of},
            "not_diverted": {"overloaded": 1},
        }
        return dict(json.loads(json.dumps({"canaries": {self.canary.share_id: trial}})))

    @property
    def events(self) -> list[str]:
        return [event.kind for event in reversed(self.catalog.events(100))]

    @property
    def verdict(self) -> str:
        return str(self.live.told[self.canary.share_id]["verdict"])


async def test_what_gateways_say_is_added_up_and_told() -> None:
    loop = Loop()
    await loop.turn(a=(0, 10), b=(1, 20))
    await loop.turn(a=(0, 40))  # its newest counts stand for those before
    told = loop.live.told[loop.canary.share_id]
    assert (told["canary"]["queries"], told["canary"]["late"]) == (60, 1)
    assert told["live"]["in_time"] == 600
    assert (told["verdict"], told["not_diverted"]) == ("not_yet", {"overloaded": 2})
    assert loop.events == []


async def test_a_worse_one_loses_its_share_once() -> None:
    loop = Loop()
    await loop.turn(a=(60, 100))
    [ended] = loop.catalog.snapshot().canaries
    assert ended.share == 0.0
    assert ended.ended.startswith("late 60.0 % of 100, beside 0.0 % of 1,000")
    await loop.turn(a=(61, 101))
    assert loop.events == ["canary_rolled_back"]
    assert loop.verdict == "worse"
    stages = {one.version: one.stage for one in loop.catalog.snapshot().versions}
    assert stages == {1: Stage.LIVE, 2: Stage.CANARY}


async def test_a_good_one_is_told_of_once_and_stays_a_canary() -> None:
    loop = Loop()
    for of in (2_000, 2_001):
        await loop.turn(a=(0, of))
    assert loop.events == ["canary_good"]
    assert loop.verdict == "good"
    assert loop.catalog.snapshot().canaries == (loop.canary,)


async def test_a_good_one_is_promoted_where_that_was_asked_for() -> None:
    loop = Loop(promote=True)
    await loop.turn(a=(0, 2_000))
    assert loop.events == ["canary_promoted"]
    assert loop.catalog.snapshot().canaries == ()
    assert {one.stage for one in loop.catalog.snapshot().versions} == {Stage.LIVE}
    await loop.turn(a=(0, 2_000))
    assert loop.live.told == {}


@pytest.mark.parametrize("case", ["of another task", "of a database that went back"])
async def test_a_share_with_the_same_number_is_judged_by_its_own_queries(case: str) -> None:
    """Those of several lengths are set at once, and a number that was lost is given again."""
    loop = Loop(promote=True)
    other = replace(loop.canary, task=TaskName("letters"))
    if case == "of a database that went back":
        other = replace(loop.canary, set_at="2026-11-30T12:00:00+00:00")
    loop.watch.count({"a": loop.report(0, 2_000)})
    known = loop.catalog.snapshot()
    await loop.watch.follow(replace(known, canaries=(other,)), loop.epoch)
    assert loop.live.told[other.share_id]["canary"]["queries"] == 0
    assert not loop.catalog.settle_canary(other, promote=True, why="", epoch=loop.epoch)


async def test_a_control_loop_that_leads_no_more_ends_nothing() -> None:
    loop = Loop()
    loop.catalog.acquire_leadership("another")
    with pytest.raises(StaleEpoch):
        await loop.turn(a=(60, 100))
    assert loop.catalog.snapshot().canaries == (loop.canary,)


async def test_a_successor_goes_on_from_what_was_counted() -> None:
    loop = Loop()
    await loop.turn(a=(0, 2_000))
    loop.now_s = KEEP_EVERY_S
    await loop.turn(a=(0, 2_000), b=(0, 500))
    loop.watch = loop.another()
    await loop.watch.recall()
    await loop.turn(b=(0, 600))
    told = loop.live.told[loop.canary.share_id]
    assert told["canary"]["queries"] == 2_600
    assert loop.events == ["canary_good"]


async def test_what_was_told_is_not_told_again_by_a_successor_soon_after() -> None:
    loop = Loop()
    await loop.turn(a=(0, 2_000))
    loop.watch = loop.another()
    await loop.watch.recall()
    await loop.turn(a=(0, 2_001))
    assert loop.events == ["canary_good"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"counted": {"3": {"a": {}}}, "told": []}',
        b'{"counted": {"3": ["a"]}, "told": []}',
        b'{"counted": {"3": {"a": {"not_diverted": []}}}, "told": []}',
    ],
)
async def test_what_is_damaged_is_counted_anew(body: bytes) -> None:
    loop = Loop()
    loop.catalog.put_learned(NAME, 0.0, body, epoch=loop.epoch)
    await loop.watch.recall()
    await loop.turn(a=(0, 10))
    assert loop.live.told[loop.canary.share_id]["canary"]["queries"] == 10


async def test_without_live_state_it_acts_all_the_same() -> None:
    loop = Loop()
    loop.live.away = True
    await loop.turn(a=(60, 100))
    assert loop.events == ["canary_rolled_back"]


def test_its_share_is_planned_on_kinds_that_may_run() -> None:
    loop = Loop()
    demand = Demand(task=DIGITS, latency_ms=50.0, accuracy=None, qps=10.0)
    catalog, cpu = loop.catalog.snapshot(), DeviceKindName("cpu-1")
    planned = loop.watch.demand(catalog, {cpu: 1}, Objective.COST).divided([demand])
    assert [(one.variant, round(one.qps, 6)) for one in planned] == [
        (None, 9.0), ("mlp-v2-onnx-fp32", 1.0),
    ]  # fmt: skip
    assert loop.watch.demand(catalog, {cpu: 0}, Objective.COST).divided([demand]) == (demand,)
