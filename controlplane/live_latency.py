"""Live latency: the catalog that gateways and the control loop decide by.

Workers report for each variant what batches of each size take lately. Where it contradicts a
profile, the profile is corrected (``planner.reconcile.live_corrections``) until it is measured
again, which the control loop asks for. What loads take is corrected for all variants of a device
kind alike (``planner.eviction.load_pace``), as a variant is seldom loaded twice. What people read,
and what workers are told, stays as measured.
"""

from collections.abc import Collection, Container, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from planner.eviction.load_pace import load_pace
from planner.live_model import Neighbours
from planner.reconcile.corrections.correction import Seen, profile_key
from planner.reconcile.live_corrections import LiveCorrections
from planner.reconcile.live_profiles import ProfiledTimes, Ratios
from planner.slow_workers import WorkerTimes
from planner.steps import finish
from planner.types import ProfileKey, WorkerView
from variants.types import (
    CatalogSnapshot,
    DeviceKindName,
    Profile,
    ProfileSource,
    ReplicaState,
    TaskName,
    WorkerId,
)
from workers.types import ReplicaStatus, WorkerStatus


class LiveLatency:
    """Of all workers that a process is connected to.

    What follows from a report is worked out once, not whenever somebody looks.
    """

    def __init__(self) -> None:
        self._corrections = LiveCorrections()
        self._profiles: Mapping[ProfileKey, Profile] = {}
        self._voices = _Voices()
        self._ready = _ReadyBatches()
        self._loads = _Loads()
        self._decided, self._planned = _LoadTimes(), _LoadTimes()
        self._unconfirmed: frozenset[ProfileKey] | None = None
        """None: to be found anew."""
        self._catalog: CatalogSnapshot | None = None

    @property
    def ratios(self) -> Mapping[ProfileKey, Ratios]:
        """Live over profiled latency where a profile is corrected."""
        return self._corrections.ratios

    def look(
        self,
        now_s: float,
        catalog: CatalogSnapshot,
        workers: Iterable[WorkerStatus],
        refusing: Container[TaskName] = (),
    ) -> bool:
        """Take in what workers say now; whether a catalog to decide or to plan by has changed.

        Args:
            refusing: as of ``LiveCorrections.look``.
        """
        return finish(self.looking(now_s, catalog, workers, refusing))

    def looking(
        self,
        now_s: float,
        catalog: CatalogSnapshot,
        workers: Iterable[WorkerStatus],
        refusing: Container[TaskName] = (),
    ) -> Generator[None, None, bool]:
        """The same in steps, of which each takes in one report or one profile.

        Whoever takes them may ask for catalogs in between, but does not begin to look again.
        """
        changed = self._know(catalog)
        workers = list(workers)
        yield from self._voices.hearing(workers, self._profiles)
        for status in workers:
            self._ready.hear(status)
            yield
        self._ready.forget({status.worker for status in workers})
        changed |= self._loads.look(workers)
        return (yield from self._corrections.looking(now_s, self._voices.said, refusing)) or changed

    def corrected(self, catalog: CatalogSnapshot) -> CatalogSnapshot:
        """The catalog to decide by; itself while nothing contradicts it."""
        self._know(catalog)
        return self._decided.at(self._corrections.corrected(catalog), self._loads.paces)

    def alone(self, catalog: CatalogSnapshot) -> CatalogSnapshot:
        """The catalog to plan by: without what other variants on the same worker did, and with
        what batches take that follow on one another."""
        self._know(catalog)
        return self._planned.at(self._corrections.alone(catalog), self._loads.paces)

    def unconfirmed(self, workers: Iterable[WorkerStatus]) -> frozenset[ProfileKey]:
        """Profiles of what is ready somewhere and has run no batch on any worker of the kind."""
        if self._ready.follow(workers) or self._unconfirmed is None:
            self._unconfirmed = frozenset(
                [
                    key
                    for key in self._ready.idle
                    if (profile := self._profiles.get(key)) is not None
                    and profile.source is not ProfileSource.EXACT
                ]
            )
        return self._unconfirmed

    @property
    def interference(self) -> Mapping[DeviceKindName, float]:
        """By what part batches of a kind take longer beside another variant, where seen."""
        return self._corrections.interference

    def _know(self, catalog: CatalogSnapshot) -> bool:
        """Go by this catalog; whether corrections were of profiles that it has no more."""
        if catalog is self._catalog:
            return False
        self._profiles = {profile_key(profile): profile for profile in catalog.profiles}
        self._unconfirmed = None
        self._catalog = catalog
        marks = {key: profile.measured_at for key, profile in self._profiles.items()}
        return self._corrections.know(marks)


class _Loads:
    """What loads took on the workers that are there, by device kind."""

    def __init__(self) -> None:
        self.paces: Mapping[DeviceKindName, float] = {}
        """In parts of what profiles say, where that is another time. Another object once one has
        changed."""

    def look(self, workers: Iterable[WorkerStatus]) -> bool:
        """Take in what workers say now; whether a pace has changed."""
        took_s: dict[str, float] = {}
        profiled_s: dict[str, float] = {}
        for status in workers:
            kind = status.device_kind
            took_s[kind] = took_s.get(kind, 0.0) + status.loading_s
            profiled_s[kind] = profiled_s.get(kind, 0.0) + status.profiled_loading_s
        found = {DeviceKindName(kind): load_pace(took_s[kind], profiled_s[kind]) for kind in took_s}
        paces = {kind: pace for kind, pace in found.items() if pace != 1.0}
        if paces == self.paces:
            return False
        self.paces = paces
        return True


_Paced = tuple[Profile, float, Profile]
"""A profile, a pace, and the profile by it: the same object for as long as both are."""


class _LoadTimes:
    """A catalog whose profiles say how long loads take now."""

    def __init__(self) -> None:
        self._made: tuple[CatalogSnapshot, Mapping[DeviceKindName, float], CatalogSnapshot] | None
        self._made = None
        self._profiles: dict[ProfileKey, _Paced] = {}

    def at(
        self, catalog: CatalogSnapshot, paces: Mapping[DeviceKindName, float]
    ) -> CatalogSnapshot:
        """The catalog itself where loads take what profiles say; the same object as before for the
        same catalog and paces."""
        if not paces:
            return catalog
        if (made := self._made) is None or made[0] is not catalog or made[1] is not paces:
            before, self._profiles = self._profiles, {}
            profiles = tuple([self._at(each, paces, before) for each in catalog.profiles])
            self._made = made = (catalog, paces, replace(catalog, profiles=profiles))
        return made[2]

    def _at(
        self,
        profile: Profile,
        paces: Mapping[DeviceKindName, float],
        before: Mapping[ProfileKey, _Paced],
    ) -> Profile:
        pace = paces.get(profile.device_kind, 1.0)
        if pace == 1.0 or profile.source is ProfileSource.EXACT:
            return profile
        known = before.get(key := profile_key(profile))
        if known is None or known[0] is not profile or known[1] != pace:
            known = (profile, pace, replace(profile, load_s=pace * profile.load_s))
        self._profiles[key] = known
        return known[2]


class _Voice(NamedTuple):
    """What one worker says of one variant."""

    said: tuple[object, ...]
    """Of its report, all that counts here."""
    profile: Profile
    """With which it was compared."""
    seen: Seen


_said = attrgetter(
    "batches",
    "latency",
    "sure",
    "busy",
    "busy_sure",
    "beside",
    "beside_batches",
    "beside_sizes",
    "beside_ms",
)


class _Voices:
    """What all workers say of the variants that they run. Of a report that is new, only what has
    changed since the one before is compared with profiles."""

    def __init__(self) -> None:
        self.said: dict[ProfileKey, dict[str, Seen]] = {}
        """By profile and worker."""
        self._heard: dict[str, tuple[WorkerStatus, dict[ProfileKey, _Voice]]] = {}
        self._profiles: Mapping[ProfileKey, Profile] = {}
        self._times: dict[ProfileKey, tuple[Profile, ProfiledTimes]] = {}

    def hearing(
        self, workers: Iterable[WorkerStatus], profiles: Mapping[ProfileKey, Profile]
    ) -> Iterator[None]:
        """Take in what workers say now, one new report in each step."""
        same = profiles is self._profiles
        self._profiles = profiles
        there: set[str] = set()
        for status in workers:
            there.add(status.worker)
            heard = self._heard.get(status.worker)
            if heard is None or heard[0] is not status or not same:
                yield
                self._hear(status, {} if heard is None else heard[1])
        for worker in self._heard.keys() - there:
            self._forget(worker, self._heard.pop(worker)[1])

    def _hear(self, status: WorkerStatus, before: dict[ProfileKey, _Voice]) -> None:
        kind = DeviceKindName(status.device_kind)
        voices: dict[ProfileKey, _Voice] = {}
        for replica in status.replicas:
            if replica.state is not ReplicaState.READY or not replica.batches:
                continue
            key = (replica.task, replica.variant, kind)
            profile = self._profiles.get(key)
            if profile is None or profile.source is ProfileSource.EXACT:
                continue
            voice, said = before.get(key), _said(replica)
            if voice is None or voice.profile is not profile or voice.said != said:
                voice = _Voice(said, profile, self._seen(key, profile, replica))
                self.said.setdefault(key, {})[status.worker] = voice.seen
            voices[key] = voice
        self._forget(status.worker, before.keys() - voices.keys())
        self._heard[status.worker] = (status, voices)

    def _seen(self, key: ProfileKey, profile: Profile, replica: ReplicaStatus) -> Seen:
        known = self._times.get(key)
        if known is None or known[0] is not profile:
            known = self._times[key] = (profile, ProfiledTimes(profile))
        means = [(rows, mean_ms) for rows, mean_ms, _ in replica.latency]
        ratios = known[1].ratios(means, replica.sure)
        beside = Neighbours(
            replica.beside, replica.beside_batches, replica.beside_sizes, replica.beside_ms
        )
        busy = known[1].busy_ratios(replica.busy, replica.busy_sure)
        return Seen(key, profile.measured_at, replica.batches, ratios, beside, busy)

    def _forget(self, worker: str, keys: Iterable[ProfileKey]) -> None:
        for key in keys:
            of_profile = self.said[key]
            del of_profile[worker]
            if not of_profile:
                del self.said[key]
                self._times.pop(key, None)


class _ReadyBatches:
    """How many batches ran of what is ready, by profile."""

    def __init__(self) -> None:
        self.idle: set[ProfileKey] = set()
        """Those of which none ran."""
        self._heard: dict[str, tuple[WorkerStatus, dict[ProfileKey, int]]] = {}
        self._workers: dict[ProfileKey, int] = {}
        self._batches: dict[ProfileKey, int] = {}
        self._changed = False

    def follow(self, workers: Iterable[WorkerStatus]) -> bool:
        """Take in what workers say now; whether ``idle`` has changed since this was last called."""
        there: set[str] = set()
        for status in workers:
            there.add(status.worker)
            self.hear(status)
        self.forget(there)
        changed, self._changed = self._changed, False
        return changed

    def forget(self, there: Collection[str]) -> None:
        """Count no more what workers said that are not there."""
        for worker in self._heard.keys() - there:
            self._moved(self._heard.pop(worker)[1], {})

    def hear(self, status: WorkerStatus) -> None:
        """Take in what one worker says."""
        heard = self._heard.get(status.worker)
        if heard is not None and heard[0] is status:
            return
        kind = DeviceKindName(status.device_kind)
        now = {
            (replica.task, replica.variant, kind): replica.batches
            for replica in status.replicas
            if replica.state is ReplicaState.READY
        }
        self._moved({} if heard is None else heard[1], now)
        self._heard[status.worker] = (status, now)

    def _moved(self, before: dict[ProfileKey, int], now: dict[ProfileKey, int]) -> None:
        """Count a worker as it is now instead of as it was."""
        for key in {key for key, _ in before.items() ^ now.items()}:
            count = self._workers.get(key, 0) + (key in now) - (key in before)
            batches = self._batches.get(key, 0) + now.get(key, 0) - before.get(key, 0)
            if count:
                self._workers[key], self._batches[key] = count, batches
            else:
                self._workers.pop(key, None)
                self._batches.pop(key, None)
            idle = count > 0 and not batches
            if idle is not (key in self.idle):
                self._changed = True
                self.idle ^= {key}


def times_of(status: WorkerStatus, view: WorkerView) -> WorkerTimes:
    """What a worker says of its batches, and a gateway of its answers, to be compared."""
    return WorkerTimes(
        WorkerId(status.worker),
        DeviceKindName(status.device_kind),
        view.answers,
        status.busy_ratio,
        view.beyond_ms - view.round_trip_ms,
        {
            (replica.task, replica.variant): replica.latency
            for replica in status.replicas
            if replica.state is ReplicaState.READY
        },
    )
