"""Route targets: where the plan wants the queries of an SLO class to go, where it saves cost.

The plan splits each class over replicas so that all is served at the least cost. A query tries the
targets of its class in order and takes the first one whose queue is short enough. The queries that
a target has no room for overflow to the next, and so the split of the plan comes about. There are
two sorts of targets: the replicas that the plan names, one target for each variant, the cheapest
first; and the quickest variant on each of the class's workers. Workers keep to the tasks that they
were given, so that batches stay large. (Plans for accuracy are followed by prices, see
``planner.selection.prices``.)

A target has room while its worker's backlog is short. How short goes by the worker, not by the
query: half of the tightest SLO that the plan gives it, or the longest batch planned there. A query
that joins the backlog of a loose class would else bar the tight ones; and less than one running and
one forming batch would keep planned batches from forming.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, groupby
from math import inf
from typing import NamedTuple

from planner.forecasting.demand import SloClass
from planner.selection.eligibility import answers
from planner.selection.load_balancing import COMPARED
from planner.types import Candidate, Choice, Query, Reason, Snapshot, WorkerView
from variants.slots import tuple_of
from variants.types import DeviceKindName, Prefer, Route, TaskName, VariantName, WorkerId

ROOM = {Prefer.COST: 0.9, Prefer.ENERGY: 0.9, Prefer.ACCURACY: 0.63}
"""Backlog that a worker may have, in halves of its tightest SLO or in its longest batches, by what
the plan optimised. Under ``accuracy`` the SLO is the tightest that was asked for, else that of the
class, which is rounded down."""

DISPLACED = 3.0
"""Rows in whose time a row that was not planned on a worker runs there, from which on it keeps off
unless the worker is idle (docs/decisions/0007-planning.md has the sweep)."""
SOME = 0.05
"""Part of a class's rate that makes a kind one that the plan has it on."""


class RouteTarget(NamedTuple):
    """Workers that the plan gives to a class, with the variant that each is to run."""

    candidates: tuple[Candidate, ...]
    """The replica on each worker, in the order of ``workers``."""
    workers: tuple[WorkerView, ...]
    """By device kind."""
    bounds: tuple[float, ...]
    """Cumulative rates that the workers are given; the last is the sum."""
    rooms_ms: tuple[float, ...]
    """How long a backlog each worker may have."""
    alike: tuple["Alike", ...]
    """The workers of each worker's kind."""
    last: bool
    """Whether these are the quickest variants, for which queries wait as long as they can."""


class Alike(NamedTuple):
    """The workers of one device kind among those of a target."""

    first: int
    """Index."""
    size: int
    """How many there are."""
    below: float
    """Rates of those before them."""
    rate: float
    """That they are given together."""


RouteTargets = tuple[RouteTarget, ...]

WeightedReplica = tuple[Candidate, WorkerView, float]
"""A replica and the rate that the plan gives it, in rows per second."""


def rooms_ms(
    routes: Iterable[Route], snapshot: Snapshot, prefer: Prefer = Prefer.COST
) -> dict[WorkerId, float]:
    """How long a backlog each worker with routes may have; it follows from the routes alone,
    whatever is ready. A worker of whose routes nothing could be answered in time is missing.

    ``prefer`` is what the plan optimised.
    """
    half_ms: dict[WorkerId, float] = {}
    batch_ms = dict.fromkeys(snapshot.workers, 0.0)
    for route, worker, candidate in _known(routes, snapshot):
        if candidate is not None:
            size = min(route.batch_size, candidate.table.max_batch)
            batch_ms[worker.id] = max(batch_ms[worker.id], candidate.table.ms[size])
        half_ms[worker.id] = min(
            half_ms.get(worker.id, inf), (route.tightest_ms - snapshot.transport_ms) / 2
        )
    longest_ms = {id_: max(ms, batch_ms[id_]) for id_, ms in half_ms.items()}
    return {id_: ROOM[prefer] * ms for id_, ms in longest_ms.items() if ms > 0.0}


def _known(
    routes: Iterable[Route], snapshot: Snapshot
) -> Iterator[tuple[Route, WorkerView, Candidate | None]]:
    """The routes of workers and tasks that are there, with what they would run, if there is one."""
    for route in routes:
        worker, view = snapshot.workers.get(route.worker), snapshot.tasks.get(route.task)
        if worker is not None and view is not None:
            yield route, worker, view.of(route.variant, worker.device_kind)


def batching(routes: Iterable[Route], snapshot: Snapshot) -> frozenset[WorkerId]:
    """The workers that are planned to answer more than ``DISPLACED`` rows in the time that one row
    takes there by itself.

    A row that nobody planned there runs by itself, and on a full worker as many others go without.
    """
    time_ms: dict[WorkerId, float] = {}
    alone_ms: dict[WorkerId, float] = {}
    for route, worker, candidate in _known(routes, snapshot):
        if candidate is not None:
            ms = candidate.table.ms
            size = min(route.batch_size, candidate.table.max_batch)
            time_ms[worker.id] = time_ms.get(worker.id, 0.0) + route.qps * ms[size] / size
            alone_ms[worker.id] = alone_ms.get(worker.id, 0.0) + route.qps * ms[1]
    return frozenset([id_ for id_, ms in time_ms.items() if alone_ms[id_] > DISPLACED * ms])


def planned_kinds(
    routes: Iterable[Route], snapshot: Snapshot
) -> dict[tuple[TaskName, SloClass], frozenset[DeviceKindName]]:
    """The device kinds that have at least ``SOME`` of the rate that the plan gives to a class."""
    qps: dict[tuple[TaskName, SloClass], dict[DeviceKindName, float]] = {}
    for route in routes:
        worker = snapshot.workers.get(route.worker)
        if worker is not None and not route.pinned:
            of_class = qps.setdefault((route.task, (route.latency_ms, route.accuracy)), {})
            of_class[worker.device_kind] = of_class.get(worker.device_kind, 0.0) + route.qps
    return {
        slo: frozenset([k for k, part in kinds.items() if part >= SOME * sum(kinds.values())])
        for slo, kinds in qps.items()
    }


class ReadyVariants:
    """The ready variants of each task on each worker, found when a task is first asked for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.workers = snapshot.workers
        self._held: dict[tuple[TaskName, WorkerId], list[Candidate]] = {}
        self._views = snapshot.tasks
        self._tasks: set[TaskName] = set()

    def on(self, task: TaskName, worker: WorkerView) -> list[Candidate]:
        """The ready variants of a task on a worker, the one that takes least per row first."""
        if task not in self._tasks:
            self._tasks.add(task)
            view = self._views.get(task)
            answering = [c for c in view.by_cost if answers(c, None)] if view is not None else []
            for candidate in sorted(answering, key=_per_row_ms):
                for holder in candidate.ready:
                    self._held.setdefault((task, holder.id), []).append(candidate)
        return self._held.get((task, worker.id), [])


def route_targets(
    ready: ReadyVariants,
    rooms: Mapping[WorkerId, float],
    task: TaskName,
    slo: SloClass,
    parts: Iterable[Route],
    prefer: Prefer = Prefer.COST,
) -> RouteTargets:
    """The targets of a class in the order to try them; ``parts`` are its routes.

    The cheapest come first or, where ``prefer`` is energy, those of the least footprint.
    """
    least = -inf if slo[1] is None else slo[1]
    planned: dict[VariantName, list[WeightedReplica]] = {}
    quickest: list[WeightedReplica] = []
    for route in parts:
        worker = ready.workers.get(route.worker)
        if worker is None or worker.draining:
            continue
        held = ready.on(task, worker)
        candidate = next((c for c in held if c.variant == route.variant), None)
        if candidate is not None:
            planned.setdefault(route.variant, []).append((candidate, worker, route.qps))
        able = next((c for c in held if c.accuracy >= least), None)
        if able is not None:
            # As much time as the route takes, spent on another variant.
            time_ms = route.qps * (candidate or able).table.ms[1]
            quickest.append((able, worker, time_ms / max(able.table.ms[1], 1e-6)))
    targets = [_target(replicas, rooms) for replicas in planned.values()]
    targets.sort(key=_by_footprint if prefer is Prefer.ENERGY else _by_price)
    if quickest:
        last = _target(quickest, rooms)._replace(last=True)
        targets = [target for target in targets if target.candidates != last.candidates]
        targets.append(last)
    return tuple(targets)


def _target(replicas: Iterable[WeightedReplica], room_ms: Mapping[WorkerId, float]) -> RouteTarget:
    """A target over replicas, each once; ordered by kind and worker."""
    rates: dict[WorkerId, WeightedReplica] = {}
    for candidate, worker, rate in replicas:
        known = rates.get(worker.id)
        rates[worker.id] = (candidate, worker, rate + (known[2] if known else 0.0))
    ordered = sorted(rates.values(), key=lambda one: (one[0].device_kind, one[1].id))
    bounds = list(accumulate(max(rate, 1e-9) for _, _, rate in ordered))
    alike: list[Alike] = []
    for _, group in groupby(ordered, key=lambda one: one[0].device_kind):
        count, start = len(list(group)), len(alike)
        below = bounds[start - 1] if start else 0.0
        alike += [Alike(start, count, below, bounds[start + count - 1] - below)] * count
    return RouteTarget(
        tuple(candidate for candidate, _, _ in ordered),
        tuple(worker for _, worker, _ in ordered),
        tuple(bounds),
        tuple(room_ms.get(worker.id, 0.0) for _, worker, _ in ordered),
        tuple(alike),
        False,
    )


def before_others(
    targets: RouteTargets,
    query: Query,
    now_ms: float,
    transport_ms: float,
    is_full: Callable[[WorkerId, Query, float], bool],
) -> Choice | None:
    """The worker of a class that is done first with all that it has, for a query that has no time
    to wait for all of that anywhere, and may come before what can wait longer.

    Only the worker knows whether it may. Of each target, ``COMPARED`` are looked at.

    Args:
        is_full: whether a worker had no time for such a query a moment ago, which is not asked.
    """
    _, rows, received_ms, budget_ms, floor, ceiling, *_ = query
    left_ms = received_ms + budget_ms - now_ms - transport_ms
    best: Choice | None = None
    least_ms = inf
    for target in targets:
        candidates, workers = target.candidates, target.workers
        count = len(workers)
        first = query.draw % count if count > COMPARED else 0
        for at in range(first, first + min(count, COMPARED)):
            candidate, worker = candidates[at % count], workers[at % count]
            table = candidate.table
            if worker.draining or worker.id == query.avoid or rows > table.max_batch:
                continue
            if ceiling is not None and candidate.price_usd_per_1k > ceiling:
                continue
            if floor is not None and candidate.accuracy < floor:
                continue
            run_ms = table.ms[rows]
            takes_ms = max(0.0, worker.busy_until_ms - now_ms) + run_ms
            if run_ms > left_ms or takes_ms >= least_ms or is_full(worker.id, query, now_ms):
                continue
            least_ms = takes_ms
            made = (candidate, worker, left_ms + transport_ms, False, Reason.PLANNED, True)
            best = tuple_of(Choice, made)
    return best


def _per_row_ms(candidate: Candidate) -> tuple[float, VariantName]:
    return (candidate.table.row_ms, candidate.variant)


def _by_footprint(target: RouteTarget) -> tuple[float, float, float, str]:
    return (min(c.footprint for c in target.candidates), *_by_price(target))


def _by_price(target: RouteTarget) -> tuple[float, float, str]:
    cheapest = min(target.candidates, key=lambda c: c.price_usd_per_1k)
    return (cheapest.price_usd_per_1k, cheapest.table.ms[1], cheapest.variant)
