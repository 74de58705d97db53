"""The correction of one profile: what all workers of a kind say of it, and how soon that counts.

What they say becomes an estimate, which moves in proportion to the batches behind it and is slowly
forgotten upwards without news. It is taken over where it has moved far enough, so that snapshots
and plans do not follow every wobble. Deterministic; knows no clock.
"""

from collections.abc import Iterable, Mapping
from math import exp, inf, log, sqrt
from typing import NamedTuple

from planner.live_model import Neighbours
from planner.reconcile.live_profiles import BusyRatio, BusyRatios, Ratios, SizeRatio, size_of
from planner.types import ProfileKey
from variants.types import Profile

ENOUGH = 4
"""Batches of all workers of a kind together that are believed in full: a worker's model needs four
to follow a change, and counts the profile for as many. So many are once believed as a whole, later
ones by how many are new: what lone batches say one by one is averaged."""
MOST = 200
"""Batches beyond which a worker's word weighs no more."""
NOTICED = SizeRatio(log(1.1), log(1.25))
"""Least changes of a ratio's logarithms that are taken over, so that snapshots and plans do not
follow every wobble."""
FARTHEST = log(50.0)
"""Most that a profile is corrected by, either way: a single row of the smallest variants takes 30
times as long after a pause as in the loop that measured it."""
CLEAR = 2.0
"""Standard deviations by which what a busy worker takes has to change, too."""
DIFFERENT = 0.1
"""Standard deviation of the logarithm by which workers of a kind differ: one that is surer than
that of what a busy worker takes counts no more for it."""
QUIET_S = 30.0
"""What has run no batch for so long says nothing of the machine of now, and is believed to be as
slow as those that run."""
TOLD_S = 15.0
"""After a profile was measured again, workers are not heard for so long, or until they tell of
fewer batches than before: until they are told of it, a turn or two of the control loop later, and
begin anew, they go by the one before."""

NO_BUSY: BusyRatios = {}
"""Where nothing is known of batches that follow on one another."""


class Seen(NamedTuple):
    """What one worker says of a variant that it runs."""

    key: ProfileKey
    mark: str
    """The profile's identity: when it was measured."""
    batches: int
    ratios: Ratios
    neighbours: Neighbours = Neighbours()
    """How other variants prolonged its batches."""
    busy: BusyRatios = NO_BUSY
    """Of batches that follow on one another, without what others prolonged."""


class Correction:
    """How far live latency is from one profile."""

    __slots__ = (
        "batches", "before", "beside", "busy", "deaf_until_s", "estimate", "looked_s", "mark",
        "ran_s", "used", "used_beside", "used_busy",
    )  # fmt: skip

    def __init__(self, mark: str, now_s: float, before: int = 0, ran_s: float = -inf) -> None:
        """
        Args:
            before: so many batches were compared with the profile that there was until now.
            ran_s: when the last of them had run.
        """
        self.mark = mark
        self.before = before
        self.deaf_until_s = inf if before else -inf
        """Infinite until the first look."""
        self.estimate: dict[int, SizeRatio] = {}
        self.beside: dict[int, float] = {}
        """Of each size of the estimate, what part is of workers where it ran beside others."""
        self.used: Ratios = {}
        """The estimate that was taken over last."""
        self.used_beside: Mapping[int, float] = {}
        """What part of it was of workers where it ran beside others."""
        self.busy: dict[int, BusyRatio] = {}
        self.used_busy: BusyRatios = {}
        self.batches = 0
        """How many batches all workers together had run when it was last looked at."""
        self.looked_s = now_s
        self.ran_s = ran_s
        """When a look last found batches that had run since the one before."""

    def take(self, voices: list[Seen], now_s: float, relax_s: float) -> None:
        """Bring the estimate up to date; ``relax_s``: how soon it is forgotten without news."""
        batches = sum(each.batches for each in voices)
        if self.deaf_until_s == inf:
            self.deaf_until_s = now_s + TOLD_S
        if voices and batches < self.before:
            self.deaf_until_s = -inf
        if now_s < self.deaf_until_s:
            batches = 0  # what they say in the end counts with all that is behind it
        # Fewer than before: workers have left or begun anew, and others may have run some.
        fresh = max(0, batches - self.batches)
        if fresh > 0:
            self.ran_s = now_s
            part = min(1.0, (batches if self.batches < ENOUGH else fresh) / ENOUGH)
            for size, (said, beside) in _means(voices).items():
                known, share = self.estimate.get(size, _NONE), self.beside.get(size, 0.0)
                self.beside[size] = share + part * (beside - share)
                self.estimate[size] = SizeRatio(
                    known.typical + part * (said.typical - known.typical),
                    known.high + part * (said.high - known.high),
                )
            self.busy |= _busy_means(voices)
        else:
            keep = exp(-max(0.0, now_s - self.looked_s) / relax_s)
            for size, known in self.estimate.items():
                if known.typical > 0.0 or known.high > 0.0:
                    self.estimate[size] = SizeRatio(*(x * keep if x > 0.0 else x for x in known))
                    self.beside[size] *= keep
            for size, each in self.busy.items():
                if each.ratio > 0.0:
                    self.busy[size] = each._replace(ratio=each.ratio * keep)
        self.batches, self.looked_s = batches, now_s

    @property
    def runs(self) -> bool:
        """Whether it has run lately."""
        return self.looked_s - self.ran_s <= QUIET_S

    @property
    def compared(self) -> int:
        """Batches that workers count now, heard or not."""
        return self.before if self.looked_s < self.deaf_until_s else self.batches

    def settle(self) -> bool:
        """Take the estimate over if it has moved far enough; whether it was."""
        if not any(self._moved(size, now) for size, now in self.estimate.items()):
            return False
        self.used, self.used_beside = dict(self.estimate), dict(self.beside)
        return True

    def settle_beside(self, longer: float) -> bool:
        """Take over what part of the estimate is of batches beside others, if that moves far enough
        what they would take alone; whether it was.

        Args:
            longer: the logarithm of how many times as long batches take beside another variant.
        """
        if not any(
            abs(now - self.used_beside.get(size, 0.0)) * longer > NOTICED.typical
            for size, now in self.beside.items()
            if size in self.used
        ):
            return False
        self.used_beside = dict(self.beside)
        return True

    def settle_busy(self) -> bool:
        """Take over what batches take that follow on one another, if a size is new or moves far
        enough; whether it was."""
        used = self.used_busy
        if not any(
            size not in used
            or abs(now.ratio - used[size].ratio) > max(NOTICED.typical, CLEAR * now.error)
            for size, now in self.busy.items()
        ):
            return False
        self.used_busy = dict(self.busy)
        return True

    def alone(self, longer: float) -> Ratios:
        """The ratios in use without what neighbours did: never below 0 for that, because what runs
        as profiled beside others is not known to be quicker alone."""
        return {
            size: SizeRatio(*(_less(x, self.used_beside.get(size, 0.0) * longer) for x in ratio))
            for size, ratio in self.used.items()
        }

    def _moved(self, size: int, now: SizeRatio) -> bool:
        if self.used and size not in self.used:
            return True
        known = self.used.get(size, _NONE)
        return any(abs(x - y) > least for x, y, least in zip(now, known, NOTICED, strict=True))


_NONE = SizeRatio(0.0, 0.0)


def _means(voices: list[Seen]) -> dict[int, tuple[SizeRatio, float]]:
    """What workers say of each size, those with more batches counting more, and what part of that
    is of workers where it ran beside other variants."""
    said: dict[int, list[tuple[int, SizeRatio, bool]]] = {}
    for each in voices:
        beside = set(map(size_of, each.neighbours.sizes))
        for size, ratio in each.ratios.items():
            said.setdefault(size, []).append((min(each.batches, MOST), ratio, size in beside))
    return {size: _mean(found) for size, found in said.items()}


def _mean(said: list[tuple[int, SizeRatio, bool]]) -> tuple[SizeRatio, float]:
    weight = sum(w for w, _, _ in said)
    means = (sum(w * x[part] for w, x, _ in said) / weight for part in range(2))
    ratio = SizeRatio(*(min(max(mean, -FARTHEST), FARTHEST) for mean in means))
    return ratio, sum(w for w, _, beside in said if beside) / weight


def _busy_means(voices: Iterable[Seen]) -> dict[int, BusyRatio]:
    """What workers say of batches of each size that follow on one another: who is surer counts
    more."""
    said: dict[int, list[BusyRatio]] = {}
    for each in voices:
        for size, ratio in each.busy.items():
            said.setdefault(size, []).append(ratio)
    return {size: _busy_mean(found) for size, found in said.items()}


def _busy_mean(said: list[BusyRatio]) -> BusyRatio:
    weights = [1.0 / (each.error**2 + DIFFERENT**2) for each in said]
    total = sum(weights)
    ratio = sum(w * each.ratio for w, each in zip(weights, said, strict=True)) / total
    error = sqrt(sum((w * each.error) ** 2 for w, each in zip(weights, said, strict=True))) / total
    return BusyRatio(min(max(ratio, -FARTHEST), FARTHEST), error)


def _less(ratio: float, less: float) -> float:
    """A ratio's logarithm less so much, where it is above 0, and then not below."""
    return ratio if ratio <= 0.0 else max(0.0, ratio - less)


def profile_key(profile: Profile) -> ProfileKey:
    """Of what a profile is: task, variant and device kind."""
    return (profile.task, profile.variant, profile.device_kind)
