"""How far away a worker is: the round trip of a frame that its event loop answers at once.

Whatever either side is busy with makes a round trip look longer, and nothing makes it look shorter,
so the least of the last ones counts, and none before there are some. One is asked for about once a
second, beside queries and not with them.
"""

from collections import deque

FELT_MS = 4.0
"""A way that is shorter counts as none, ..."""
UNFELT_MS = 2.0
"""... and one that has counted does until it is shorter than this."""
FIRST = 4
"""Before so many were measured nothing is believed: who has just started is busy."""
REMEMBERED = 8
"""So many count, for about as many seconds."""
MOVED = 0.2
"""By this part it has to change before anything is decided anew."""


class RoundTrip:
    """Of one connection."""

    __slots__ = ("_recent", "ms")

    def __init__(self) -> None:
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
        least = min(self._recent)
        now_ms = least if least >= (UNFELT_MS if self.ms else FELT_MS) else 0.0
        if abs(now_ms - self.ms) > MOVED * self.ms:
            self.ms = now_ms
