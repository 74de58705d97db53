"""Asking the live state seldom, where it takes long to answer."""

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")

QUICK_S = 0.1
"""What is answered within so long is asked whenever it may be."""
PAUSE = 4.0
"""After a slower answer nothing is asked for as many times as long as it took. A turn of the
control loop asks four things: of a server that takes 2 s for each it would wait for 8 s, and
whatever ends would be replaced as much later."""


class Seldom(Generic[T]):
    """A question that can wait for a later turn."""

    def __init__(self, clock_s: Callable[[], float] = monotonic) -> None:
        self._clock_s = clock_s
        self._next_s = float("-inf")

    async def answer(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """The answer; None where it was not asked, because the last one took long.

        Raises:
            StateUnavailable: it could not be asked.
        """
        began_s = self._clock_s()
        if began_s < self._next_s:
            return None
        try:
            return await ask()
        finally:
            ended_s = self._clock_s()
            took_s = ended_s - began_s
            self._next_s = ended_s + (PAUSE * took_s if took_s > QUICK_S else 0.0)
