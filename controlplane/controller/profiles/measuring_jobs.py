"""MeasuringJobs: what is being measured, on which node, and where there is room for more.

One is measured at a time on a node. What has more haste goes before it, where it gives way.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from controlplane.profiling.due.orders import MeasuringOrder
from controlplane.profiling.due.places import NodeLoad, Pauses, calmest, goes_now
from controlplane.profiling.due.setbacks import Setbacks
from controlplane.profiling.due.staleness import BackEnd
from planner.types import ProfileKey
from variants.errors import Overloaded
from variants.types import DeviceKindName, Profile

OWN_SLICE = ""
"""In the place of a node: cores that no worker has, wherever the kind may run."""


class Nodes(Protocol):
    """Where profiles are measured. ``controlplane.cluster.measuring_nodes`` has Ray's."""

    @property
    def one_machine(self) -> bool:
        """Whether all kinds are slices of one machine, on which each is measured."""

    async def nodes(
        self, kinds: Iterable[DeviceKindName], workers: Iterable[str]
    ) -> dict[str, str]: ...

    async def look(self, node: str, back_ends: Iterable[BackEnd]) -> Mapping[BackEnd, str]: ...

    async def measure(
        self, order: MeasuringOrder, node: str, placed: Callable[[str], None]
    ) -> Profile: ...

    async def give_way(self, key: ProfileKey, gives: bool) -> bool: ...

    async def stays(self, node: str) -> bool: ...


@dataclass(slots=True, kw_only=True)
class Job:
    """A measurement that goes on."""

    node: str
    """Where it is measured; ``OWN_SLICE`` while no node has room."""
    own_slice: bool
    busy_ratio: float
    """Of the node, when it began."""
    task: asyncio.Task[None]
    haste: int = 0
    """Of the order: who has more goes before it."""
    gives_way: bool = False
    """Whether it waits at one of its steps until another one is measured there."""
    placed: bool = False
    """Whether a process there has begun, and the node stays: else what fails is no matter of the
    variant."""


class MeasuringJobs:
    """Measurements that go on, by the profile that is to come of each."""

    def __init__(self, nodes: Nodes, setbacks: Setbacks) -> None:
        self._cluster = nodes
        self._setbacks = setbacks
        self._jobs: dict[ProfileKey, Job] = {}
        self._pauses = Pauses()
        self._going_on: asyncio.Task[None] | None = None

    def __contains__(self, key: ProfileKey) -> bool:
        return key in self._jobs

    def __getitem__(self, key: ProfileKey) -> Job:
        return self._jobs[key]

    def tasks(self) -> Iterator[asyncio.Task[None]]:
        """All that goes on."""
        yield from (job.task for job in self._jobs.values())
        if self._going_on is not None:
            yield self._going_on

    def begin(
        self, order: MeasuringOrder, node: str, busy_ratio: float, task: asyncio.Task[None]
    ) -> None:
        """Note a measurement that has begun on a node, or on a slice of its own."""
        self._jobs[order.key] = Job(
            node=node, own_slice=node == OWN_SLICE, busy_ratio=busy_ratio, task=task,
            haste=order.haste,
        )  # fmt: skip

    def end(self, key: ProfileKey) -> None:
        """Note that one is over; what gave way to it goes on."""
        self._jobs.pop(key, None)
        if any(job.gives_way for job in self._jobs.values()):
            self._going_on = asyncio.create_task(self._go_on())

    def placed(self, key: ProfileKey, node: str) -> None:
        """Note that a process has begun to measure on a node.

        Raises:
            Overloaded: something else is being measured on that node.
        """
        job = self._jobs[key]
        if node != job.node and node in self.occupied:
            raise Overloaded("something else is being measured on that node")
        job.node, job.placed = node, True
        self._setbacks.begun(node, key[-1])

    def pause(self, key: ProfileKey, took_s: float, now_s: float) -> None:
        """Leave a busy node alone for a while after what was measured on it."""
        job = self._jobs[key]
        if not job.own_slice:
            self._pauses.measured(job.node, job.busy_ratio, took_s, now_s)

    def give_up_slices(self, running: Mapping[DeviceKindName, int]) -> None:
        """Workers are wanted where something is measured on a slice of its own: they come first."""
        for (_, _, kind), job in self._jobs.items():
            if job.own_slice and running.get(kind):
                job.task.cancel()

    @property
    def occupied(self) -> set[str]:
        """The nodes on which something is being measured, and does not give way."""
        return {job.node for job in self._jobs.values() if not job.gives_way} - {OWN_SLICE}

    def place(
        self,
        order: MeasuringOrder,
        nodes: Mapping[str, NodeLoad],
        running: Mapping[DeviceKindName, int],
        waited_s: float,
        now_s: float,
    ) -> str | None:
        """The node for an order, or a slice of its own; None where it has to wait."""
        kind = order.due.kind.name
        if not running.get(kind) and not self._cluster.one_machine:
            one_waits = any(job.own_slice for job in self._jobs.values())
            return None if one_waits or self._setbacks.slice_waits(kind, now_s) else OWN_SLICE
        occupied = self.occupied
        free = (
            id_
            for id_ in nodes
            if id_ not in occupied
            and not self._setbacks.node_waits(id_, now_s)
            and (order.hurried or not self._pauses.pauses(id_, now_s))
        )
        node = calmest(kind, nodes, free)
        ready = node is not None and goes_now(order, nodes[node].busy_ratio, waited_s)
        return node if ready else None

    async def made_free(
        self, order: MeasuringOrder, nodes: Mapping[str, NodeLoad], now_s: float
    ) -> str | None:
        """A node on which what has less haste gives way to an order, at its next step. Of one whose
        workers are GPUs none does: the memory there is not enough for two."""
        kind = order.due.kind
        there = {} if kind.gpu is not None else {
            job.node: key
            for key, job in self._jobs.items()
            if job.placed and not job.own_slice and job.haste < order.haste
        }  # fmt: skip
        others = {job.node for job in self._jobs.values() if job.gives_way}
        free = (id_ for id_ in nodes if id_ in there and id_ not in others
                and not self._setbacks.node_waits(id_, now_s))  # fmt: skip
        node = calmest(kind.name, nodes, free)
        if node is None or not await self._cluster.give_way(there[node], True):
            return None
        if there[node] in self._jobs:  # else it has ended meanwhile
            self._jobs[there[node]].gives_way = True
        return node

    async def _go_on(self) -> None:
        """What gave way on a node, and need not any more, goes on."""
        for key, job in list(self._jobs.items()):
            if job.gives_way and job.node not in self.occupied:
                job.gives_way = False
                await self._cluster.give_way(key, False)
