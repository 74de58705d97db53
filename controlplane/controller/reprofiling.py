"""Re-profiling: profiles that live latency contradicts, and predictions that queries rely on.

Each of them becomes a request for profiling in the catalog, and an event. ``modelless profile`` and
the next ``modelless up`` measure what is requested.
"""

from collections.abc import Callable, Iterable

from planner.reconcile.drift import DriftWatch, Live, drift_words
from variants.types import (
    CatalogSnapshot,
    DeviceKindName,
    Profile,
    ProfileSource,
    ProfilingRequest,
    ReplicaState,
    TaskName,
    VariantName,
)
from workers.types import ReplicaStatus, WorkerStatus

CHOSEN = 10
"""Batches after which a variant counts as one that queries choose."""

ProfileKey = tuple[TaskName, VariantName, DeviceKindName]
"""Which profile: a variant of a task on a device kind."""


class Reprofiling:
    """Finds what should be measured again; each measurement of a profile is asked for once."""

    def __init__(self, timestamp: Callable[[], str]) -> None:
        self._timestamp = timestamp
        self._watch: DriftWatch[ProfileKey] = DriftWatch()
        self._asked: set[tuple[ProfileKey, str]] = set()
        self._profiles: dict[ProfileKey, Profile] = {}
        self._revision = -1

    def look(
        self,
        now_s: float,
        catalog: CatalogSnapshot,
        workers: Iterable[WorkerStatus],
    ) -> tuple[ProfilingRequest, ...]:
        """The profiles that should be measured again and were not asked for yet."""
        if catalog.revision != self._revision:
            self._profiles = {(p.task, p.variant, p.device_kind): p for p in catalog.profiles}
            self._revision = catalog.revision
        seen = [
            (key, known.measured_at, _live(r, known))
            for worker in workers
            for r in worker.replicas
            if r.state is ReplicaState.READY
            and (key := (r.task, r.variant, DeviceKindName(worker.device_kind))) in self._profiles
            and (known := self._profiles[key]).source is not ProfileSource.EXACT
        ]
        drifted = [
            self._request(one.key, f"{drift_words(one.ratio)}, for {one.for_s:.0f} s")
            for one in self._watch.look(now_s, seen)
        ]
        return (*drifted, *self._relied_on(seen))

    def _relied_on(
        self, seen: Iterable[tuple[ProfileKey, str, Live]]
    ) -> Iterable[ProfilingRequest]:
        """Predictions that queries were sent by: a variant that is chosen gets measured."""
        for key, mark, live in seen:
            profile = self._profiles[key]
            if profile.source is not ProfileSource.PREDICTED or live.batches < CHOSEN:
                continue
            if (key, mark) not in self._asked:
                self._asked.add((key, mark))
                worst = max(point.error for point in profile.points)
                within = f", within {worst:.0%}" if worst else ""
                yield self._request(
                    key, f"answers queries, and its latency was predicted only{within}"
                )

    def _request(self, key: ProfileKey, reason: str) -> ProfilingRequest:
        task, variant, kind = key
        return ProfilingRequest(
            task=task, variant=variant, device_kind=kind, reason=reason, at=self._timestamp()
        )


def _live(replica: ReplicaStatus, profile: Profile) -> Live:
    single = min(profile.points, key=lambda point: point.batch_size)
    return Live(ratio=replica.live_ratio, batches=replica.batches, profiled_ms=single.p50_ms)
