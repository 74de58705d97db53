"""Who leads: restarts, successors and epochs."""

import asyncio
from collections.abc import Container, Iterable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from controlplane.cluster.autoscaling.node_requests import Bundle
from controlplane.cluster.autoscaling.node_types import Autoscaler
from controlplane.cluster.autoscaling.ray_autoscaler import ClusterNode
from controlplane.controller.events.recorder import StatusRecorder
from tests.controlplane.controller.loop.asked import A, B
from tests.controlplane.fleet import eventually, fleet
from tests.variants.catalog.copies import fail_over, rows_of
from variants.catalog.sql import open_catalog
from variants.errors import StaleEpoch
from variants.types import Plan

pytestmark = pytest.mark.slow


async def test_a_controller_that_restarts_finds_everything_as_it_should_be(tmp_path: Path) -> None:
    catalog = open_catalog(f"sqlite:///{tmp_path / 'catalog.db'}")
    async with fleet(tmp_path, catalog=catalog) as it:
        it.register("a")
        it.register("b")
        first = it.control()
        await it.until_ready(w1=[A, B])
        await eventually(lambda: it.kinds_of_events().count("loaded") == 2)
        await first.stop()
        before = (it.catalog.latest_plan(), len(it.catalog.events(100)))
        ticks = len(it.catalog.ticks(100))

        it.control()
        await eventually(lambda: len(it.catalog.ticks(100)) == ticks + 1)
        await asyncio.sleep(5 * it.settings.tick_s)
        newest = it.catalog.ticks(1)[0]
        assert newest.body["epoch"] == 2
        assert newest.body["actions"] == []
        newer = it.catalog.events(100)[: -before[1]]
        assert (it.catalog.latest_plan(), [e.kind for e in newer]) == (
            before[0],
            ["controller_started"],
        )
        assert len(it.catalog.ticks(100)) == ticks + 1
    catalog.close()


async def test_of_two_controllers_the_older_gives_up(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        older = it.control()
        await it.until_ready(w1=[A])
        newer = it.control()
        with pytest.raises(StaleEpoch):
            await asyncio.wait_for(older.task, 60)
        assert not newer.task.done()
        directory = await it.live.workers()
        assert directory is not None
        assert directory["epoch"] == 2


async def test_of_two_leaders_of_one_epoch_the_database_follows_the_one_that_it_knows(
    tmp_path: Path,
) -> None:
    """A replica took over that lacked the older one's epoch, and what it wrote in it."""
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    with closing(open_catalog(url)) as catalog, closing(open_catalog(url)) as elsewhere:
        async with fleet(tmp_path, catalog=catalog) as it:
            it.register("a")
            lagging = rows_of(url)
            older = it.control()
            await it.until_ready(w1=[A])
            fail_over(url, lagging)
            newer = it.control(catalog=elsewhere)
            with pytest.raises(StaleEpoch):
                await asyncio.wait_for(older.task, 60)
            assert not newer.task.done()
            it.register("b")
            await it.until_ready(w1=[A, B])
            plan = elsewhere.latest_plan()
            assert plan is not None
            assert plan.epoch == 1


class Nodes:
    """The only node drains, so that another one is asked for, and none comes."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def find(self) -> Autoscaler:
        return Autoscaler()

    async def ask(self, bundles: Sequence[Bundle]) -> None:
        self.asked.append(sum(one.count for one in bundles))

    async def nodes(self) -> tuple[ClusterNode, ...]:
        return (ClusterNode(id="a", host="a", address="10.0.0.1", drains_until_s=0.0),)

    async def ends(self, ids: Container[str]) -> dict[str, str]:
        return {}

    async def workers(self, kinds: Iterable[str]) -> dict[str, str]:
        return {"w1": "a"}

    async def drain(self, node: str, why: str, until_s: float) -> str:
        return ""


async def test_who_leads_withdraws_its_request_for_nodes_and_who_was_superseded_does_not(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path) as it:
        older_nodes, nodes = Nodes(), Nodes()
        older = it.control(autoscaler=older_nodes)
        await eventually(lambda: older_nodes.asked == [1])
        newer = it.control(autoscaler=nodes)
        with pytest.raises(StaleEpoch):
            await asyncio.wait_for(older.task, 60)
        await eventually(lambda: bool(nodes.asked))
        await newer.stop()

        assert 0 not in older_nodes.asked
        assert nodes.asked[-1] == 0
        assert not await it.live.asked_for_nodes()


async def test_without_live_state_the_database_fences_the_older_controller(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        older = it.control()
        await it.until_ready(w1=[A])
        it.valkey.stop()
        it.control()
        await eventually(lambda: it.catalog.ticks(1)[0].body["epoch"] == 2)
        it.register("b")
        with pytest.raises(StaleEpoch):
            await asyncio.wait_for(older.task, 60)


async def test_epochs_of_another_catalog_in_the_live_state_fool_nobody(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        await it.live.put_workers(1_000, [])
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        directory = await it.live.workers()
        assert directory is not None
        assert directory["epoch"] == 1


async def test_a_controller_that_begins_to_lead_is_not_one_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it recalls may take long, and Serve asks for its health meanwhile."""
    asked = asyncio.Event()
    faults: list[Exception] = []

    async with fleet(tmp_path) as it:
        it.register("a")

        async def lead(self: StatusRecorder, epoch: int, plan: Plan | None, **_: object) -> None:
            try:
                loop.check()
            except RuntimeError as error:
                faults.append(error)
            asked.set()

        monkeypatch.setattr(StatusRecorder, "lead", lead)
        loop = it.control().loop
        await asyncio.wait_for(asked.wait(), 60)
    assert faults == []
