"""Watching the nodes of a cluster: which have the kinds of the installation, and what others could.

Nodes join and leave while the kinds stay as they were when the installation started. So they are
looked at every few seconds, and what an operator may do about a node that no worker can use is
told, as an event and with the device kinds.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Protocol

from controlplane.cluster.found_kinds import Node, sighted
from controlplane.controller.events.journal import Journal
from controlplane.live_state import LiveState
from controlplane.settings import Settings
from variants.errors import ClusterUnavailable, StateUnavailable
from variants.types import DeviceKindName

LOOK_EVERY_S = 10.0


class Nodes(Protocol):
    """What lists nodes: the cluster."""

    async def nodes(self) -> tuple[Node, ...]: ...


class NodeWatch:
    """Looks beside the control loop: a new node may take its time to say what it is."""

    def __init__(
        self, cluster: Nodes, live: LiveState, journal: Journal, settings: Settings
    ) -> None:
        self._cluster = cluster
        self._live = live
        self._journal = journal
        self._kinds = settings.kinds if settings.ray_address else ()
        self._looked_at_s = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self._advice: tuple[str, ...] = ()

    def follow(self, wanted: Mapping[DeviceKindName, int], now_s: float) -> None:
        """Look, where that is due and a look is not under way; nothing on one machine.

        Args:
            wanted: how many workers of each kind there shall be.
        """
        under_way = self._looking is not None and not self._looking.done()
        if self._kinds and not under_way and now_s - self._looked_at_s >= LOOK_EVERY_S:
            self._looked_at_s = now_s
            self._looking = asyncio.create_task(self.look(dict(wanted)))

    async def look(self, wanted: Mapping[DeviceKindName, int]) -> None:
        """Look at the nodes, tell gateways, and note advice that is new."""
        try:
            nodes = await self._cluster.nodes()
        except ClusterUnavailable as error:
            self._journal.trouble("nodes", error)
            return
        self._journal.over("nodes")
        seen = sighted(self._kinds, wanted, nodes)
        for sentence in seen.advice:
            if sentence not in self._advice:
                self._journal.tell("nodes", "cluster", sentence)
        self._advice = seen.advice
        with contextlib.suppress(StateUnavailable):
            kinds = {name: list(names) for name, names in seen.nodes.items()}
            await self._live.put_nodes({"kinds": kinds, "advice": list(seen.advice)})

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
