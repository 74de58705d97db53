"""The roster of workers while some kinds cannot be listed, or not soon."""

import asyncio
from collections.abc import Iterable
from dataclasses import asdict
from typing import cast

import pytest

from controlplane.cluster.ray_adapter import WorkerAddress
from controlplane.controller.events.journal import Journal
from controlplane.controller.met_workers import roster as rosters
from controlplane.controller.met_workers.roster import Roster
from controlplane.live_state import LiveState
from variants.catalog.memory import MemoryCatalog
from variants.errors import ClusterUnavailable, StateUnavailable
from variants.types import DeviceKindName

CPU = WorkerAddress(id="w1", address="unix:/w1", device_kind="cpu-1")
GPU = WorkerAddress(id="w2", address="unix:/w2", device_kind="gpu")


class Cluster:
    """Lists one worker of each kind, but for those that are ``silent``, once it ``answers``."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.there = [CPU, GPU]
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked: list[str] = []

    async def workers(self, kinds: Iterable[str]) -> list[WorkerAddress]:
        self.asked += kinds
        await self.answers.wait()
        if missing := self.silent & set(kinds):
            raise ClusterUnavailable(f"{sorted(missing)} cannot be listed")
        return [one for one in self.there if one.device_kind in set(kinds)]


class Live:
    """A directory that was published."""

    def __init__(self, *workers: WorkerAddress) -> None:
        self.directory = {"epoch": 1, "workers": [asdict(worker) for worker in workers]}
        self.away = False

    async def workers(self) -> object:
        if self.away:
            raise StateUnavailable("it is away")
        return self.directory


def roster(cluster: Cluster, live: Live) -> tuple[Roster, Journal]:
    journal = Journal(MemoryCatalog())
    return Roster(cluster, cast(LiveState, live), journal), journal


async def test_a_kind_that_cannot_be_listed_stays_as_it_was_published() -> None:
    cluster = Cluster()
    of, journal = roster(cluster, Live(GPU))
    assert await of.workers(["cpu-1", "gpu"]) == [CPU, GPU]
    cluster.silent = {"gpu"}
    assert await of.workers(["cpu-1", "gpu"]) == [CPU, GPU]
    assert journal.troubled("look at the workers of gpu")
    assert not journal.troubled("look at the workers of cpu-1")
    cluster.silent = {"cpu-1", "gpu"}
    assert await of.workers(["cpu-1", "gpu"]) == [GPU]
    cluster.silent = set()
    assert await of.workers(["cpu-1"]) == [CPU]
    assert not journal.troubled("look at the workers of cpu-1")


async def test_one_of_which_nothing_is_known_does_not_stop_the_others() -> None:
    cluster, live = Cluster(), Live()
    of, _ = roster(cluster, live)
    cluster.silent = {"gpu"}
    assert await of.workers(["cpu-1", "gpu"]) == [CPU]
    live.away = True
    assert await of.workers(["cpu-1", "gpu"]) == [CPU]


async def test_when_nothing_at_all_is_known_nothing_may_be_decided() -> None:
    cluster = Cluster()
    of, _ = roster(cluster, Live())
    assert await of.workers([]) == []
    cluster.silent = {"cpu-1", "gpu"}
    with pytest.raises(ClusterUnavailable, match="cpu-1"):
        await of.workers(["cpu-1", "gpu"])


async def test_a_kind_that_fails_in_an_unexpected_way_does_not_stop_the_others() -> None:
    class Broken(Cluster):
        async def workers(self, kinds: Iterable[str]) -> list[WorkerAddress]:
            if "gpu" in (kinds := list(kinds)) and self.silent:
                raise RuntimeError("a part of Ray has changed")
            return await super().workers(kinds)

    cluster = Broken()
    of, journal = roster(cluster, Live(GPU))
    cluster.silent = {"gpu"}
    assert await of.workers(["cpu-1", "gpu"]) == [CPU, GPU]
    assert journal.troubled("look at the workers of gpu")
    cluster.silent = set()
    assert await of.workers(["cpu-1", "gpu"]) == [CPU, GPU]
    assert not journal.troubled("look at the workers of gpu")


async def test_what_was_being_listed_of_a_kind_that_left_is_not_taken_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rosters, "WAIT_S", 0.01)
    cluster = Cluster()
    of, _ = roster(cluster, Live())
    assert await of.workers(["cpu-1", "gpu"]) == [CPU, GPU]
    cluster.answers.clear()  # its list is under way when the kind leaves
    assert await of.workers(["cpu-1", "gpu"]) == [CPU, GPU]
    cluster.answers.set()
    assert await of.workers(["cpu-1"]) == [CPU]
    await asyncio.sleep(0)

    new = WorkerAddress(id="w3", address="unix:/w3", device_kind="gpu")
    cluster.there = [CPU, new]
    assert await of.workers(["cpu-1", "gpu"]) == [CPU, new]


async def test_a_list_that_takes_long_is_waited_for_once_and_taken_when_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rosters, "WAIT_S", 0.05)
    cluster = Cluster()
    of, journal = roster(cluster, Live())
    assert await of.workers(["cpu-1"]) == [CPU]
    cluster.answers.clear()
    cluster.there = []
    async with asyncio.timeout(5.0):
        assert [await of.workers(["cpu-1"]) for _ in range(3)] == [[CPU]] * 3
    assert cluster.asked == ["cpu-1"] * 2
    assert not journal.troubled("look at the workers of cpu-1")
    cluster.answers.set()
    await asyncio.sleep(0)
    assert await of.workers(["cpu-1"]) == []


async def test_the_first_list_is_waited_for_as_there_is_nothing_to_go_on_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rosters, "WAIT_S", 0.01)
    cluster = Cluster()
    of, _ = roster(cluster, Live())
    cluster.answers.clear()
    asyncio.get_running_loop().call_later(0.05, cluster.answers.set)
    assert await of.workers(["cpu-1"]) == [CPU]


async def test_while_all_is_as_it_should_be_it_is_listed_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    of, _ = roster(cluster, Live())
    wanted = {DeviceKindName("cpu-1"): 1, DeviceKindName("gpu"): 1}

    async def asked(*speaking: str) -> list[str]:
        cluster.asked.clear()
        assert await of.workers(wanted, wanted, speaking) == cluster.there
        return cluster.asked

    assert await asked("w1", "w2") == ["cpu-1", "gpu"]
    assert await asked("w1", "w2") == []
    assert await asked("w1") == ["gpu"]  # it broke, says nothing, or leaves
    assert await asked("w1", "w2") == []
    wanted[DeviceKindName("gpu")] = 2
    assert await asked("w1", "w2") == ["gpu"]
    assert await asked("w1", "w2") == ["gpu"]  # until the second one is there
    wanted[DeviceKindName("gpu")] = 1
    assert await asked("w1", "w2") == []
    monkeypatch.setattr(rosters, "ASK_EVERY_S", 0.0)
    assert await asked("w1", "w2") == ["cpu-1", "gpu"]


async def test_a_list_that_failed_is_asked_for_again_at_once() -> None:
    cluster = Cluster()
    of, _ = roster(cluster, Live(CPU))
    wanted = {DeviceKindName("cpu-1"): 1}
    assert await of.workers(wanted, wanted, ("w1",)) == [CPU]
    cluster.silent = {"cpu-1"}
    assert await of.workers(wanted, wanted) == [CPU]  # as it was published
    cluster.silent = set()
    cluster.asked.clear()
    assert await of.workers(wanted, wanted, ("w1",)) == [CPU]
    assert cluster.asked == ["cpu-1"]
