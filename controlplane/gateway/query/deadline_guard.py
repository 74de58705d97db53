"""DeadlineGuard: every query gets its answer in time, without a timer for each of them."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import chain
from math import inf
from typing import Protocol

from workers.process.sparing_log import SparingLog

sparing = SparingLog(logging.getLogger(__name__))

GUARD_MS = 20.0
"""Period of the guard, which answers what nothing else has answered."""
GRACE_MS = 180.0
"""How long past its deadline a best-effort query may be answered (the contract: 250, of which the
guard may take two of its periods)."""


class Expiring(Protocol):
    """A query that has to be answered by a certain time."""

    @property
    def slot(self) -> int:
        """Number of the guard's period after which it is too late, from the start of the clock."""

    def expire(self) -> None:
        """Answer now."""


class DeadlineGuard:
    """A wheel of sets, one for each period that some query's deadline lies in.

    A query that is answered in time, as nearly all are, costs one addition and one removal. The
    only timer is set for the first period that somebody was to be answered by when it was set:
    queries that come one by one, each answered long before, wake nobody up every period.
    """

    def __init__(
        self, clock_ms: Callable[[], float], catch_up: Callable[[], None] = lambda: None
    ) -> None:
        """``catch_up`` takes in replies that have come and were not read yet.

        After a long turn of the event loop its timers come first: without this, workers would be
        blamed for replies that lie there.
        """
        self._clock_ms = clock_ms
        self._catch_up = catch_up
        self._wheel: dict[int, set[Expiring]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._first: float = inf
        """The slot that the timer is set for."""

    def __len__(self) -> int:
        """How many queries are guarded."""
        return sum(map(len, self._wheel.values()))

    def __iter__(self) -> Iterator[Expiring]:
        """Those that are guarded now."""
        return iter([*chain.from_iterable(self._wheel.values())])

    def add(self, query: Expiring) -> None:
        """Call ``query.expire()`` at the end of its slot, unless it is removed before."""
        slot = query.slot
        bucket = self._wheel.get(slot)
        if bucket is None:
            self._wheel[slot] = {query}
        else:
            bucket.add(query)
        if slot < self._first:
            self._sweep_after(slot)

    def remove(self, query: Expiring) -> None:
        """The query is answered. One that is not guarded is no error."""
        bucket = self._wheel.get(query.slot)
        if bucket is not None:
            bucket.discard(query)
            if not bucket:  # a deadline may be an hour away, and an hour has many periods
                del self._wheel[query.slot]

    def _sweep(self) -> None:
        try:
            self._catch_up()
        except Exception as error:  # queries have to get their answers whatever becomes of this
            sparing.error("", error, "the guard could not read what workers have answered")
        now_slot = int(self._clock_ms() / GUARD_MS)
        due = [self._wheel.pop(slot) for slot in list(self._wheel) if slot <= now_slot]
        self._timer, self._first = None, inf
        if self._wheel:
            self._sweep_after(min(self._wheel))
        for query in chain.from_iterable(due):
            try:
                query.expire()
            except Exception as error:
                sparing.error("", error, "the guard could not answer a query")

    def _sweep_after(self, slot: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._first = slot
        left_ms = max(0.0, slot * GUARD_MS - self._clock_ms())
        # The event loop's clock counts whole ms: without one more it might still be too early.
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later((left_ms + 1.0) / 1000, self._sweep)
