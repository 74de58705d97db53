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
"""Batches that were compared, of all workers of a kind together, before anything is believed."""
MOST_SEEN = 200
"""Batches beyond which the word of one worker weighs no more."""
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


class Interference:
    """The part of each device kind, from what workers say."""

    def __init__(self) -> None:
        self.parts: Mapping[DeviceKindName, float] = {}
        """By what part batches take longer; kinds without are missing."""

    def look(self, said: Iterable[Beside]) -> bool:
        """Take in what workers say now; whether a part has changed.

        A kind of which nobody says enough keeps what was known: a plan that keeps variants apart
        because they disturb each other leaves nothing to see.
        """
        weights: dict[DeviceKindName, int] = {}
        sums: dict[DeviceKindName, float] = {}
        for one in said:
            if one.batches > 0 and one.times > 0.0:
                seen = min(one.batches, MOST_SEEN)
                weights[one.kind] = weights.get(one.kind, 0) + seen
                sums[one.kind] = sums.get(one.kind, 0.0) + seen * log(one.times)
        parts = dict(self.parts)
        for kind, weight in weights.items():
            if weight >= ENOUGH:
                part = min(max(exp(sums[kind] / weight) - 1.0, 0.0), MOST)
                if abs(part - parts.get(kind, 0.0)) > 0.75 * STEP:
                    parts[kind] = round(STEP * round(part / STEP), 2)
        parts = {kind: part for kind, part in parts.items() if part}
        changed = parts != self.parts
        self.parts = parts
        return changed
