"""Watching the nodes of a cluster: which have the kinds of the installation, and what others could.

Nodes join and leave, so they are looked at every few seconds. Where the kinds follow the nodes
(``kinds_now``), each look may add one or end one. What an operator may do about a node that no
worker can use is told, as an event and with the device kinds.
"""

import contextlib
from collections.abc import Mapping
from typing import Any, Protocol

from controlplane.cluster.kinds.node import Node
from controlplane.cluster.kinds.sightings import sighted
from controlplane.controller.events.journal import Journal
from controlplane.controller.nodes.kinds_now import Applications, KindsNow
from controlplane.controller.one_task import OneTask
from controlplane.live_state import LiveState
from controlplane.settings import Settings
from controlplane.slices import written
from variants.errors import StateUnavailable
from variants.types import DeviceKindName

LOOK_EVERY_S = 10.0
FOLLOW_EVERY_S = 3.0
"""The same where nodes that join get workers."""


class Nodes(Protocol):
    """What lists nodes: the cluster."""

    async def nodes(self) -> tuple[Node, ...]: ...


class NodeWatch:
    """Looks beside the control loop: a new node may take its time to say what it is."""

    def __init__(
        self,
        cluster: Nodes,
        live: LiveState,
        journal: Journal,
        settings: Settings,
        applications: Applications | None = None,
    ) -> None:
        """
        Args:
            applications: those of the kinds; None where kinds stay as they are.
        """
        self._cluster = cluster
        self._live = live
        self._journal = journal
        self._kinds = KindsNow(settings, applications, journal)
        self._looked_at_s = float("-inf")
        self._looking = OneTask()
        self._advice: tuple[str, ...] = ()

    @property
    def settings(self) -> Settings:
        """Those of the start, with the device kinds of now."""
        return self._kinds.settings

    async def recall(self) -> None:
        """Know the kinds that there are by now, before the first look.

        Raises:
            ClusterUnavailable: Serve does not say which there are.
        """
        await self._kinds.recall()

    def follow(
        self,
        asked: Mapping[DeviceKindName, int],
        targets: Mapping[DeviceKindName, int],
        now_s: float,
        *,
        autoscaled: bool = False,
    ) -> None:
        """Look, where that is due and a look is not under way; nothing on one machine.

        Args:
            asked: the numbers of workers that an operator asked for.
            targets: how many Serve was told to run.
            autoscaled: whether an autoscaler starts nodes: those that join get no workers then.
        """
        every_s = FOLLOW_EVERY_S if self._kinds.follow_nodes else LOOK_EVERY_S
        due = now_s - self._looked_at_s >= every_s
        if self.settings.ray_address and due and not self._looking.is_under_way:
            self._looked_at_s = now_s
            self._looking.begin(self.look(dict(asked), dict(targets), autoscaled=autoscaled))

    async def look(
        self,
        asked: Mapping[DeviceKindName, int],
        targets: Mapping[DeviceKindName, int],
        *,
        autoscaled: bool = False,
    ) -> None:
        """Look at the nodes, tell gateways, and note advice that is new."""
        try:
            nodes = await self._cluster.nodes()
            joined = await self._kinds.follow(nodes, asked, targets, autoscaled=autoscaled)
        except Exception as error:
            self._journal.failed("look at the nodes", error)
            return
        self._journal.over("look at the nodes")
        kinds = self.settings.kinds
        wanted = self.settings.wanted(asked)
        if joined is not None:  # those that are held back for a moment come without anybody's doing
            wanted = {DeviceKindName(one.name): one.most for one in joined.slices}
            wanted |= asked
        seen = sighted(kinds, wanted, nodes, None if joined is None else joined.nodes)
        remarks = () if joined is None else joined.remarks
        advice = (*remarks, *seen.advice)
        for sentence in advice:
            if sentence not in self._advice:
                self._journal.tell("nodes", "cluster", sentence)
        self._advice = advice
        told: dict[str, Any] = {"advice": list(advice)}
        told["kinds"] = {name: list(names) for name, names in seen.nodes.items()}
        if joined is not None:
            told["slices"] = written(kinds)
        with contextlib.suppress(StateUnavailable):
            await self._live.put_nodes(told)

    async def close(self) -> None:
        await self._looking.give_up()
