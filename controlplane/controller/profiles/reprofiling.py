"""Re-profiling: profiles that batches contradict, and predictions that queries rely on.

Each of them becomes a request for profiling in the catalog, and an event; the control loop has it
measured (``controlplane.controller.profiles.measuring``).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Protocol

from controlplane.controller.events.journal import Journal
from planner.profile_drift import DriftWatch, Live, drift_words
from planner.types import Observation, ProfileKey
from variants.catalog.protocol import Catalog
from variants.errors import NotFound
from variants.types import (
    CatalogSnapshot,
    CatalogState,
    DeviceKindName,
    Profile,
    ProfileSource,
    ProfilingRequest,
    ReplicaState,
)
from workers.types import ReplicaStatus, WorkerStatus

CHOSEN = 10
"""Batches after which a variant counts as one that queries choose."""


class Measures(Protocol):
    """What has profiles measured where workers run: ``controller.profiles.measuring``."""

    @property
    def refusals(self) -> Mapping[ProfileKey, str]: ...

    def look(
        self,
        catalog: CatalogSnapshot,
        observation: Observation,
        workers: Mapping[str, WorkerStatus],
    ) -> None: ...

    async def close(self) -> None: ...


MeasuringOf = Callable[[Journal], Measures]


class Checks(Protocol):
    """What has workers run what no query reaches: ``controller.profiles.profile_checks``."""

    def look(
        self,
        known: CatalogSnapshot,
        observation: Observation,
        workers: Iterable[WorkerStatus],
    ) -> list[tuple[ProfileKey, str]]: ...

    async def close(self) -> None: ...


class Reprofiling:
    """Finds what should be measured again; each measurement of a profile is asked for once."""

    def __init__(
        self,
        timestamp: Callable[[], str],
        catalog: Catalog,
        journal: Journal,
        measuring_of: MeasuringOf | None = None,
        checks: Checks | None = None,
    ) -> None:
        self._checks = checks
        self._timestamp = timestamp
        self._catalog = catalog
        self._journal = journal
        self._measuring = None if measuring_of is None else measuring_of(journal)
        self._watch: DriftWatch[ProfileKey] = DriftWatch()
        self._asked: set[tuple[ProfileKey, str]] = set()
        self._profiles: dict[ProfileKey, Profile] = {}
        self._state: CatalogState = (-1, "")

    def look(
        self,
        now_s: float,
        catalog: CatalogSnapshot,
        workers: Iterable[WorkerStatus],
    ) -> tuple[ProfilingRequest, ...]:
        """The profiles that should be measured again and were not asked for yet."""
        if catalog.state != self._state:
            self._profiles = {(p.task, p.variant, p.device_kind): p for p in catalog.profiles}
            self._state = catalog.state
        seen = [
            (key, known.measured_at, _live(r, known))
            for worker in workers
            for r in worker.replicas
            if r.state is ReplicaState.READY
            and (key := (r.task, r.variant, DeviceKindName(worker.device_kind))) in self._profiles
            and (known := self._profiles[key]).source is not ProfileSource.EXACT
        ]
        drifted = [
            self._request(one.key, f"{drift_words(one.ratio)}, for {one.for_s:,.0f} s")
            for one in self._watch.look(now_s, seen)
        ]
        return (*drifted, *self._relied_on(seen))

    async def follow(
        self,
        now_s: float,
        known: CatalogSnapshot,
        observation: Observation,
        workers: Mapping[str, WorkerStatus],
    ) -> None:
        """Ask the catalog for what ``look`` finds, and have due profiles measured.

        Raises:
            StateUnavailable: the catalog is away.
        """
        requests = self.look(now_s, known, workers.values())
        if self._checks is not None:
            contradicted = self._checks.look(known, observation, workers.values())
            requests += tuple(self._request(key, words) for key, words in contradicted)
        if requests:
            with suppress(NotFound):  # the catalog lost a variant since it was read
                await asyncio.to_thread(self._catalog.request_profiling, requests)
        for one in requests:
            self._journal.tell("profile_doubted", f"{one.task}/{one.variant}", one.reason)
        if self._measuring is not None:
            self._measuring.look(known, observation, workers)

    @property
    def unmeasurable(self) -> Mapping[ProfileKey, str]:
        """What could not be measured where it was tried, and is not tried soon: why."""
        return {} if self._measuring is None else self._measuring.refusals

    async def close(self) -> None:
        """Give up what is being checked and measured."""
        if self._checks is not None:
            await self._checks.close()
        if self._measuring is not None:
            await self._measuring.close()

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
                within = f", within {100 * worst:.0f} %" if worst else ""
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
