"""KeptNotes: what a part of the control loop keeps in the catalog for the loop that takes over.

It is JSON under a name. What forecasts learn is larger, and has a form of its own
(``learned_state``).
"""

import asyncio
import json
from contextlib import suppress
from typing import Any

from variants.catalog.protocol import Catalog


class KeptNotes:
    """Of one part."""

    def __init__(self, catalog: Catalog, name: str) -> None:
        self._catalog = catalog
        self._name = name

    async def recall(self) -> Any:
        """What was kept, as plain JSON values; None where nothing was, or it cannot be read.

        Raises:
            StateUnavailable: the catalog does not answer.
        """
        found = await asyncio.to_thread(self._catalog.learned, self._name)
        with suppress(ValueError):
            return None if found is None else json.loads(found[1])
        return None

    async def keep(self, notes: Any, at_s: float, epoch: int) -> None:
        """Keep notes of ``at_s``, in Unix time, in place of what is there.

        Raises:
            StaleEpoch: another control loop leads.
            StateUnavailable: the catalog does not answer.
        """
        body = json.dumps(notes).encode()
        await asyncio.to_thread(
            lambda: self._catalog.put_learned(self._name, at_s, body, epoch=epoch)
        )
