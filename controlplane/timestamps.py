"""Points in time: as the product writes them, and how long ago other processes wrote one.

A control loop, or a gateway that registers a model, stamps with Unix time what it tells, and who
reads it finds by its age whether the writer is still there. The clocks of two machines differ,
though, and any may be set: an hour ahead, and all writers seem to be gone; an hour back, and one
that ends seems to be there for an hour. So what counts is for how long a stamp has been the same,
by a clock that nobody sets. Unix time tells only how old one is that is seen for the first time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from time import monotonic, time

SET_S = 2.0
"""A clock that gains or loses so much between two looks was set."""
MOST_KNOWN = 1_000


def timestamp() -> str:
    """The time now in UTC, in ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def timestamp_of(at_s: float) -> str:
    """Unix time in UTC, in ISO 8601, to the second."""
    return datetime.fromtimestamp(round(at_s), UTC).isoformat()


def spoken(at_s: float) -> str:
    """Unix time as a sentence has it: ``2026-01-31 23:59:00 UTC``."""
    return datetime.fromtimestamp(round(at_s), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


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
