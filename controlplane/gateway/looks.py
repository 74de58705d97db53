"""Looks: a gateway looks at what it follows once at a time, for all who want to know it now.

Who wants a look has changed something, or speaks for somebody who has. A look that is under way may
have read before that, so it does not count; those who come meanwhile share the next one, and its
failure: where a database takes seconds to say nothing, each would else wait for all before it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, cast

Found = TypeVar("Found")


class Looks(Generic[Found]):
    """One look after the other. Lives on one event loop."""

    def __init__(self, look: Callable[[], Awaitable[Found]]) -> None:
        """
        Args:
            look: reads what may have changed, and takes it over.
        """
        self._look = look
        self._one = asyncio.Lock()
        self._wanted = 0
        self._made_for = 0
        """How many of those who wanted one have had it."""
        self._found: Found | None = None
        """What the last one found, or ..."""
        self._error: Exception | None = None
        """... how it failed."""

    async def look(self) -> Found:
        """What a look finds that began after this was called.

        Raises:
            Whatever the look raises.
        """
        self._wanted = mine = self._wanted + 1
        async with self._one:  # in the order in which they came: those who share one go first
            if self._made_for < mine:
                wanted, self._error = self._wanted, None
                try:
                    self._found = await self._look()
                except Exception as error:
                    self._error = error
                self._made_for = wanted
            if self._error is not None:
                raise self._error
            return cast(Found, self._found)
