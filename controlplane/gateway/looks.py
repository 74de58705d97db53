"""Looks: a gateway looks at what it follows once at a time, for all who want to know it now.

Who wants a look has changed something, or speaks for somebody who has. A look that is under way may
have read before that, so it does not count; those who come meanwhile share the next one.
"""

import asyncio
from collections.abc import Awaitable, Callable


class Looks:
    """One look after the other. Lives on one event loop."""

    def __init__(self, look: Callable[[], Awaitable[None]]) -> None:
        """
        Args:
            look: reads what may have changed, and takes it over.
        """
        self._look = look
        self._one = asyncio.Lock()
        self._wanted = 0
        self._made_for = 0
        """How many of those who wanted one have had it."""

    async def look(self) -> None:
        """Return once a look is over that began after this was called.

        Raises:
            Whatever the look raises.
        """
        self._wanted = mine = self._wanted + 1
        async with self._one:
            if self._made_for < mine:
                wanted = self._wanted
                await self._look()
                self._made_for = wanted
