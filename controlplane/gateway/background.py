"""Background: the asyncio tasks of one gateway beside its queries."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeVar

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


Work = Callable[[], Awaitable[None]]
Made = TypeVar("Made")


@dataclass(slots=True, kw_only=True)
class _Away:
    """For want of what work cannot go on."""

    since_s: float
    failed_s: float = 0.0
    """When work failed last."""
    works: set[Work] = field(default_factory=set)
    """What failed, each by itself: methods of several objects may have one name."""


class Background:
    """Tasks that run until they end or ``cancel`` is called."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._wake = asyncio.Event()
        self._away: dict[str, _Away] = {}

    def spawn(self, work: Coroutine[Any, Any, Made]) -> asyncio.Task[Made]:
        """Begin work that ends by itself. It is kept until then; who needs to may wait for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def repeat(self, work: Work) -> None:
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
        under_way: set[asyncio.Future[Any]] = {*self._tasks, *others}
        while under_way:
            for task in under_way:
                task.cancel()
            # Again, should a library have lost the cancellation: the Redis client does.
            _, under_way = await asyncio.wait(under_way, timeout=1)

    async def _repeated(self, work: Work) -> None:
        logged, name = "", getattr(work, "__name__", repr(work))
        while True:
            begun_s = monotonic()
            try:
                await work()
                self._answered(work, begun_s)
                logged = ""
                continue
            except StateUnavailable as error:
                self._failed(work, error)
            except Exception as error:
                if logged != repr(error):
                    log.exception("%s failed", name)
                logged = repr(error)
            await asyncio.sleep(AGAIN_S)

    def _failed(self, work: Work, error: StateUnavailable) -> None:
        """Work cannot go on. That is logged once, though several wait for the same."""
        what, now_s = error.message.partition(":")[0], monotonic()
        if what not in self._away:
            log.warning("going on with what is known: %s", error)
            self._away[what] = _Away(since_s=now_s)
        self._away[what].failed_s = now_s
        self._away[what].works.add(work)

    def _answered(self, work: Work, begun_s: float) -> None:
        """Work that began then has gone on: what it lacked is there again, if nothing has failed
        for want of that since."""
        for what, away in tuple(self._away.items()):
            if work in away.works and begun_s > away.failed_s:
                del self._away[what]
                log.info("over after %.0f s: %s", begun_s - away.since_s, what)
