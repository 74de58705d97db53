"""What the published policies look up: what may answer, at which batch, and where it is held."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping

from planner.latency_table import LatencyTable
from planner.selection.eligibility import Obstacle, answers, profile_obstacle
from planner.simulation.fleet import Fleet, Replica, Worker
from planner.solver.problem import AvailableKind
from planner.types import Candidate, Choice, Query, Reason, Refusal, RefusalCode
from variants.types import DeviceKindName, ReplicaState, TaskName, VariantKey

UNKNOWN = Refusal(code=RefusalCode.TASK_NOT_FOUND, message="there is no such task")
INFEASIBLE = Refusal(code=RefusalCode.SLO_INFEASIBLE, message="no variant in use meets the SLO")
NOWHERE = Refusal(code=RefusalCode.OVERLOADED, message="no device holds a variant for it")
TOO_LATE = Refusal(code=RefusalCode.COLD, message="loading takes longer than the deadline allows")


def answering(
    fleet: Fleet, kinds: Iterable[AvailableKind]
) -> dict[TaskName, tuple[Candidate, ...]]:
    """The candidates of each task that some device of the setting could hold.

    Ordered by accuracy, the least first, then by name and device kind.
    """
    found: dict[TaskName, list[Candidate]] = {}
    for kind in kinds:
        if not kind.count:
            continue
        for candidate in fleet.offers.get(kind.name, {}).values():
            if answers(candidate, None) and candidate.memory_mib <= kind.memory_mib:
                found.setdefault(candidate.task, []).append(candidate)
    return {
        task: tuple(sorted(offers, key=lambda c: (c.accuracy, c.variant, c.device_kind)))
        for task, offers in found.items()
    }


def half_slo_batch(table: LatencyTable, latency_ms: float) -> int:
    """The largest batch that takes at most half of an SLO: a query waits for one and runs in the
    next. 0 when not even one row does."""
    return max(0, bisect_right(table.ms, latency_ms / 2) - 1)


def usable_batch(table: LatencyTable, latency_ms: float) -> int:
    """The batch to plan with: within half of the SLO; else one row, if it alone meets the SLO; 0
    when nothing does."""
    return half_slo_batch(table, latency_ms) or int(table.ms[1] <= latency_ms)


def permits(query: Query, candidate: Candidate) -> bool:
    """Whether a candidate meets a query's floor and ceiling."""
    found = profile_obstacle(candidate, query)
    return found is None or found > Obstacle.COST


def chosen(replica: Replica, query: Query, now_ms: float) -> Choice:
    """The choice of a replica, predicted by the backlog of its device."""
    candidate, view = replica.candidate, replica.worker.view
    wait_ms = max(0.0, view.busy_until_ms - now_ms)
    return Choice(
        candidate,
        view,
        wait_ms + candidate.table.ms[1],
        replica.state is not ReplicaState.READY,
        Reason.MOST_ACCURATE_THAT_FITS,
        True,
    )


def cold(candidate: Candidate, worker: Worker) -> Choice:
    """The choice of a variant that has to be loaded first."""
    predicted_ms = candidate.load_ms + candidate.table.ms[1]
    return Choice(candidate, worker.view, predicted_ms, True, Reason.LOADED_ON_DEMAND, True)


def least_backlog(replicas: Iterable[Replica], query: Query) -> Replica | None:
    """The replica whose device is done first with what it has; ties go to the first."""
    best: Replica | None = None
    best_ms = 0.0
    for replica in replicas:
        view = replica.worker.view
        if view.id != query.avoid:
            # A device that is idle has been done since some time in the past.
            ms = max(view.busy_until_ms, query.received_ms)
            if best is None or ms < best_ms:
                best, best_ms = replica, ms
    return best


def is_in_time(replica: Replica, query: Query, now_ms: float) -> bool:
    """Whether a query would be done before its deadline there, behind what waits."""
    ready_ms = max(replica.worker.view.busy_until_ms, now_ms)
    return ready_ms + replica.candidate.table.ms[1] <= query.received_ms + query.latency_ms


def roomiest(
    fleet: Fleet, candidates: Mapping[DeviceKindName, Candidate]
) -> tuple[Candidate, Worker] | None:
    """Where to load one of the candidates, each for its device kind: the most free memory."""
    best: Worker | None = None
    for worker in fleet.workers.values():
        if worker.kind.name in candidates and (best is None or worker.free_mib > best.free_mib):
            best = worker
    return None if best is None else (candidates[best.kind.name], best)


class Held:
    """Which replicas there are of each variant; counted anew only when something changed."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._ready: dict[VariantKey, list[Replica]] = {}
        self._loading: dict[VariantKey, list[Replica]] = {}
        self.stale = True

    def ready(self, key: VariantKey) -> list[Replica]:
        if self.stale:
            self._count()
        return self._ready.get(key, [])

    def loading(self, key: VariantKey) -> list[Replica]:
        if self.stale:
            self._count()
        return self._loading.get(key, [])

    def _count(self) -> None:
        self.stale = False
        self._ready, self._loading = {}, {}
        for worker in self._fleet.workers.values():
            if worker.draining:
                continue
            for key, replica in worker.replicas.items():
                if replica.state is ReplicaState.READY:
                    self._ready.setdefault(key, []).append(replica)
                elif replica.state is ReplicaState.LOADING:
                    self._loading.setdefault(key, []).append(replica)
