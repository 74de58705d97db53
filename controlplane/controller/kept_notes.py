"""KeptNotes: what a part of the control loop keeps in the catalog for the loop that takes over.

It is JSON under a name, and written down no more often than is said, so that a loop which is killed
makes its successor forget no more than that. What forecasts learn is larger, and has a form of its
own (``learned_state``).
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from variants.catalog.protocol import Catalog


class KeptNotes:
    """Of one part."""

    def __init__(
        self, catalog: Catalog, name: str, wall_s: Callable[[], float], every_s: float
    ) -> None:
        """
        Args:
            every_s: what has changed is written down no more often.
        """
        self._catalog = catalog
        self._name = name
        self._wall_s = wall_s
        self._every_s = every_s
        self._kept_s = wall_s()
        self._new = self._at_once = False

    def changed(self, *, at_once: bool = False) -> None:
        """There is something to be written down, when it is due or by the next turn."""
        self._new = True
        self._at_once |= at_once

    async def recall(self) -> Any:
        """What was kept, as plain JSON values; None where nothing was, or it cannot be read.

        Raises:
            StateUnavailable: the catalog does not answer.
        """
        found = await asyncio.to_thread(self._catalog.learned, self._name)
        with suppress(ValueError):
            return None if found is None else json.loads(found[1])
        return None

    async def keep(self, notes: Callable[[], Any], epoch: int) -> None:
        """Write notes down in place of what is there, if that is due.

        Raises:
            StaleEpoch: another control loop leads.
            StateUnavailable: the catalog does not answer; it is due on.
        """
        now_s = self._wall_s()
        waits = 0.0 <= now_s - self._kept_s < self._every_s  # not where the clock was set back
        if not self._new or (waits and not self._at_once):
            return
        at_once, body = self._at_once, json.dumps(notes()).encode()
        # What changes while this is written is due again.
        self._new = self._at_once = False
        try:
            await asyncio.to_thread(
                lambda: self._catalog.put_learned(self._name, now_s, body, epoch=epoch)
            )
        except BaseException:
            self.changed(at_once=at_once)
            raise
        self._kept_s = now_s
