"""Renewal: something is made anew once for many changes of what it is made of.

A thousand workers that join say so one by one, and what follows from all of them takes long to
make. So it is made at the end of the turn of the event loop in which something has changed. Where
that takes long, as long passes until it is made again, so that queries have half of the time.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter


class Renewal:
    """When one thing is made anew."""

    def __init__(
        self, make: Callable[[], None], clock_s: Callable[[], float] = perf_counter
    ) -> None:
        self._make = make
        self._clock_s = clock_s
        self._due: asyncio.Handle | None = None
        self._rests_until_s = 0.0
        """As long as it took to make it last has passed then."""
        self._then: list[Callable[[], None]] = []

    def soon(self, then: Callable[[], None] | None = None) -> None:
        """Something has changed.

        Args:
            then: called once the change is taken in.
        """
        if then is not None:
            self._then.append(then)
        if self._due is None:
            loop, rest_s = asyncio.get_running_loop(), self._rests_until_s - self._clock_s()
            self._due = (
                loop.call_later(rest_s, self.now) if rest_s > 0.0 else loop.call_soon(self.now)
            )

    def if_due(self) -> bool:
        """Take in at once what has changed, for whom cannot wait; whether anything had."""
        due = self._due is not None
        if due:
            self.now()
        return due

    def now(self) -> None:
        """Make it anew at once."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        then, self._then = self._then, []
        began_s = self._clock_s()
        self._make()
        ended_s = self._clock_s()
        self._rests_until_s = ended_s + (ended_s - began_s)
        for each in then:
            each()
