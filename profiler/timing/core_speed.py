"""Whether the cores are as quick now as they were seen to be.

A virtual core is often one of two hyper-threads, and the guest sees nothing of what computes on the
other one: no processor time is stolen, and no thread waits. On the machine that this was written
on, the same loop took 1.4 to 1.6 times as long for some tenths of a second, then not, on one core
or the other. So a short loop of known work is timed between the runs: it says how quick a core is,
whatever the variant does."""

import os
import time
from collections.abc import Callable

TURNS = 400
"""Additions in one pass of the loop, which take about 15 us."""
SLOWER = 1.2
"""A core is slow when the loop takes more than this many times the quickest one."""
FIRST_LOOKS = 200
"""Loops that are timed first, to know how quick a core can be; they take about 5 ms."""
WAIT_LIMIT_S = 1.0
"""How long a process may wait in all for cores that are not slow."""
STEP_S = 0.005
"""Between two looks while it waits."""
EVERY_S = 0.005
"""Time between two looks at the cores during runs. A look takes about 50 us, and a core stays
slow for longer than this."""


class CoreSpeed:
    """Looks at the cores that the calling thread and its helpers compute on."""

    def __init__(
        self,
        threads: int,
        *,
        loop_s: Callable[[], float] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """
        Args:
            threads: that compute one batch. If they need all cores, each core is looked at.
            loop_s: times the loop, on the core that it is called on.
            sleep: waits for so many seconds.
        """
        self._every = os.sched_getaffinity(0)
        self._cores = sorted(self._every) if 1 < threads == len(self._every) else []
        self._loop_s = loop_s or _loop_s
        self._sleep = sleep
        self._quickest_s = min(self._loop_s() for _ in range(FIRST_LOOKS))
        self._left_s = WAIT_LIMIT_S

    def slow(self) -> bool:
        """Whether a core is slower now than the quickest was that this process has seen."""
        if not self._cores:
            return self._is_slow(self._loop_s())
        try:
            found_s = []
            for core in self._cores:
                os.sched_setaffinity(0, {core})
                found_s.append(self._loop_s())
        finally:
            os.sched_setaffinity(0, self._every)
        self._quickest_s = min(self._quickest_s, *found_s)
        return self._is_slow(max(found_s))

    def wait(self) -> bool:
        """Wait until no core is slow, for ``WAIT_LIMIT_S`` in all; returns whether one still is."""
        while is_slow := self.slow():
            if self._left_s <= 0:
                break
            self._sleep(STEP_S)
            self._left_s -= STEP_S
        return is_slow

    def _is_slow(self, took_s: float) -> bool:
        self._quickest_s = min(self._quickest_s, took_s)
        return took_s > SLOWER * self._quickest_s


def _loop_s() -> float:
    """Seconds that the loop takes: the quicker of two tries, because one may be interrupted."""
    return min(_once_s(), _once_s())


def _once_s() -> float:
    began_s, total = time.perf_counter(), 0
    for turn in range(TURNS):
        total += turn
    return time.perf_counter() - began_s
