"""Routes: where the plan wants the queries of an SLO class to go.

The plan splits each class over replicas so that the fleet serves most, at the best accuracy or the
least cost. A query tries the targets of its class in order, the preferred variant first, and takes
the first one whose queue is short enough. The queries that a target has no room for overflow to the
next, and so the split of the plan comes about. The last target is the quickest variant on each of
the same workers: when more arrives than was planned for, accuracy gives way before queries are
refused (as in SuperServe, NSDI'25, where slack decides which model runs). Workers keep to the tasks
that they were given, so that batches stay large.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from planner.forecasting.demand import SloClass
from planner.selection.eligibility import answers
from planner.types import Candidate, Query, Snapshot, WorkerView
from variants.types import Prefer, Route, TaskName, VariantName


class RouteTarget(NamedTuple):
    """Workers that the plan gives to a class, with the variant that each is to run."""

    candidates: tuple[Candidate, ...]
    """The replica on each worker, in the order of ``workers``."""
    workers: tuple[WorkerView, ...]
    bounds: tuple[float, ...]
    """Cumulative rates that the workers are given; the last is the sum."""
    quickest: bool
    """Whether its variants are the quickest there: then a query may wait until its deadline."""


RouteTargets = tuple[RouteTarget, ...]

MOST_KNOWN = 4_096
"""Most distinct SLOs whose targets are remembered; clients may ask for any number of them."""


class RouteTable:
    """The routes of a plan, resolved against what is ready."""

    __slots__ = ("_by_class", "_by_task", "_known", "_made_of", "prefer", "used")

    def __init__(
        self,
        by_class: Mapping[TaskName, Mapping[SloClass, RouteTargets]],
        prefer: Prefer = Prefer.COST,
        made_of: tuple[Sequence[Route], Snapshot] | None = None,
    ) -> None:
        """``made_of`` are the routes and the snapshot, for the next table to reuse."""
        self._made_of = made_of
        self.prefer = prefer
        """What the plan optimised; queries that prefer something else do not follow it."""
        self.used = bool(by_class)
        """Whether there is any route at all."""
        self._by_task = by_class
        self._known: dict[tuple[TaskName, float, float | None], RouteTargets] = {}
        self._by_class = {
            task: sorted(classes, key=lambda slo: (slo[0], slo[1] or -inf))
            for task, classes in by_class.items()
        }

    def targets(self, query: Query) -> RouteTargets:
        """The targets for a query: of its class, or of the least demanding class that is at least
        as demanding; none where the plan has no such class."""
        asked = (query.task, query.latency_ms, query.accuracy)
        found = self._known.get(asked)
        if found is None:
            if len(self._known) > MOST_KNOWN:
                self._known.clear()
            found = self._known[asked] = self._search(*asked)
        return found

    def kept(
        self, routes: Sequence[Route], snapshot: Snapshot, prefer: Prefer
    ) -> dict[TaskName, Mapping[SloClass, RouteTargets]]:
        """The targets of this table that are the same for other routes and another snapshot.

        These are the targets of tasks whose view is the same object: a view is replaced whenever
        the workers of its kinds come, go or hold something else.
        """
        if self._made_of is None or self.prefer is not prefer or self._made_of[0] is not routes:
            return {}
        views = self._made_of[1].tasks
        return {
            task: classes
            for task, classes in self._by_task.items()
            if task in views and views[task] is snapshot.tasks.get(task)
        }

    def _search(self, task: TaskName, latency_ms: float, accuracy: float | None) -> RouteTargets:
        best: SloClass | None = None
        floor = -inf if accuracy is None else accuracy
        for slo in self._by_class.get(task, ()):
            if slo[0] <= latency_ms and (floor == -inf or (slo[1] or -inf) >= floor):
                better = best is None or (slo[0], -(slo[1] or -inf)) > (best[0], -(best[1] or -inf))
                if better:
                    best = slo
        return () if best is None else self._by_task[task][best]


EMPTY = RouteTable({})


def resolve(
    routes: Sequence[Route], snapshot: Snapshot, prefer: Prefer, before: RouteTable = EMPTY
) -> RouteTable:
    """The targets of a plan's routes: the replicas that are ready, of those it names.

    Args:
        prefer: what the plan optimised: the most accurate target comes first, or the cheapest.
        before: an earlier table; what did not change since is taken from it, with the same result.
    """
    ready = _Ready(snapshot)
    planned: dict[TaskName, dict[SloClass, list[Route]]] = {}
    by_class: dict[TaskName, Mapping[SloClass, RouteTargets]] = dict(
        before.kept(routes, snapshot, prefer)
    )
    for route in routes:
        if route.pinned or route.task in by_class:
            continue
        slo = (route.latency_ms, route.accuracy)
        planned.setdefault(route.task, {}).setdefault(slo, []).append(route)
    for task, classes in planned.items():
        made = {slo: _targets(ready, task, slo, parts, prefer) for slo, parts in classes.items()}
        if any(made.values()):
            by_class[task] = {slo: targets for slo, targets in made.items() if targets}
    return RouteTable(by_class, prefer, (routes, snapshot))


WeightedReplica = tuple[Candidate, WorkerView, float]
"""A replica and the rate that the plan gives it, in rows per second."""


def _targets(
    ready: "_Ready", task: TaskName, slo: SloClass, parts: Iterable[Route], prefer: Prefer
) -> RouteTargets:
    """A target for each variant of the plan, and one for the quickest variants on the same workers.

    The targets are ordered by what the plan optimised; the quickest comes last.
    """
    _, floor = slo
    by_variant: dict[VariantName, list[WeightedReplica]] = {}
    spare: list[WeightedReplica] = []
    for route in parts:
        worker = ready.workers.get(route.worker)
        if worker is None or worker.draining:
            continue
        candidate = ready.replica(task, route.variant, worker)
        quickest = ready.quickest(task, floor, worker)
        if candidate is not None:
            by_variant.setdefault(route.variant, []).append((candidate, worker, route.qps))
        if quickest is not None:
            # As much time as the route takes, spent on the quickest variant.
            slow_ms = candidate.table.ms[1] if candidate is not None else quickest.table.ms[1]
            rate = route.qps * slow_ms / max(quickest.table.ms[1], 1e-6)
            spare.append((quickest, worker, rate))
    targets = [_target(replicas, False) for replicas in by_variant.values()]
    targets.sort(key=_by_accuracy if prefer is Prefer.ACCURACY else _by_price)
    last = _target(spare, True) if spare else None
    if last is not None:
        targets = [target for target in targets if target.candidates != last.candidates]
        targets.append(last)
    return tuple(targets)


def _target(replicas: Iterable[WeightedReplica], quickest: bool) -> RouteTarget:
    """A target over replicas, each once; ordered by worker."""
    rates: dict[str, tuple[Candidate, WorkerView, float]] = {}
    for candidate, worker, rate in replicas:
        known = rates.get(worker.id)
        rates[worker.id] = (candidate, worker, rate + (known[2] if known else 0.0))
    bounds: list[float] = []
    total = 0.0
    for name in sorted(rates):
        total += max(rates[name][2], 1e-9)
        bounds.append(total)
    ordered = [rates[name] for name in sorted(rates)]
    return RouteTarget(
        tuple(candidate for candidate, _, _ in ordered),
        tuple(worker for _, worker, _ in ordered),
        tuple(bounds),
        quickest,
    )


class _Ready:
    """The ready variants of each task on each worker, found when a task is first asked for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.workers = snapshot.workers
        self._held: dict[tuple[TaskName, str], list[Candidate]] = {}
        self._snapshot = snapshot
        self._tasks: set[TaskName] = set()

    def _of(self, task: TaskName, worker: WorkerView) -> list[Candidate]:
        """The ready variants of a task on a worker, the quickest first."""
        if task not in self._tasks:
            self._tasks.add(task)
            view = self._snapshot.tasks.get(task)
            answering = [c for c in view.by_cost if answers(c, None)] if view is not None else []
            for candidate in sorted(answering, key=_per_row_ms):
                for holder in candidate.ready:
                    self._held.setdefault((task, holder.id), []).append(candidate)
        return self._held.get((task, worker.id), [])

    def replica(self, task: TaskName, variant: VariantName, worker: WorkerView) -> Candidate | None:
        return next((c for c in self._of(task, worker) if c.variant == variant), None)

    def quickest(self, task: TaskName, floor: float | None, worker: WorkerView) -> Candidate | None:
        """The ready variant that takes least time per row, of those that meet a floor."""
        least = -inf if floor is None else floor
        return next((c for c in self._of(task, worker) if c.accuracy >= least), None)


def _per_row_ms(candidate: Candidate) -> tuple[float, VariantName]:
    return (candidate.table.row_ms, candidate.variant)


def _by_accuracy(target: RouteTarget) -> tuple[float, float, str]:
    first = target.candidates[0]
    return (-first.accuracy, first.price_usd_per_1k, first.variant)


def _by_price(target: RouteTarget) -> tuple[float, float, str]:
    cheapest = min(target.candidates, key=lambda c: c.price_usd_per_1k)
    return (cheapest.price_usd_per_1k, cheapest.table.ms[1], cheapest.variant)
