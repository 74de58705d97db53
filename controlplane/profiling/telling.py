"""What is told of long work while it goes on: how much is done, and how long the rest takes."""

import time
from collections.abc import Callable

from controlplane.building.meter import Meter
from profiler.timing.pace import Pace
from variants.figures import duration

STEP = "measure"


class Telling:
    """Tells of work in parts that take about as long as each other: variants to be judged."""

    def __init__(
        self,
        meter: Meter,
        parts: int,
        *,
        unit: str,
        over: str,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            parts: how many there are.
            unit: what is counted within a part: ``rows``.
            over: what all parts are in the end: ``judged``.
        """
        self._meter = meter
        self._parts = parts
        self._unit = unit
        self._until = f"until all are {over}"
        self._ended = 0
        self._message = ""
        self._pace = Pace(clock_s)

    def begin(self, message: str) -> None:
        """A part begins that ``message`` is said of."""
        self._message = message

    def told(self, done: int, total: int, share: float | None = None) -> None:
        """So much of the part is done: ``done`` of ``total``, which is ``share`` of its time."""
        self._meter.say(STEP, self.words(done, total, share))

    def words(self, done: int, total: int, share: float | None = None) -> str:
        """The same in words: ``judging m-v1: 96 of 1,000 rows, about 12 min left``."""
        part = done / max(total, 1) if share is None else share
        left_s = self._pace.left_s(self._ended + part, self._parts)
        words = f"{self._message}: {done:,} of {total:,} {self._unit}"
        if left_s is None:
            return words
        return f"{words}, about {duration(left_s)} {self._until if self._parts > 1 else 'left'}"

    def end(self, *, worked: bool = True) -> None:
        """The part is done, or failed; there was nothing to do for it unless it ``worked``."""
        if worked:
            self._ended += 1
        else:
            self._parts -= 1
