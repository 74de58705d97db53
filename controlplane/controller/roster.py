"""The roster: which workers there are, kind by kind, for as long as the cluster can say it.

A kind that cannot be listed hinders neither the others nor the control loop: it stays as it was
published last, by this controller or the one before.
"""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from controlplane.cluster.ray_adapter import WorkerAddress
from controlplane.controller.events.journal import Journal
from controlplane.live_state import LiveState
from variants.errors import ClusterUnavailable, StateUnavailable


class Lists(Protocol):
    """What lists workers: the cluster."""

    async def workers(self, kinds: Iterable[str]) -> list[WorkerAddress]: ...


class Roster:
    """Asks the cluster for its workers, for each kind on its own."""

    def __init__(self, cluster: Lists, live: LiveState, journal: Journal) -> None:
        self._cluster = cluster
        self._live = live
        self._journal = journal

    async def workers(self, kinds: Iterable[str]) -> list[WorkerAddress]:
        """All workers of these kinds.

        Raises:
            ClusterUnavailable: none of them can be listed, and none was ever published.
        """
        kinds = list(kinds)
        found = await asyncio.gather(*(self._of(kind) for kind in kinds))
        if (failures := [each for each in found if isinstance(each, ClusterUnavailable)]) and (
            len(failures) == len(kinds)
        ):
            raise failures[0]
        return [w for each in found if not isinstance(each, ClusterUnavailable) for w in each]

    async def _of(self, kind: str) -> list[WorkerAddress] | ClusterUnavailable:
        trouble = f"workers of {kind}"
        try:
            found = await self._cluster.workers([kind])
        except ClusterUnavailable as error:
            self._journal.trouble(trouble, error)
            return await self._published(kind) or error
        self._journal.over(trouble)
        return found

    async def _published(self, kind: str) -> list[WorkerAddress]:
        """Where gateways look for the workers of a kind now."""
        try:
            directory = await self._live.workers()
        except StateUnavailable:
            return []
        known = directory["workers"] if directory else ()
        return [WorkerAddress(**worker) for worker in known if worker["device_kind"] == kind]
