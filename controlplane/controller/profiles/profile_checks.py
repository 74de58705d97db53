"""Profile checks: has workers run a few batches of what queries do not reach.

Which variants that are, and when, is decided by ``planner.doubtful_profiles``; what a check costs
is bounded where it runs (``workers.execution.lone_batches``). What comes of it reaches gateways and
plans as all that workers say of their batches. Where it is far from the profile, the profile is to
be measured again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from controlplane.backoff import Backoff
from controlplane.controller.events.journal import Journal
from controlplane.controller.met_workers.worker_pool import WorkerPool
from planner.doubtful_profiles import (
    NONE,
    DoubtfulProfiles,
    Held,
    Stake,
    stakes,
)
from planner.profile_drift import DRIFTED, LEAST_GAP_MS
from planner.selection.snapshot import build_snapshot
from planner.types import Demand, Observation, ProfileKey, ReplicaKey, Snapshot
from variants.errors import DeadlineExceeded, ModellessError, RuntimeFailed
from variants.figures import figure, ms
from variants.types import (
    CatalogSnapshot,
    CatalogState,
    DeviceKindName,
    Profile,
    ProfileSource,
    ReplicaState,
    WorkerId,
)
from workers.types import FEW, Checked, ReplicaStatus, WorkerStatus

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""Between two looks at what is at stake, at least."""
LOOK_SPARED = 20.0
"""Part of the control loop's time that looks may take, as its inverse: with a hundred thousand
replicas one takes a fifth of a second."""
TIMEOUT_S = 60.0
"""How long a check is waited for. One that takes longer goes on, and is not repeated soon."""
FAILS_S, FAILS_MOST_S = 300.0, 86_400.0
"""How long what fails on made-up numbers is not run on them again, at first and at most."""
ABSENT_S = 300.0
"""How long failures are kept of what is not ready, or of a worker that is away."""
BESIDE_LOAD = "was measured beside other work, queries are refused by it, and no worker holds it"
"""Of a variant that cannot be checked where it is."""
AGREES = 1.25
"""What takes at least the believed time over this is as it was believed."""


class ProfileChecks:
    """Orders checks, one at a time on each worker."""

    def __init__(self, pool: WorkerPool, journal: Journal, clock_s: Callable[[], float]) -> None:
        self._pool = pool
        self._journal = journal
        self._clock_s = clock_s
        self._doubtful = DoubtfulProfiles()
        self._failures: Backoff[ReplicaKey] = Backoff()
        """Where a check could not be made."""
        self._failing: Backoff[ReplicaKey] = Backoff(FAILS_S, FAILS_MOST_S)
        """Where the variant failed in one."""
        self._there_s: dict[ReplicaKey, float] = {}
        """When what has failed was ready last."""
        self._busy: dict[WorkerId, asyncio.Task[None]] = {}
        self._snapshots: dict[bool, Snapshot] = {}
        """Made last, of profiles as measured (True) and as live latency has them."""
        self._look_at_s = float("-inf")
        self._measured: tuple[CatalogState, Mapping[ProfileKey, Profile]] = ((-1, ""), {})
        self._contradicted: list[tuple[ProfileKey, str]] = []
        self._told: set[tuple[ProfileKey, str]] = set()
        """Profiles that were contradicted."""
        self._confirmed: set[tuple[ProfileKey, str]] = set()
        """Profiles of which it was told that a check confirmed them."""

    def look(
        self,
        known: CatalogSnapshot,
        observation: Observation,
        workers: Iterable[WorkerStatus],
    ) -> list[tuple[ProfileKey, str]]:
        """Begin the checks that are due.

        Args:
            known: the catalog with the latencies that were measured.
            observation: has the catalog that is planned by, and the demand.
            workers: what they say of themselves.

        Returns:
            Profiles that checks have contradicted since the last call, and what was seen.
        """
        now_s = self._clock_s()
        if now_s >= self._look_at_s:
            self._look(now_s, known, observation, workers)
            took_s = self._clock_s() - now_s
            self._look_at_s = now_s + max(LOOK_EVERY_S, LOOK_SPARED * took_s)
        found, self._contradicted = self._contradicted, []
        return found

    async def close(self) -> None:
        """Wait for no check any more; those that run end by themselves."""
        under_way = tuple(self._busy.values())
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def _look(
        self,
        now_s: float,
        known: CatalogSnapshot,
        observation: Observation,
        workers: Iterable[WorkerStatus],
    ) -> None:
        if known.state != self._measured[0]:
            by_key = {(p.task, p.variant, p.device_kind): p for p in known.profiles}
            self._measured = (known.state, by_key)
        measured = self._measured[1]
        held = [one for worker in workers for one in _held(worker, measured)]
        self._doubtful.look(now_s, held)
        self._forget(now_s, {one.replica for one in held})
        ready = {one.profile for one in held}
        absent = [key for key, one in measured.items() if one.beside_load and key not in ready]
        tasks = {one.replica[1] for one in self._doubtful.doubted(now_s)}
        tasks |= {task for task, _, _ in absent}
        if not tasks:
            return
        asked = [one for one in observation.demand if one.task in tasks]
        as_measured = self._stakes(known, observation, asked, measured=True)
        believed = as_measured
        if observation.catalog is not known:
            believed = self._stakes(observation.catalog, observation, asked, measured=False)
        for key in absent:
            what = (key, measured[key].measured_at)
            if believed.get(key, NONE).refused_qps > 0.0 and what not in self._told:
                self._told.add(what)
                self._contradicted.append((key, BESIDE_LOAD))
        for each, stake in self._doubtful.due(now_s, believed, as_measured):
            worker = each.replica[0]
            if worker not in self._busy and not self._waits(each.replica, now_s):
                about = _Subject(
                    held=each,
                    profiled_ms=measured[each.profile].points[0].p50_ms,
                    stake=stake,
                )
                begun = self._busy[worker] = asyncio.create_task(self._check(about))
                begun.add_done_callback(partial(self._over, worker))

    def _stakes(
        self,
        catalog: CatalogSnapshot,
        observation: Observation,
        asked: Iterable[Demand],
        *,
        measured: bool,
    ) -> dict[ProfileKey, Stake]:
        """What depends on each profile; quick where the catalog is the same as before."""
        made = self._snapshots[measured] = build_snapshot(
            catalog, (), before=self._snapshots.get(measured), transport_ms=observation.transport_ms
        )
        return stakes(made, asked)

    def _forget(self, now_s: float, there: set[ReplicaKey]) -> None:
        """Forget failures of what has been away for long."""
        for replica in there & self._there_s.keys():
            self._there_s[replica] = now_s
        gone = {each for each, at_s in self._there_s.items() if now_s - at_s >= ABSENT_S}
        for replica in gone:
            del self._there_s[replica]
        self._failures.forget(gone.__contains__)
        self._failing.forget(gone.__contains__)

    def _waits(self, replica: ReplicaKey, now_s: float) -> bool:
        """Whether a check failed lately."""
        failed = self._failures.waits(replica, now_s) or self._failing.waits(replica, now_s)
        return failed is not None

    def _over(self, worker: WorkerId, _: asyncio.Task[None]) -> None:
        self._busy.pop(worker, None)

    async def _check(self, about: "_Subject") -> None:
        held = about.held
        worker, task, variant = held.replica
        name, began_s = f"{task}/{variant}", self._clock_s()
        try:
            async with self._pool.at(worker) as connection:
                began_s = self._clock_s()
                checked = await connection.check(task, variant, TIMEOUT_S)
        except Exception as error:
            if isinstance(error, ModellessError):
                log.info("%s on %s could not be checked: %s", name, worker, error)
            else:
                self._journal.unexpected("check of a profile", error)
            self._failed(about, error, self._clock_s() - began_s)
            return
        self._journal.over("check of a profile")
        self._failures.succeeded(held.replica)
        self._failing.succeeded(held.replica)
        self._there_s.pop(held.replica, None)
        self._take(about, checked)

    def _failed(self, about: "_Subject", error: Exception, took_s: float) -> None:
        replica, now_s = about.held.replica, self._clock_s()
        if isinstance(error, DeadlineExceeded):
            self._doubtful.checked(replica, now_s, total=0, took_s=TIMEOUT_S, agrees=True)
            return
        self._there_s[replica] = now_s
        fails = isinstance(error, RuntimeFailed)
        failures = self._failing if fails else self._failures
        if failures.failed(replica, str(error), now_s, took_s) and fails:
            worker, task, variant = replica
            self._journal.tell("profile_check_failed", f"{task}/{variant}", f"on {worker}: {error}")

    def _take(self, about: "_Subject", checked: Checked) -> None:
        """Judge what a check found."""
        held, took_ms, profiled_ms = about.held, checked.took_ms, about.profiled_ms
        tells = checked.batches >= FEW
        self._doubtful.checked(
            held.replica, self._clock_s(), total=checked.total,
            took_s=checked.spent_ms / 1_000,
            agrees=took_ms * AGREES >= held.lone_ms if tells else None,
        )  # fmt: skip
        if not tells or (what := (held.profile, held.mark)) in self._told:
            return
        worker, task, variant = held.replica
        words = (
            f"{checked.batches} lone batches on {worker} took {ms(took_ms)} each, "
            f"its profile says {ms(profiled_ms)}"
        )
        if took_ms * DRIFTED < profiled_ms and profiled_ms - took_ms >= LEAST_GAP_MS:
            self._told.add(what)
            self._contradicted.append((held.profile, words))
        elif about.stake.refused_qps > 0.0 and what not in self._confirmed:
            self._confirmed.add(what)
            refused = f"{figure(about.stake.refused_qps)} rows/s are refused by it"
            self._journal.tell("profile_confirmed", f"{task}/{variant}", f"{words}; {refused}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """What is checked, and for what."""

    held: Held
    profiled_ms: float
    stake: Stake


def _held(worker: WorkerStatus, measured: Mapping[ProfileKey, Profile]) -> Iterable[Held]:
    """What is ready on a worker, and has a profile that was not given as exact."""
    kind = DeviceKindName(worker.device_kind)
    for replica in worker.replicas if not worker.draining else ():
        profile = measured.get((replica.task, replica.variant, kind))
        if replica.state is not ReplicaState.READY or profile is None:
            continue
        if profile.source is not ProfileSource.EXACT:
            yield Held(
                (WorkerId(worker.worker), replica.task, replica.variant), kind,
                profile.measured_at, replica.batches, worker.busy_ratio, profile.beside_load,
                _lone_ms(replica, profile), replica.load_no,
            )  # fmt: skip


def _lone_ms(replica: ReplicaStatus, profile: Profile) -> float:
    """What a lone row takes there, by what ran or else by the profile's median."""
    rows, mean_ms, _ = replica.latency[0] if replica.latency else (0, 0.0, 0.0)
    return mean_ms if rows == 1 else profile.points[0].p50_ms
