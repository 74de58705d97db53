"""Live latency: the catalog that gateways and the control loop decide by.

Workers report for each variant what batches of each size take lately. Where it contradicts a
profile, the profile is corrected (``planner.reconcile.live_corrections``) until it is measured
again, which the control loop asks for. What people read, and what workers are told, stays as
measured.
"""

from collections.abc import Container, Iterable, Mapping

from planner.live_model import Neighbours
from planner.reconcile.live_corrections import LiveCorrections, Seen, profile_key
from planner.reconcile.live_profiles import ProfiledTimes, Ratios
from planner.slow_workers import WorkerTimes
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
from workers.types import WorkerStatus


class LiveLatency:
    """Of all workers that a process is connected to."""

    def __init__(self) -> None:
        self._corrections = LiveCorrections()
        self._profiles: Mapping[ProfileKey, Profile] = {}
        self._times: dict[ProfileKey, ProfiledTimes] = {}
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
        changed = self._know(catalog)
        return self._corrections.look(now_s, self._seen(workers), refusing) or changed

    def corrected(self, catalog: CatalogSnapshot) -> CatalogSnapshot:
        """The catalog to decide by; itself while nothing contradicts it."""
        self._know(catalog)
        return self._corrections.corrected(catalog)

    def alone(self, catalog: CatalogSnapshot) -> CatalogSnapshot:
        """The catalog to plan by: without what other variants on the same worker did."""
        self._know(catalog)
        return self._corrections.alone(catalog)

    def unconfirmed(self, workers: Iterable[WorkerStatus]) -> frozenset[ProfileKey]:
        """Profiles of what is ready somewhere and has run no batch on any worker of the kind."""
        ready: dict[ProfileKey, int] = {}
        for worker in workers:
            kind = DeviceKindName(worker.device_kind)
            for replica in worker.replicas:
                if replica.state is ReplicaState.READY:
                    key = (replica.task, replica.variant, kind)
                    ready[key] = ready.get(key, 0) + replica.batches
        return frozenset(
            [
                key
                for key, batches in ready.items()
                if not batches
                and (profile := self._profiles.get(key)) is not None
                and profile.source is not ProfileSource.EXACT
            ]
        )

    @property
    def interference(self) -> Mapping[DeviceKindName, float]:
        """By what part batches of a kind take longer beside another variant, where seen."""
        return self._corrections.interference

    def _know(self, catalog: CatalogSnapshot) -> bool:
        """Go by this catalog; whether corrections were of profiles that it has no more."""
        if catalog is self._catalog:
            return False
        self._profiles = {profile_key(profile): profile for profile in catalog.profiles}
        self._times = {}
        self._catalog = catalog
        marks = {key: profile.measured_at for key, profile in self._profiles.items()}
        return self._corrections.know(marks)

    def _seen(self, workers: Iterable[WorkerStatus]) -> Iterable[Seen]:
        for worker in workers:
            kind = DeviceKindName(worker.device_kind)
            for replica in worker.replicas:
                if replica.state is not ReplicaState.READY or not replica.batches:
                    continue
                profile = self._profiles.get((replica.task, replica.variant, kind))
                if profile is not None and profile.source is not ProfileSource.EXACT:
                    key = profile_key(profile)
                    if key not in self._times:
                        self._times[key] = ProfiledTimes(profile)
                    means = [(rows, mean_ms) for rows, mean_ms, _ in replica.latency]
                    ratios = self._times[key].ratios(means, replica.sure)
                    beside = Neighbours(
                        replica.beside,
                        replica.beside_batches,
                        replica.beside_sizes,
                        replica.beside_ms,
                    )
                    yield Seen(key, profile.measured_at, replica.batches, ratios, beside)


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
