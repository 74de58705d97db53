"""How far away a worker is: the round trip of a frame that its event loop answers at once.

Whatever either side is busy with makes a round trip look longer, and nothing makes it look shorter,
so what counts is nearly the least of the last ones. One is asked for about once a second, beside
queries and not with them.
"""

from collections import deque

NOISE_MS = 1.0
"""Less than this counts as none: ``planner.types.TRANSPORT_MS`` allows for what machines beside
each other need, and a turn of an event loop takes as long."""
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

    def saw(self, took_ms: float) -> None:
        """One more was measured.

        The second least counts, once there are two: a single one that was quick by chance of the
        route keeps nothing short for long.
        """
        recent = self._recent
        recent.append(took_ms)
        least = sorted(recent)[min(1, len(recent) - 1)]
        now_ms = least if least >= NOISE_MS else 0.0
        if abs(now_ms - self.ms) > max(NOISE_MS / 2, MOVED * self.ms):
            self.ms = now_ms
