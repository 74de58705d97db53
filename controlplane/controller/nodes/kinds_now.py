"""The device kinds now: those of the start, and those of nodes that joined since.

Where settings name the workers, that is all there is. Else each look at the nodes decides anew: a
node of a new kind gets a Serve application of that kind, one more of a known kind one more worker,
and a kind that came later and has no node any more leaves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from controlplane.cluster.kind_applications import Deployed
from controlplane.cluster.kinds.joined_kinds import Joined, joined_kinds
from controlplane.cluster.kinds.node import Node
from controlplane.controller.events.journal import Journal
from controlplane.settings import Settings
from controlplane.slices import Kind, Slice, slices_of, written
from variants.types import DeviceKindName


class Applications(Protocol):
    """The cluster's: ``controlplane.cluster.kind_applications``."""

    async def deployed(self) -> Mapping[DeviceKindName, Deployed]: ...

    async def deploy(self, kind: Kind, one: Slice, replicas: int) -> None: ...

    async def remove(self, kind: DeviceKindName) -> None: ...


class KindsNow:
    """Which kinds there are; ``settings`` are those of the start with them."""

    def __init__(
        self, settings: Settings, applications: Applications | None, journal: Journal
    ) -> None:
        """
        Args:
            applications: None where kinds stay as they are.
        """
        self.settings = settings
        self._journal = journal
        self._applications = applications if settings.takes_joining_nodes else None
        self._started = slices_of(written(settings.kinds))
        self._first = frozenset(one.name for one in self._started)
        self._slices: tuple[Slice, ...] | None = None
        """The kinds now, with those whose last node has just left; None: not known yet."""
        self._homes: dict[str, set[str]] = {}
        """Names of the kinds whose workers ran on a node, by its id."""

    @property
    def follow_nodes(self) -> bool:
        """Whether nodes that join get workers."""
        return self._applications is not None

    async def recall(self) -> None:
        """Know the kinds that an earlier control loop has added, whose workers run.

        Raises:
            ClusterUnavailable: Serve does not say which there are.
        """
        if self._applications is not None and self._slices is None:
            deployed = await self._applications.deployed()
            self._know(_running(self._started, deployed))

    async def follow(
        self,
        nodes: Sequence[Node],
        wanted: Mapping[DeviceKindName, int],
        *,
        autoscaled: bool = False,
    ) -> Joined | None:
        """Start and end what nodes that joined or left ask for; None where kinds stay.

        Args:
            wanted: how many workers of each kind there shall be, with what an operator asked for of
                kinds that are not there.
            autoscaled: whether nodes come and go by themselves; no workers are added then.

        Raises:
            ClusterUnavailable: Serve does not do it. The next call goes on.
        """
        if self._applications is None:
            return None
        await self.recall()
        deployed = await self._applications.deployed()
        self._remember(deployed, nodes)
        before = {one.name: one for one in self._slices or ()}
        known = tuple(before.values())
        autoscaled = autoscaled and bool(self._started)  # else nothing would ever run
        found = joined_kinds(self._started, known, nodes, self._homes, autoscaled=autoscaled)
        kept = []
        for one in found.slices:
            there = deployed.get(DeviceKindName(one.name))
            if await self._bring_about(one, before.get(one.name), there, wanted):
                kept.append(one)
        self._know(tuple(kept))
        return found

    def _know(self, slices: tuple[Slice, ...]) -> None:
        self._slices = slices
        settings = self._with(slices)
        if settings.kinds != self.settings.kinds:
            self.settings = settings

    def _remember(self, deployed: Mapping[DeviceKindName, Deployed], nodes: Sequence[Node]) -> None:
        there = {node.id for node in nodes}
        self._homes = {id_: kinds for id_, kinds in self._homes.items() if id_ in there}
        for name, workers in deployed.items():
            for id_ in workers.nodes & there:
                self._homes.setdefault(id_, set()).add(name)

    async def _bring_about(
        self,
        one: Slice,
        before: Slice | None,
        there: Deployed | None,
        wanted: Mapping[DeviceKindName, int],
    ) -> bool:
        """Have Serve run what a kind is now; whether it is still a kind."""
        assert self._applications is not None
        name = DeviceKindName(one.name)
        old = (there.slice if there is not None else None) or before
        if there is None:
            if one.name in self._first:
                return True  # whoever started the installation left it out
            if replicas := wanted.get(name, one.most) if one.most else 0:
                await self._deploy(one, replicas)
                self._tell(name, f"nodes have joined: {_counted(replicas)} of this kind")
            return bool(replicas)
        if old is not None and old.nodes != one.nodes:
            await self._deploy(one, max(one.most, there.target))
            self._tell(name, f"its workers are started anew, to run on {one.nodes or 'any node'}")
        elif before is not None and one.most != before.most:
            self._tell(name, f"its nodes have room for {_counted(one.most)} now")
        elif not one.most and not wanted.get(name):
            await self._applications.remove(name)
            self._tell(name, "all of its nodes have left, and its workers end")
            return False
        return True

    async def _deploy(self, one: Slice, replicas: int) -> None:
        assert self._applications is not None
        there = replace(one, most=max(1, one.most))
        [kind] = self._with((there,)).kinds
        await self._applications.deploy(kind, there, replicas)

    def _tell(self, kind: DeviceKindName, sentence: str) -> None:
        self._journal.tell("nodes", kind, sentence)

    def _with(self, slices: Sequence[Slice]) -> Settings:
        """Settings say of all workers without a GPU what variants may take on one."""
        said = self.settings.worker_memory_mib
        there = [
            replace(one, memory_mib=None)
            if said and one.gpu is None and one.name not in self._first
            else one
            for one in slices
            if one.most
        ]
        return self.settings.with_slices(",".join(map(str, there)))


def _running(
    started: Sequence[Slice], deployed: Mapping[DeviceKindName, Deployed]
) -> tuple[Slice, ...]:
    """The kinds of the start as they are now, and those that were added since."""
    found = {one.name: one for one in started}
    found |= {str(name): each.slice for name, each in deployed.items() if each.slice is not None}
    targets = {str(name): each.target for name, each in deployed.items()}
    return tuple(
        replace(one, most=max(one.most, targets.get(name, 0))) for name, one in found.items()
    )


def _counted(workers: int) -> str:
    return "1 worker" if workers == 1 else f"{workers} workers"
