"""The device kinds now: those of the start, and those of nodes that joined since.

Where settings name the workers, that is all there is. Else each look at the nodes decides anew: a
node of a new kind gets a Serve application of that kind, one more of a known kind one more worker,
and a kind that came later and has no node any more leaves.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Protocol

from controlplane.cluster.kind_applications import Deployed
from controlplane.cluster.kinds.joined_kinds import Joined, joined_kinds
from controlplane.cluster.kinds.node import Node, cores_left
from controlplane.controller.events.journal import Journal
from controlplane.settings import Settings
from controlplane.slices import MOST_KINDS, Kind, Slice, slices_of, written
from variants.figures import counted
from variants.types import DeviceKindName

PATIENCE = 7
"""For how many looks a node waits for a worker that Serve may be about to put on it: Ray needs a
moment to tell where one is that it starts."""
SELDOM = 10
"""Looks between two questions to Serve where nothing has changed: a worker that was lost may have
been started anew on another node."""


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
        self._told: set[tuple[str, str]] = set()
        """What was told of kinds, and is told once."""
        self._waits: dict[str, int] = {}
        """For how many looks a node has waited for a worker of a known kind, by its id."""
        self._looked_at: object = None
        """What the latest look went by; None: the next one asks Serve in any case."""
        self._found: Joined | None = None
        self._same = 0
        """Looks since Serve was asked."""
        self._settling: dict[str, int] = {}
        """For how many looks a new kind has had workers without a node, by its name."""

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
            running = _running(self._started, deployed)
            for one in running[MOST_KINDS:]:
                self._tell_once(one.name, f"it is one kind more than the {MOST_KINDS} there may be")
            self._know(running[:MOST_KINDS])

    async def follow(
        self,
        nodes: Sequence[Node],
        asked: Mapping[DeviceKindName, int],
        targets: Mapping[DeviceKindName, int],
        *,
        autoscaled: bool = False,
    ) -> Joined | None:
        """Start and end what nodes that joined or left ask for; None where kinds stay.

        Serve is asked only where something has changed, and now and then.

        Args:
            asked: the numbers of workers that an operator asked for, of kinds there are and others.
            targets: how many Serve was told to run, as far as is known.
            autoscaled: whether nodes come and go by themselves; no workers are added then.

        Raises:
            ClusterUnavailable: Serve does not do it. The next call goes on.
        """
        if self._applications is None:
            return None
        await self.recall()
        looked_at = (tuple(nodes), dict(asked), dict(targets), autoscaled)
        self._same += 1
        if self._found and looked_at == self._looked_at and self._same < SELDOM:
            return self._found
        deployed = await self._applications.deployed()
        for name, each in deployed.items():
            if each.wrong:
                self._tell_once(name, each.wrong)
        self._remember(deployed, nodes)
        before = {one.name: one for one in self._slices or ()}
        missing = {str(name) for name, each in deployed.items() if each.placed < each.target}
        found = self._joined(before, nodes, missing, autoscaled=autoscaled)
        new = {one.name for one in found.slices} - before.keys() if self._slices else set()
        self._settle({name for name in new if asked.get(DeviceKindName(name)) != 0}, missing)
        kept = []
        for one in self._held_back(found, before, nodes):
            there = deployed.get(DeviceKindName(one.name))
            now = await self._bring_about(one, before.get(one.name), there, asked)
            if now is not None:
                kept.append(now)
        calm = tuple(kept) == self._slices and not found.waiting and not self._settling
        self._looked_at, self._same = (looked_at if calm else None), 0
        self._found = found
        self._know(tuple(kept))
        return found

    def _joined(
        self,
        before: Mapping[str, Slice],
        nodes: Sequence[Node],
        missing: Set[str],
        *,
        autoscaled: bool,
    ) -> Joined:
        """The kinds that the nodes make, and which nodes wait for a worker.

        Args:
            missing: kinds of which Serve has yet to place workers.
        """
        waited = {id_ for id_, looks in self._waits.items() if looks >= PATIENCE}
        found = joined_kinds(
            self._started,
            tuple(before.values()),
            nodes,
            self._homes,
            missing,
            waited,
            autoscaled=autoscaled and bool(self._started),  # else nothing would ever run
        )
        self._waits = {
            node.id: self._waits.get(node.id, 0) + (node.id in found.waiting) for node in nodes
        }
        return found

    def _know(self, slices: tuple[Slice, ...]) -> None:
        self._slices = slices
        settings = self._with(slices)
        if settings.kinds != self.settings.kinds:
            self.settings = settings

    def _settle(self, new: Set[str], missing: Set[str]) -> None:
        """Note the new kinds whose workers have no node yet."""
        self._settling = {
            name: looks + 1
            for name, looks in self._settling.items()
            if name in missing and looks < PATIENCE
        } | dict.fromkeys(new, 0)

    def _held_back(
        self, found: Joined, before: Mapping[str, Slice], nodes: Sequence[Node]
    ) -> list[Slice]:
        """The kinds, without more workers than before of those that may run anywhere and would be
        put on the nodes of a new kind whose workers have none yet."""
        theirs = set[str]().union(
            *(found.nodes.get(DeviceKindName(one), ()) for one in self._settling)
        )
        largest = max((cores_left(node) for node in nodes if node.id in theirs), default=0)
        return [
            replace(one, most=min(one.most, before[one.name].most))
            if one.name in before and one.nodes is None and one.cores <= largest
            else one
            for one in found.slices
        ]

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
        asked: Mapping[DeviceKindName, int],
    ) -> Slice | None:
        """Have Serve run what a kind is now; what it is then, or None where it is none any more."""
        assert self._applications is not None
        name = DeviceKindName(one.name)
        old = (there.slice if there is not None else None) or before
        if there is None:
            if one.name in self._first:
                return one  # whoever started the installation left it out
            if replicas := asked.get(name, one.most) if one.most else 0:
                await self._deploy(one, replicas)
                self._tell(name, f"nodes have joined: {counted(replicas, 'worker')} of this kind")
            return one if replicas else None
        if old is not None and old.nodes != one.nodes:
            if not (replicas := self._renewed(one, there, asked)):
                return replace(one, nodes=old.nodes)  # when there are workers again
            await self._deploy(one, replicas)
            self._tell(name, f"its workers are started anew, to run on {one.nodes or 'any node'}")
        elif before is not None and one.most != before.most:
            self._tell(name, f"its nodes have room for {counted(one.most, 'worker')} now")
        elif not one.most and not asked.get(name):
            await self._applications.remove(name)
            self._tell(name, "all of its nodes have left, and its workers end")
            return None
        return one

    def _renewed(self, one: Slice, there: Deployed, asked: Mapping[DeviceKindName, int]) -> int:
        """How many workers of a kind are started anew: as many as run where plans decide, or else
        as an operator asked for, or as there is room for. Of one that is to have none: none."""
        decided = self._kind_of(one).least is not None
        return (
            there.target
            if decided or not there.target
            else asked.get(DeviceKindName(one.name), max(1, one.most))
        )

    async def _deploy(self, one: Slice, replicas: int) -> None:
        assert self._applications is not None
        there = replace(one, most=max(1, one.most))
        await self._applications.deploy(self._kind_of(there), there, replicas)

    def _kind_of(self, one: Slice) -> Kind:
        [kind] = self._with((replace(one, most=max(1, one.most)),)).kinds
        return kind

    def _tell(self, kind: DeviceKindName, sentence: str) -> None:
        self._journal.tell("nodes", kind, sentence)

    def _tell_once(self, kind: str, sentence: str) -> None:
        if (kind, sentence) not in self._told:
            self._told.add((kind, sentence))
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
