"""StampAges: how long ago other processes stamped what they write again and again.

A control loop, or a gateway that registers a model, stamps with Unix time what it tells, and who
reads it finds by its age whether the writer is still there. The clocks of two machines differ,
though, and any may be set: an hour ahead, and all writers seem to be gone; an hour back, and one
that ends seems to be there for an hour. So what counts is for how long a stamp has been the same,
by a clock that nobody sets. Unix time tells only how old one is that is seen for the first time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import monotonic, time

SET_S = 2.0
"""A clock that gains or loses so much between two looks was set."""
MOST_KNOWN = 1_000


@dataclass(slots=True)
class _Stamp:
    at_s: float
    """Unix time, by the writer's clock."""
    age_s: float
    """When it was seen first."""
    seen_s: float
    looked_s: float


class StampAges:
    """Ages of stamps, by what they are of."""

    def __init__(
        self, clock_s: Callable[[], float] = monotonic, wall_s: Callable[[], float] = time
    ) -> None:
        self._clock_s, self._wall_s = clock_s, wall_s
        self._ahead_s = wall_s() - clock_s()
        self._set_s = -inf
        """When our own clock was set last."""
        self._known: dict[str, _Stamp] = {}

    def age_s(self, of: str, at_s: float) -> float:
        """How long ago something was stamped, at least 0; it goes on growing until there is another
        stamp.

        Args:
            at_s: the stamp, as Unix time by its writer's clock.
        """
        now_s, wall_s = self._clock_s(), self._wall_s()
        if abs(wall_s - now_s - self._ahead_s) > SET_S:
            self._set_s = now_s
        self._ahead_s = wall_s - now_s
        known = self._known.get(of)
        if known is not None and known.at_s == at_s:
            known.looked_s = now_s
            return known.age_s + now_s - known.seen_s
        age_s = min(max(0.0, wall_s - at_s), now_s - self._set_s)
        if known is not None and at_s > known.at_s:  # it was written since the last look
            age_s = min(age_s, now_s - known.looked_s)
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[of] = _Stamp(at_s, age_s, now_s, now_s)
        return age_s
