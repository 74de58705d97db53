"""OneTask: what goes on beside the control loop's turns, one at a time."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class OneTask:
    """Work that no turn waits for. Who begins some looks before whether any is under way."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    @property
    def is_under_way(self) -> bool:
        return self._task is not None and not self._task.done()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin some work, which handles its own errors."""
        assert not self.is_under_way
        self._task = asyncio.create_task(work)

    async def give_up(self) -> None:
        """Cancel what is under way, and return when it has ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
