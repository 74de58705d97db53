"""Interference: by what part batches take longer on a worker that serves with several variants.

A worker's model tells batches that follow on another variant's, whose data are in the caches, from
those that follow on batches of their own (``planner.live_model``). What all workers of a device
kind say of that becomes one part for the kind, which plans allow for as the planning model has it:
on a worker that serves with more than one variant every batch is longer by it, so that where it is
large few variants share a worker. Where nobody has seen it, it is 0.

Deterministic; knows no clock.
"""

from collections.abc import Iterable, Mapping
from math import exp, log
from typing import NamedTuple

from variants.types import DeviceKindName

ENOUGH = 50
"""Batches that were compared, of all workers of a kind together, before anything is believed: of
unlike ones so many as say as much as this many that are alike."""
MOST_SEEN = 200
"""Batches of a variant on a worker beyond which they weigh no more."""
STEP = 0.05
"""Parts are multiples of this, so that plans do not follow every wobble; less than one is none."""
MOST = 1.0
"""The largest part that is planned with: what takes more than twice as long is not explained by
another variant's data in the caches."""


class Beside(NamedTuple):
    """What one worker says of the batches of one variant."""

    kind: DeviceKindName
    times: float
    """As long beside another variant as back to back."""
    batches: int
    """That ran beside another one and were compared."""
    ms: float
    """What those took back to back, in the mean."""


class _Words:
    """Of all workers of a kind: a mean in which what takes more of the time counts more.

    The smallest variants, whose data leave the caches first, run for a small part of the time.
    """

    __slots__ = ("_log_ms", "_ms", "_ms_squared")

    def __init__(self) -> None:
        self._ms = self._ms_squared = self._log_ms = 0.0

    def add(self, one: Beside) -> None:
        batches = min(one.batches, MOST_SEEN)
        self._ms += batches * one.ms
        self._ms_squared += batches * one.ms**2
        self._log_ms += batches * one.ms * log(one.times)

    @property
    def batches(self) -> float:
        """As many alike would say as much: the effective sample size (Kish, *Survey Sampling*,
        1965, section 11.7), so that a few long batches are not believed for the many short."""
        return self._ms**2 / self._ms_squared

    @property
    def times(self) -> float:
        return exp(self._log_ms / self._ms)


class Interference:
    """The part of each device kind, from what workers say."""

    def __init__(self) -> None:
        self.parts: Mapping[DeviceKindName, float] = {}
        """By what part batches take longer; kinds without are missing. Of kinds that are gone it
        stays, for when they are back."""

    def look(self, said: Iterable[Beside]) -> bool:
        """Take in what workers say now; whether a part has changed.

        A kind of which nobody says enough keeps what was known: a plan that keeps variants apart
        because they disturb each other leaves nothing to see.
        """
        kinds: dict[DeviceKindName, _Words] = {}
        for one in said:
            if one.batches > 0 and min(one.times, one.ms) > 0.0:
                kinds.setdefault(one.kind, _Words()).add(one)
        parts = dict(self.parts)
        for kind, words in kinds.items():
            if words.batches >= ENOUGH:
                part = min(max(words.times - 1.0, 0.0), MOST)
                if abs(part - parts.get(kind, 0.0)) > 0.75 * STEP:
                    parts[kind] = round(STEP * round(part / STEP), 2)
        parts = {kind: part for kind, part in parts.items() if part}
        changed = parts != self.parts
        self.parts = parts
        return changed
