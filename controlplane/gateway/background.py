"""Background: the asyncio tasks of one gateway beside its queries."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from time import monotonic
from typing import Any

from variants.errors import StateUnavailable

log = logging.getLogger(__name__)

AGAIN_S = 0.5
"""How long work that failed waits before it is tried again."""


def _clock_ms() -> float:
    return monotonic() * 1_000


TURN_MS = 2.0
"""Long work is done in steps, and after so long queries are answered before it goes on."""


async def in_turns(steps: Iterable[None], clock_ms: Callable[[], float] = _clock_ms) -> None:
    """Do all steps, in as many turns of the event loop as they take long."""
    until_ms = clock_ms() + TURN_MS
    for _ in steps:
        if clock_ms() >= until_ms:
            await asyncio.sleep(0)
            until_ms = clock_ms() + TURN_MS


class Background:
    """Tasks that run until they end or ``cancel`` is called."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin work that ends by itself."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        """Begin work that starts anew whenever it ends.

        While catalog or live state are gone, it is tried again and again. Any other error is logged
        and survived.
        """
        self.spawn(self._repeated(work))

    async def pause(self, seconds: float) -> None:
        """Wait, but no longer than until ``wake`` is called."""
        # Not wait_for: it loses a cancellation that comes together with the event (Python 3.11).
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    def wake(self) -> None:
        """End a pause that is under way, or else the next one."""
        self._wake.set()

    async def cancel(self, others: Iterable[asyncio.Future[None]] = ()) -> None:
        """Cancel all tasks and the given futures, and return when they have ended."""
        under_way: set[asyncio.Future[None]] = {*self._tasks, *others}
        while under_way:
            for task in under_way:
                task.cancel()
            # Again, should a library have lost the cancellation: the Redis client does.
            _, under_way = await asyncio.wait(under_way, timeout=1)

    async def _repeated(self, work: Callable[[], Awaitable[None]]) -> None:
        logged = ""
        while True:
            try:
                await work()
                logged = ""
                continue
            except StateUnavailable as error:
                if logged != "gone":
                    log.warning("going on with what is known: %s", error)
                logged = "gone"
            except Exception as error:
                if logged != repr(error):
                    log.exception("%s failed", getattr(work, "__name__", work))
                logged = repr(error)
            await asyncio.sleep(AGAIN_S)
