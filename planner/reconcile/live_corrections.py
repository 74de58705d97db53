"""Live correction: the catalog as live latency has it, for gateways, control loop and simulator.

A worker learns what batches of each size take, for each variant that it runs
(``planner.live_model``). What all workers of a device kind say of a variant and a size becomes one
ratio to the profile for the mean and one for what a query needs to be admitted, geometric means by
batches seen, and the profile is taken as these have it (``planner.reconcile.live_profiles``). That
is what queries are sent and plans are made by; profiles themselves stay as measured until they are
measured again, which ``planner.profile_drift`` asks for.

Where a worker's batches of a size mostly ran beside other variants, a part of what they took longer
is those' doing. Plans allow for that by themselves (``planner.interference``), so what plans are
made by is the catalog ``alone``, without that part: it is taken off what each of these workers
says, and so off their mean by the share that they have in it. What queries are sent by has it.

A query of now meets the rhythm of now, at little load an idle worker. What a worker could serve is
a matter of batches that follow on one another, which workers tell as well
(``planner.rhythms.busy_time``). The catalog ``alone`` has what these take beside the rest.

What else computes on a machine slows all variants alike, and only those that run show it. So where
those of a device kind are slower than their profiles say, plans count the others as slower as well
(``planner.rhythms.shared_slowness``): else a plan would move to one of them, see that it is as slow
there, and move on. Likewise queries are sent as if what does not run paid for pauses what those
pay that run (``planner.rhythms.shared_pause``).

Evidence moves a correction in proportion to the batches behind it. Where none comes, a correction
upwards is slowly forgotten: a variant that is not chosen because it once was slow gets another
chance.
"""

from collections.abc import Container, Generator, Iterable, Mapping
from dataclasses import replace
from math import exp, inf, log, sqrt
from typing import Any, NamedTuple

from planner.interference import Beside, Interference
from planner.live_model import Neighbours
from planner.reconcile.live_profiles import (
    BusyRatio,
    BusyRatios,
    Ratios,
    SizeRatio,
    after_pauses,
    live_profile,
    machine_ratio,
    pause_shown,
    size_of,
    slowed,
    with_busy,
    without_pauses,
)
from planner.rhythms.shared_pause import Pause, shared_pause
from planner.rhythms.shared_slowness import Slowness, shared_slowness
from planner.steps import finish
from planner.types import ProfileKey
from variants.types import CatalogSnapshot, DeviceKindName, Profile, TaskName

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
RELAX_S = 300.0
"""Time constant with which a correction upwards is forgotten while no batch runs."""
REFUSING_RELAX_S = 5.0
"""The same where queries are refused meanwhile because no variant were quick enough: the workers'
own models forget as soon (``planner.live_model``), so a query that comes too early is refused
there, and may come again."""
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


NOTHING: BusyRatios = {}
UNUSED: Ratios = {}
NONE_BESIDE: Mapping[int, float] = {}


class Seen(NamedTuple):
    """What one worker says of a variant that it runs."""

    key: ProfileKey
    mark: str
    """The profile's identity: when it was measured."""
    batches: int
    ratios: Ratios
    neighbours: Neighbours = Neighbours()
    """How other variants prolonged its batches."""
    busy: BusyRatios = NOTHING
    """Of batches that follow on one another, without what others prolonged."""


class _Correction:
    """Of one profile."""

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


class LiveCorrections:
    """The ratios in use, taken over from what workers say. Deterministic; knows no clock."""

    def __init__(self) -> None:
        self._known: dict[ProfileKey, _Correction] = {}
        self._made: tuple[CatalogSnapshot, CatalogSnapshot] | None = None
        """The last catalog asked for, and what became of it."""
        self._profiles: dict[ProfileKey, _Made] = {}
        """The profiles made last: the same objects are given again, which those who read them need
        not look into."""
        self._pauses: dict[DeviceKindName, Pause] = {}
        """What pauses cost, as it is counted with: it moves only if it has moved far enough."""
        self._pauses_of: CatalogSnapshot | None = None
        """The catalog that this was found with; None where workers have said something since."""
        self._interference = Interference()
        self._alone: tuple[CatalogSnapshot, CatalogSnapshot] | None = None
        """The catalog for plans that was made last, and of which corrected one."""
        self._planned: dict[ProfileKey, _Planned] = {}
        """Its profiles, as ``_profiles`` for the same reason."""
        self._slowness: dict[DeviceKindName, Slowness] = {}
        """Of what does not run, as it is counted with: it moves only if it has moved far enough."""

    def look(self, now_s: float, seen: Iterable[Seen], refusing: Container[TaskName] = ()) -> bool:
        """Take in what workers say now; whether a correction in use has changed, or only what plans
        are made by.

        A profile that was measured again begins anew.

        Args:
            refusing: tasks of which queries were refused since the last look because no variant
                were quick enough.
        """
        said: dict[ProfileKey, dict[int, Seen]] = {}
        for number, each in enumerate(seen):
            said.setdefault(each.key, {})[number] = each
        return finish(self.looking(now_s, said, refusing))

    def looking(
        self,
        now_s: float,
        said: Mapping[ProfileKey, Mapping[Any, Seen]],
        refusing: Container[TaskName] = (),
    ) -> Generator[None, None, bool]:
        """The same in steps, of which each takes in what workers say of one profile.

        Args:
            said: by profile, what each worker says of it.
        """
        changed = changed_alone = False
        beside: list[Beside] = []
        for key in said.keys() | self._known.keys():
            yield
            voices = list(said.get(key, {}).values())
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = _Correction(voices[0].mark, now_s)
            elif voices and known.mark != voices[0].mark:
                changed |= bool(known.used)
                changed_alone |= bool(known.used_busy)
                known = self._known[key] = _Correction(
                    voices[0].mark, now_s, known.compared, known.ran_s
                )
            known.take(voices, now_s, REFUSING_RELAX_S if key[0] in refusing else RELAX_S)
            changed |= known.settle()
            changed_alone |= known.settle_busy()
            for neighbours in [one.neighbours for one in voices if one.neighbours.batches]:
                beside.append(Beside(key[2], neighbours.times, neighbours.batches, neighbours.ms))
        changed_alone |= self._interference.look(beside)
        for key, known in self._known.items():
            part = self.interference.get(key[2], 0.0)
            changed_alone |= part > 0.0 and known.settle_beside(log(1.0 + part))
        if changed:
            self._made = None
        if changed or changed_alone:
            self._alone = self._pauses_of = None
        return changed or changed_alone

    def know(self, marks: Mapping[ProfileKey, str]) -> bool:
        """Go by these profiles; whether a correction in use was of another one, and is forgotten.

        Args:
            marks: the identity of each profile that there is.
        """
        changed = False
        for key, one in tuple(self._known.items()):
            if one.mark != (mark := marks.get(key)):
                changed |= bool(one.used or one.used_busy)
                del self._known[key]
                self._profiles.pop(key, None)
                self._planned.pop(key, None)
                if mark is not None:
                    self._known[key] = _Correction(mark, one.looked_s, one.compared, one.ran_s)
        if changed:
            self._made = self._alone = None
        return changed

    @property
    def interference(self) -> Mapping[DeviceKindName, float]:
        """By what part batches of a kind take longer beside another variant, where that was
        seen."""
        return self._interference.parts

    def alone(self, catalog: CatalogSnapshot) -> CatalogSnapshot:
        """What plans are made by: a catalog with the corrections in use, without what neighbours
        did. The same object as before for the same catalog, until ``look`` changes something."""
        corrected = self.corrected(catalog)
        by_neighbours = self.interference and corrected is not catalog
        if not by_neighbours and not any(one.used_busy for one in self._known.values()):
            return corrected
        if self._alone is None or self._alone[0] is not corrected:
            self._find_slowness(catalog)
            pairs = zip(catalog.profiles, corrected.profiles, strict=True)
            made = tuple([self._planned_by(*pair) for pair in pairs])
            self._alone = (corrected, replace(corrected, profiles=made))
        return self._alone[1]

    def _find_slowness(self, catalog: CatalogSnapshot) -> None:
        """Find what variants of each kind that run say of those that do not."""
        shown: dict[DeviceKindName, list[tuple[float, float]]] = {}
        for profile in catalog.profiles:
            one = self._known.get(profile_key(profile))
            if one is not None and one.used_busy and one.runs:
                shown.setdefault(profile.device_kind, []).append(
                    machine_ratio(profile, one.used_busy)
                )
        before, self._slowness = self._slowness, {}
        for kind, said in shown.items():
            now = shared_slowness(said)
            if now is None:
                continue
            used = before.get(kind)
            same = used is not None and abs(now.ratio - used.ratio) <= NOTICED.typical
            self._slowness[kind] = used if used is not None and same else now

    def _planned_by(self, profile: Profile, corrected: Profile) -> Profile:
        one = self._known.get(key := profile_key(profile))
        slowness = self._slowness.get(profile.device_kind)
        if one is not None and (one.runs or (one.used and not one.used_busy)):
            slowness = None  # it shows itself how slow it is
        of_pauses = self._profiles.get(key)
        paid = of_pauses is not None and of_pauses.made is not of_pauses.live
        if one is None and slowness is None and not paid:
            return corrected
        part = self.interference.get(profile.device_kind, 0.0)
        beside, busy = (one.used_beside, one.used_busy) if one else (NONE_BESIDE, NOTHING)
        of = _Planned(profile, corrected, beside, busy, part, slowness, corrected)
        known = self._planned.get(key)
        if known is None or not known.is_of(of):
            found = (
                corrected
                if one is None
                else self._without_neighbours(profile, corrected, one, part)
            )
            if busy:
                made = with_busy(found, profile, _at_least(busy, slowness))
            elif slowness is not None:
                made = slowed(found, profile, slowness)
            elif of_pauses is not None and paid:
                made = without_pauses(found, of_pauses.live)
            else:
                made = found
            known = self._planned[key] = of._replace(made=made)
        return known.made

    def _without_neighbours(
        self, profile: Profile, corrected: Profile, one: _Correction, part: float
    ) -> Profile:
        if corrected is profile or not part or not any(one.used_beside.values()):
            return corrected
        return live_profile(profile, one.alone(log(1.0 + part)))

    @property
    def ratios(self) -> dict[ProfileKey, Ratios]:
        """The corrections in use, where there are any."""
        return {key: one.used for key, one in self._known.items() if one.used}

    def corrected(self, catalog: CatalogSnapshot) -> CatalogSnapshot:
        """A catalog with the corrections in use; itself where there are none.

        The same object as before for the same catalog, until ``look`` changes something.
        """
        if self._pauses_of is not catalog and self._find_pauses(catalog):
            self._made = None
        if self._made is None or self._made[0] is not catalog:
            if not self.ratios:
                return catalog
            before, self._profiles = self._profiles, {}
            made = tuple([self._corrected(profile, before) for profile in catalog.profiles])
            self._made = (catalog, replace(catalog, profiles=made))
        return self._made[1]

    def _corrected(self, profile: Profile, before: Mapping[ProfileKey, "_Made"]) -> Profile:
        one = self._known.get(key := profile_key(profile))
        shows = one is not None and one.runs and one.batches >= ENOUGH
        pause = None if shows else self._pauses.get(profile.device_kind)
        if not (one is not None and one.used) and pause is None:
            return profile
        used = one.used if one is not None else UNUSED
        known = before.get(key)
        if known is None or not (
            known.profile is profile and known.ratios is used and known.pause == pause
        ):
            live = live_profile(profile, used)
            made = live if pause is None else after_pauses(live, profile, pause)
            known = _Made(profile, used, pause, live, made)
        self._profiles[key] = known
        return known.made

    def _find_pauses(self, catalog: CatalogSnapshot) -> bool:
        """Find what pauses cost on each kind; whether what is counted with has changed.

        Those that run say it, and where none does, those that did.
        """
        self._pauses_of = catalog
        shown: dict[DeviceKindName, list[tuple[float, float]]] = {}
        shown_once: dict[DeviceKindName, list[tuple[float, float]]] = {}
        for profile in catalog.profiles:
            one = self._known.get(profile_key(profile))
            if one is None or one.batches < ENOUGH or not (one.used and one.used_busy):
                continue
            said = pause_shown(profile, one.used, one.used_busy)
            if said is not None:
                (shown if one.runs else shown_once).setdefault(profile.device_kind, []).append(said)
        before, self._pauses = self._pauses, {}
        for kind, some in (shown_once | shown).items():
            now = shared_pause(some)
            if now is not None:
                used = before.get(kind)
                self._pauses[kind] = used if used is not None and now.is_near(used) else now
        return self._pauses != before


class _Made(NamedTuple):
    """What a corrected profile was made of, and the profile."""

    profile: Profile
    ratios: Ratios
    pause: Pause | None
    live: Profile
    """Without what pauses cost others."""
    made: Profile


class _Planned(NamedTuple):
    """What a profile to plan by was made of, and the profile."""

    profile: Profile
    corrected: Profile
    beside: Mapping[int, float]
    busy: BusyRatios
    part: float
    slowness: Slowness | None
    made: Profile

    def is_of(self, other: "_Planned") -> bool:
        """Whether both are made of the same."""
        pairs = zip(self[:4], other[:4], strict=True)
        rest = self[4:6] == other[4:6]
        return rest and all(one is another for one, another in pairs)


def _at_least(ratios: BusyRatios, slowness: Slowness | None) -> BusyRatios:
    """What was last seen, or as slow as those that run now where that is slower."""
    if slowness is None:
        return ratios
    return {
        size: each if each.ratio >= slowness.ratio else BusyRatio(*slowness)
        for size, each in ratios.items()
    }


def _less(ratio: float, less: float) -> float:
    """A ratio's logarithm less so much, where it is above 0, and then not below."""
    return ratio if ratio <= 0.0 else max(0.0, ratio - less)


def profile_key(profile: Profile) -> ProfileKey:
    """Of what a profile is: task, variant and device kind."""
    return (profile.task, profile.variant, profile.device_kind)
