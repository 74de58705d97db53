"""Whether a profile still says what happens: live latency against the measured one.

A worker follows the median of observed over profiled latency of each variant that it runs; the
controller asks for a new measurement when it stays away from 1. The margin that the planner adds
and what a worker learns for its queue (``planner.live_model``) bridge the time until then.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from math import exp, inf, log
from typing import Generic, NamedTuple, TypeVar

from planner.rhythms.bounded import bounded

STEP = 0.02
"""Step of the ratio's logarithm for each batch: the estimate moves by 2 %."""
FARTHEST = log(20.0)
"""Most that the logarithm of the ratio may be from 0."""
DRIFTED = 1.5
"""A ratio above this or below its inverse is a drift; less is the noise of a busy machine."""
BATCHES = 100
"""Least batches to judge by: the estimate needs 21 to get from 1 to ``DRIFTED``."""
LEAST_GAP_MS = 1.0
"""Less than this is no drift: a lone batch pays up to half a millisecond for waking what slept,
which a profile, measured in a loop, would not show the next time either. Workers learn it."""
PATIENCE_S = 60.0
"""For how long the ratio must have been away: a busy minute of a neighbour is no drift."""


class LiveRatio:
    """The median of observed over profiled latency, followed one batch at a time.

    The estimate goes up by one step when an observation is above it and down when it is below
    (stochastic approximation of a quantile, Robbins and Monro 1951): no stall, however long, moves
    it by more than a step.
    """

    __slots__ = ("_log", "batches")

    def __init__(self) -> None:
        self._log = 0.0
        self.batches = 0

    @property
    def ratio(self) -> float:
        return exp(self._log)

    def seen(self, took_ms: float, profiled_ms: float) -> None:
        """A batch took ``took_ms``; the profile's median for its size is ``profiled_ms``."""
        if took_ms <= 0.0 or profiled_ms <= 0.0:
            return
        self.batches += 1
        gap = log(took_ms / profiled_ms) - self._log
        if abs(gap) > STEP:
            moved = self._log + (STEP if gap > 0 else -STEP)
            self._log = bounded(moved, -FARTHEST, FARTHEST)

    def forget(self) -> None:
        """Begin again, because the profile is another one."""
        self._log, self.batches = 0.0, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """The ratio of live to profiled latency that a worker reports for a replica."""

    ratio: float
    batches: int
    profiled_ms: float = inf
    """Median of a single row by the profile."""

    @property
    def away(self) -> bool:
        """Whether enough batches are far enough from the profile."""
        return (
            self.batches >= BATCHES
            and not 1 / DRIFTED <= self.ratio <= DRIFTED
            and abs(self.ratio - 1.0) * self.profiled_ms >= LEAST_GAP_MS
        )


ProfileKey = TypeVar("ProfileKey", bound=Hashable)
"""What a profile belongs to: task, variant and device kind."""


class Drifted(NamedTuple, Generic[ProfileKey]):
    key: ProfileKey
    ratio: float
    for_s: float


class DriftWatch(Generic[ProfileKey]):
    """Finds variants whose latency stays away from their profile, once for each profile."""

    def __init__(self) -> None:
        self._since_s: dict[ProfileKey, float] = {}
        self._told: dict[ProfileKey, str] = {}

    def look(
        self, now_s: float, seen: Iterable[tuple[ProfileKey, str, Live]]
    ) -> list[Drifted[ProfileKey]]:
        """What has drifted by now.

        ``seen`` are key, the profile's identity (when it was measured) and what is seen live, one
        entry for each replica: a variant has drifted only where all its replicas of the kind have.
        """
        away: dict[ProfileKey, float] = {}
        steady: set[ProfileKey] = set()
        marks: dict[ProfileKey, str] = {}
        for key, mark, live in seen:
            marks[key] = mark
            if not live.away:
                steady.add(key)
            elif key not in away or abs(log(live.ratio)) < abs(log(away[key])):
                away[key] = live.ratio
        drifting = {key: ratio for key, ratio in away.items() if key not in steady}
        self._since_s = {key: self._since_s.get(key, now_s) for key in drifting}
        found = [
            Drifted(key, ratio, now_s - self._since_s[key])
            for key, ratio in drifting.items()
            if now_s - self._since_s[key] >= PATIENCE_S and self._told.get(key) != marks[key]
        ]
        self._told.update((one.key, marks[one.key]) for one in found)
        return found


def drift_words(ratio: float) -> str:
    """``runs 2.1 times as long as its profile says``."""
    if ratio >= 1.0:
        return f"runs {ratio:.1f} times as long as its profile says"
    return f"runs in {100 * ratio:.0f} % of the time that its profile says"
