"""A gateway in one zone, and real workers in two of them, one of them a long way off."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.gateway.gateway import Gateway
from tests.controlplane.fleet import Fleet, eventually, fleet, gateway
from tests.workers.channel.detour import Detour
from variants.types import DeviceKindName, WorkerId

pytestmark = pytest.mark.slow

AWAY_MS = 160.0
BATCH_MS = 100.0
"""What a row takes; another one would have to wait as long."""
FAR = "Asked for in zone edge: no worker is near enough to answer digits within 100 ms in time"
"""Of queries for 200 ms, which nothing that is there keeps: they count in the class below that."""


@dataclass
class Zones:
    """The first half of the workers is in the gateway's zone, ``edge``, the other one far away in
    ``core``."""

    fleet: Fleet
    gateway: Gateway
    client: httpx.AsyncClient

    async def ask(self, slo: Mapping[str, Any]) -> tuple[int, str]:
        """The status, and who answered or the code of the refusal."""
        asked = {"task": "digits", "inputs": [[0.0] * 64], "slo": slo}
        answer = await self.client.post("/v1/query", json=asked)
        said = answer.json()
        return answer.status_code, said["worker" if answer.status_code == 200 else "code"]

    async def placed(self, slo: Mapping[str, Any]) -> str:
        """Where a query was answered, in words, and why there."""
        asked = {"task": "digits", "inputs": [[0.0] * 64], "slo": slo}
        return str((await self.client.post("/v1/query", json=asked)).headers["x-choice-zone"])

    async def batches(self, worker: str) -> int:
        """So many ran there for queries, by a report that was made after this was asked for."""
        connection = self.gateway.known.workers[WorkerId(worker)].connection
        for _ in range(2):  # the first one may have been on its way
            before = connection.status
            await eventually(lambda old=before: connection.status is not old)  # type: ignore[misc]
        return sum(replica.batches - replica.checks for replica in connection.status.replicas)

    async def routed_to(self, workers: set[str]) -> bool:
        """Asked for at a third of what one worker can do, for which a plan needs no other one."""
        await asyncio.sleep(2 * BATCH_MS / 1_000)
        await self.ask({"latency_ms": 30_000})
        plan = self.fleet.catalog.latest_plan()
        return plan is not None and {route.worker for route in plan.routes} == workers

    async def ask_together(self, count: int, slo: Mapping[str, Any]) -> Counter[tuple[int, str]]:
        return Counter(await asyncio.gather(*(self.ask(slo) for _ in range(count))))


@asynccontextmanager
async def zones(folder: Path, port: int, each: int = 1) -> AsyncIterator[Zones]:
    """With so many workers in each zone."""
    async with AsyncExitStack() as stack:
        count = 2 * each
        it = await stack.enter_async_context(fleet(folder, workers=count, port=port, zone="edge"))
        it.cluster.zones = {f"w{n}": "edge" if n <= each else "core" for n in range(1, count + 1)}
        for n in range(each + 1, count + 1):
            it.cluster.detours[f"w{n}"] = await stack.enter_async_context(Detour(AWAY_MS))
        it.register("a", profiled_ms=BATCH_MS, latency_ms=str(BATCH_MS))
        of, client = await stack.enter_async_context(gateway(it))
        it.control()

        def met() -> bool:
            views = [worker.view for worker in of.known.workers.values()]
            held = [worker.ready for worker in of.known.workers.values()]
            far = sum(view.round_trip_ms > 0.0 for view in views)
            return (len(views), far) == (count, each) and all(held)

        await eventually(met)
        yield Zones(it, of, client)


@pytest.fixture
async def two(tmp_path: Path, port: int) -> AsyncIterator[Zones]:
    async with zones(tmp_path, port) as made:
        yield made


@pytest.mark.campaign
async def test_queries_stay_in_their_zone_while_it_has_room_and_leave_it_when_not(
    two: Zones,
) -> None:
    near, far = (two.gateway.known.workers[WorkerId(name)].view for name in ("w1", "w2"))
    assert (near.zone, near.round_trip_ms) == ("edge", 0.0)
    assert far.zone == "core"
    assert far.round_trip_ms >= AWAY_MS

    one_by_one = [await two.ask({"latency_ms": 30_000}) for _ in range(20)]
    assert one_by_one == [(200, "w1")] * 20
    assert await two.placed({"latency_ms": 30_000}) == "in zone edge: it was asked for there"

    # The plan gives what is asked for at the edge to the edge.
    await eventually(lambda: two.routed_to({"w1"}), "routes lead to the edge alone")

    # More at once than one worker can do within the SLO.
    together = await two.ask_together(60, {"latency_ms": 1_600})
    assert together[200, "w2"] > 0, together
    assert together[200, "w1"] > 0, together

    # The way alone takes longer: nobody is sent there, whatever becomes of them at home.
    ran = await two.batches("w2")
    tight = await two.ask_together(20, {"latency_ms": AWAY_MS})
    assert tight[200, "w2"] == 0
    assert await two.batches("w2") == ran

    shown = {row["worker"]: row for row in (await two.client.get("/v1/workers")).json()["workers"]}
    assert (shown["w1"]["zone"], shown["w1"]["round_trip_ms"]) == ("edge", 0.0)
    assert (shown["w2"]["zone"], shown["w2"]["round_trip_ms"] >= AWAY_MS) == ("core", True)
    metrics = (await two.client.get("/metrics")).text
    assert 'modelless_worker_round_trip_seconds{worker="w1",zone="edge"} 0.0' in metrics
    assert 'modelless_worker_round_trip_seconds{worker="w2",zone="core"} 0.1' in metrics


async def test_a_zone_without_workers_sends_its_queries_where_there_are_some(two: Zones) -> None:
    two.fleet.cluster.count = 1
    two.fleet.cluster.kill("w1")
    await eventually(lambda: two.gateway.known.workers.keys() == {"w2"})
    assert await two.ask({"latency_ms": 30_000}) == (200, "w2")
    said = await two.placed({"latency_ms": 30_000})
    assert said.startswith("in zone core, 1")
    assert said.endswith(" ms away: zone edge has no workers")
    status, code = await two.ask({"latency_ms": AWAY_MS})
    assert (status, code) == (422, "SLO_INFEASIBLE")


@pytest.mark.campaign
async def test_home_fills_and_empties_again(tmp_path: Path, port: int) -> None:
    """Two workers in each zone, and a load that home can do, cannot, and can again."""
    near = {"w1", "w2"}
    async with zones(tmp_path, port, each=2) as it:
        await eventually(lambda: it.routed_to(near), "routes lead to the edge alone")
        for _ in range(3):
            calm = [await it.ask({"latency_ms": 30_000}) for _ in range(40)]
            assert {who for _, who in calm} <= near
            crowd = await it.ask_together(100, {"latency_ms": 1_600})
            assert sum(crowd[200, who] for who in near) > 0
            assert sum(crowd[200, who] for who in ("w3", "w4")) > 0
            ran = [await it.batches(who) for who in ("w3", "w4")]
            tight = await it.ask_together(60, {"latency_ms": AWAY_MS})
            assert {who for status, who in tight if status == 200} <= near
            assert [await it.batches(who) for who in ("w3", "w4")] == ran


@pytest.mark.campaign
async def test_it_is_told_where_no_worker_is_near_enough(two: Zones) -> None:
    two.fleet.catalog.set_inventory(DeviceKindName("cpu-1"), 1)  # nobody takes its place
    two.fleet.cluster.count = 1
    two.fleet.cluster.kill("w1")
    await eventually(lambda: two.gateway.known.workers.keys() == {"w2"})

    async def told() -> bool:
        for latency_ms in (200, 30_000):  # the first one leaves no time for way and batch
            await two.ask({"latency_ms": latency_ms})
        said = (await two.client.get("/v1/plan")).json()["zones"]
        return any(one.startswith(FAR) for one in said)

    await eventually(told, FAR)
