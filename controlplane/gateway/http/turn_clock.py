"""TurnClock: when the bytes that are read in one turn of the event loop were there."""

import asyncio
from collections.abc import Callable


class TurnClock:
    """The time at which a turn of the event loop began to read.

    All connections that a turn reads from had their bytes when it began. The last of them may be
    read many milliseconds later, and has waited for as long.
    """

    def __init__(self, clock_ms: Callable[[], float]) -> None:
        self._clock_ms = clock_ms
        self._began_ms: float | None = None

    def arrived_ms(self) -> float:
        """When bytes that are read now were there, by the clock that it was given."""
        if self._began_ms is None:
            self._began_ms = self._clock_ms()
            asyncio.get_running_loop().call_soon(self._end)
        return self._began_ms

    def _end(self) -> None:
        self._began_ms = None
