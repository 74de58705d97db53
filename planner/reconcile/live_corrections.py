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
from math import log
from typing import Any, NamedTuple

from planner.interference import Beside, Interference
from planner.reconcile.corrections.by_kind import SharedPauses, SharedSlowness
from planner.reconcile.corrections.correction import (
    ENOUGH,
    NO_BUSY,
    Correction,
    Seen,
    profile_key,
)
from planner.reconcile.live_profiles import (
    BusyRatio,
    BusyRatios,
    Ratios,
    after_pauses,
    live_profile,
    slowed,
    with_busy,
    without_pauses,
)
from planner.rhythms.shared_pause import Pause
from planner.rhythms.shared_slowness import Slowness
from planner.steps import finish
from planner.types import ProfileKey
from variants.types import CatalogSnapshot, DeviceKindName, Profile, TaskName

RELAX_S = 300.0
"""Time constant with which a correction upwards is forgotten while no batch runs."""
REFUSING_RELAX_S = 5.0
"""The same where queries are refused meanwhile because no variant were quick enough: the workers'
own models forget as soon (``planner.live_model``), so a query that comes too early is refused
there, and may come again."""

UNUSED: Ratios = {}
NONE_BESIDE: Mapping[int, float] = {}


class LiveCorrections:
    """The ratios in use, taken over from what workers say. Deterministic; knows no clock."""

    def __init__(self) -> None:
        self._known: dict[ProfileKey, Correction] = {}
        self._made: tuple[CatalogSnapshot, CatalogSnapshot] | None = None
        """The last catalog asked for, and what became of it."""
        self._profiles: dict[ProfileKey, _Made] = {}
        """The profiles made last: the same objects are given again, which those who read them need
        not look into."""
        self._pauses = SharedPauses()
        self._interference = Interference()
        self._alone: tuple[CatalogSnapshot, CatalogSnapshot] | None = None
        """The catalog for plans that was made last, and of which corrected one."""
        self._planned: dict[ProfileKey, _Planned] = {}
        """Its profiles, as ``_profiles`` for the same reason."""
        self._slowness = SharedSlowness()

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
                known = self._known[key] = Correction(voices[0].mark, now_s)
            elif voices and known.mark != voices[0].mark:
                changed |= bool(known.used)
                changed_alone |= bool(known.used_busy)
                known = self._known[key] = Correction(
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
            self._alone = None
            self._pauses.look_again()
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
                    self._known[key] = Correction(mark, one.looked_s, one.compared, one.ran_s)
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
            self._slowness.find(catalog, self._known)
            pairs = zip(catalog.profiles, corrected.profiles, strict=True)
            made = tuple([self._planned_by(*pair) for pair in pairs])
            self._alone = (corrected, replace(corrected, profiles=made))
        return self._alone[1]

    def _planned_by(self, profile: Profile, corrected: Profile) -> Profile:
        one = self._known.get(key := profile_key(profile))
        slowness = self._slowness.of(profile.device_kind)
        if one is not None and (one.runs or (one.used and not one.used_busy)):
            slowness = None  # it shows itself how slow it is
        of_pauses = self._profiles.get(key)
        paid = of_pauses is not None and of_pauses.made is not of_pauses.live
        if one is None and slowness is None and not paid:
            return corrected
        part = self.interference.get(profile.device_kind, 0.0)
        beside, busy = (one.used_beside, one.used_busy) if one else (NONE_BESIDE, NO_BUSY)
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
        self, profile: Profile, corrected: Profile, one: Correction, part: float
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
        if self._pauses.find(catalog, self._known):
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
        pause = None if shows else self._pauses.of(profile.device_kind)
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
