"""How long the rest of some work takes, by how long what is done of it has taken."""

import time
from collections.abc import Callable

SOON_S = 1.0
"""What took less so far says nothing of the rest."""


class Pace:
    """Foresees the end of work that is measured in shares of its whole."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._begun_s = clock_s()

    def left_s(self, done: float, whole: float) -> float | None:
        """Seconds that the rest takes at the pace so far; None where nothing tells yet.

        Both are counted in the same unit, whatever it is.
        """
        taken_s = self._clock_s() - self._begun_s
        if done <= 0 or taken_s < SOON_S:
            return None
        return max(0.0, whole - done) * taken_s / done
