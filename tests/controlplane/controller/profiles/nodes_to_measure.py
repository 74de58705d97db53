"""A catalog, nodes and what they measure, without processes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.controller.events.journal import Journal
from controlplane.controller.profiles.measuring import LOOK_EVERY_S, Measuring
from controlplane.profiling.due.orders import MeasuringOrder
from controlplane.profiling.due.staleness import BackEnd
from controlplane.settings import load_settings
from planner.types import Demand, Observation, ProfileKey
from tests.controlplane.fleet import eventually
from tests.variants.catalog_builders import CPU, kind, profile, registration, version
from variants.catalog.memory import MemoryCatalog
from variants.types import DeviceKindName, Event, Profile, ProfilingRequest
from workers.types import WorkerStatus

HEAD, NODE = "Old; 1 cores; Linux 6.1", "New; 1 cores; Linux 6.1"
CPU_2 = DeviceKindName("cpu-2")
Answer = Callable[[MeasuringOrder], Awaitable[Profile]]


def status(busy_ratio: float, of: str = CPU) -> WorkerStatus:
    return WorkerStatus(
        worker="", device_kind=of, memory_mib=9.0, reserved_mib=1.0, draining=False,
        backlog_us=0, busy_ratio=busy_ratio, replicas=(),
    )  # fmt: skip


async def measured_there(order: MeasuringOrder) -> Profile:
    return profile(
        order.due.variant.name, kind=order.due.kind.name, host=NODE, measured_on="a node (10.0.0.3)"
    )


@dataclass(slots=True)
class Cluster:
    """Nodes by the names of the workers on them, and what came of orders."""

    placed: dict[str, str]
    answer: Answer = measured_there
    one_machine: bool = False
    own_node: str = "n-9"
    """Where a slice of its own is found."""
    beginning: Answer | None = None
    """Called before a process has begun, which it may refuse."""
    orders: list[tuple[str, str]] = field(default_factory=list)
    """Variant and node."""
    given_way: list[tuple[str, bool]] = field(default_factory=list)
    """Variants whose measurement was to give way, or to go on."""
    looks: int = 0
    hanging: int = 0
    """Measurements that go on."""
    going: set[str] = field(default_factory=set)
    """Nodes that are lost, or soon will be."""
    unknown: set[str] = field(default_factory=set)
    """Nodes at which looking fails in a way that nobody expects."""

    async def nodes(
        self, kinds: Iterable[DeviceKindName], workers: Iterable[str]
    ) -> dict[str, str]:
        return {
            worker: node
            for worker, node in self.placed.items()
            if DeviceKindName(worker[:-2]) in kinds
        }

    async def look(self, node: str, back_ends: Iterable[BackEnd]) -> Mapping[BackEnd, str]:
        self.looks += 1
        if node in self.unknown:
            raise RuntimeError("a private part of Ray has changed")
        return dict.fromkeys(back_ends, NODE)

    async def give_way(self, key: ProfileKey, gives: bool) -> bool:
        self.given_way.append((key[1], gives))
        return True

    async def stays(self, node: str) -> bool:
        if node in self.unknown:
            raise RuntimeError("a private part of Ray has changed")
        return node not in self.going

    async def measure(
        self, order: MeasuringOrder, node: str, placed: Callable[[str], None]
    ) -> Profile:
        self.orders.append((order.due.variant.name, node))
        if self.beginning is not None:
            await self.beginning(order)
        placed(node or self.own_node)
        return await self.answer(order)


class House:
    """The measuring of a control loop, with a clock of its own."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        *models: str,
        host: str = "",
        slices: str = "",
        catalog: MemoryCatalog | None = None,
    ) -> None:
        self.catalog = catalog or MemoryCatalog()
        for model in models:
            known = profile(f"{model}-v1-onnx-fp32", host=host)
            self.catalog.register(
                registration(
                    model,
                    version=version(model),
                    profiles=(known,) if host else (),
                    device_kinds=(kind(),) if host else (),
                )
            )
        self.cluster = cluster
        self.journal = Journal(self.catalog)
        self.now_s = 0.0
        self.workers = {worker: status(0.0) for worker in cluster.placed}
        self.running = {CPU: len(cluster.placed)}
        self.demand: tuple[Demand, ...] = ()
        settings = load_settings(
            state_dir=folder,
            cores=None if slices else 1,
            worker_memory_mib=100,
            slices=slices or None,
        )
        self.measuring = Measuring(
            lambda: settings, self.catalog, cluster, self.journal, lambda: self.now_s
        )

    def request(self, reason: str, at: str, place: int = 0) -> None:
        """Ask for a variant to be measured, the first unless said otherwise."""
        variant = self.catalog.snapshot().variants[place]
        asked = ProfilingRequest(
            task=variant.task, variant=variant.name, device_kind=CPU, reason=reason, at=at
        )
        self.catalog.request_profiling((asked,), anew=True)

    async def look(self, after_s: float = LOOK_EVERY_S) -> list[tuple[str, str]]:
        """What is ordered by a look after so long."""
        self.now_s += after_s
        before = len(self.cluster.orders)
        known = self.catalog.snapshot()
        observation = Observation(
            catalog=known, workers=(), demand=self.demand, inventory={CPU: 2, CPU_2: 2},
            running=self.running,
            plan=None, now_s=self.now_s,
        )  # fmt: skip
        self.measuring.look(known, observation, self.workers)
        await eventually(lambda: len(asyncio.all_tasks()) - 1 == self.cluster.hanging)
        return self.cluster.orders[before:]

    async def events(self) -> Sequence[Event]:
        await self.journal.store_events()
        return self.catalog.events(limit=100)


def hanging(placed: Mapping[str, str]) -> Cluster:
    """A cluster on which measuring does not end."""
    cluster = Cluster(dict(placed))

    async def answer(_: MeasuringOrder) -> Profile:
        cluster.hanging += 1
        try:
            await asyncio.sleep(3_600)
        finally:
            cluster.hanging -= 1
        raise AssertionError

    cluster.answer = answer
    return cluster
