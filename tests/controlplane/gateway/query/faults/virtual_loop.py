"""An event loop whose clock goes on by itself to the next thing that is due."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Found = TypeVar("Found")


class _Sleepless(selectors.SelectSelector):
    """Waits for nothing: the time passes that it should have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1_000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("nothing is due any more, and something waits for it")
        self.now_s += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs what it is given at once, and in the same order each time."""

    def __init__(self) -> None:
        self._sleepless = _Sleepless()
        super().__init__(self._sleepless)

    def time(self) -> float:
        return self._sleepless.now_s

    def now_ms(self) -> float:
        """The same in ms, as a gateway asks its clock."""
        return self._sleepless.now_s * 1_000.0


def run(work: Coroutine[Any, Any, Found], loop: VirtualLoop) -> Found:
    """What comes of it."""
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()
