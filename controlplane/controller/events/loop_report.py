"""LoopReport: what the control loop tells of itself once a turn, through the live state.

Gateways show it: whoever looks at an installation looks at a gateway. It stays there when the
control loop does not, so that its age tells.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from controlplane.controller.events.journal import Journal
from controlplane.controller.events.storage_watch import StorageWatch
from controlplane.live_state import LiveState
from controlplane.views.storage_status import plain
from variants.disk import DiskRoom
from variants.errors import StateUnavailable


class LoopReport:
    """Told after each turn, whether that came to its end or not."""

    def __init__(
        self,
        live: LiveState,
        journal: Journal,
        rooms: Callable[[], tuple[DiskRoom, ...]],
        clock_s: Callable[[], float],
    ) -> None:
        """
        Args:
            rooms: the disks of this machine that are written.
        """
        self._live = live
        self._journal = journal
        self._rooms = rooms
        self._clock_s = clock_s
        self._storage = StorageWatch()

    async def turned(self) -> None:
        """Tell events of disks and of the catalog, and gateways how things are."""
        rooms = await asyncio.to_thread(self._rooms)
        unwritable = self._journal.why("writing")
        found = list(self._storage.rooms(rooms))
        if not self._journal.troubled("catalog"):  # else nothing was written
            found += self._storage.written(unwritable, self._clock_s())
        for kind, subject, message in found:
            self._journal.tell(kind, subject, message)
        with suppress(StateUnavailable):
            await self._live.put_controller({"rooms": plain(rooms), "unwritable": unwritable})
