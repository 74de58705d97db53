"""Route targets: where the plan wants the queries of an SLO class to go.

The plan splits each class over replicas so that the fleet serves most, at the best accuracy or the
least cost. A query tries the targets of its class in order and takes the first one whose queue is
short enough. The queries that a target has no room for overflow to the next, and so the split of
the plan comes about. There are three sorts of targets:

* *planned*: the replicas that the plan names, one target for each variant;
* *spare*, where accuracy counts: a variant on workers to which the plan gives at most half of their
  time, whatever it gives them to do. Work is lumpy, and half-idle workers are the place for the
  lumps, before accuracy gives way;
* *ladder*: quicker variants on the workers of the class, the most accurate first. When more
  arrives than was planned for, accuracy gives way step by step before queries are refused (as in
  SuperServe, NSDI'25, where slack decides which model runs). The last step is the quickest variant
  on each.

Where accuracy counts, all targets are in the order of accuracy, and in this order where it is
equal. Workers keep to the tasks that they were given, so that batches stay large.

A target has room while its worker's backlog is short. How short goes by the worker, not by the
query: half of the tightest SLO that the plan gives it, or the longest batch planned there. A query
that joins the backlog of a loose class would else bar the tight ones; and less than one running and
one forming batch would keep planned batches from forming.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from planner.forecasting.demand import SloClass
from planner.selection.eligibility import answers
from planner.types import Candidate, Snapshot, TaskView, WorkerView
from variants.types import DeviceKindName, Prefer, Route, TaskName, VariantName, WorkerId

SPARE_LOAD = 0.5
"""Most of its time that a plan may give a worker on which others find room."""
ROOM = 0.9
"""Backlog that a worker may have, in halves of its tightest SLO or in its longest batches."""
RUNG = 0.85
"""Most time per row that a step of the ladder takes, of what the one above takes: a variant that is
hardly quicker costs more than it saves, because it takes a batch of its own."""


class RouteTarget(NamedTuple):
    """Workers that the plan gives to a class, with the variant that each is to run."""

    candidates: tuple[Candidate, ...]
    """The replica on each worker, in the order of ``workers``."""
    workers: tuple[WorkerView, ...]
    bounds: tuple[float, ...]
    """Cumulative rates that the workers are given; the last is the sum."""
    rooms_ms: tuple[float, ...]
    """How long a backlog each worker may have."""
    step: float
    """How far down the ladder, in [0, 1]: by this part of its room a query may wait longer than
    for what is planned."""


RouteTargets = tuple[RouteTarget, ...]

WeightedReplica = tuple[Candidate, WorkerView, float]
"""A replica and the rate that the plan gives it, in rows per second."""

Workers = tuple[WorkerView, ...]


class SpareWorkers:
    """The workers to which a plan gives at most ``SPARE_LOAD`` of their time; and of all workers
    with routes, how long a backlog each may have."""

    def __init__(self, routes: Iterable[Route], snapshot: Snapshot) -> None:
        """The loads follow from the routes alone, whatever is ready."""
        loads = dict.fromkeys(snapshot.workers, 0.0)
        half_ms: dict[WorkerId, float] = {}
        batch_ms = dict.fromkeys(snapshot.workers, 0.0)
        for route in routes:
            worker, view = snapshot.workers.get(route.worker), snapshot.tasks.get(route.task)
            if worker is None or view is None:
                continue
            for candidate in view.by_variant.get(route.variant, ()):
                if candidate.device_kind == worker.device_kind:
                    size = min(route.batch_size, candidate.table.max_batch)
                    took_ms = candidate.table.ms[size]
                    loads[worker.id] += route.qps * took_ms / (1_000 * size)
                    batch_ms[worker.id] = max(batch_ms[worker.id], took_ms)
                    break
            half_ms[worker.id] = min(
                half_ms.get(worker.id, inf), (route.latency_ms - snapshot.transport_ms) / 2
            )
        self.ids = frozenset(id_ for id_, load in loads.items() if load <= SPARE_LOAD)
        self.room_ms = {id_: ROOM * max(ms, batch_ms[id_]) for id_, ms in half_ms.items()}
        self._known: dict[int, tuple[Workers, Workers]] = {}

    def among(self, workers: Workers) -> Workers:
        """Those of the workers that are spare; the same tuple for the same workers."""
        # The key is kept with the value, so that no other tuple can take its id.
        known = self._known.get(id(workers))
        if known is None or known[0] is not workers:
            found = tuple([worker for worker in workers if worker.id in self.ids])
            known = self._known[id(workers)] = (workers, found)
        return known[1]


class ReadyVariants:
    """The ready variants of each task on each worker, found when a task is first asked for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.workers = snapshot.workers
        self._held: dict[tuple[TaskName, WorkerId], list[Candidate]] = {}
        self._views = snapshot.tasks
        self._tasks: set[TaskName] = set()

    def view(self, task: TaskName) -> TaskView | None:
        """The task, if it is known."""
        return self._views.get(task)

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
    spare: SpareWorkers,
    task: TaskName,
    slo: SloClass,
    parts: Iterable[Route],
    prefer: Prefer,
) -> RouteTargets:
    """The targets of a class in the order to try them; ``parts`` are its routes."""
    least = -inf if slo[1] is None else slo[1]
    planned: dict[VariantName, list[WeightedReplica]] = {}
    ladder: dict[VariantName, list[WeightedReplica]] = {}
    quickest: list[WeightedReplica] = []
    for route in parts:
        worker = ready.workers.get(route.worker)
        if worker is None or worker.draining:
            continue
        held = ready.on(task, worker)
        candidate = next((c for c in held if c.variant == route.variant), None)
        if candidate is not None:
            planned.setdefault(route.variant, []).append((candidate, worker, route.qps))
        able = [c for c in held if c.accuracy >= least]
        if not able:
            continue
        # As much time as the route takes, spent on another variant.
        time_ms = route.qps * (candidate or able[0]).table.ms[1]
        for c in _steps(able, candidate) if prefer is Prefer.ACCURACY else ():
            rate = time_ms / max(c.table.ms[1], 1e-6)
            ladder.setdefault(c.variant, []).append((c, worker, rate))
        quickest.append((able[0], worker, time_ms / max(able[0].table.ms[1], 1e-6)))
    rooms = spare.room_ms
    targets = [_target(replicas, rooms) for replicas in planned.values()]
    targets.sort(key=_ORDER.get(prefer, _by_price))
    if prefer is Prefer.ACCURACY:
        targets += _spare_targets(ready.view(task), spare, least, slo[0] / 2)
        steps = [_target(replicas, rooms) for replicas in ladder.values()]
        steps.sort(key=_by_accuracy)
        targets += [
            target._replace(step=(at + 1) / (len(steps) + 1)) for at, target in enumerate(steps)
        ]
        targets.sort(key=_accuracy)  # stable: planned before spare before ladder
    if quickest:
        last = _target(quickest, rooms)._replace(step=1.0)
        targets = [target for target in targets if target.candidates != last.candidates]
        targets.append(last)
    return tuple(targets)


def _steps(able: Sequence[Candidate], planned: Candidate | None) -> list[Candidate]:
    """The variants between the planned and the quickest one, each ``RUNG`` times as quick.

    ``able`` are the ready variants, the quickest first.
    """
    most = inf if planned is None else planned.accuracy
    most_ms = inf if planned is None else planned.table.row_ms * RUNG
    found: list[Candidate] = []
    for candidate in reversed(able[1:]):
        if able[0].accuracy < candidate.accuracy < most and candidate.table.row_ms <= most_ms:
            found.append(candidate)
            most = candidate.accuracy
            most_ms = candidate.table.row_ms * RUNG
    return found


def _spare_targets(
    view: TaskView | None, spare: SpareWorkers, least: float, room_ms: float
) -> list[RouteTarget]:
    """A target for each ready variant with a floor that spare workers hold, unless a more accurate
    one is as quick on the same kind."""
    found: list[RouteTarget] = []
    quickest_ms: dict[DeviceKindName, float] = {}
    for candidate in view.by_accuracy if view is not None else ():
        if candidate.accuracy < least or not candidate.ready or not answers(candidate, None):
            continue
        row_ms = candidate.table.ms[1]
        if row_ms >= quickest_ms.get(candidate.device_kind, inf):
            continue
        workers = spare.among(candidate.ready)
        if workers:
            quickest_ms[candidate.device_kind] = row_ms
            count = len(workers)
            bounds = tuple(map(float, range(1, count + 1)))
            rooms = tuple([min(room_ms, spare.room_ms.get(w.id, inf)) for w in workers])
            found.append(RouteTarget((candidate,) * count, workers, bounds, rooms, 0.0))
    return found


def _target(replicas: Iterable[WeightedReplica], room_ms: Mapping[WorkerId, float]) -> RouteTarget:
    """A target over replicas, each once; ordered by worker."""
    rates: dict[WorkerId, WeightedReplica] = {}
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
        tuple(room_ms[worker.id] for _, worker, _ in ordered),
        0.0,
    )


def _per_row_ms(candidate: Candidate) -> tuple[float, VariantName]:
    return (candidate.table.row_ms, candidate.variant)


def _accuracy(target: RouteTarget) -> float:
    return -target.candidates[0].accuracy


def _by_accuracy(target: RouteTarget) -> tuple[float, float, str]:
    first = target.candidates[0]
    return (-first.accuracy, first.price_usd_per_1k, first.variant)


def _by_footprint(target: RouteTarget) -> tuple[float, float, float, str]:
    return (min(c.footprint for c in target.candidates), *_by_price(target))


def _by_price(target: RouteTarget) -> tuple[float, float, str]:
    cheapest = min(target.candidates, key=lambda c: c.price_usd_per_1k)
    return (cheapest.price_usd_per_1k, cheapest.table.ms[1], cheapest.variant)


_ORDER: Mapping[Prefer, Callable[[RouteTarget], tuple[float | str, ...]]] = {
    Prefer.ACCURACY: _by_accuracy,
    Prefer.ENERGY: _by_footprint,
}
"""Of the planned targets, by what the plan optimised."""
