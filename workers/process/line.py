"""A line: those that wait for what takes time to look for, and one look for all of them.

A look is taken as soon as something has happened, when something is known to change by itself, and
else ever more seldom. However often things happen, looking takes no more than a share of the event
loop's time.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Generic, NamedTuple, TypeVar

WaitingT = TypeVar("WaitingT")

FIRST_S = 0.005
"""Until the next look where nothing happens, and twice as much each time; nor do looks follow one
another sooner."""
LONGEST_S = 0.1
REST = 10.0
"""After a look so many times as long is left to everything else."""
LONGEST_REST_S = 0.25
"""What takes so long that more were left was held up by others."""


def rest_s(took_s: float) -> float:
    """How long everything else comes first after something that took so long."""
    return min(REST * took_s, LONGEST_REST_S)


class Looked(NamedTuple, Generic[WaitingT]):
    """What came of a look."""

    go: Sequence[WaitingT]
    """Those that wait no longer, in the order in which they go on."""
    again_s: float = inf
    """In how many seconds something will have changed by itself."""


class Line(Generic[WaitingT]):
    """Those that wait, in the order in which they came.

    Args:
        look: is given all that wait, in their order.
    """

    def __init__(self, look: Callable[[Sequence[WaitingT]], Looked[WaitingT]]) -> None:
        self._look = look
        self._waiting: list[tuple[WaitingT, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = inf
        """When the next look is taken, on the clock of ``time.monotonic``."""
        self._rested_s = 0.0
        """When the next look may be taken."""
        self._pause_s = FIRST_S

    async def wait(self, waiting: WaitingT, longest_s: float = inf) -> None:
        """Return once a look lets it go, or ``longest_s`` have passed."""
        loop = asyncio.get_running_loop()
        goes: asyncio.Future[None] = loop.create_future()
        place = (waiting, goes)
        self._waiting.append(place)
        self._pause_s = FIRST_S
        self._look_within(FIRST_S)
        timer = loop.call_later(max(0.0, longest_s), _let_go, goes) if longest_s < inf else None
        try:
            await goes
        finally:
            if timer is not None:
                timer.cancel()
            if place in self._waiting:
                self._waiting.remove(place)
            if not self._waiting:
                self._cancel()

    def happened(self) -> None:
        """Something has happened that may let somebody go."""
        if self._waiting:
            self._pause_s = FIRST_S
            self._look_within(0.0)

    def _look_within(self, seconds: float) -> None:
        now_s = time.monotonic()
        due_s = max(now_s + seconds, self._rested_s)
        if due_s < self._due_s:
            self._cancel()
            self._due_s = due_s
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(due_s - now_s, self._take_a_look)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due_s = None, inf

    def _take_a_look(self) -> None:
        self._timer, self._due_s = None, inf
        began_s = time.monotonic()
        found = self._look([waiting for waiting, _ in self._waiting])
        ended_s = time.monotonic()
        self._rested_s = ended_s + max(FIRST_S, rest_s(ended_s - began_s))
        if found.go:
            self._pause_s = FIRST_S
            places = {id(waiting): goes for waiting, goes in self._waiting}
            for waiting in found.go:
                _let_go(places.pop(id(waiting)))
            self._waiting = [place for place in self._waiting if id(place[0]) in places]
        if self._waiting:
            self._look_within(min(self._pause_s, max(0.0, found.again_s)))
            self._pause_s = min(2 * self._pause_s, LONGEST_S)


def _let_go(goes: "asyncio.Future[None]") -> None:
    if not goes.done():
        goes.set_result(None)
