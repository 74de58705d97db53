"""The control loop splits a machine anew: over real workers, also when it is killed meanwhile."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import monotonic

import pytest

from controlplane.cluster.kinds.node import Node
from controlplane.cluster.ray_adapter import WorkerAddress
from controlplane.demand_counters import counter_name
from controlplane.slices import layouts_of
from tests.controlplane.fleet import Fleet, LocalCluster, eventually, fleet
from variants.types import (
    DeviceKind,
    DeviceKindName,
    LatencyPoint,
    Profile,
    TaskName,
    VariantName,
)

pytestmark = pytest.mark.slow
ONE, TWO = DeviceKindName("cpu-1"), DeviceKindName("cpu-2")
LAYOUTS = "1xcpu-2|2xcpu-1"
VARIANT = VariantName("a-v1-echo-fp32")


class TwoKinds:
    """A machine with workers of both kinds."""

    def __init__(self, it: Fleet) -> None:
        run_dir, secret = it.settings.run_dir, it.settings.secret_path
        self.of = {
            ONE: LocalCluster(run_dir, secret, 0, kind=ONE, names="one"),
            TWO: LocalCluster(run_dir, secret, 1, kind=TWO, names="two"),
        }

    async def workers(self, kinds: Iterable[str]) -> list[WorkerAddress]:
        listed = [await cluster.workers(kinds) for cluster in self.of.values()]
        return [worker for workers in listed for worker in workers]

    async def targets(self, kinds: Iterable[str]) -> dict[str, int]:
        return {ONE: self.of[ONE].count, TWO: self.of[TWO].count}

    async def failed_starts(self, kinds: Iterable[str]) -> dict[str, str]:
        return {}

    async def scale(self, kind: str, count: int) -> None:
        await self.of[DeviceKindName(kind)].scale(kind, count)

    async def end_worker(self, worker: str, kind: str) -> None:
        await self.of[DeviceKindName(kind)].end_worker(worker, kind)

    async def scale_gateways(self, count: int) -> None:
        """There is one."""

    async def nodes(self) -> Sequence[Node]:
        return ()

    async def close(self) -> None:
        await asyncio.gather(*(cluster.close() for cluster in self.of.values()))


def of_two_kinds(it: Fleet) -> TwoKinds:
    """The installation on a machine with layouts; a row takes 10 ms on either kind."""
    it.settings = it.settings.model_copy(
        update={"slices": LAYOUTS, "workers": 1, "cores": 0, "linger_s": 60.0}
    )
    assert it.settings.layouts == layouts_of(LAYOUTS)
    it.cluster = TwoKinds(it)  # type: ignore[assignment]
    it.register("a")
    it.catalog.put_profiles(
        tuple(
            Profile(
                task=TaskName("digits"), variant=VARIANT, device_kind=kind,
                points=(LatencyPoint(batch_size=1, p50_ms=10.0, p95_ms=10.0, p99_ms=10.0),),
                memory_mib=10.0, load_s=0.1,
            )
            for kind in (ONE, TWO)
        ),
        tuple(
            DeviceKind(name=kind, cores=cores, memory_mib=100.0, usd_per_hour=0.04 * cores)
            for kind, cores in ((ONE, 1), (TWO, 2))
        ),
    )  # fmt: skip
    return it.cluster  # type: ignore[return-value]


async def ask(it: Fleet, qps: float) -> None:
    """Report a demand with an SLO of 500 ms, as gateways do, until this is cancelled."""
    key, began_s = counter_name(TaskName("digits"), 500.0, None, (), None), monotonic()
    while True:
        rows = int(qps * (monotonic() - began_s))
        told = {"demand": {key: rows}, "tightest": {key: 500.0}}
        await it.live.put_gateway("g1", told)
        await asyncio.sleep(0.05)


async def until_held_by(it: Fleet, *workers: str) -> None:
    """Wait until these workers are there, hold the variant, and no others are there."""

    async def reached() -> bool:
        return it.ready() == {worker: [VARIANT] for worker in workers}

    await eventually(reached, f"{workers} hold it")


async def test_the_old_go_when_the_new_have_loaded_also_after_a_controller_was_lost(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path) as it:
        machine = of_two_kinds(it)
        first = it.control()
        await until_held_by(it, "two1")

        asking = asyncio.create_task(ask(it, 150.0))  # one worker can serve 100
        try:
            await eventually(lambda: machine.of[ONE].count == 2, "the change begins")
            assert machine.of[TWO].count == 1
            await first.stop()  # before the new workers are there, or while they load
            it.control()
            await eventually(lambda: machine.of[TWO].count == 0, "the old one goes")
            assert machine.of[ONE].scaled == [2]
            await until_held_by(it, "one1", "one2")
        finally:
            asking.cancel()
        plan = it.catalog.latest_plan()
        assert plan is not None
        assert plan.workers == {ONE: 2}
