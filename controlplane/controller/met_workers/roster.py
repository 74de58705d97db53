"""The roster: which workers there are, kind by kind, for as long as the cluster can say it.

A kind that cannot be listed hinders neither the others nor the control loop: it stays as it was
published last, by this controller or the one before. One whose list takes long, because a worker
does not say where it is, stays as it was listed last, and the list is awaited beside the turns.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from math import inf
from types import MappingProxyType
from typing import Protocol

from controlplane.cluster.ray_adapter import WorkerAddress
from controlplane.controller.events.journal import Journal
from controlplane.live_state import LiveState
from variants.errors import ClusterUnavailable, StateUnavailable
from variants.types import DeviceKindName

ASK_EVERY_S = 3.0
"""How often a kind is listed anew while all is as it should be. Each list is a call of every worker
through Ray Serve, which takes more than the rest of a turn."""
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
        self._asked_s: dict[str, float] = {}
        """When each was listed last, by the event loop's clock."""

    async def workers(
        self,
        kinds: Iterable[str],
        wanted: Mapping[DeviceKindName, int] = MappingProxyType({}),
        speaking: Collection[str] = (),
    ) -> list[WorkerAddress]:
        """All workers of these kinds.

        While as many as wanted are listed, and all of them speak, they are listed anew only now and
        then: one that ends or leaves says so by itself.

        Args:
            wanted: how many workers of each kind the cluster was told to run.
            speaking: workers that are connected, were heard just now and stay.

        Raises:
            ClusterUnavailable: none of them can be listed, and none was ever published.
        """
        kinds = list(kinds)
        await self._forget(kinds)
        now_s = asyncio.get_running_loop().time()
        known = {
            kind: self._listed[kind]
            for kind in kinds
            if now_s - self._asked_s.get(kind, -inf) < ASK_EVERY_S
            and len(self._listed[kind]) == wanted.get(DeviceKindName(kind))
            and all(one.id in speaking for one in self._listed[kind])
        }
        asked = [kind for kind in kinds if kind not in known]
        lists = dict(zip(asked, await asyncio.gather(*map(self._of, asked)), strict=True))
        found = [known[kind] if kind in known else lists[kind] for kind in kinds]
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
            self._asked_s.pop(kind, None)
        gone = [self._listing.pop(kind) for kind in self._listing.keys() - set(kinds)]
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)

    async def _of(self, kind: str) -> list[WorkerAddress] | ClusterUnavailable:
        trouble = f"look at the workers of {kind}"
        self._asked_s.pop(kind, None)
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
        except Exception as error:  # private parts of Ray are asked
            self._journal.failed(trouble, error)
            if not isinstance(error, ClusterUnavailable):
                error = ClusterUnavailable(f"workers of {kind} cannot be listed: {error!r}")
            return await self._published(kind) or error
        self._asked_s[kind] = asyncio.get_running_loop().time()
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
