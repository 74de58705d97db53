"""How far away a worker is: the round trip of a frame that its event loop answers at once.

Whatever either side is busy with makes a round trip look longer, and nothing makes it look shorter,
so the least of the last ones counts, and none before there are some. One is asked for about once a
second, beside queries and not with them.

Where this side is busy all the time even the least is too long. How late its event loop comes to
what is due is measured as often, at random moments like those at which answers arrive, and the
least of it is taken off.
"""

import asyncio
from collections import deque
from random import uniform
from time import monotonic

FELT_MS = 4.0
"""A way that is shorter counts as none, ..."""
UNFELT_MS = 2.0
"""... and one that has counted does until it is shorter than this."""
FIRST = 4
"""Before so many were measured nothing is believed: who has just started is busy."""
REMEMBERED = 8
"""How many measurements count, the latest; there is about one each second."""
MOVED = 0.2
"""By this part it has to change before anything is decided anew."""
SOON_S = (0.002, 0.032)
"""Between these it is drawn when to look whether the event loop is late."""
CALM_MS = 1.0
"""By so much a timer is late where nothing else is to be done."""


class LoopLag:
    """How late the event loop of this process comes to what is due."""

    __slots__ = ("_due_s", "_recent")

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=REMEMBERED)
        self._due_s: float | None = None
        """When the loop is to look at the clock next."""

    @property
    def known(self) -> bool:
        """Whether enough were measured."""
        return len(self._recent) >= FIRST

    @property
    def ms(self) -> float:
        """The least of the last ones; 0 before there are some."""
        return min(self._recent) if self.known else 0.0

    def measure(self) -> None:
        """Have it measured once more, unless that is under way, and again until it is known."""
        if self._due_s is None:
            soon_s = uniform(*SOON_S)
            self._due_s = monotonic() + soon_s
            asyncio.get_running_loop().call_later(soon_s, self._looked)

    def saw(self, late_ms: float) -> None:
        """One more was measured."""
        self._recent.append(max(0.0, late_ms - CALM_MS))

    def _looked(self) -> None:
        due_s, self._due_s = self._due_s, None
        if due_s is not None:
            self.saw(1_000 * (monotonic() - due_s))
        if not self.known:
            self.measure()


class RoundTrip:
    """Of one connection."""

    __slots__ = ("_recent", "lag", "ms")

    def __init__(self, lag: LoopLag | None = None) -> None:
        self.lag = LoopLag() if lag is None else lag
        """Of this side; connections of one process may share it."""
        self._recent: deque[float] = deque(maxlen=REMEMBERED)
        self.ms = 0.0
        """To decide by; 0 where the worker is as good as here."""

    @property
    def known(self) -> bool:
        """Whether enough were measured."""
        return len(self._recent) >= FIRST

    def saw(self, took_ms: float) -> None:
        """One more was measured."""
        self._recent.append(took_ms)
        if not self.known:
            return
        least = max(0.0, min(self._recent) - self.lag.ms)
        now_ms = least if least >= (UNFELT_MS if self.ms else FELT_MS) else 0.0
        if abs(now_ms - self.ms) > MOVED * self.ms:
            self.ms = now_ms
