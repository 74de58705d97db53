"""Tests of what takes a few hundred milliseconds, on machines that stand still for seconds.

A process that does not run for two seconds sends nothing meanwhile and finds all its deadlines
passed: of a client that is quick or a queue that is short, such a run says nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

BEAT_S = 0.02
TIMES = 20
"""Runs that may be disturbed; after so many the last one counts whatever disturbed it."""


async def undisturbed(run: Callable[[], Awaitable[None]], *, at_most_s: float) -> None:
    """Run it; if it fails and the event loop stood still for more than ``at_most_s``, run it again.

    Raises:
        AssertionError: it failed, and nothing stood still.
    """
    for left in reversed(range(TIMES)):
        longest_s = 0.0

        async def beat() -> None:
            nonlocal longest_s
            before_s = monotonic()
            while True:
                await asyncio.sleep(BEAT_S)
                now_s = monotonic()
                longest_s = max(longest_s, now_s - before_s - BEAT_S)
                before_s = now_s

        beating = asyncio.create_task(beat())
        await asyncio.sleep(0)
        try:
            await run()
            return
        except AssertionError:
            await asyncio.sleep(2 * BEAT_S)  # so that it notices what happened last
            if longest_s <= at_most_s or not left:
                raise
        finally:
            beating.cancel()
