"""Live correction: the catalog as live latency has it, for gateways, control loop and simulator.

A worker follows the median of observed over profiled latency of each variant it runs
(``planner.reconcile.drift.LiveRatio``). What all workers of a device kind say of a variant becomes
one ratio, the geometric mean by batches seen, and the profile's latencies are multiplied by it.
That is what queries are sent and plans are made by; profiles themselves stay as measured until they
are measured again, which ``planner.reconcile.drift`` asks for.

Evidence moves a correction in proportion to the batches behind it. Where none comes, a correction
upwards is slowly forgotten: a variant that is not chosen because it once was slow gets another
chance.

What a worker learns for its own queue (``planner.live_model``) is more: by size of batch and by
what it came after, with its spread, and forgotten within seconds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import exp, inf, log
from typing import NamedTuple

from planner.reconcile.drift import Live
from variants.types import CatalogSnapshot, DeviceKindName, Profile, TaskName, VariantName

ProfileKey = tuple[TaskName, VariantName, DeviceKindName]
"""Which profile: a variant of a task on a device kind."""

ENOUGH = 25
"""Batches of all workers of a kind together that are believed in full: a worker's ratio needs 21 to
get from 1 to 1.5."""
MOST = 200
"""Batches beyond which a worker's word weighs no more."""
NOTICED = log(1.1)
"""Least change of a ratio's logarithm that is taken over, so that snapshots and plans do not follow
every wobble."""
FARTHEST = log(5.0)
"""Most that a profile is corrected by, either way."""
RELAX_S = 300.0
"""Time constant with which a correction upwards is forgotten while no batch runs."""
TOLD_S = 15.0
"""After a profile was measured again, workers are not heard for so long: until they are told of it,
a turn or two of the control loop later, they go on comparing with the one before."""


class Seen(NamedTuple):
    """What one worker says of a variant that it runs."""

    key: ProfileKey
    mark: str
    """The profile's identity: when it was measured."""
    live: Live


class _Correction:
    """Of one profile."""

    __slots__ = ("batches", "deaf_until_s", "estimate", "looked_s", "mark", "used")

    def __init__(self, mark: str, now_s: float, *, again: bool = False) -> None:
        """``again``: the profile was measured again just now."""
        self.mark = mark
        self.deaf_until_s = inf if again else -inf
        """Infinite until the first look."""
        self.estimate = 0.0
        """Logarithm of live over profiled latency."""
        self.used = 0.0
        """The estimate that was taken over last."""
        self.batches = 0
        """Of all workers together, when it was last looked at."""
        self.looked_s = now_s

    def take(self, voices: list[Seen], now_s: float) -> None:
        """Bring the estimate up to date."""
        batches = sum(each.live.batches for each in voices)
        if self.deaf_until_s == inf:
            self.deaf_until_s = now_s + TOLD_S
        # Fewer than before: workers have left or begun anew, and others may have run some.
        fresh = max(0, batches - self.batches) if now_s >= self.deaf_until_s else 0
        if fresh > 0:
            self.estimate += min(1.0, fresh / ENOUGH) * (_mean(voices) - self.estimate)
        elif self.estimate > 0.0:
            self.estimate *= exp(-max(0.0, now_s - self.looked_s) / RELAX_S)
        self.batches, self.looked_s = batches, now_s

    def settle(self) -> bool:
        """Take the estimate over if it has moved far enough; whether it was."""
        if abs(self.estimate - self.used) <= NOTICED:
            return False
        self.used = self.estimate
        return True


def _mean(voices: list[Seen]) -> float:
    """The logarithm of what workers say, those with more batches counting more."""
    weights = [min(each.live.batches, MOST) for each in voices]
    logs = [log(each.live.ratio) for each in voices]
    mean = sum(w * x for w, x in zip(weights, logs, strict=True)) / sum(weights)
    return min(max(mean, -FARTHEST), FARTHEST)


class LiveCorrections:
    """The ratios in use, taken over from what workers say. Deterministic; knows no clock."""

    def __init__(self) -> None:
        self._known: dict[ProfileKey, _Correction] = {}
        self._made: tuple[CatalogSnapshot, CatalogSnapshot] | None = None
        """The last catalog asked for, and what became of it."""

    def look(self, now_s: float, seen: Iterable[Seen]) -> bool:
        """Take in what workers say now; whether a correction in use has changed.

        A profile that was measured again begins anew.
        """
        said: dict[ProfileKey, list[Seen]] = {}
        for each in seen:
            said.setdefault(each.key, []).append(each)
        changed = False
        for key in said.keys() | self._known.keys():
            voices = said.get(key, [])
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = _Correction(voices[0].mark, now_s)
            elif voices and known.mark != voices[0].mark:
                changed |= known.used != 0.0
                known = self._known[key] = _Correction(voices[0].mark, now_s, again=True)
            known.take(voices, now_s)
            changed |= known.settle()
        if changed:
            self._made = None
        return changed

    def know(self, marks: Mapping[ProfileKey, str]) -> bool:
        """Go by these profiles; whether a correction in use was of another one, and is forgotten.

        Args:
            marks: the identity of each profile that there is.
        """
        changed = False
        for key, one in tuple(self._known.items()):
            if one.mark != (mark := marks.get(key)):
                changed |= one.used != 0.0
                del self._known[key]
                if mark is not None:
                    self._known[key] = _Correction(mark, one.looked_s, again=True)
        if changed:
            self._made = None
        return changed

    @property
    def ratios(self) -> dict[ProfileKey, float]:
        """The corrections in use: live over profiled latency, those of 1 left out."""
        return {key: exp(one.used) for key, one in self._known.items() if one.used}

    def corrected(self, catalog: CatalogSnapshot) -> CatalogSnapshot:
        """A catalog with the corrections in use; itself where there are none.

        The same object as before for the same catalog, until ``look`` changes something.
        """
        ratios = self.ratios
        if not ratios:
            return catalog
        if self._made is None or self._made[0] is not catalog:
            profiles = tuple(
                [
                    scaled(p, ratio) if (ratio := ratios.get(profile_key(p))) else p
                    for p in catalog.profiles
                ]
            )
            self._made = (catalog, replace(catalog, profiles=profiles))
        return self._made[1]


def profile_key(profile: Profile) -> ProfileKey:
    """Of what a profile is: task, variant and device kind."""
    return (profile.task, profile.variant, profile.device_kind)


def scaled(profile: Profile, ratio: float) -> Profile:
    """A profile whose batches all take so many times as long."""
    points = tuple(
        replace(
            point,
            p50_ms=point.p50_ms * ratio,
            p95_ms=point.p95_ms * ratio,
            p99_ms=point.p99_ms * ratio,
        )
        for point in profile.points
    )
    return replace(profile, points=points)
