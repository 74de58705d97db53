"""One core in virtual time: threads that share it in slices, and an event loop on one of them."""

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any

from tests.planner.builders import NOW_MS

SLICE_MS = 2.8
"""For so long a thread that got the core keeps it while others want it."""

Steps = Generator[float | None, None, None]
"""A thread: it computes for so many ms, or waits for ``Thread.wake`` where it gives None."""


@dataclass(slots=True, eq=False)
class Thread:
    name: str
    steps: Steps
    used_ms: float = 0.0
    """Of the core, and what it was given for the time that it slept."""
    left_ms: float = 0.0
    asleep: bool = True
    woken: bool = False
    total_ms: float = 0.0


class Core:
    """One core, and the events that come from elsewhere."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.threads: list[Thread] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._running: Thread | None = None
        self._since_ms = 0.0

    def wake(self, thread: Thread) -> None:
        thread.woken = True
        if thread.asleep:
            thread.asleep = False
            awake = [one.used_ms for one in self.threads if not one.asleep and one is not thread]
            if awake:  # who has slept is not owed all of that time
                thread.used_ms = max(thread.used_ms, min(awake) - SLICE_MS / 2)

    def at(self, when_ms: float, what: Callable[[], None]) -> None:
        heappush(self._events, (when_ms, next(self._number), what))

    def run(self, until_ms: float) -> None:
        while self.now_ms < until_ms:
            event_ms = self._events[0][0] if self._events else until_ms
            if event_ms <= self.now_ms:
                heappop(self._events)[2]()
                continue
            ready = [one for one in self.threads if not one.asleep]
            if not ready:
                self.now_ms = event_ms
                continue
            running = self._running
            over = self.now_ms - self._since_ms >= SLICE_MS
            if running is None or running.asleep or (over and len(ready) > 1):
                running = self._running = min(ready, key=lambda one: one.used_ms)
                self._since_ms = self.now_ms
            if running.left_ms <= 0.0:
                self._next(running)
                continue
            slice_ms = max(1e-6, self._since_ms + SLICE_MS - self.now_ms) if len(ready) > 1 else 1e9
            passed_ms = min(running.left_ms, event_ms - self.now_ms, slice_ms)
            self.now_ms += passed_ms
            running.left_ms -= passed_ms
            running.used_ms += passed_ms
            running.total_ms += passed_ms

    def _next(self, thread: Thread) -> None:
        thread.woken = False
        step = next(thread.steps)
        if step is not None:
            thread.left_ms = step
        elif not thread.woken:
            thread.asleep = True


class Loop:
    """The gateway's event loop, for what asks it for timers and for the end of a turn."""

    def __init__(self, core: Core, wake: Callable[[], None]) -> None:
        self._core, self._wake = core, wake
        self.soon: list[Callable[[], None]] = []
        self.due: deque[Callable[[], None]] = deque()

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def call_later(self, after_s: float, call: Callable[..., None], *given: Any) -> "Timer":
        timer = Timer()

        def fall_due() -> None:
            if not timer.cancelled:
                self.due.append(partial(call, *given))
                self._wake()

        self._core.at(self._core.now_ms + 1_000 * after_s, fall_due)
        return timer


class Timer:
    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
