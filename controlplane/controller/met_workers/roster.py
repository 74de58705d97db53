"""The roster: which workers there are, kind by kind, for as long as the cluster can say it.

A kind that cannot be listed hinders neither the others nor the control loop: it stays as it was
published last, by this controller or the one before. One whose list takes long, because a worker
does not say where it is, stays as it was listed last, and the list is awaited beside the turns.
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Protocol

from controlplane.cluster.ray_adapter import WorkerAddress
from controlplane.controller.events.journal import Journal
from controlplane.live_state import LiveState
from variants.errors import ClusterUnavailable, StateUnavailable

WAIT_S = 1.0
"""How long a turn waits for a list, where there is an older one to go on with."""


class Lists(Protocol):
    """What lists workers: the cluster."""

    async def workers(self, kinds: Iterable[str]) -> list[WorkerAddress]: ...


class Roster:
    """Asks the cluster for its workers, for each kind on its own."""

    def __init__(self, cluster: Lists, live: LiveState, journal: Journal) -> None:
        self._cluster = cluster
        self._live = live
        self._journal = journal
        self._listed: dict[str, list[WorkerAddress]] = {}
        """The latest list of each kind."""
        self._listing: dict[str, asyncio.Task[list[WorkerAddress]]] = {}

    async def workers(self, kinds: Iterable[str]) -> list[WorkerAddress]:
        """All workers of these kinds.

        Raises:
            ClusterUnavailable: none of them can be listed, and none was ever published.
        """
        kinds = list(kinds)
        await self._forget(kinds)
        found = await asyncio.gather(*(self._of(kind) for kind in kinds))
        if (failures := [each for each in found if isinstance(each, ClusterUnavailable)]) and (
            len(failures) == len(kinds)
        ):
            raise failures[0]
        return [w for each in found if not isinstance(each, ClusterUnavailable) for w in each]

    async def _forget(self, kinds: Collection[str]) -> None:
        """Let go of kinds that are not asked for any more: what was listed of one says nothing of
        the workers that it has when it is back."""
        for kind in self._listed.keys() - set(kinds):
            del self._listed[kind]
        gone = [self._listing.pop(kind) for kind in self._listing.keys() - set(kinds)]
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)

    async def _of(self, kind: str) -> list[WorkerAddress] | ClusterUnavailable:
        trouble = f"workers of {kind}"
        begins = kind not in self._listing
        if begins:
            self._listing[kind] = asyncio.create_task(self._cluster.workers([kind]))
        if kind in self._listed:
            wait_s = WAIT_S if begins else 0.0
            done, _ = await asyncio.wait((self._listing[kind],), timeout=wait_s)
            if not done:
                return self._listed[kind]
        try:
            found = self._listed[kind] = await self._listing.pop(kind)
        except ClusterUnavailable as error:
            self._journal.trouble(trouble, error)
            return await self._published(kind) or error
        except Exception as error:  # private parts of Ray are asked
            self._journal.unexpected(f"look at the {trouble}", error)
            unlisted = ClusterUnavailable(f"{trouble} cannot be listed: {error!r}")
            return await self._published(kind) or unlisted
        self._journal.over(trouble)
        self._journal.over(f"look at the {trouble}")
        return found

    async def _published(self, kind: str) -> list[WorkerAddress]:
        """Where gateways look for the workers of a kind now."""
        try:
            directory = await self._live.workers()
        except StateUnavailable:
            return []
        known = directory["workers"] if directory else ()
        return [WorkerAddress(**worker) for worker in known if worker["device_kind"] == kind]
